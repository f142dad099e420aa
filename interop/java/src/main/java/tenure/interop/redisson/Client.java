package tenure.interop.redisson;

import tenure.interop.Peer;
import tenure.interop.Worker;

/** Connects Redisson. */
public final class Client implements Worker.Connect {
    @Override
    public Peer connect(String url, long leaseMs) {
        return new RedissonPeer(url, leaseMs);
    }
}
