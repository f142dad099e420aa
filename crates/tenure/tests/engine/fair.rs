//! Fair locks: waiters of all clients are served in the order of arrival.

use std::sync::Arc;

use futures_util::FutureExt;
use tenure_backend::{HolderId, Order};

use crate::faulty_backend::Verb;
use crate::fixture::{Fixture, MS, SECOND, pass, queued, served, settle, spawned};

#[tokio::test(start_paused = true)]
async fn fair_waiters_acquire_in_the_order_of_arrival() {
    let (_, [here, elsewhere]) = Fixture::clients();
    let guard = here.mutex("k").fair().lock().await.unwrap();
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for n in 0..10 {
        let client = if n % 2 == 0 { &here } else { &elsewhere };
        let (mutex, order) = (client.mutex("k").fair(), order.clone());
        let turn = async move {
            let guard = mutex.lock().await.unwrap();
            order.lock().push(n);
            guard.unlock().await.unwrap();
        };
        waiters.push(spawned(turn).await);
    }
    guard.unlock().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock(), (0..10).collect::<Vec<_>>());
}

/// R26: a waiter that is dropped or times out leaves no claim in the store's queue.
#[tokio::test(start_paused = true)]
async fn a_cancelled_fair_waiter_leaves_the_queue() {
    let (fixture, [client]) = Fixture::clients();
    let guard = client.mutex("k").fair().lock().await.unwrap();
    let gone = queued(client.mutex("k").fair().lock()).await;
    assert_eq!(fixture.queue("k").await.len(), 1);
    drop(gone);
    settle().await;
    assert_eq!(fixture.queue("k").await.len(), 0);
    assert!(client.mutex("k").fair().lock_within(SECOND).await.is_err());
    settle().await;
    assert_eq!(fixture.queue("k").await.len(), 0);
    guard.unlock().await.unwrap();
    fixture.freed("k", MS).await;
}

/// R19, R26: waiters renew their claims, and keep their places while a holder renews for 200 s.
#[tokio::test(start_paused = true)]
async fn a_fair_waiter_keeps_its_place_for_longer_than_its_lease() {
    let (fixture, [here, elsewhere]) = Fixture::clients();
    let guard = here.mutex("k").fair().lock().await.unwrap();
    let first = spawned(elsewhere.mutex("k").fair().lock()).await;
    let second = spawned(here.mutex("k").fair().lock()).await;
    let queue = async || fixture.queue("k").await.into_iter().map(|waiter| waiter.id);
    let before: Vec<_> = queue().await.collect();
    pass(200 * SECOND).await;
    assert!(queue().await.eq(before), "a claim has lost its place");
    guard.unlock().await.unwrap();
    settle().await;
    assert!(first.is_finished() && !second.is_finished());
    first.await.unwrap().unwrap().unlock().await.unwrap();
    second.await.unwrap().unwrap().unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_evicted_fair_waiter_queues_again_at_the_tail() {
    let (fixture, [client]) = Fixture::clients();
    let guard = client.mutex("k").fair().lock().await.unwrap();
    let waiting = spawned(client.mutex("k").fair().lock()).await;
    let was = fixture.queue("k").await[0].id.clone();
    client.evict(was.clone().on(guard.key().clone())).await.unwrap();
    pass(11 * SECOND).await;
    let now = fixture.queue("k").await[0].id.clone();
    assert_ne!(was, now, "a claim is used once");
    guard.unlock().await.unwrap();
    served(waiting).await.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fair_try_on_a_busy_lock_does_not_queue() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = fixture.client().mutex("k").lock().await.unwrap();
    assert!(client.mutex("k").fair().try_lock().await.unwrap().is_none());
    settle().await;
    let releases = backend.control(Verb::Release).count();
    assert_eq!(releases, 0, "there is nothing to withdraw");
    guard.unlock().await.unwrap();
}

/// R26: if a store queues every claim, even an unfair one, a `try_lock` withdraws its claim from the store's queue.
#[tokio::test(start_paused = true)]
async fn a_try_leaves_no_claim_in_a_fair_only_store() {
    let fixture = Fixture::new();
    let (client, _) = fixture.faulty_client_where(|profile| profile.mutex = Order::FifoForBoth);
    let guard = fixture.client().mutex("k").lock().await.unwrap();
    for mutex in [client.mutex("k"), client.mutex("k").fair()] {
        assert!(mutex.try_lock().await.unwrap().is_none());
        settle().await;
        assert_eq!(fixture.queue("k").await.len(), 0);
    }
    guard.unlock().await.unwrap();
}

/// A lease that claims share may be seconds old when one of them is granted. The time of local hand-overs counts from the
/// request that found the grant.
#[tokio::test(start_paused = true)]
async fn a_grant_on_an_old_lease_is_delivered_and_handed_over() {
    let fixture = Fixture::new();
    let (client, backend) = fixture.faulty_client_where(|profile| profile.mutex = Order::FifoForBoth);
    backend.age_leases(5 * SECOND);
    pass(6 * SECOND).await;
    let first = fixture.client().mutex("k").lock().await.unwrap();
    let lock = || {
        let mutex = client.mutex("k");
        async move { mutex.lock().await }
    };
    let waiting = spawned(lock()).await;
    let next = spawned(lock()).await;
    first.unlock().await.unwrap();
    served(waiting).await.unlock().await.unwrap();
    served(next).await.unlock().await.unwrap();
    assert_eq!(
        *backend.placed.lock(),
        [2, 2, 2],
        "one claim: placed, polled as its watch began, and woken"
    );
    assert_eq!(backend.reserved.lock().len(), 0, "it was handed over in memory");
}

/// Callers that leave together leave nothing: the client withdraws the claim that waited for all of them.
#[tokio::test(start_paused = true)]
async fn callers_share_one_place_in_a_store_of_one_order() {
    let fixture = Fixture::new();
    let (client, _) = fixture.faulty_client_where(|profile| profile.mutex = Order::FifoForBoth);
    let guard = fixture.client().mutex("k").lock().await.unwrap();
    let mutex = client.mutex("k");
    let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(mutex.lock())).collect();
    for waiter in &mut waiting {
        assert!(waiter.now_or_never().is_none());
    }
    settle().await;
    assert_eq!(fixture.queue("k").await.len(), 1);
    drop(waiting);
    settle().await;
    assert_eq!(fixture.queue("k").await.len(), 0);
    guard.unlock().await.unwrap();
}

/// A caller that must wait has its place in the store's queue after one call, and its client goes on with this claim.
#[tokio::test(start_paused = true)]
async fn a_caller_has_its_place_after_one_call_in_a_store_of_one_order() {
    let fixture = Fixture::new();
    let (client, backend) = fixture.faulty_client_where(|profile| profile.mutex = Order::FifoForBoth);
    let guard = fixture.client().mutex("k").lock().await.unwrap();
    let mutex = client.mutex("k");
    let mut first = Box::pin(mutex.lock());
    assert!(first.as_mut().now_or_never().is_none());
    let [placed] = &fixture.queue("k").await[..] else {
        panic!("the first call placed the claim");
    };
    let placed = placed.id.clone();
    let later = spawned({
        let mutex = fixture.client().mutex("k").fair();
        async move { mutex.lock().await.unwrap().unlock().await.unwrap() }
    })
    .await;
    settle().await;
    assert_eq!(fixture.queue("k").await[0].id, placed, "it kept its place");
    guard.unlock().await.unwrap();
    let first = first.await.unwrap();
    assert_eq!(HolderId::Claim(first.claim().id), placed);
    assert_eq!(backend.control(Verb::Release).count(), 0, "nothing was withdrawn");
    first.unlock().await.unwrap();
    later.await.unwrap();
}

/// A claim that stands in the store's queue keeps the key from others. It never outlives its caller: not if the caller
/// leaves during the call, nor between the call and the poller's next look, nor if the client closes.
#[tokio::test(start_paused = true)]
async fn no_claim_stands_for_a_caller_that_has_left() {
    for leaves in ["during the call", "after the call", "by closing"] {
        let fixture = Fixture::new();
        let (client, backend) = fixture.faulty_client_where(|profile| profile.mutex = Order::FifoForBoth);
        let guard = fixture.client().mutex("k").lock().await.unwrap();
        let mutex = client.mutex("k");
        let mut waiting = Box::pin(mutex.lock());
        if leaves == "during the call" {
            backend.control(Verb::Acquire).hold_after();
        }
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(fixture.queue("k").await.len(), 1, "{leaves}");
        if leaves == "by closing" {
            client.close(SECOND).await.unwrap();
        }
        drop(waiting);
        backend.control(Verb::Acquire).resume();
        settle().await;
        assert_eq!(fixture.queue("k").await.len(), 0, "{leaves}");
        guard.unlock().await.unwrap();
    }
}

/// Readers share one claim, for which the poller asks when it knows how many wait. So a reader's own claim does not stand.
#[tokio::test(start_paused = true)]
async fn waiting_readers_share_one_place_in_a_store_of_one_order() {
    let fixture = Fixture::new();
    let (client, _) = fixture.faulty_client_where(|profile| profile.read_write = Order::FifoForBoth);
    let writer = fixture.client().rwlock("k").write().await.unwrap();
    let lock = client.rwlock("k");
    let mut readers: Vec<_> = (0..3).map(|_| Box::pin(lock.read())).collect();
    for reader in &mut readers {
        assert!(reader.now_or_never().is_none());
    }
    settle().await;
    assert_eq!(fixture.queue("k").await.len(), 1);
    writer.unlock().await.unwrap();
    for guard in futures_util::future::join_all(readers).await {
        guard.unwrap().unlock().await.unwrap();
    }
}
