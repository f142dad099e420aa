//! One ZooKeeper for all cases that run at a time, and a node for each.
#![allow(dead_code, reason = "each test program uses a part")]

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{Backend, BackendError, Call, Claim, Clock, LockKey};
use tenure_servers::{Data, Proxy, Way, ZooKeeper};
use tenure_testkit::suite::TestClient;
use tenure_testkit::{Link, SlowClient, Subject};
use tenure_zookeeper::client::{Acl, Client, Mode};
use tenure_zookeeper::{Config, LockEvidence, StoreUrl, ZookeeperStore};

/// The server's unit of time.
const TICK: Duration = Duration::from_millis(500);

/// Leases of a minute, which cases ask for.
const LONG: &str = "maxSessionTimeout=60000\n";

pub(crate) fn config(url: &str) -> Config {
    Config::from_url(&StoreUrl::parse(url).expect("a URL")).expect("settings")
}

/// A node of its own on a server that cases share.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) server: Arc<Mutex<ZooKeeper>>,
    pub(crate) node: String,
    /// Where clients connect to; empty for the server itself.
    pub(crate) via: Vec<SocketAddr>,
    /// Options of the URL.
    pub(crate) options: &'static str,
    /// Whether the case is alone on its server.
    pub(crate) restarts: bool,
}

impl Case {
    fn on(server: Arc<Mutex<ZooKeeper>>, restarts: bool) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let node = format!("case-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Case {
            server,
            node,
            via: Vec::new(),
            options: "tick_time=500ms",
            restarts,
        }
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> = match &*self.via {
            [] => vec![self.server.lock().address().to_string()],
            via => via.iter().map(SocketAddr::to_string).collect(),
        };
        format!("zookeeper://{}/{}?{}", hosts.join(","), self.node, self.options)
    }

    /// The same case for clients that connect through a proxy. A request waits 300 ms for its reply.
    pub(crate) fn through(&self, proxy: &Proxy) -> Case {
        Case {
            via: vec![proxy.address()],
            options: "tick_time=500ms&command_timeout=300ms",
            ..self.clone()
        }
    }

    /// The path of a node.
    pub(crate) fn path(&self, below: &str) -> String {
        format!("/{}/{below}", self.node)
    }

    /// A session of another program, which has created the node of the case.
    pub(crate) async fn raw(&self) -> Client {
        let config = config(&self.server.lock().url());
        let raw = Client::connect(config, Duration::from_secs(60))
            .await
            .expect("a session");
        // Fails if it exists.
        let _ = raw
            .create(&format!("/{}", self.node), b"", Mode::Container, Acl::Open)
            .await;
        raw
    }

    /// A proxy to the server.
    pub(crate) async fn proxy(&self) -> Proxy {
        let address = self.server.lock().address();
        Proxy::start(address).await.expect("a port is free")
    }
}

pub(crate) fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("a name")
}

/// The names of a node's children, sorted.
pub(crate) async fn children(raw: &Client, path: &str) -> Vec<String> {
    let mut children = raw.get_children(path).await.expect("children").0;
    children.sort();
    children
}

/// Waits until a node has one child, and returns its name.
pub(crate) async fn only_child(raw: &Client, path: &str) -> String {
    let created = async {
        loop {
            if let [child] = &children(raw, path).await[..] {
                return child.clone();
            }
            // sleep: the pace of looks.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let created = tokio::time::timeout(Duration::from_secs(10), created).await;
    created.expect("it is created")
}

/// The node of a granted claim.
pub(crate) async fn node_of(client: &TestClient, claim: &Arc<Claim>) -> LockEvidence {
    let grant = client.granted(claim).await;
    let evidence = grant.evidence.expect("ZooKeeper proves its grants");
    evidence.get::<LockEvidence>().expect("of this type").clone()
}

/// A case on the server that ends with the last case that uses it.
pub(crate) async fn shared() -> Case {
    static SERVER: Mutex<Weak<Mutex<ZooKeeper>>> = Mutex::new(Weak::new());
    let mut shared = SERVER.lock();
    let server = shared.upgrade().unwrap_or_else(|| {
        let started = Arc::new(Mutex::new(
            ZooKeeper::start_with(TICK, LONG).expect("ZooKeeper starts"),
        ));
        *shared = Arc::downgrade(&started);
        started
    });
    Case::on(server, false)
}

/// A case on a server of its own, which it may restart.
pub(crate) async fn alone() -> Case {
    Case::on(
        Arc::new(Mutex::new(
            ZooKeeper::start_with(TICK, LONG).expect("ZooKeeper starts"),
        )),
        true,
    )
}

impl Subject for Case {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        Call::new(ZookeeperStore::open(config(&self.url())))
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // sleep: ZooKeeper's clock cannot be moved.
        Box::pin(tokio::time::sleep(time))
    }

    fn client_on(&self, _: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        None
    }

    fn restart(&self) -> Option<Call<()>> {
        let server = self.server.clone();
        self.restarts.then(|| {
            Call::new(async move {
                server.lock().restart(Data::Kept).expect("ZooKeeper starts again");
                Ok(())
            })
        })
    }

    fn slow_client(&self) -> Option<Call<SlowClient>> {
        let (address, node) = (self.server.lock().address(), self.node.clone());
        let options = self.options;
        Some(Call::new(async move {
            let proxy = Proxy::start(address).await.expect("a port is free");
            let url = format!("zookeeper://{}/{node}?{options}", proxy.address());
            let backend = ZookeeperStore::open(config(&url)).await?;
            let link = Arc::new(SlowProxy(proxy));
            Ok::<_, BackendError>(SlowClient { backend, link })
        }))
    }
}

#[derive(Debug)]
struct SlowProxy(Proxy);

impl Link for SlowProxy {
    fn delay(&self, requests: Duration, answers: Duration) {
        self.0.delay(Way::ToServer, requests);
        self.0.delay(Way::ToClient, answers);
    }
}
