package tenure.interop.spring;

import java.net.URI;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import tenure.interop.Answer;
import tenure.interop.Count;
import tenure.interop.Owners;
import tenure.interop.Peer;

/**
 * Two registries of Spring with the name `locks`, one for each kind of lock: `spin` asks again every 100 ms, `pubsub`
 * is woken. Both renew what they hold.
 */
final class SpringPeer implements Peer {
    private static final String REGISTRY = "locks";

    private final LettuceConnectionFactory connections;
    private final ThreadPoolTaskScheduler renewals = new ThreadPoolTaskScheduler();
    private final StringRedisTemplate redis;
    private final RedisLockRegistry spin;
    private final RedisLockRegistry pubsub;
    private final Owners owners = new Owners();

    SpringPeer(String url, long leaseMs) {
        URI address = URI.create(url);
        connections = new LettuceConnectionFactory(address.getHost(), address.getPort());
        connections.start();
        redis = new StringRedisTemplate(connections);
        renewals.setDaemon(true);
        renewals.initialize();
        spin = registry(leaseMs);
        pubsub = registry(leaseMs);
        pubsub.setRedisLockType(RedisLockType.PUB_SUB_LOCK);
    }

    private RedisLockRegistry registry(long leaseMs) {
        var registry = new RedisLockRegistry(connections, REGISTRY, Duration.ofMillis(leaseMs));
        registry.setRenewalTaskScheduler(renewals);
        return registry;
    }

    @Override
    public String id() {
        return REGISTRY;
    }

    @Override
    public void close() {
        owners.close();
        renewals.shutdown();
        spin.destroy();
        pubsub.destroy();
        connections.destroy();
    }

    @Override
    public void serve(String verb, String owner, String kind, String key, String[] rest, Answer answer) {
        RedisLockRegistry registry = switch (kind) {
            case "spin" -> spin;
            case "pubsub" -> pubsub;
            default -> throw new IllegalArgumentException("no such kind of lock: " + kind);
        };
        Lock lock = registry.obtain(key);
        owners.run(owner, answer, () -> call(verb, lock, rest));
    }

    private Object call(String verb, Lock lock, String[] rest) throws Exception {
        switch (verb) {
            case "acquire":
                lock.lockInterruptibly();
                return null;
            case "try":
                return lock.tryLock();
            case "acquire-within":
                return lock.tryLock(Long.parseLong(rest[0]), TimeUnit.MILLISECONDS);
            case "release":
                lock.unlock();
                return null;
            case "count":
                return Count.run(Integer.parseInt(rest[1]), () -> call("acquire", lock, rest), () -> call("release", lock, rest),
                        () -> redis.opsForValue().get(rest[0]), value -> redis.opsForValue().set(rest[0], value));
            default:
                throw new IllegalArgumentException("no such verb: " + verb);
        }
    }
}
