package tenure.interop.curator;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

/** The permits that one owner takes of InterProcessSemaphoreV2, one for each call. Serves one thread. */
final class Permits implements InterProcessLock {
    private final InterProcessSemaphoreV2 semaphore;
    private final Deque<Lease> leases = new ArrayDeque<>();

    Permits(CuratorFramework curator, String path, int size) {
        semaphore = new InterProcessSemaphoreV2(curator, path, size);
    }

    @Override
    public void acquire() throws Exception {
        leases.push(semaphore.acquire());
    }

    @Override
    public boolean acquire(long time, TimeUnit unit) throws Exception {
        Lease lease = semaphore.acquire(time, unit);
        if (lease != null) {
            leases.push(lease);
        }
        return lease != null;
    }

    @Override
    public void release() {
        semaphore.returnLease(leases.pop());
    }

    @Override
    public boolean isAcquiredInThisProcess() {
        return !leases.isEmpty();
    }
}
