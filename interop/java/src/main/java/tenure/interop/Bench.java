package tenure.interop;

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

/**
 * A worker process of tenure-bench: its threads lock and unlock until the round ends, as those of tasks.rs do.
 *
 * <p>Arguments: the lock client, the server's URL, the workload (mutex, own, readers or permits), the number of threads, the
 * number of the first one, the time (µs) for which each holds a lock, and the file with the last holder, or "-". With the
 * workload "own" each thread has a mutex of its own. Prints "ready"; then runs a round for each line of its input, the length of
 * the round in µs, and prints its counters in JSON.
 */
public final class Bench {
    /** With the kind "readers", one of this number of threads writes, and the others read. */
    public static final int WRITES_ONE_OF = 8;

    /** Number of permits of the kind "permits". */
    public static final int PERMITS = 8;

    /** Makes the locks of a lock client. */
    public interface Locks extends AutoCloseable {
        void connect(String url) throws Exception;

        /** A lock of this kind (mutex, readers or permits), for the thread with this number. */
        Lock lock(String kind, String key, int thread) throws Exception;
    }

    /** A lock that a thread locks and unlocks. */
    public interface Lock {
        /** Returns whether the lock was acquired within the time. */
        boolean lock(long limitNs) throws Exception;

        void unlock() throws Exception;
    }

    /** Time limit of a wait after the end of its round. The thread then gives up, and the length so far counts. */
    private static final long PATIENCE_NS = TimeUnit.SECONDS.toNanos(1);

    /**
     * Time for which the JVM warms up before the first round: its compiler has then seen the code often. Tests that judge no
     * speed set a shorter one.
     */
    private static final long WARM_UP_US = TimeUnit.MILLISECONDS.toMicros(
            Long.parseLong(System.getenv().getOrDefault("TENURE_BENCH_JVM_WARM_UP_MS", "5000")));

    private final Locks locks;
    private final String workload;
    private final int threads;
    private final int first;
    private final long sectionNs;
    private final LastHolder lastHolder;

    private Bench(String[] args) throws Exception {
        Class<?> client = Class.forName("tenure.interop." + args[0] + ".BenchLocks");
        locks = (Locks) client.getConstructor().newInstance();
        locks.connect(args[1]);
        workload = args[2];
        threads = Integer.parseInt(args[3]);
        first = Integer.parseInt(args[4]);
        sectionNs = TimeUnit.MICROSECONDS.toNanos(Long.parseLong(args[5]));
        lastHolder = new LastHolder(args[6]);
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
        locks.close();
    }

    private interface Pool {
        Future<Counts> submit(Callable<Counts> work);
    }

    private String round(Pool pool, String key, long us, LastHolder last) throws Exception {
        long until = System.nanoTime() + TimeUnit.MICROSECONDS.toNanos(us);
        List<Future<Counts>> parts = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            int worker = first + thread;
            boolean isOwn = workload.equals("own");
            var lock = locks.lock(isOwn ? "mutex" : workload, isOwn ? key + ":" + worker : key, thread);
            var lastOfKey = isOwn ? new LastHolder("-") : last;
            parts.add(pool.submit(() -> work(lock, worker, until, lastOfKey)));
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

    private boolean isExclusive() {
        return workload.equals("mutex") || workload.equals("own");
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
