//! Locks in a real cluster while slots move to another node, or are served by none.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::fixture::*;
use futures_util::StreamExt;
use tenure_backend::{
    AcquireReply, Backend, Effect, Fault, HolderId, Mode, Phase, ReleaseReply, RenewReply, RenewRequest,
};
use tenure_redis::RedisCluster;

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_while_its_empty_slot_moves() {
    let (cluster, store) = Cluster::start().with_clients().await;
    let (client, key) = (store.client().await, store.key());
    let (slot, from, to) = cluster.place(&key);
    cluster.servers.lock().begin_move(slot, to).expect("it begins");
    let claim = client.claim(&key, Mode::Exclusive);
    let call = tokio::spawn({
        let (backend, claim) = (client.backend().clone(), claim.clone());
        async move { acquire(&backend, &claim).await }
    });
    wait_until(|| cluster.refusals(from, "ASK") > 1);
    assert!(!call.is_finished());
    cluster.servers.lock().end_move(slot, to).expect("it ends");
    let reply = call.await.expect("it does not panic");
    assert!(is_granted(&reply), "{reply:?}");
    client.release(&claim).await.freed_it(&claim);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_while_keys_of_its_lock_are_apart() {
    let (cluster, store) = Cluster::start().with_clients().await;
    let (client, key) = (store.client().await, store.key());
    let claim = hold(&client, &key).await;
    let (slot, from, to) = cluster.place(&key);
    {
        let servers = cluster.servers.lock();
        servers.begin_move(slot, to).expect("it begins");
        let moved = servers.move_keys(slot, to, |key| key.starts_with("tenure_tokens"));
        assert_eq!(moved.expect("it moves"), 1);
    }
    let renewal = tokio::spawn({
        let (client, claim) = (client.clone(), claim.clone());
        async move { renew(client.backend(), RenewRequest::of(&claim)).await }
    });
    wait_until(|| cluster.refusals(from, "TRYAGAIN") > 2);
    assert!(!renewal.is_finished());
    {
        let servers = cluster.servers.lock();
        assert!(servers.move_keys(slot, to, |_| true).expect("they move") > 0);
        servers.end_move(slot, to).expect("it ends");
    }
    let reply = renewal.await.expect("it does not panic");
    assert!(matches!(reply, RenewReply::Alive { .. }), "{reply:?}");
    client.release(&claim).await.freed_it(&claim);
}

/// One slot is being moved, and the node of another is silent: only the renewals of their claims fail.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_not_served_affects_no_other_renewal() {
    let (cluster, store) = Cluster::start().with_clients().await;
    let client = store.client().await;
    let mut claims = Vec::new();
    for node in 0..3 {
        let key = std::iter::repeat_with(|| store.key()).find(|key| cluster.place(key).1 == node);
        claims.push(hold(&client, &key.expect("a third of all keys")).await);
    }
    let (slot, moving, to) = cluster.place(&claims[0].at.key);
    assert_eq!((moving, to), (0, 1));
    {
        let mut servers = cluster.servers.lock();
        servers.begin_move(slot, to).expect("it begins");
        let moved = servers.move_keys(slot, to, |key| key.starts_with("tenure_tokens"));
        assert_eq!(moved.expect("it moves"), 1);
        servers.node_mut(2).process().pause();
    }
    let renewals = claims.iter().map(|claim| RenewRequest {
        lease: Duration::from_secs(6),
        ..RenewRequest::of(claim)
    });
    let began = std::time::Instant::now();
    let replies = client.backend().clone().renew(renewals.collect()).await;
    // A call may last for a sixth of the lease; the rest is for a busy machine.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(
        matches!(
            &replies[..],
            [
                RenewReply::Unknown(moving),
                RenewReply::Alive { .. },
                RenewReply::Unknown(silent)
            ] if moving.is_transient() && silent.is_transient()
        ),
        "{replies:?}"
    );
    cluster.servers.lock().node_mut(2).process().resume();
}

/// The connection to one node has ended, and an attempt to open another lasts for longer than the leases: a machine that
/// has lost its power answers nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_connection_delays_no_other_renewal() {
    let cluster = Cluster::start();
    let options = "&connect_timeout=60s&command_timeout=1s";
    let store = RedisCluster::connect(cluster.config_of(&cluster.addresses(), options)).await;
    let store: Arc<dyn Backend> = store.expect("the cluster answers");
    let lease = Duration::from_secs(3);
    let mut claims = Vec::new();
    for node in 0..2 {
        let claim = numbered_claim(cluster.key_at(node).as_str(), 1, node as u64);
        assert!(is_granted(&acquire(&store, &claim).await));
        claims.push(claim);
    }
    cluster.servers.lock().node_mut(1).process().pause();
    let began = std::time::Instant::now();
    // The first calls find the silent connection and close it.
    while began.elapsed() < 2 * lease {
        let renewals = claims.iter().map(|claim| RenewRequest {
            lease,
            ..RenewRequest::of(claim)
        });
        let asked = std::time::Instant::now();
        let replies = store.clone().renew(renewals.collect()).await;
        // A third of the lease, and time for a busy machine.
        assert!(asked.elapsed() < lease, "{:?}", asked.elapsed());
        assert!(
            matches!(&replies[..], [RenewReply::Alive { .. }, RenewReply::Unknown(_)]),
            "{replies:?}"
        );
    }
    cluster.servers.lock().node_mut(1).process().resume();
}

/// While a slot moves, its old node refuses a call with several keys of which one is absent. So a release also declares
/// a key that never exists. With only the lock's key, which is still on the old node, the script would begin there, and
/// fail before it publishes the message.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_waits_while_its_slot_moves() {
    let (cluster, store) = Cluster::start().with_clients().await;
    let ([holder, waiter], key) = (store.two().await, store.key());
    let held = hold(&holder, &key).await;
    let waiting = waiter.claim(&key, Mode::Exclusive);
    let (slot, from, to) = cluster.place(&key);
    cluster.servers.lock().begin_move(slot, to).expect("it begins");
    let release = tokio::spawn({
        let (backend, held) = (holder.backend().clone(), held.clone());
        async move { release(&backend, unlock_of(&held)).await }
    });
    wait_until(|| cluster.refusals(from, "TRYAGAIN") > 1);
    assert_eq!(cluster.ask(&key, &["EXISTS", key.as_str()]), "1");
    {
        let servers = cluster.servers.lock();
        assert!(servers.move_keys(slot, to, |_| true).expect("they move") > 0);
        servers.end_move(slot, to).expect("it ends");
    }
    let freed = release.await.expect("it does not panic");
    let ReleaseReply::Done { freed, .. } = freed else {
        panic!("{freed:?}");
    };
    assert_eq!(freed[..], [HolderId::Claim(held.at.id)]);
    waiter.granted(&waiting).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_and_waiters_move_with_their_slot() {
    let (cluster, store) = Cluster::start().with_clients().await;
    let ([holder, waiter], key) = (store.two().await, store.key());
    let held = holder.claim(&key, Mode::Exclusive);
    let first = holder.granted(&held).await;
    let queued = enqueue(&waiter, &key).await;
    for _ in 0..3 {
        let (slot, _, to) = cluster.place(&key);
        cluster.servers.lock().move_slot(slot, to).expect("it moves");
        holder.stays_alive(&held, Phase::Granted).await;
        waiter.waits(&queued).await;
        assert_eq!(holder.granted(&held).await.tokens, first.tokens);
    }
    holder.release(&held).await.freed_it(&held);
    let second = waiter.granted_soon(&queued).await;
    assert_tokens_rise(&first, &second);
    waiter.release(&queued).await.freed_it(&queued);
    let (slot, _, to) = cluster.place(&key);
    cluster.servers.lock().move_slot(slot, to).expect("it moves");
    let next = holder.claim(&key, Mode::Exclusive);
    assert_tokens_rise(&second, &holder.granted(&next).await);
}

/// The server ends the subscription to a channel whose slot moves. Nothing else tells the waiter, which does not poll.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_watched_where_its_slot_has_moved() {
    let (cluster, store) = Cluster::start().with_clients().await;
    let ([holder, waiter], key) = (store.two().await, store.key());
    let held = hold(&holder, &key).await;
    let waiting = waiter.claim(&key, Mode::Exclusive);
    let mut wakes = waiter.watch(&waiting).await.expect("it wakes");
    let (slot, from, to) = cluster.place(&key);
    assert_eq!(cluster.subscribers(from, &key), 1);
    cluster.servers.lock().move_slot(slot, to).expect("it moves");
    let polls = async {
        loop {
            wait_for_wake(&mut wakes).await;
        }
    };
    let moved = async {
        while cluster.subscribers(to, &key) == 0 {
            // sleep: no event announces a subscription.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = polls => {}
        () = soon(moved) => {}
    }
    assert_eq!(cluster.subscribers(from, &key), 0);
    // Only the release wakes the waiter from now on.
    while tokio::time::timeout(Duration::from_millis(300), wakes.next())
        .await
        .is_ok()
    {}
    holder.release(&held).await.freed_it(&held);
    wait_for_wake(&mut wakes).await;
    drop(wakes);
    wait_until(|| cluster.subscribers(to, &key) == 0);
}

/// The further keys and the channels of each kind of lock move with the slot, and so do its holders and waiters.
#[tokio::test(flavor = "multi_thread")]
async fn locks_of_every_kind_move_with_their_slot() {
    let permits = |take| {
        let [take, of] = [take, 2].map(|number| NonZeroU32::new(number).expect("some"));
        Mode::Permits { take, of }
    };
    let kinds = [
        ("redisson", Mode::Write, Mode::Read),
        ("redisson", permits(2), permits(1)),
        ("plain", Mode::Exclusive, Mode::Exclusive),
    ];
    for (layout, held_in, wanted) in kinds {
        let mut cluster = Cluster::start();
        cluster.layout = layout;
        let (cluster, store) = cluster.with_clients().await;
        let ([holder, waiter], key) = (store.two().await, store.key());
        let held = holder.claim(&key, held_in);
        let first = holder.granted(&held).await;
        let waiting = waiter.claim(&key, wanted);
        waiter.waits(&waiting).await;
        let mut wakes = waiter.watch(&waiting).await.expect("it wakes");
        wait_for_wake(&mut wakes).await;
        let (slot, _, to) = cluster.place(&key);
        cluster.servers.lock().move_slot(slot, to).expect("it moves");
        holder.stays_alive(&held, Phase::Granted).await;
        waiter.waits(&waiting).await;
        // The watch has moved too: only the release wakes the waiter from then on.
        while tokio::time::timeout(Duration::from_millis(300), wakes.next())
            .await
            .is_ok()
        {}
        assert!(waiter.status(&key).await.is_some());
        holder.release(&held).await.freed_it(&held);
        wait_for_wake(&mut wakes).await;
        let second = waiter.granted(&waiting).await;
        assert_tokens_rise(&first, &second);
        waiter.release(&waiting).await.freed_it(&waiting);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_without_a_node_is_a_transient_error() {
    let (cluster, store) = Cluster::start().with_clients().await;
    let (client, key) = (store.client().await, store.key());
    let (slot, owner, _) = cluster.place(&key);
    let slot = slot.to_string();
    let command = |command: &str| {
        let servers = cluster.servers.lock();
        servers.nodes()[owner]
            .ask(&["CLUSTER", command, &slot])
            .expect("it obeys");
    };
    command("DELSLOTS");
    let claim = client.claim(&key, Mode::Exclusive);
    let refusal = acquire(client.backend(), &claim)
        .await
        .expect_err("no node serves it");
    assert_error(
        &refusal,
        (Fault::Unavailable, Effect::None),
        "does not serve slot",
    );
    command("ADDSLOTS");
    let granted = async {
        while !matches!(
            acquire(client.backend(), &claim).await,
            Ok(AcquireReply::Granted(_))
        ) {
            // sleep: no event announces that the slot is served again.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(granted).await;
}

/// One `WAIT` answers the callers of many slots. The write before it is in the slot of the last one, which has moved: the
/// other callers must not look for their slots at its new node.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moved_sends_no_other_call_away() {
    let cluster = Cluster::replicated();
    let config = cluster.config_of(&cluster.addresses(), "&replicas=1&replica_wait=10s");
    let store = RedisCluster::connect(config).await.expect("the cluster answers");
    let keys: [_; 3] = std::array::from_fn(|_| cluster.key_at(0));
    cluster.servers.lock().node_mut(3).process().pause();
    let mut calls = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        let call = tokio::spawn({
            let (store, claim) = (store.clone(), numbered_claim(key.as_str(), 1, number as u64));
            async move { acquire(&store, &claim).await }
        });
        calls.push(call);
        wait_until(|| cluster.ask(key, &["EXISTS", key.as_str()]) == "1");
        // The first caller's `WAIT` keeps the others waiting for the next one.
        wait_until(|| {
            cluster
                .ask(key, &["INFO", "clients"])
                .contains("blocked_clients:1")
        });
    }
    let (slot, _, to) = cluster.place(&keys[2]);
    {
        let mut servers = cluster.servers.lock();
        servers.move_slot(slot, to).expect("it moves");
        servers.node_mut(3).process().resume();
    }
    let mut replies = Vec::new();
    for call in calls {
        replies.push(call.await.expect("it does not panic"));
    }
    assert!(is_granted(&replies[0]) && is_granted(&replies[2]), "{replies:?}");
    let unknown = replies[1].as_ref().expect_err("the replica was not asked");
    assert_error(
        unknown,
        (Fault::Unavailable, Effect::Unknown),
        "did not say how many replicas",
    );
    assert_eq!(cluster.refusals(to, "MOVED"), 0);
}
