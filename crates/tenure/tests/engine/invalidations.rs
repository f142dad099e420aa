//! Invalidations: the store's hints that claims may be gone cause renewals, and decide nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure::{Guard, Lost, LostCause};
use tenure_backend::{Invalidation, LockKey};

use crate::faulty_backend::{FaultyBackend, Verb};
use crate::fixture::{Fixture, MS, SECOND, evict, hold_many, pass, served, settle, spawned};

fn named(key: &str) -> Invalidation {
    Invalidation::Key(LockKey::new(key).unwrap())
}

/// The numbers of renewal calls so far, and of claims in them.
fn renewals(backend: &FaultyBackend) -> (usize, usize) {
    let renewals = backend.control(Verb::Renew);
    (renewals.count(), renewals.elements.load(Ordering::Relaxed))
}

/// A client that has subscribed, and holds the key `k`.
async fn subscribed() -> (Fixture, tenure::Client, std::sync::Arc<FaultyBackend>, Guard) {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    pass(SECOND).await;
    (fixture, client, backend, guard)
}

#[tokio::test(start_paused = true)]
async fn the_named_claim_is_renewed_and_its_loss_found() {
    let (fixture, client, backend, guard) = subscribed().await;
    let other = client.mutex("other").lock().await.unwrap();
    evict(&fixture.client(), "k").await;
    backend.invalidate(named("k"));
    settle().await;
    assert!(matches!(
        guard.check(),
        Err(Lost {
            cause: LostCause::Evicted { .. },
            ..
        })
    ));
    assert!(other.is_held());
    assert_eq!(renewals(&backend), (1, 1));
}

/// On a store that reports evictions, a holder of another client learns of its eviction at once.
#[tokio::test(start_paused = true)]
async fn memory_reports_an_eviction() {
    let (fixture, [client, operator]) = Fixture::clients();
    let guard = client.mutex("k").lock().await.unwrap();
    let fixed = client
        .mutex("fixed")
        .fixed_lease(20 * SECOND)
        .lock()
        .await
        .unwrap();
    pass(SECOND).await;
    for (key, guard) in [("k", &guard), ("fixed", &fixed)] {
        assert!(guard.is_held());
        evict(&operator, key).await;
        settle().await;
        assert!(!guard.is_held(), "{key}");
    }
    drop(fixture);
}

#[tokio::test(start_paused = true)]
async fn a_false_invalidation_costs_one_renewal() {
    let (_fixture, _client, backend, guard) = subscribed().await;
    for key in ["k", "not held"] {
        backend.invalidate(named(key));
        settle().await;
    }
    assert!(guard.is_held());
    assert_eq!(renewals(&backend), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_named_together_travel_in_one_batch() {
    let (_fixture, client, backend) = Fixture::with_faulty_backend();
    let guards = hold_many(&client, 20).await;
    pass(SECOND).await;
    for guard in &guards[..12] {
        backend.invalidate(Invalidation::Key(guard.key().clone()));
    }
    settle().await;
    assert_eq!(renewals(&backend), (1, 12));
}

/// Only a renewal that is sent after the invalidation answers it.
#[tokio::test(start_paused = true)]
async fn invalidations_during_a_renewal_cause_one_more() {
    let (_fixture, _client, backend, _guard) = subscribed().await;
    let renew = backend.control(Verb::Renew);
    renew.hold_before();
    for _ in 0..5 {
        backend.invalidate(named("k"));
        settle().await;
    }
    assert_eq!(renewals(&backend).0, 1);
    renew.resume();
    settle().await;
    assert_eq!(renewals(&backend).0, 2);
}

#[tokio::test(start_paused = true)]
async fn a_claim_requested_before_the_invalidation_is_renewed_once_granted() {
    let (_fixture, client, backend, _guard) = subscribed().await;
    let acquire = backend.control(Verb::Acquire);
    acquire.hold_after();
    let waiting = spawned(client.mutex("other").lock()).await;
    backend.invalidate(named("other"));
    settle().await;
    let before = renewals(&backend).0;
    acquire.resume();
    let guard = served(waiting).await;
    settle().await;
    assert_eq!(renewals(&backend).0, before + 1);
    guard.unlock().await.unwrap();
    // A claim that is requested later is not renewed early.
    pass(MS).await;
    let _later = client.mutex("later").lock().await.unwrap();
    settle().await;
    assert_eq!(renewals(&backend).0, before + 1);
}

/// A claim that the store keeps after an unlock is checked too.
#[tokio::test(start_paused = true)]
async fn a_kept_claim_is_checked() {
    let (fixture, client, backend, _guard) = subscribed().await;
    for (key, hint) in [("one", named("one")), ("all", Invalidation::All)] {
        let kept = client.mutex(key).at_least(20 * SECOND).lock().await.unwrap();
        kept.unlock().await.unwrap();
        evict(&fixture.client(), key).await;
        let before = renewals(&backend).0;
        backend.invalidate(hint);
        settle().await;
        assert!(renewals(&backend).0 > before, "{key}");
        pass(20 * MS).await;
        // The client knows that the claim is gone, so it does not keep the key from its own callers.
        drop(client.mutex(key).try_lock().await.unwrap().expect("it is free"));
    }
}

/// Endless false invalidations do not let one client keep a key for ever.
#[tokio::test(start_paused = true)]
async fn the_time_of_local_hand_overs_is_not_lengthened() {
    for (held_for, is_local) in [(Duration::ZERO, true), (SECOND, false)] {
        let (_fixture, client, backend, guard) = subscribed().await;
        let releases = backend.control(Verb::Release);
        let second = spawned(client.mutex("k").lock()).await;
        let third = spawned(client.mutex("k").lock()).await;
        guard.unlock().await.unwrap();
        // This claim has a token for the third caller, too. A fresh claim is handed over in memory. An older one is
        // not, though a renewal has just confirmed it: the store decides who is next.
        let second = served(second).await;
        pass(held_for).await;
        let (released, renewed) = (releases.count(), renewals(&backend).0);
        backend.invalidate(named("k"));
        settle().await;
        assert_eq!(renewals(&backend).0, renewed + 1);
        second.unlock().await.unwrap();
        let _third = served(third).await;
        assert_eq!(releases.count() == released, is_local, "after {held_for:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_subscribes_once_it_has_held_a_claim_for_a_while() {
    let (_fixture, client, backend) = Fixture::with_faulty_backend();
    for _ in 0..3 {
        let guard = client.mutex("k").lock().await.unwrap();
        pass(50 * MS).await;
        guard.unlock().await.unwrap();
        pass(SECOND).await;
    }
    assert_eq!(backend.subscriptions(), 0);
    let _guard = client.mutex("k").lock().await.unwrap();
    pass(250 * MS).await;
    assert_eq!(backend.subscriptions(), 1);
    pass(SECOND).await;
    assert_eq!(backend.subscriptions(), 1);
}

/// `All` renews everything, and one that comes meanwhile does so once more.
#[tokio::test(start_paused = true)]
async fn all_that_comes_during_the_renewal_of_all_causes_one_more() {
    let (_fixture, client, backend) = Fixture::with_faulty_backend();
    let _guards = hold_many(&client, 10).await;
    pass(SECOND).await;
    let renew = backend.control(Verb::Renew);
    renew.hold_before();
    for _ in 0..3 {
        backend.invalidate(Invalidation::All);
        settle().await;
    }
    assert_eq!(renewals(&backend), (1, 10));
    renew.resume();
    settle().await;
    assert_eq!(renewals(&backend), (2, 20));
}
