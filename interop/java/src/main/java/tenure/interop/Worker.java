package tenure.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Answers the requests of interop/src/peer.rs, which describes them. A request that waits for a lock does not delay
 * those of other owners. Ends at the end of its input, without releasing any lock. The argument names the lock client.
 */
public final class Worker {
    /** Connects a client to a store. */
    public interface Connect {
        Peer connect(String url, long leaseMs);
    }

    private final Map<String, Peer> peers = new ConcurrentHashMap<>();
    private final Connect client;

    private Worker(Connect client) {
        this.client = client;
    }

    public static void main(String[] args) throws IOException, ReflectiveOperationException {
        Class<?> client = Class.forName("tenure.interop." + args[0] + ".Client");
        Worker worker = new Worker((Connect) client.getConstructor().newInstance());
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            var answer = new Answer(Long.parseLong(words[0]));
            try {
                worker.serve(words, answer);
            } catch (Throwable error) {
                answer.failed(error);
            }
        }
        // Ends the process although threads still wait for locks.
        Runtime.getRuntime().halt(0);
    }

    private void serve(String[] words, Answer answer) {
        String verb = words[1];
        String name = words[2];
        switch (verb) {
            case "open" -> {
                Peer peer = client.connect(words[3], Long.parseLong(words[4]));
                peers.put(name, peer);
                answer.done(peer.id());
            }
            case "close" -> {
                peers.remove(name).close();
                answer.done(null);
            }
            default -> {
                var rest = new String[words.length - 6];
                System.arraycopy(words, 6, rest, 0, rest.length);
                peers.get(name).serve(verb, words[3], words[4], words[5], rest, answer);
            }
        }
    }
}
