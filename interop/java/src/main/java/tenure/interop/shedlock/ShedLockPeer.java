package tenure.interop.shedlock;

import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.SingleConnectionDataSource;
import tenure.interop.Answer;
import tenure.interop.Count;
import tenure.interop.Owners;
import tenure.interop.Peer;

/**
 * ShedLock's JdbcTemplateLockProvider, one for each owner, which is its `lockedBy`. Kinds of locks: `server-time` reads the
 * database's clock (usingDbTime), `client-time` that of the JVM, in the JVM's zone, and `client-time-utc` that in UTC.
 */
final class ShedLockPeer implements Peer {
    /** ShedLock skips a task whose lock is held. To wait for a lock, an owner tries again after this pause. */
    private static final long PAUSE_MS = 20;

    private final String url;
    private final String user;
    private final String password;
    private final Duration lease;
    private final Map<String, Owner> known = new ConcurrentHashMap<>();
    private final Owners owners = new Owners();

    ShedLockPeer(String url, long leaseMs) {
        URI address = URI.create(url);
        String[] login = address.getUserInfo().split(":");
        user = login[0];
        password = login[1];
        this.url = "jdbc:" + address.getScheme() + "://" + address.getHost() + ":" + address.getPort() + address.getPath();
        lease = Duration.ofMillis(leaseMs);
    }

    @Override
    public String id() {
        return user;
    }

    @Override
    public void close() {
        owners.close();
        known.values().forEach(owner -> owner.connection.destroy());
    }

    @Override
    public void serve(String verb, String owner, String kind, String key, String[] rest, Answer answer) {
        owners.run(owner, answer, () -> known.computeIfAbsent(owner + " " + kind, name -> new Owner(owner, kind))
                .call(verb, key, rest));
    }

    /** An owner with its connection and the locks that it holds, each by its key. */
    private final class Owner {
        private final SingleConnectionDataSource connection = new SingleConnectionDataSource(url, user, password, true);
        private final JdbcTemplate database = new JdbcTemplate(connection);
        private final LockProvider provider;
        private final Map<String, SimpleLock> held = new ConcurrentHashMap<>();

        Owner(String name, String kind) {
            var configuration = JdbcTemplateLockProvider.Configuration.builder()
                    .withJdbcTemplate(database)
                    .withLockedByValue(name);
            switch (kind) {
                case "server-time" -> configuration.usingDbTime();
                case "client-time" -> {}
                case "client-time-utc" -> configuration.forceUtcTimeZone();
                default -> throw new IllegalArgumentException("no such kind of lock: " + kind);
            }
            provider = new JdbcTemplateLockProvider(configuration.build());
        }

        private Object call(String verb, String key, String[] rest) throws Exception {
            switch (verb) {
                case "acquire":
                    while (!isLocked(key, Duration.ZERO)) {
                        Thread.sleep(PAUSE_MS);
                    }
                    return null;
                case "try":
                    return isLocked(key, Duration.ZERO);
                case "try-at-least":
                    return isLocked(key, Duration.ofMillis(Long.parseLong(rest[0])));
                case "release":
                    held.remove(key).unlock();
                    return null;
                case "extend":
                    Optional<SimpleLock> extended = held.get(key).extend(lease, Duration.ZERO);
                    extended.ifPresent(lock -> held.put(key, lock));
                    return extended.isPresent();
                case "raise":
                    write(rest[0], String.valueOf(Long.parseLong(read(rest[0])) + 1));
                    return null;
                case "count":
                    return Count.run(Integer.parseInt(rest[1]), () -> call("acquire", key, rest), () -> call("release", key, rest),
                            () -> read(rest[0]), value -> write(rest[0], value));
                default:
                    throw new IllegalArgumentException("no such verb: " + verb);
            }
        }

        private String read(String counter) {
            return database.queryForObject("SELECT value FROM " + counter, String.class);
        }

        private void write(String counter, String value) {
            database.update("UPDATE " + counter + " SET value = ?", Long.valueOf(value));
        }

        private boolean isLocked(String key, Duration atLeast) {
            var lock = provider.lock(new LockConfiguration(Instant.now(), key, lease, atLeast));
            lock.ifPresent(acquired -> held.put(key, acquired));
            return lock.isPresent();
        }
    }
}
