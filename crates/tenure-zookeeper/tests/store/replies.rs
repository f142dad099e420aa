//! Replies that never come, and events that come late.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::case::{Case, children, config, key, node_of, only_child, shared};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use tenure_backend::{AcquireReply, Backend, Claim, ClaimId, ClaimRef, ClientId, Effect, Fairness, Mode};
use tenure_servers::Way;
use tenure_testkit::suite::Fixture;
use tenure_zookeeper::ZookeeperStore;
use tenure_zookeeper::client::{Acl, Event, Mode as NodeMode};

/// Time limit for what a test waits for.
const SOON: Duration = Duration::from_secs(10);

/// A claim for two of three permits.
const PERMITS: Mode = Mode::Permits {
    take: NonZeroU32::new(2).unwrap(),
    of: NonZeroU32::new(3).unwrap(),
};

#[tokio::test]
async fn a_lost_reply_to_a_take_is_found_by_the_next_poll() {
    let case = shared().await;
    let proxy = case.proxy().await;
    let through = Case {
        via: vec![proxy.address()],
        ..case.clone()
    };
    let fixture = Fixture::new(through).await;
    let (client, raw) = (fixture.client().await, case.raw().await);
    // Creates the folders.
    client.finds_free(&key("k"), PERMITS).await;
    let leases = case.path("k/leases");
    let mut taken = raw.get_children_watched(&leases).await.expect("children").2;
    let claim = client.fair(&key("k"), PERMITS);
    // The reply to the last request is under way when the connection breaks.
    proxy.delay(Way::ToClient, Duration::from_secs(1));
    let cut = async {
        taken.fired().await;
        proxy.cut();
    };
    let (reply, ()) = tokio::join!(client.acquire_by(&claim, client.now() + SOON), cut);
    assert_eq!(reply.expect_err("the reply is lost").effect(), Effect::Unknown);
    proxy.heal();
    client.granted(&claim).await;
    assert_eq!(children(&raw, &leases).await.len(), 2);
    client.release(&claim).await.freed_it(&claim);
    assert_eq!(children(&raw, &leases).await, [""; 0]);
}

/// The connection breaks within the reply to the session's first request, after 41 bytes with which it is opened.
#[tokio::test]
async fn a_session_node_whose_create_was_not_answered_is_found() {
    let case = shared().await;
    let (proxy, raw) = (case.proxy().await, case.raw().await);
    let sessions = raw
        .create(&case.path("%tenure"), b"", NodeMode::Container, Acl::Open)
        .await;
    sessions.expect("a node");
    proxy.cut_after(Way::ToClient, 42);
    let store = ZookeeperStore::open(config(&case.through(&proxy).url())).await;
    let store: Arc<dyn Backend> = store.expect("it connects");
    let at = ClaimRef {
        key: key("k"),
        id: ClaimId::new(ClientId::from_random([7; 16]), 1),
    };
    let claim = Arc::new(Claim::of(at, Duration::from_secs(30)));
    let granted = async {
        loop {
            match store
                .clone()
                .acquire(claim.clone(), store.clock().now() + SOON)
                .await
            {
                Ok(AcquireReply::Granted(_)) => return,
                Err(error) if error.is_transient() => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(SOON, granted)
        .await
        .expect("it is granted soon");
}

/// The evictor deletes the node next, and the lock is granted to another client.
#[tokio::test]
async fn a_claim_that_is_marked_before_it_is_found_has_ended() {
    let case = shared().await;
    let proxy = case.proxy().await;
    let fixture = Fixture::new(case.through(&proxy)).await;
    let (client, raw) = (fixture.client().await, case.raw().await);
    client.finds_free(&key("k"), Mode::Exclusive).await;
    let claim = client.fair(&key("k"), Mode::Exclusive);
    proxy.hold(Way::ToClient);
    let reply = client.acquire_by(&claim, client.now() + SOON).await;
    assert_eq!(reply.expect_err("no reply comes").effect(), Effect::Unknown);
    let node = only_child(&raw, &case.path("k")).await;
    let mark = format!("tenure1-evicted mutex {} 1 alice", claim.at.id);
    raw.set_data(&case.path(&format!("k/{node}")), mark.as_bytes(), None)
        .await
        .expect("it is written");
    proxy.cut();
    proxy.heal();
    client.has_ended(&claim).await;
}

/// A late node of a withdrawn claim is looked for once more, but not after the store was closed.
#[tokio::test]
async fn a_withdrawal_keeps_no_session_of_a_closed_store() {
    let case = shared().await;
    let proxy = case.proxy().await;
    let (client, raw) = (
        Fixture::new(case.through(&proxy)).await.client().await,
        case.raw().await,
    );
    let claim = |name: &str| {
        client.claim_as(&key(name), Mode::Exclusive, |claim| {
            (claim.lease, claim.fairness) = (Duration::from_secs(6), Fairness::Fifo);
        })
    };
    let [kept, withdrawn] = ["kept", "withdrawn"].map(claim);
    let node = node_of(&client, &kept).await.path;
    let mut ended = raw.get_children_watched(&node).await.expect("children").2;
    proxy.hold(Way::ToClient);
    let reply = client.acquire_by(&withdrawn, client.now() + SOON).await;
    assert_eq!(reply.expect_err("no reply comes").effect(), Effect::Unknown);
    proxy.cut();
    proxy.heal();
    client.withdraw(&withdrawn).await;
    client.backend().clone().close().await.expect("it closes");
    let ended = tokio::time::timeout(SOON, ended.fired()).await;
    assert_eq!(ended, Ok(Event::Deleted));
}

/// A watch fires once, and what changes before it is set again is not reported. So a waiter is woken when it is set.
#[tokio::test]
async fn a_change_wakes_a_waiter_whose_last_watch_has_just_fired() {
    let case = shared().await;
    let proxy = case.proxy().await;
    let through = Case {
        via: vec![proxy.address()],
        ..case.clone()
    };
    let (near, far) = (Fixture::new(case).await, Fixture::new(through).await);
    let (holder, waiter) = (near.client().await, far.client().await);
    let mut wakes = waiter
        .watch(&waiter.claim(&key("k"), Mode::Exclusive))
        .await
        .expect("ZooKeeper wakes waiters");
    // The holder's next change is carried out long before the waiter's request for another watch arrives.
    proxy.delay(Way::ToServer, Duration::from_millis(200));
    for round in 0..3 {
        let held = holder.holds(&key("k"), Mode::Exclusive).await;
        let taken = tokio::time::timeout(SOON, wakes.next()).await;
        taken.unwrap_or_else(|_| panic!("round {round}: the grant has not woken it"));
        holder.release(&held).await.freed_it(&held);
        let freed = tokio::time::timeout(SOON, wakes.next()).await;
        freed.unwrap_or_else(|_| panic!("round {round}: the release has not woken it"));
    }
}

/// The claim needs a session that is not open.
#[tokio::test]
async fn a_claim_that_comes_too_late_creates_nothing() {
    let case = shared().await;
    let (proxy, raw) = (case.proxy().await, case.raw().await);
    let through = Case {
        via: vec![proxy.address()],
        ..case.clone()
    };
    let client = Fixture::new(through).await.client().await;
    let claim = client.claim_as(&key("k"), Mode::Exclusive, |claim| claim.lease = SOON);
    let slow = Duration::from_millis(500);
    proxy.delay(Way::ToServer, slow);
    let reply = client.acquire_by(&claim, client.now() + slow / 2).await;
    assert!(matches!(reply, Ok(AcquireReply::TooLate)), "{reply:?}");
    let lock = raw.exists(&case.path("k")).await.expect("a reply");
    assert_eq!(lock, None);
}

/// Otherwise a call waits for the attempts of all calls before it to open a session.
#[tokio::test]
async fn calls_that_wait_for_a_silent_host_fail_together() {
    let case = shared().await;
    let proxy = case.proxy().await;
    let through = Case {
        via: vec![proxy.address()],
        options: "tick_time=500ms&connect_timeout=1s",
        ..case
    };
    let client = Fixture::new(through).await.client().await;
    for direction in [Way::ToServer, Way::ToClient] {
        proxy.swallow(direction);
    }
    proxy.cut();
    // The session that is open is for longer leases.
    let claim = |number: u32| {
        client.claim_as(&key(&number.to_string()), Mode::Exclusive, |claim| {
            claim.lease = SOON;
        })
    };
    let claims: Vec<_> = (0..10).map(claim).collect();
    let begun = Instant::now();
    let not_after = client.now() + SOON * 6;
    for reply in join_all(claims.iter().map(|claim| client.acquire_by(claim, not_after))).await {
        let error = reply.expect_err("the host is silent");
        assert!(error.is_transient(), "{error:?}");
    }
    assert!(begun.elapsed() < SOON / 2, "{:?}", begun.elapsed());
}
