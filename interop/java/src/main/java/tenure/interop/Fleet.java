package tenure.interop;

import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** A Redisson client and its owners. A Redisson lock belongs to a thread, so each owner is a thread. */
final class Fleet {
    private final RedissonClient redisson;
    private final Map<String, Owner> owners = new ConcurrentHashMap<>();

    Fleet(String url, long watchdogMs) {
        var config = new Config();
        config.setThreads(4).setNettyThreads(2).setCodec(StringCodec.INSTANCE).setLockWatchdogTimeout(watchdogMs);
        config.useSingleServer()
                .setAddress(url)
                .setDnsMonitoringInterval(-1)
                .setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(16);
        redisson = Redisson.create(config);
    }

    /** The part of a holder's name before the thread's number. */
    String id() {
        return redisson.getId();
    }

    void close() {
        redisson.shutdown(0, 2, TimeUnit.SECONDS);
        owners.values().forEach(owner -> owner.executor.shutdownNow());
    }

    void serve(String verb, String name, String kind, String key, String[] rest, Answer answer) {
        RLock lock = switch (kind) {
            case "plain" -> redisson.getLock(key);
            case "fair" -> redisson.getFairLock(key);
            default -> throw new IllegalArgumentException("no such kind of lock: " + kind);
        };
        switch (verb) {
            // Here the owner is a number instead of a thread, so that waiting blocks no thread.
            case "lock-async" -> lock.lockAsync(Long.parseLong(rest[0]), TimeUnit.MILLISECONDS, Long.parseLong(name))
                    .whenComplete(answering(answer));
            case "unlock-async" -> lock.unlockAsync(Long.parseLong(name)).whenComplete(answering(answer));
            case "interrupt" -> {
                owner(name).thread.interrupt();
                answer.done(null);
            }
            default -> owner(name).run(answer, () -> call(verb, lock, rest));
        }
    }

    /** Carries a request out, on the owner's thread. With a lease of 0 the watchdog renews the lock. */
    private Object call(String verb, RLock lock, String[] rest) throws InterruptedException {
        long[] ms = new long[rest.length];
        for (int i = 0; i < rest.length && !verb.equals("count"); i++) {
            ms[i] = Long.parseLong(rest[i]);
        }
        switch (verb) {
            case "thread":
                return Thread.currentThread().getId();
            case "lock":
                if (ms[0] > 0) {
                    lock.lockInterruptibly(ms[0], TimeUnit.MILLISECONDS);
                } else {
                    lock.lockInterruptibly();
                }
                return null;
            case "try":
                // Not `tryLock(0, ...)`, for which Redisson runs another script.
                return lock.tryLock();
            case "try-within":
                return ms[1] > 0
                        ? lock.tryLock(ms[0], ms[1], TimeUnit.MILLISECONDS)
                        : lock.tryLock(ms[0], TimeUnit.MILLISECONDS);
            case "unlock":
                lock.unlock();
                return null;
            case "force":
                return lock.forceUnlock();
            case "is-locked":
                return lock.isLocked();
            case "is-held":
                return lock.isHeldByCurrentThread();
            case "holds":
                return lock.getHoldCount();
            case "remaining":
                return lock.remainTimeToLive();
            case "count":
                return count(lock, rest[0], Integer.parseInt(rest[1]));
            default:
                throw new IllegalArgumentException("no such verb: " + verb);
        }
    }

    /** Increments under the lock by reading and then writing, so that two at a time lose an increment. Returns the longest wait in ms. */
    private long count(RLock lock, String counter, int turns) {
        RBucket<String> bucket = redisson.getBucket(counter, StringCodec.INSTANCE);
        long longest = 0;
        for (int turn = 0; turn < turns; turn++) {
            long asked = System.nanoTime();
            lock.lock();
            longest = Math.max(longest, System.nanoTime() - asked);
            try {
                String before = bucket.get();
                bucket.set(String.valueOf(before == null ? 1 : Long.parseLong(before) + 1));
            } finally {
                lock.unlock();
            }
        }
        return TimeUnit.NANOSECONDS.toMillis(longest);
    }

    private Owner owner(String name) {
        return owners.computeIfAbsent(name, Owner::new);
    }

    private static BiConsumer<Object, Throwable> answering(Answer answer) {
        return (value, error) -> {
            if (error == null) {
                answer.done(value);
            } else {
                answer.failed(error);
            }
        };
    }

    /** A thread that handles one request at a time. */
    private static final class Owner {
        private volatile Thread thread;
        private final ExecutorService executor;

        Owner(String name) {
            executor = Executors.newSingleThreadExecutor(work -> {
                thread = new Thread(work, name);
                thread.setDaemon(true);
                return thread;
            });
        }

        void run(Answer answer, Callable<Object> work) {
            executor.execute(() -> {
                try {
                    answer.done(work.call());
                } catch (Throwable error) {
                    answer.failed(error);
                }
            });
        }
    }
}
