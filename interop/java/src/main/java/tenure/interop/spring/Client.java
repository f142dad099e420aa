package tenure.interop.spring;

import tenure.interop.Peer;
import tenure.interop.Worker;

/** Connects Spring's lock registries. */
public final class Client implements Worker.Connect {
    @Override
    public Peer connect(String url, long leaseMs) {
        return new SpringPeer(url, leaseMs);
    }
}
