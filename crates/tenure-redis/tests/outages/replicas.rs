//! Replicas that acknowledge grants: which failovers a lock survives with `replicas`, and which it does not.

use std::sync::Arc;
use std::time::Duration;

use crate::fixture::{
    Cluster, PASSWORD, USER, acquire, assert_error, assert_tokens_rise, config, connect, is_granted,
    is_waiting, release, release_error, renew, unlock_of, wait_until,
};
use futures_util::future::join_all;
use tenure_backend::{
    AcquireReply, Backend, Claim, ClaimId, ClaimRef, ClientId, Effect, Fault, LockKey, ReleaseReply,
    RenewReply, RenewRequest, Successor,
};
use tenure_redis::{RedisCluster, RedisStore};
use tenure_servers::{Redis, Replicated};

const NOT_ACKNOWLEDGED: (Fault, Effect) = (Fault::Unavailable, Effect::Unknown);

/// Claim number `number` of client number `client`.
fn claim(key: &str, client: u8, number: u64) -> Arc<Claim> {
    let id = ClaimId::new(ClientId::from_random([client; 16]), number);
    let key = LockKey::new(key).expect("a key");
    Arc::new(Claim::of(ClaimRef { key, id }, Duration::from_secs(60)))
}

/// A master with two replicas.
/// Starts a master with two replicas whose acknowledgements it counts: it does so up to a second after they are in sync.
fn start() -> Replicated {
    let mut group = Replicated::start_servers(&[]).expect("all start");
    wait_until(|| {
        let info = group.servers()[0]
            .ask(&["INFO", "replication"])
            .expect("it answers");
        info.matches("state=online").count() == 2
    });
    group
}

async fn store(server: &Redis, options: &str) -> Arc<RedisStore> {
    let url = format!("{}?{options}", server.url());
    connect(&url).await.expect("the server answers")
}

/// Kills the master, makes the server with that index the master, and returns a store on it.
async fn promote(group: &mut Replicated, index: usize) -> Arc<RedisStore> {
    group.servers()[0].process().kill();
    let replica = &mut group.servers()[index];
    replica.process().resume();
    replica.ask(&["REPLICAOF", "NO", "ONE"]).expect("it is promoted");
    store(replica, "").await
}

/// Returns whether the replicas have acknowledged all writes of their master.
fn has_acknowledged_replicas(master: &Redis) -> bool {
    let info = master.ask(&["INFO", "replication"]).expect("it answers");
    let written = info
        .lines()
        .find_map(|line| line.strip_prefix("master_repl_offset:"));
    let acknowledged = format!("offset={},", written.expect("an offset").trim());
    let mut replicas = info.lines().filter(|line| line.contains("state=online"));
    replicas.all(|replica| replica.contains(&acknowledged))
}

fn calls(server: &Redis, command: &str) -> u32 {
    let stats = server.ask(&["INFO", "commandstats"]).expect("it answers");
    let prefix = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&prefix));
    line.map_or(0, |line| {
        line.split(',')
            .next()
            .unwrap_or_default()
            .parse()
            .expect("a number")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_on_the_acknowledging_replica_when_it_returns() {
    let mut group = start();
    group.servers()[2].process().pause();
    let store = store(&group.servers()[0], "replicas=1&replica_wait=10s").await;
    for number in 0..20 {
        let key = format!("k{number}");
        let granted = acquire(&store, &claim(&key, 1, number)).await;
        assert!(is_granted(&granted), "{granted:?}");
        let there = group.servers()[1].ask(&["EXISTS", &key]).expect("it answers");
        assert_eq!(there, "1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_no_replica_acknowledges_is_refused() {
    let mut group = start();
    // Long enough for a replica on a busy machine to acknowledge the first grant.
    let store = store(&group.servers()[0], "replicas=1&replica_wait=1s").await;
    wait_until(|| has_acknowledged_replicas(&group.servers()[0]));
    let [held, unfair, successor] = [0, 1, 2].map(|number| claim("held", 1, number));
    assert!(is_granted(&acquire(&store, &held).await));
    // Waits until the replicas have acknowledged the earlier writes, which must not count for later ones.
    wait_until(|| has_acknowledged_replicas(&group.servers()[0]));
    for replica in &mut group.servers()[1..] {
        replica.process().pause();
    }
    let refused = acquire(&store, &claim("other", 1, 3))
        .await
        .expect_err("no replica answers");
    assert_error(
        &refused,
        NOT_ACKNOWLEDGED,
        "0 of 1 replicas acknowledged the lock within 1s",
    );
    // The master has granted the claim. Without an acknowledgement, a poll of it fails too.
    let polled = acquire(&store, &claim("other", 1, 3))
        .await
        .expect_err("no replica answers");
    assert_error(&polled, NOT_ACKNOWLEDGED, "0 of 1");
    match renew(&store, RenewRequest::of(&held)).await {
        RenewReply::Unknown(error) => assert_error(&error, NOT_ACKNOWLEDGED, "0 of 1"),
        other => panic!("{other:?}"),
    }
    // A release needs no acknowledgement: if a failover loses it, the lease ends the claim.
    let done = release(&store, unlock_of(&claim("other", 1, 3))).await;
    assert!(
        matches!(&done, ReleaseReply::Done { freed, .. } if freed.len() == 1),
        "{done:?}"
    );
    let mut handover = unlock_of(&held);
    let not_after = store.clock().now() + Duration::from_secs(5);
    handover.successor = Some(Successor {
        claim: successor.clone(),
        not_after,
    });
    let refused = release_error(&store, handover.clone()).await;
    assert_error(&refused, NOT_ACKNOWLEDGED, "0 of 1");
    for replica in &mut group.servers()[1..] {
        replica.process().resume();
    }
    wait_until(|| group.servers()[1].ask(&["PING"]).is_ok());
    let done = release(&store, handover).await;
    let is_held = matches!(&done, ReleaseReply::Done { successor: Some(reply), .. }
        if matches!(reply, AcquireReply::Granted(_)));
    assert!(
        is_held,
        "the repeated release finds the successor granted: {done:?}"
    );
    let waits = acquire(&store, &unfair).await;
    assert!(is_waiting(&waits), "{waits:?}");
}

/// If the write before `WAIT` is refused, `WAIT` would count replicas that have only earlier writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_refused_if_no_write_precedes_its_wait() {
    let mut group = start();
    let store = store(&group.servers()[0], "replicas=1&replica_wait=10s").await;
    assert!(is_granted(&acquire(&store, &claim("k", 1, 0)).await));
    // Permits all keys of locks, but not `tenure_tokens:acknowledged`, which is written before each `WAIT`.
    let keys = "resetkeys ~k* ~{k* ~*:{k* ~tenure_tokens ~tenure_client:* ~tenure_in_flight:*";
    let command: Vec<_> = ["ACL", "SETUSER", "default"]
        .into_iter()
        .chain(keys.split(' '))
        .collect();
    group.servers()[0].ask(&command).expect("it obeys");
    let refused = acquire(&store, &claim("k2", 1, 1))
        .await
        .expect_err("its write is refused");
    assert_error(
        &refused,
        (Fault::Denied, Effect::Unknown),
        "does not count as held",
    );
}

/// A grant or renewal needs the acknowledgement of a replica of the lock's node, also after the lock's slot has moved
/// to another node.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_of_a_cluster_is_on_the_replica_of_its_node() {
    let cluster = Cluster::replicated();
    let url = cluster.servers.lock().url_of(&format!("{USER}:{PASSWORD}@"));
    let store = async |options| {
        let config = config(&format!("{url}?{options}")).expect("a URL");
        RedisCluster::connect(config).await.expect("the cluster answers")
    };
    let patient = store("replicas=1&replica_wait=10s").await;
    let claims: Vec<_> = (0..30)
        .map(|number| claim(&format!("k{number}"), 1, number))
        .collect();
    let granted = join_all(claims.iter().map(|claim| acquire(&patient, claim))).await;
    assert!(granted.iter().all(is_granted), "{granted:?}");
    let is_replicated = |claim: &Claim| {
        let (_, owner, _) = cluster.place(&claim.at.key);
        let keys = cluster.servers.lock().nodes()[owner + 3].ask(&["KEYS", claim.at.key.as_str()]);
        keys.expect("it answers") == claim.at.key.as_str()
    };
    assert!(claims.iter().all(|claim| is_replicated(claim)));
    let held = &claims[0];
    let (slot, owner, to) = cluster.place(&held.at.key);
    cluster.servers.lock().move_slot(slot, to).expect("it moves");
    let renewed = renew(&patient, RenewRequest::of(held)).await;
    assert!(matches!(renewed, RenewReply::Alive { .. }), "{renewed:?}");
    assert!(is_replicated(held));
    cluster.servers.lock().node_mut(to + 3).process().pause();
    let hasty = store("replicas=1&replica_wait=100ms").await;
    let new = |number: u64| claim(&format!("new{number}"), 1, number);
    let served_by = |node| {
        (100..)
            .map(new)
            .find(|claim| cluster.place(&claim.at.key).1 == node)
            .expect("one")
    };
    let refused = acquire(&hasty, &served_by(to))
        .await
        .expect_err("its replica is paused");
    assert_error(&refused, NOT_ACKNOWLEDGED, "0 of 1");
    assert!(is_granted(&acquire(&patient, &served_by(owner)).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_grants_share_a_wait() {
    let mut group = start();
    let store = store(&group.servers()[0], "replicas=2&replica_wait=10s").await;
    let claims: Vec<_> = (0..200)
        .map(|number| claim(&format!("k{number}"), 1, number))
        .collect();
    let granted = join_all(claims.iter().map(|claim| acquire(&store, claim))).await;
    assert!(granted.iter().all(is_granted), "{granted:?}");
    let waits = calls(&group.servers()[0], "wait");
    assert!((1..100).contains(&waits), "{waits} calls of WAIT for 200 grants");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_outlives_the_master_on_an_acknowledging_replica() {
    let mut group = start();
    group.servers()[2].process().pause();
    let first = store(&group.servers()[0], "replicas=1&replica_wait=10s").await;
    assert!(is_granted(&acquire(&first, &claim("k", 1, 0)).await));
    let second = promote(&mut group, 1).await;
    let busy = acquire(&second, &claim("k", 2, 0)).await;
    assert!(is_waiting(&busy), "{busy:?}");
}

/// After a failover, a second client gets the lock that the first still holds: without `replicas`, or with `replicas=1`
/// if the promoted replica did not acknowledge the grant. The second fencing token is greater.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_twice_if_a_replica_that_lacks_it_is_promoted() {
    for options in ["", "replicas=1&replica_wait=10s"] {
        let mut group = start();
        let first = store(&group.servers()[0], options).await;
        // Cuts this replica off from its master, so that it lacks the grant.
        let cut_off = group.servers()[2].ask(&["REPLICAOF", "127.0.0.1", "1"]);
        cut_off.expect("it obeys");
        let before = acquire(&first, &claim("k", 1, 0)).await;
        let second = promote(&mut group, 2).await;
        let after = acquire(&second, &claim("k", 2, 0)).await;
        match (before, after) {
            (Ok(AcquireReply::Granted(before)), Ok(AcquireReply::Granted(after))) => {
                assert_tokens_rise(&before, &after);
            }
            other => panic!("{other:?}"),
        }
    }
}
