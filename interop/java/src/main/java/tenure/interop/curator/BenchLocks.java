package tenure.interop.curator;

import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import tenure.interop.Bench;

/** Curator's locks for tenure-bench: one session for all threads of a process, as Curator recommends. */
public final class BenchLocks implements Bench.Locks {
    /** As long as Tenure's lease. */
    private static final int SESSION_MS = 30_000;

    private CuratorFramework curator;

    @Override
    public void connect(String url) throws InterruptedException {
        curator = Client.session(url, SESSION_MS);
        curator.blockUntilConnected();
    }

    @Override
    public void close() {
        curator.close();
    }

    @Override
    public Bench.Lock lock(String kind, String key, int thread) {
        var path = "/" + key;
        return lock(switch (kind) {
            case "mutex" -> new InterProcessMutex(curator, path);
            case "readers" -> {
                var both = new InterProcessReadWriteLock(curator, path);
                yield thread % Bench.WRITES_ONE_OF == 0 ? both.writeLock() : both.readLock();
            }
            case "permits" -> new Permits(curator, path, Bench.PERMITS);
            default -> throw new IllegalArgumentException("no such kind of lock: " + kind);
        });
    }

    private static Bench.Lock lock(InterProcessLock lock) {
        return new Bench.Lock() {
            @Override
            public boolean lock(long limitNs) throws Exception {
                return lock.acquire(limitNs, TimeUnit.NANOSECONDS);
            }

            @Override
            public void unlock() throws Exception {
                lock.release();
            }
        };
    }
}
