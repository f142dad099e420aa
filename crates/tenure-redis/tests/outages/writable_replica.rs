//! A replica that takes writes (`replica-read-only no`) grants no lock: its master gets none of its writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fixture::*;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Claim, ClaimId, ClaimRef, ClientId, Effect, Fault, LockKey,
    ReleaseReply, RenewReply, RenewRequest, Severity,
};
use tenure_redis::RedisStore;
use tenure_servers::{Disk, Redis};

/// Time limit for a replica to be in sync, and for a client to notice that it has become a master.
const PATIENCE: Duration = Duration::from_secs(30);

const MESSAGE: &str = "this Redis is a replica, which grants no locks";

fn claim(number: u64) -> Arc<Claim> {
    let id = ClaimId::new(ClientId::from_random([7; 16]), number);
    let key = LockKey::new("k").expect("a good key");
    Arc::new(Claim::of(ClaimRef { key, id }, Duration::from_secs(30)))
}

/// Makes a server a replica of `master` that takes writes, and waits until it is in sync.
fn demote(server: &Redis, master: &Redis) {
    server
        .ask(&["CONFIG", "SET", "replica-read-only", "no"])
        .expect("it can be set");
    let port = master.address().port().to_string();
    server.ask(&["REPLICAOF", "127.0.0.1", &port]).expect("it obeys");
    let end = Instant::now() + PATIENCE;
    while !server.ask(&["ROLE"]).expect("it answers").contains("connected") {
        assert!(Instant::now() < end, "the replica is not in sync");
        // sleep: a server sends no event when it is in sync.
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn servers() -> [Redis; 2] {
    // Without the delay, a master waits for further replicas before it begins to send its data.
    let options = [Disk::Nothing.options(), &["--repl-diskless-sync-delay", "0"]].concat();
    [0; 2].map(|_| Redis::start_with(&options, None).expect("redis-server starts"))
}

async fn store(server: &Redis) -> Arc<RedisStore> {
    connect(&server.url()).await.expect("the server answers")
}

fn assert_refused<T: std::fmt::Debug>(reply: Result<T, BackendError>, effect: Effect) {
    assert_error(
        &reply.expect_err("it is a replica"),
        (Fault::Unavailable, effect),
        MESSAGE,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writable_replica_grants_no_lock() {
    let [master, replica] = servers();
    demote(&replica, &master);
    let store = store(&replica).await;
    for _ in 0..2 {
        assert_refused(acquire(&store, &claim(1)).await, Effect::None);
    }
    assert_eq!(replica.ask(&["EXISTS", "k"]).expect("it answers"), "0");
    let found = examine(&store).await;
    assert_finding(&found, "replica of another", Severity::Danger);
    replica.ask(&["REPLICAOF", "NO", "ONE"]).expect("it obeys");
    let end = Instant::now() + PATIENCE;
    while !matches!(acquire(&store, &claim(2)).await, Ok(AcquireReply::Granted(_))) {
        assert!(Instant::now() < end, "the client does not notice the promotion");
        // sleep: no event tells that the client has connected again.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// `REPLICAOF` closes no connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_connected_master_that_is_demoted_grants_no_lock() {
    let [master, server] = servers();
    let store = store(&server).await;
    let held = claim(1);
    let granted = acquire(&store, &held).await;
    assert!(matches!(granted, Ok(AcquireReply::Granted(_))), "{granted:?}");
    demote(&server, &master);
    // The first call finds out, and closes the connection. It has reached the replica.
    assert_refused(acquire(&store, &claim(2)).await, Effect::Unknown);
    assert_refused(acquire(&store, &claim(3)).await, Effect::None);
    let renewed = renew(&store, RenewRequest::of(&held)).await;
    assert!(
        matches!(&renewed, RenewReply::Unknown(error) if error.is_transient()),
        "{renewed:?}"
    );
    let released = release(&store, unlock_of(&held)).await;
    assert!(
        matches!(&released, ReleaseReply::Unknown(error) if error.is_transient()),
        "{released:?}"
    );
}

/// A planned failover: another server gets the data and becomes the master, and the old one its replica. Without `ROLE`,
/// the old master would renew and release its copy of the claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_demotion_is_noticed_by_renewals_and_releases() {
    for renews in [true, false] {
        let [next, server] = servers();
        let store = store(&server).await;
        let held = claim(1);
        let granted = acquire(&store, &held).await;
        assert!(matches!(granted, Ok(AcquireReply::Granted(_))), "{granted:?}");
        demote(&next, &server);
        next.ask(&["REPLICAOF", "NO", "ONE"]).expect("it obeys");
        demote(&server, &next);
        let error = match renews {
            true => match renew(&store, RenewRequest::of(&held)).await {
                RenewReply::Unknown(error) => error,
                reply => panic!("{reply:?}"),
            },
            false => match release(&store, unlock_of(&held)).await {
                ReleaseReply::Unknown(error) => error,
                reply => panic!("{reply:?}"),
            },
        };
        assert_error(&error, (Fault::Unavailable, Effect::Unknown), MESSAGE);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_role_learns_it_from_info() {
    let [master, replica] = servers();
    let permit = |server: &Redis, info: &str| {
        let rules = [
            "ACL", "SETUSER", "ada", "on", "nopass", "+@all", "~*", "&*", "-role", info,
        ];
        server.ask(&rules).expect("the user is made");
        server.url().replace("redis://", "redis://ada:x@")
    };
    demote(&replica, &master);
    let url = permit(&replica, "+info");
    let store = connect(&url).await.expect("the server answers");
    assert_refused(acquire(&store, &claim(1)).await, Effect::None);
    // A server counts as a master if the client may ask neither for `ROLE` nor for `INFO`.
    let url = permit(&master, "-info");
    let store = connect(&url).await.expect("the server answers");
    let granted = acquire(&store, &claim(1)).await;
    assert!(matches!(granted, Ok(AcquireReply::Granted(_))), "{granted:?}");
}

/// Reading is allowed at a replica, as at one that refuses writes.
#[tokio::test(flavor = "multi_thread")]
async fn locks_can_be_inspected_at_a_replica() {
    let [master, replica] = servers();
    let at_master = store(&master).await;
    let granted = acquire(&at_master, &claim(1)).await;
    assert!(matches!(granted, Ok(AcquireReply::Granted(_))), "{granted:?}");
    demote(&replica, &master);
    let at_replica = store(&replica).await;
    let query = tenure_backend::Query::Key(LockKey::new("k").expect("a good key"));
    let page = at_replica.inspect(query).await.expect("a replica can be read");
    assert_eq!(page.items.len(), 1, "{page:?}");
}
