package tenure.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Reads requests line by line on stdin, and answers each with a line of JSON on stdout as soon as it is done. A request that
 * waits for a lock does not delay others. Ends at the end of its input, without releasing any lock.
 *
 * <pre>
 * 1 open fleet redis://127.0.0.1:6379 30000      {"id":1,"value":"the client's UUID"}
 * 2 lock fleet anna plain k 0                    {"id":2,"value":null}
 * 3 unlock fleet berta plain k                   {"id":3,"error":"IllegalMonitorStateException","message":"..."}
 * </pre>
 *
 * Every request except open and close names a client, an owner (a thread), a kind of lock and a key.
 */
final class Worker {
    private final Map<String, Fleet> fleets = new ConcurrentHashMap<>();

    public static void main(String[] args) throws IOException {
        Worker worker = new Worker();
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
        String client = words[2];
        switch (verb) {
            case "open" -> {
                var fleet = new Fleet(words[3], Long.parseLong(words[4]));
                fleets.put(client, fleet);
                answer.done(fleet.id());
            }
            case "close" -> {
                fleets.remove(client).close();
                answer.done(null);
            }
            default -> {
                var rest = new String[words.length - 6];
                System.arraycopy(words, 6, rest, 0, rest.length);
                fleets.get(client).serve(verb, words[3], words[4], words[5], rest, answer);
            }
        }
    }
}
