package tenure.interop.curator;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import tenure.interop.Answer;
import tenure.interop.Count;
import tenure.interop.Owners;
import tenure.interop.Peer;

/**
 * A session of Curator, which lasts as long as a lease. Kinds of locks: mutex, semaphore-mutex, read, write, multi (keys with
 * commas), latch (a participant of a LeaderLatch) and permits:SIZE. The number that the owners increment is in a file.
 */
final class CuratorPeer implements Peer {
    private final CuratorFramework curator;
    private final String folder;
    private final Owners owners = new Owners();
    private final Map<String, InterProcessLock> locks = new ConcurrentHashMap<>();
    private final Map<String, InterProcessReadWriteLock> readWriteLocks = new ConcurrentHashMap<>();

    CuratorPeer(String url, long leaseMs) {
        folder = URI.create(url).getPath() + "/";
        curator = Client.session(url, (int) leaseMs);
    }

    @Override
    public String id() {
        return "curator";
    }

    @Override
    public void close() {
        owners.close();
        curator.close();
    }

    @Override
    public void serve(String verb, String owner, String kind, String key, String[] rest, Answer answer) {
        // An owner is a thread. What belongs to no thread belongs to one owner here.
        InterProcessLock lock = locks.computeIfAbsent(String.join(" ", owner, kind, key), name -> lock(owner, kind, key));
        owners.run(owner, answer, () -> call(verb, lock, rest));
    }

    private InterProcessLock lock(String owner, String kind, String key) {
        String path = folder + key;
        if (kind.startsWith("permits:")) {
            return new Permits(curator, path, Integer.parseInt(kind.substring("permits:".length())));
        }
        return switch (kind) {
            case "mutex" -> new InterProcessMutex(curator, path);
            case "semaphore-mutex" -> new InterProcessSemaphoreMutex(curator, path);
            case "read" -> readWriteLock(owner, path).readLock();
            case "write" -> readWriteLock(owner, path).writeLock();
            case "latch" -> new Latch(curator, path);
            case "multi" -> new InterProcessMultiLock(
                    curator, Stream.of(key.split(",")).map(folder::concat).toList());
            default -> throw new IllegalArgumentException("no such kind of lock: " + kind);
        };
    }

    private InterProcessReadWriteLock readWriteLock(String owner, String path) {
        return readWriteLocks.computeIfAbsent(owner + " " + path, name -> new InterProcessReadWriteLock(curator, path));
    }

    private static Object call(String verb, InterProcessLock lock, String[] rest) throws Exception {
        switch (verb) {
            case "acquire":
                lock.acquire();
                return null;
            case "try":
                return lock.acquire(0, TimeUnit.MILLISECONDS);
            case "acquire-within":
                return lock.acquire(Long.parseLong(rest[0]), TimeUnit.MILLISECONDS);
            case "release":
                lock.release();
                return null;
            case "count":
                Path counter = Path.of(rest[0]);
                return Count.run(Integer.parseInt(rest[1]), () -> call("acquire", lock, rest), () -> call("release", lock, rest),
                        () -> read(counter), value -> write(counter, value));
            default:
                throw new IllegalArgumentException("no such verb: " + verb);
        }
    }

    private static String read(Path counter) {
        try {
            return Files.readString(counter).strip();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static void write(Path counter, String value) {
        try {
            Files.writeString(counter, value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
