package tenure.interop.curator;

import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessLock;

/** One participant of a LeaderLatch: it holds while it is the leader. Serves one thread. */
final class Latch implements InterProcessLock {
    private final CuratorFramework curator;
    private final String path;
    private LeaderLatch participant;

    Latch(CuratorFramework curator, String path) {
        this.curator = curator;
        this.path = path;
    }

    @Override
    public void acquire() throws Exception {
        participant = new LeaderLatch(curator, path);
        participant.start();
        participant.await();
    }

    @Override
    public boolean acquire(long time, TimeUnit unit) throws Exception {
        participant = new LeaderLatch(curator, path);
        participant.start();
        boolean leads = participant.await(time, unit);
        if (!leads) {
            participant.close();
        }
        return leads;
    }

    @Override
    public void release() throws Exception {
        participant.close();
    }

    @Override
    public boolean isAcquiredInThisProcess() {
        return participant != null && participant.hasLeadership();
    }
}
