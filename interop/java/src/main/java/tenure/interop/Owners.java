package tenure.interop;

import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** The owners of a client. A lock of the JVM's clients belongs to a thread, so each owner is a thread. */
public final class Owners {
    private final Map<String, Owner> owners = new ConcurrentHashMap<>();

    /** Does the work on the owner's thread, after the owner's earlier work. */
    public void run(String owner, Answer answer, Callable<Object> work) {
        owner(owner).executor.execute(() -> {
            try {
                answer.done(work.call());
            } catch (Throwable error) {
                answer.failed(error);
            }
        });
    }

    public void interrupt(String owner) {
        owner(owner).thread.interrupt();
    }

    public void close() {
        owners.values().forEach(owner -> owner.executor.shutdownNow());
    }

    private Owner owner(String name) {
        return owners.computeIfAbsent(name, Owner::new);
    }

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
    }
}
