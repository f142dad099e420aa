package tenure.interop.redisson;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;

/**
 * Permits of RPermitExpirableSemaphore. A permit belongs to the caller that has its id, so each owner's ids are kept
 * here.
 */
final class Permits {
    private final RedissonClient redisson;
    private final long leaseMs;
    private final Map<String, ConcurrentLinkedDeque<String>> held = new ConcurrentHashMap<>();
    private final Map<String, Boolean> sized = new ConcurrentHashMap<>();

    Permits(RedissonClient redisson, long leaseMs) {
        this.redisson = redisson;
        this.leaseMs = leaseMs;
    }

    Object call(String verb, String owner, String key, int size, long[] ms) throws InterruptedException {
        RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore(key);
        sized.computeIfAbsent(key, first -> semaphore.trySetPermits(size));
        var ids = held.computeIfAbsent(owner + " " + key, first -> new ConcurrentLinkedDeque<>());
        switch (verb) {
            case "acquire":
                ids.push(semaphore.acquire(ms.length > 0 && ms[0] > 0 ? ms[0] : leaseMs, TimeUnit.MILLISECONDS));
                return null;
            case "try":
            case "acquire-within":
                String id = semaphore.tryAcquire(ms.length > 0 ? ms[0] : 0, leaseMs, TimeUnit.MILLISECONDS);
                if (id != null) {
                    ids.push(id);
                }
                return id != null;
            case "release":
                semaphore.release(ids.pop());
                return null;
            case "extend":
                return semaphore.updateLeaseTime(ids.peek(), leaseMs, TimeUnit.MILLISECONDS);
            case "state":
                return ids.size();
            case "free":
                return semaphore.availablePermits();
            default:
                throw new IllegalArgumentException("no such verb: " + verb);
        }
    }
}
