package tenure.interop.curator;

import java.net.URI;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryNTimes;
import tenure.interop.Peer;
import tenure.interop.Worker;

/** Connects Curator. */
public final class Client implements Worker.Connect {
    @Override
    public Peer connect(String url, long leaseMs) {
        return new CuratorPeer(url, leaseMs);
    }

    /** Opens a session on the servers of the URL. */
    static CuratorFramework session(String url, int timeoutMs) {
        var curator = CuratorFrameworkFactory.builder()
                .connectString(URI.create(url).getAuthority())
                .sessionTimeoutMs(timeoutMs)
                .retryPolicy(new RetryNTimes(3, 100))
                .build();
        curator.start();
        return curator;
    }
}
