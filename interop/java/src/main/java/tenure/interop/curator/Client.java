package tenure.interop.curator;

import tenure.interop.Peer;
import tenure.interop.Worker;

/** Connects Curator. */
public final class Client implements Worker.Connect {
    @Override
    public Peer connect(String url, long leaseMs) {
        return new CuratorPeer(url, leaseMs);
    }
}
