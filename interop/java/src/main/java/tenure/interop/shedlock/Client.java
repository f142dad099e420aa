package tenure.interop.shedlock;

import tenure.interop.Peer;
import tenure.interop.Worker;

/** Connects ShedLock. */
public final class Client implements Worker.Connect {
    @Override
    public Peer connect(String url, long leaseMs) {
        return new ShedLockPeer(url, leaseMs);
    }
}
