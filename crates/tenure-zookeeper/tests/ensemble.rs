//! Locks on an ensemble of three, whose servers see changes at different times. Each client begins with another server.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, Call, Claim, ClaimId, ClaimRef, ClientId, Clock, LockKey, RenewReply, RenewRequest,
};
use tenure_servers::{Data, ZooKeeperEnsemble};
use tenure_testkit::Subject;
use tenure_testkit::suite::Fixture;
use tenure_testkit::suite::mutual::competing_clients_never_hold_at_the_same_time;
use tenure_zookeeper::{Config, StoreUrl, ZookeeperStore};
use tokio::runtime::Runtime;

/// The servers' unit of time.
const TICK: Duration = Duration::from_millis(500);

/// Leases of a minute, which cases ask for.
const LONG: &str = "maxSessionTimeout=60000\n";

tenure_testkit::conformance!(case, groups: [mutual, claim]);

/// The servers, and the runtime of the proxies between them.
struct Servers {
    ensemble: Mutex<ZooKeeperEnsemble>,
    runtime: Option<Runtime>,
}

impl Servers {
    /// Starts the servers on a thread of its own: their runtime outlives that of the case that needs them first.
    fn start() -> Arc<Self> {
        let start = || {
            let runtime = Runtime::new().expect("a runtime");
            let ensemble = runtime.block_on(runtime.spawn(ZooKeeperEnsemble::start_with(TICK, LONG)));
            Arc::new(Servers {
                ensemble: Mutex::new(ensemble.expect("no panic").expect("it starts")),
                runtime: Some(runtime),
            })
        };
        let thread = std::thread::Builder::new().spawn(start).expect("a thread");
        thread.join().expect("no panic")
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A node of its own on the ensemble that the cases share.
struct Case {
    _servers: Arc<Servers>,
    hosts: Vec<String>,
    node: usize,
    clients: AtomicUsize,
}

async fn case() -> Case {
    static SERVERS: Mutex<Weak<Servers>> = Mutex::new(Weak::new());
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let mut shared = SERVERS.lock();
    let servers = shared.upgrade().unwrap_or_else(|| {
        let started = Servers::start();
        *shared = Arc::downgrade(&started);
        started
    });
    Case::on(servers, NUMBER.fetch_add(1, Ordering::Relaxed))
}

impl Case {
    fn on(servers: Arc<Servers>, node: usize) -> Self {
        let hosts = hosts(&servers.ensemble.lock());
        Case {
            hosts,
            _servers: servers,
            node,
            clients: AtomicUsize::new(0),
        }
    }
}

fn hosts(ensemble: &ZooKeeperEnsemble) -> Vec<String> {
    let servers = ensemble.servers().iter();
    servers.map(|server| server.address().to_string()).collect()
}

/// The settings of a client that begins with this server.
fn config(hosts: &[String], first: usize, node: &str) -> Config {
    let mut hosts = hosts.to_vec();
    let count = hosts.len();
    hosts.rotate_left(first % count);
    let url = format!("zookeeper://{}/{node}?tick_time=500ms", hosts.join(","));
    Config::from_url(&StoreUrl::parse(&url).expect("a URL")).expect("settings")
}

impl Subject for Case {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        let first = self.clients.fetch_add(1, Ordering::Relaxed);
        let config = config(&self.hosts, first, &format!("case-{}", self.node));
        Call::new(async move {
            let end = Instant::now() + Duration::from_secs(30);
            loop {
                match ZookeeperStore::open(config.clone()).await {
                    // There is no leader at present.
                    Err(error) if error.is_transient() && Instant::now() < end => {}
                    opened => return opened,
                }
                // sleep: no event tells when the servers have a leader.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // sleep: ZooKeeper's clock cannot be moved.
        Box::pin(tokio::time::sleep(time))
    }

    fn client_on(&self, _: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        None
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_outlives_the_death_of_the_leader() {
    let mut ensemble = ZooKeeperEnsemble::start_with(TICK, LONG)
        .await
        .expect("it starts");
    let store = ZookeeperStore::open(config(&hosts(&ensemble), 0, "locks")).await;
    let store = store.expect("a server answers");
    let at = ClaimRef {
        key: LockKey::new("k").expect("a name"),
        id: ClaimId::new(ClientId::from_random([7; 16]), 1),
    };
    let claim = Arc::new(Claim::of(at, Duration::from_secs(20)));
    let not_after = store.clock().now() + Duration::from_secs(5);
    let reply = store.clone().acquire(claim.clone(), not_after).await;
    let Ok(AcquireReply::Granted(grant)) = reply else {
        panic!("the lock is free, but the answer is {reply:?}")
    };
    let leader = tokio::task::block_in_place(|| ensemble.leader()).expect("a leader");
    ensemble.server_mut(leader).process().kill();
    let killed = store.clock().now();
    let mut deadline = grant.held_from + grant.lease;
    loop {
        let renewal = [RenewRequest::of(&claim)].into_iter().collect();
        match store.clone().renew(renewal).await.pop() {
            Some(RenewReply::Alive { held_from, lease }) => {
                deadline = held_from + lease;
                // Only checks that were sent after the death prove so much.
                if deadline > killed + Duration::from_secs(20) {
                    break;
                }
            }
            Some(RenewReply::Unknown(error)) => assert!(error.is_transient(), "{error:?}"),
            other => panic!("the lock is held, but the answer is {other:?}"),
        }
        assert!(store.clock().now() < deadline, "it is renewed in time");
        // sleep: the engine, too, renews at intervals.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn competitors_exclude_each_other_while_leaders_die() {
    let servers = Servers::start();
    let fixture = Fixture::new(Case::on(servers.clone(), 0)).await;
    let observer = fixture.client().await;
    let competing = tokio::spawn(async move {
        for _ in 0..3 {
            competing_clients_never_hold_at_the_same_time(fixture.clone()).await;
        }
    });
    let killing = tokio::task::spawn_blocking(move || {
        let mut ensemble = servers.ensemble.lock();
        while !competing.is_finished() {
            let leader = ensemble.leader().expect("a leader");
            ensemble.server_mut(leader).process().kill();
            ensemble.restart(leader, Data::Kept).expect("it starts again");
        }
        competing
    });
    let competing = killing.await.expect("the servers start again");
    competing.await.expect("no two hold the lock");
    let left = observer.list("", 10).await;
    assert_eq!(left, [], "no contender is left");
}
