package tenure.interop.redisson;

import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import tenure.interop.Bench;

/** Redisson's locks for tenure-bench. */
public final class BenchLocks implements Bench.Locks {
    private RedissonClient redisson;

    @Override
    public void connect(String url) {
        var config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer().setAddress(url).setDnsMonitoringInterval(-1);
        redisson = Redisson.create(config);
    }

    @Override
    public void close() {
        redisson.shutdown();
    }

    @Override
    public Bench.Lock lock(String kind, String key, int thread) {
        if (kind.equals("permits")) {
            var semaphore = redisson.getPermitExpirableSemaphore(key + ":permits");
            semaphore.trySetPermits(Bench.PERMITS);
            return new Bench.Lock() {
                private String permit;

                @Override
                public boolean lock(long limitNs) throws InterruptedException {
                    permit = semaphore.tryAcquire(limitNs, TimeUnit.SECONDS.toNanos(30), TimeUnit.NANOSECONDS);
                    return permit != null;
                }

                @Override
                public void unlock() {
                    semaphore.release(permit);
                }
            };
        }
        var lock = switch (kind) {
            case "mutex" -> redisson.getLock(key);
            case "readers" -> {
                var both = redisson.getReadWriteLock(key + ":readers");
                yield thread % Bench.WRITES_ONE_OF == 0 ? both.writeLock() : both.readLock();
            }
            default -> throw new IllegalArgumentException("no such kind of lock: " + kind);
        };
        return new Bench.Lock() {
            @Override
            public boolean lock(long limitNs) throws InterruptedException {
                return lock.tryLock(limitNs, TimeUnit.NANOSECONDS);
            }

            @Override
            public void unlock() {
                lock.unlock();
            }
        };
    }
}
