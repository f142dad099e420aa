package tenure.interop.redisson;

import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import java.util.stream.Stream;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import tenure.interop.Answer;
import tenure.interop.Count;
import tenure.interop.Owners;
import tenure.interop.Peer;

/** A Redisson client. Kinds of locks: plain, fair, fenced, read, write, multi (keys with commas) and permits:SIZE. */
final class RedissonPeer implements Peer {
    private final RedissonClient redisson;
    private final Permits permits;
    private final Owners owners = new Owners();

    RedissonPeer(String url, long watchdogMs) {
        var config = new Config();
        config.setThreads(4).setNettyThreads(2).setCodec(StringCodec.INSTANCE).setLockWatchdogTimeout(watchdogMs);
        config.useSingleServer()
                .setAddress(url)
                .setDnsMonitoringInterval(-1)
                .setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(16);
        redisson = Redisson.create(config);
        permits = new Permits(redisson, watchdogMs);
    }

    /** The part of a holder's name before the thread's number. */
    @Override
    public String id() {
        return redisson.getId();
    }

    @Override
    public void close() {
        redisson.shutdown(0, 2, TimeUnit.SECONDS);
        owners.close();
    }

    @Override
    public void serve(String verb, String owner, String kind, String key, String[] rest, Answer answer) {
        if (kind.startsWith("permits:")) {
            int size = Integer.parseInt(kind.substring("permits:".length()));
            owners.run(owner, answer, () -> verb.equals("count")
                    ? count(rest, () -> permits.call("acquire", owner, key, size, new long[0]),
                            () -> permits.call("release", owner, key, size, new long[0]))
                    : permits.call(verb, owner, key, size, numbers(rest)));
            return;
        }
        RLock lock = lock(kind, key);
        switch (verb) {
            // Here the owner is a number instead of a thread, so that waiting blocks no thread.
            case "acquire-async" -> lock.lockAsync(Long.parseLong(rest[0]), TimeUnit.MILLISECONDS, Long.parseLong(owner))
                    .whenComplete(answering(answer));
            case "release-async" -> lock.unlockAsync(Long.parseLong(owner)).whenComplete(answering(answer));
            case "interrupt" -> {
                owners.interrupt(owner);
                answer.done(null);
            }
            case "count" -> owners.run(owner, answer, () -> count(rest, () -> call("acquire", lock, new long[] {0}),
                    () -> call("release", lock, new long[0])));
            default -> owners.run(owner, answer, () -> call(verb, lock, numbers(rest)));
        }
    }

    private RLock lock(String kind, String key) {
        return switch (kind) {
            case "plain" -> redisson.getLock(key);
            case "fair" -> redisson.getFairLock(key);
            case "fenced" -> redisson.getFencedLock(key);
            case "read" -> redisson.getReadWriteLock(key).readLock();
            case "write" -> redisson.getReadWriteLock(key).writeLock();
            case "multi" -> redisson.getMultiLock(Stream.of(key.split(",")).map(redisson::getLock).toArray(RLock[]::new));
            default -> throw new IllegalArgumentException("no such kind of lock: " + kind);
        };
    }

    /** Carries a request out, on the owner's thread. With a lease of 0 the watchdog renews the lock. */
    private Object call(String verb, RLock lock, long[] ms) throws InterruptedException {
        switch (verb) {
            case "thread":
                return Thread.currentThread().getId();
            case "acquire":
                if (ms[0] > 0) {
                    lock.lockInterruptibly(ms[0], TimeUnit.MILLISECONDS);
                } else {
                    lock.lockInterruptibly();
                }
                return null;
            case "try":
                // Not `tryLock(0, ...)`, for which Redisson runs another script.
                return lock.tryLock();
            case "acquire-within":
                return lock.tryLock(ms[0], TimeUnit.MILLISECONDS);
            case "release":
                lock.unlock();
                return null;
            case "force":
                return lock.forceUnlock();
            case "is-locked":
                return lock.isLocked();
            case "is-held":
                return lock.isHeldByCurrentThread();
            case "state":
                return lock.getHoldCount();
            case "remaining":
                return lock.remainTimeToLive();
            case "token":
                return ((RFencedLock) lock).getToken();
            default:
                throw new IllegalArgumentException("no such verb: " + verb);
        }
    }

    private long count(String[] rest, Callable<?> acquire, Callable<?> release)
            throws Exception {
        RBucket<String> counter = redisson.getBucket(rest[0], StringCodec.INSTANCE);
        return Count.run(Integer.parseInt(rest[1]), acquire, release, counter::get, counter::set);
    }

    private static long[] numbers(String[] words) {
        return Stream.of(words).mapToLong(Long::parseLong).toArray();
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
}
