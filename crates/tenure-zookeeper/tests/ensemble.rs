//! Locks on an ensemble of three, whose servers see changes at different times. Each client begins with another server.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, Call, Claim, ClaimId, ClaimRef, ClientId, Clock, LockKey, RenewReply, RenewRequest,
};
use tenure_servers::{Data, Proxy, Way, ZooKeeper, ZooKeeperEnsemble};
use tenure_testkit::Subject;
use tenure_testkit::suite::Fixture;
use tenure_testkit::suite::mutual::competing_clients_never_hold_at_the_same_time;
use tenure_zookeeper::{Config, StoreUrl, ZookeeperStore};
use tokio::runtime::Runtime;

/// The servers' unit of time.
const TICK: Duration = Duration::from_millis(500);

/// Leases of a minute, which cases ask for.
const LONG: &str = "maxSessionTimeout=60000\n";

/// Options of a client's URL.
const OPTIONS: &str = "tick_time=500ms";

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
    servers: Arc<Servers>,
    hosts: Vec<String>,
    node: usize,
    /// Options of the URL.
    options: &'static str,
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
            servers,
            node,
            options: OPTIONS,
            clients: AtomicUsize::new(0),
        }
    }
}

fn addresses(ensemble: &ZooKeeperEnsemble) -> Vec<SocketAddr> {
    ensemble.servers().iter().map(ZooKeeper::address).collect()
}

fn hosts(ensemble: &ZooKeeperEnsemble) -> Vec<String> {
    addresses(ensemble).iter().map(SocketAddr::to_string).collect()
}

/// The settings of a client that begins with this server.
fn config(hosts: &[String], first: usize, node: &str, options: &str) -> Config {
    let mut hosts = hosts.to_vec();
    let count = hosts.len();
    hosts.rotate_left(first % count);
    let url = format!("zookeeper://{}/{node}?{options}", hosts.join(","));
    Config::from_url(&StoreUrl::parse(&url).expect("a URL")).expect("settings")
}

impl Subject for Case {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        let first = self.clients.fetch_add(1, Ordering::Relaxed);
        let config = config(&self.hosts, first, &format!("case-{}", self.node), self.options);
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

/// Acquires a lock for this time, and returns when the lease ends.
async fn hold(store: &Arc<dyn Backend>, lease: Duration) -> (Arc<Claim>, tenure_backend::Instant) {
    let at = ClaimRef {
        key: LockKey::new("k").expect("a name"),
        id: ClaimId::new(ClientId::from_random([7; 16]), 1),
    };
    let claim = Arc::new(Claim::of(at, lease));
    let not_after = store.clock().now() + Duration::from_secs(5);
    let reply = store.clone().acquire(claim.clone(), not_after).await;
    let Ok(AcquireReply::Granted(grant)) = reply else {
        panic!("the lock is free, but the answer is {reply:?}")
    };
    (claim, grant.held_from + grant.lease)
}

/// Renews a lock until its lease counts from now on or later. Checks that it never ends.
async fn outlives(store: &Arc<dyn Backend>, claim: &Claim, mut deadline: tenure_backend::Instant) {
    let disturbed = store.clock().now();
    loop {
        let renewal = [RenewRequest::of(claim)].into_iter().collect();
        match store.clone().renew(renewal).await.pop() {
            Some(RenewReply::Alive { held_from, lease }) => {
                deadline = held_from + lease;
                // Only checks that were sent after the disturbance prove so much.
                if deadline > disturbed + claim.lease {
                    return;
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
async fn a_held_lock_outlives_the_death_of_the_leader() {
    let mut ensemble = ZooKeeperEnsemble::start_with(TICK, LONG)
        .await
        .expect("it starts");
    let store = ZookeeperStore::open(config(&hosts(&ensemble), 0, "locks", OPTIONS)).await;
    let store = store.expect("a server answers");
    let (claim, deadline) = hold(&store, Duration::from_secs(20)).await;
    let leader = tokio::task::block_in_place(|| ensemble.leader()).expect("a leader");
    ensemble.server_mut(leader).process().kill();
    outlives(&store, &claim, deadline).await;
}

/// The network loses everything that is sent to the first server, and closes no connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_outlives_a_server_that_falls_silent() {
    let case = case().await;
    let servers: Vec<SocketAddr> = addresses(&case.servers.ensemble.lock());
    let silent = Proxy::start(servers[0]).await.expect("a port is free");
    let hosts = [silent.address().to_string(), servers[1].to_string()];
    let config = config(&hosts, 0, &format!("case-{}", case.node), OPTIONS);
    let store = ZookeeperStore::open(config).await.expect("a server answers");
    let (claim, deadline) = hold(&store, Duration::from_secs(6)).await;
    silent.swallow(Way::ToServer);
    silent.swallow(Way::ToClient);
    outlives(&store, &claim, deadline).await;
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
    // The observer's server may have been started again just now, and not know of the last releases yet. A competitor that
    // was dropped before it had removed a claim whose create was not answered leaves that to the end of its session.
    let left = async || {
        while !observer.list("", 10).await.is_empty() {
            // sleep: the servers are other processes, so the test polls them.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let none = tokio::time::timeout(Duration::from_secs(90), left()).await;
    assert!(
        none.is_ok(),
        "contenders are left: {:?}",
        observer.list("", 10).await
    );
}

mod long {
    use futures_util::future::join_all;
    use tenure_backend::{Effect, Fairness, Mode, Phase};
    use tenure_testkit::suite::TestClient;
    use tenure_zookeeper::client::Client;

    use super::*;

    /// The lease of all claims, and so the timeout of their session.
    const LEASE: Duration = Duration::from_secs(6);

    /// Number of claims that are acquired at once, in each of the four ways.
    const CLAIMS: usize = 50;

    const SOON: Duration = Duration::from_secs(10);

    /// How the replies to creates are lost.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum LostBy {
        /// The server has created the nodes. Their replies are lost with the connection.
        Network,
        /// The server passes the creates to the leader late. The client stays connected to it.
        LaggingServer,
        /// As before, but the client takes its session to another server first.
        LaggingServerThatIsLeft,
        /// The server reads the creates when the client has taken its session to another server.
        PausedServerThatIsLeft,
    }

    /// The network and the servers of a client, which begins at a follower.
    struct Links {
        servers: Arc<Servers>,
        follower: usize,
        to_follower: Proxy,
        to_other: Proxy,
    }

    impl Links {
        async fn new(servers: &Arc<Servers>) -> Self {
            let leader = tokio::task::block_in_place(|| servers.ensemble.lock().leader());
            let (leader, addresses) = (leader.expect("a leader"), addresses(&servers.ensemble.lock()));
            let follower = (leader + 1) % 3;
            let proxy = async |number: usize| Proxy::start(addresses[number]).await.expect("a port is free");
            Links {
                servers: servers.clone(),
                follower,
                to_follower: proxy(follower).await,
                to_other: proxy((leader + 2) % 3).await,
            }
        }

        /// Begins to hold up creates or their replies.
        fn break_by(&self, way: LostBy) {
            let mut ensemble = self.servers.ensemble.lock();
            match way {
                LostBy::Network => self.to_follower.hold(Way::ToClient),
                LostBy::LaggingServer | LostBy::LaggingServerThatIsLeft => ensemble.cut_off(self.follower),
                LostBy::PausedServerThatIsLeft => ensemble.server_mut(self.follower).process().pause(),
            }
        }

        fn heal(&self) {
            let mut ensemble = self.servers.ensemble.lock();
            ensemble.server_mut(self.follower).process().resume();
            ensemble.heal();
            self.to_follower.heal();
        }
    }

    /// The contenders below the node of a case, without those of the lock `kept`.
    async fn contenders(raw: &Client, case: &str) -> Vec<String> {
        raw.sync("/").await.expect("a reply");
        let locks = raw.get_children(case).await.expect("children").0;
        let mut found = Vec::new();
        for lock in locks {
            if lock != "%tenure" && lock != "kept" {
                let lock = format!("{case}/{lock}");
                // Fails if ZooKeeper has removed the empty node meanwhile.
                let children = raw.get_children(&lock).await.map(|(children, _)| children);
                found.extend(
                    children
                        .unwrap_or_default()
                        .into_iter()
                        .map(|child| format!("{lock}/{child}")),
                );
            }
        }
        found
    }

    /// A claim of the lease of all claims here.
    fn claim(client: &TestClient, name: &str) -> Arc<Claim> {
        let key = LockKey::new(name).expect("a name");
        client.claim_as(&key, Mode::Exclusive, |claim| {
            claim.fairness = Fairness::Fifo;
            claim.lease = LEASE;
        })
    }

    /// Withdraws a third of the claims, acquires another third again and releases it, and forgets the others.
    async fn end(client: &TestClient, claims: &[Arc<Claim>]) {
        let ended = claims.iter().enumerate().map(async |(at, claim)| match at % 3 {
            0 => _ = client.withdraw(claim).await,
            1 => {
                client.granted(claim).await;
                client.release(claim).await.freed_it(claim);
            }
            _ => {}
        });
        join_all(ended).await;
    }

    /// A client that begins at the follower, and a claim that keeps its session alive.
    async fn client_at_follower(case: Case, links: &Links) -> (TestClient, Arc<Claim>) {
        links.to_other.refuse();
        let client = Fixture::new(case).await.client().await;
        let kept = claim(&client, "kept");
        client.granted(&kept).await;
        (client, kept)
    }

    /// Loses the replies to a client's creates below `folder`, and ends their claims.
    async fn lose_replies(client: &TestClient, folder: &str, links: &Links, raw: &Client, way: LostBy) {
        let claims: Vec<Arc<Claim>> = (0..CLAIMS)
            .map(|number| claim(client, &format!("k{number}")))
            .collect();
        // Creates the nodes of the locks.
        join_all(
            claims
                .iter()
                .map(|claim| client.finds_free(&claim.at.key, claim.mode)),
        )
        .await;
        links.to_other.heal();
        links.break_by(way);
        let not_after = client.now() + SOON;
        let replies = join_all(claims.iter().map(|claim| client.acquire_by(claim, not_after))).await;
        for reply in replies {
            assert_eq!(
                reply.expect_err("no reply comes").effect(),
                Effect::Unknown,
                "{way:?}"
            );
        }
        if way == LostBy::Network {
            assert_eq!(contenders(raw, folder).await.len(), CLAIMS, "they were created");
        }
        match way {
            LostBy::LaggingServer => {
                // The withdrawals wait behind the creates.
                let healed = async { links.heal() };
                tokio::join!(end(client, &claims), healed);
                let until = Instant::now() + SOON;
                while contenders(raw, folder).await.is_empty() {
                    assert!(Instant::now() < until, "no create has arrived late");
                }
            }
            _ => {
                links.to_follower.refuse();
                end(client, &claims).await;
                links.heal();
            }
        }
    }

    /// R18: no node is left behind, though the session of the claims lives on.
    #[tokio::test(flavor = "multi_thread")]
    async fn two_hundred_lost_replies_to_creates_leave_no_node() {
        let servers = Servers::start();
        let links = Links::new(&servers).await;
        let hosts = [&links.to_follower, &links.to_other].map(|proxy| proxy.address().to_string());
        let raw = Client::connect(config(&hosts[1..], 0, "", OPTIONS), LEASE).await;
        let raw = raw.expect("a session");
        let mut kept = Vec::new();
        for (node, way) in [
            LostBy::Network,
            LostBy::LaggingServer,
            LostBy::LaggingServerThatIsLeft,
            LostBy::PausedServerThatIsLeft,
        ]
        .into_iter()
        .enumerate()
        {
            let case = Case {
                hosts: hosts.to_vec(),
                options: "tick_time=500ms&command_timeout=300ms",
                ..Case::on(servers.clone(), node)
            };
            kept.push(client_at_follower(case, &links).await);
            let folder = format!("/case-{node}");
            let losing = lose_replies(&kept[node].0, &folder, &links, &raw, way);
            while_renewed(&kept, losing).await;
        }
        // sleep: a session that nothing keeps alive would end meanwhile.
        while_renewed(&kept, tokio::time::sleep(2 * LEASE)).await;
        for node in 0..kept.len() {
            let left = contenders(&raw, &format!("/case-{node}")).await;
            assert_eq!(left, [""; 0], "nodes are left");
        }
    }

    /// Renews claims until `work` ends. Panics if one of them is gone then or earlier.
    async fn while_renewed(kept: &[(TestClient, Arc<Claim>)], work: impl Future<Output = ()>) {
        let renew = async || {
            join_all(
                kept.iter()
                    .map(|(client, kept)| client.stays_alive(kept, Phase::Granted)),
            )
            .await
        };
        let renew_again = async {
            loop {
                renew().await;
                // sleep: the pace of renewals.
                tokio::time::sleep(LEASE / 12).await;
            }
        };
        tokio::select! {
            () = work => {}
            never = renew_again => never,
        }
        renew().await;
    }
}
