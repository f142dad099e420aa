package tenure.interop.redisson;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * A worker process of tenure-bench: its threads lock and unlock until the round ends, as those of tasks.rs do.
 *
 * <p>Arguments: the server's URL, the workload (mutex, readers or permits), the number of threads, the number of the
 * first one, the time (µs) for which each holds a lock, and the file with the last holder, or "-". Prints "ready"; then
 * runs a round for each line of its input, the length of the round in µs, and prints its counters in JSON.
 */
public final class Bench {
    /** Time limit of a wait after the end of its round. The thread then gives up, and the length so far counts. */
    private static final long PATIENCE_NS = TimeUnit.SECONDS.toNanos(1);

    /** Time for which the JVM warms up before the first round: its compiler has then seen the code often. */
    private static final long WARM_UP_US = TimeUnit.SECONDS.toMicros(5);

    /** Of this number of threads, one writes and the others read. */
    private static final int WRITES_ONE_OF = 8;

    private static final int PERMITS = 8;

    private final RedissonClient redisson;
    private final String workload;
    private final int threads;
    private final int first;
    private final long sectionNs;
    private final LastHolder lastHolder;

    private Bench(String[] args) throws Exception {
        var config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer().setAddress(args[0]).setDnsMonitoringInterval(-1);
        redisson = Redisson.create(config);
        workload = args[1];
        threads = Integer.parseInt(args[2]);
        first = Integer.parseInt(args[3]);
        sectionNs = TimeUnit.MICROSECONDS.toNanos(Long.parseLong(args[4]));
        lastHolder = new LastHolder(args[5]);
    }

    public static void main(String[] args) throws Exception {
        new Bench(args).serve();
        System.exit(0);
    }

    private void serve() throws Exception {
        var pool = Executors.newFixedThreadPool(threads);
        round(pool::submit, "warm-up", WARM_UP_US, new LastHolder("-"));
        System.out.println("ready");
        var orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            long us = Long.parseLong(line.trim());
            System.out.println(round(pool::submit, "one", us, lastHolder));
        }
        redisson.shutdown();
    }

    private interface Pool {
        Future<Counts> submit(Callable<Counts> work);
    }

    private String round(Pool pool, String key, long us, LastHolder last) throws Exception {
        long until = System.nanoTime() + TimeUnit.MICROSECONDS.toNanos(us);
        List<Future<Counts>> parts = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            var lock = lock(key, thread);
            int worker = first + thread;
            parts.add(pool.submit(() -> work(lock, worker, until, last)));
        }
        var all = new Counts();
        var grants = new ArrayList<Long>();
        for (var part : parts) {
            var counts = part.get();
            grants.add(counts.grants);
            all.handovers += counts.handovers;
            counts.waits.forEach((wait, count) -> all.waits.merge(wait, count, Long::sum));
        }
        var waits = new ArrayList<String>();
        all.waits.forEach((wait, count) -> waits.add("[" + wait + "," + count + "]"));
        return "{\"time\":{\"secs\":" + us / 1_000_000 + ",\"nanos\":" + us % 1_000_000 * 1000 + "},\"grants\":" + grants
                + ",\"handovers\":" + all.handovers + ",\"waits\":[" + String.join(",", waits) + "]}";
    }

    /** A lock that a thread locks and unlocks. */
    private interface Lock {
        /** Returns whether the lock was acquired within the time. */
        boolean lock(long limitNs) throws InterruptedException;

        void unlock();
    }

    private Lock lock(String key, int thread) {
        if (workload.equals("permits")) {
            var semaphore = redisson.getPermitExpirableSemaphore(key + ":permits");
            semaphore.trySetPermits(PERMITS);
            return new Lock() {
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
        var lock = switch (workload) {
            case "mutex" -> redisson.getLock(key);
            case "readers" -> {
                var both = redisson.getReadWriteLock(key + ":readers");
                yield thread % WRITES_ONE_OF == 0 ? both.writeLock() : both.readLock();
            }
            default -> throw new IllegalArgumentException("no such workload: " + workload);
        };
        return new Lock() {
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

    private boolean isExclusive() {
        return workload.equals("mutex");
    }

    private Counts work(Lock lock, int worker, long until, LastHolder last) throws Exception {
        var counts = new Counts();
        for (long asked = System.nanoTime(); asked < until; asked = System.nanoTime()) {
            if (!lock.lock(until + PATIENCE_NS - asked)) {
                counts.waited(System.nanoTime() - asked);
                break;
            }
            long granted = System.nanoTime();
            boolean handedOver = isExclusive() && last.acquired(worker);
            while (System.nanoTime() - granted < sectionNs) {
                Thread.onSpinWait();
            }
            if (isExclusive()) {
                last.releases(worker);
            }
            lock.unlock();
            counts.waited(granted - asked);
            if (granted < until) {
                counts.grants++;
                counts.handovers += handedOver ? 1 : 0;
            }
        }
        return counts;
    }

    /** The counters of a thread in one round. */
    private static final class Counts {
        long grants;
        long handovers;
        final TreeMap<Long, Long> waits = new TreeMap<>();

        /** Counts a wait, with three significant digits. */
        void waited(long ns) {
            int shift = Math.max(0, 53 - Long.numberOfLeadingZeros(ns));
            waits.merge(ns >> shift << shift, 1L, Long::sum);
        }
    }

    /** The last holder of a mutex, in a file that the processes share, as last_holder.rs describes it. */
    private static final class LastHolder {
        private static final long NO_WORKER = -1;
        private final FileChannel file;
        private volatile long holder = NO_WORKER;

        LastHolder(String path) throws Exception {
            file = path.equals("-")
                    ? null
                    : FileChannel.open(Path.of(path), StandardOpenOption.READ, StandardOpenOption.WRITE);
        }

        boolean acquired(long worker) throws Exception {
            long last = read();
            if (file == null) {
                holder = worker;
            } else {
                file.write(ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(0, worker), 0);
            }
            return last != NO_WORKER && last != worker;
        }

        void releases(long worker) throws Exception {
            long last = read();
            if (last != worker) {
                throw new IllegalStateException("worker " + last + " took the key while worker " + worker + " held it");
            }
        }

        private long read() throws Exception {
            if (file == null) {
                return holder;
            }
            var bytes = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);
            file.read(bytes, 0);
            return bytes.getLong(0);
        }
    }
}
