//! When the watchdog renews leases, and how soon it tries again after a failure.

use std::sync::atomic::Ordering;

use crate::faulty_backend::Verb;
use crate::fixture::{Fixture, MS, SECOND, hold_many, pass};

/// A store that is well again before the local deadline keeps the lock.
#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_retried_after_a_thirtieth_of_the_lease() {
    for lease in [600 * MS, 3 * SECOND, 6 * SECOND, 12 * SECOND, 30 * SECOND] {
        let (_, client, backend) = Fixture::with_faulty_backend();
        let renew = backend.control(Verb::Renew);
        renew.fail_before(usize::MAX);
        let guard = client.mutex("k").lease(lease).lock().await.unwrap();
        while renew.count() == 0 {
            pass(MS).await;
        }
        pass(lease / 6).await;
        let tries = renew.count();
        assert!((5..=6).contains(&tries), "{tries} tries in a sixth of {lease:?}");
        renew.fail_before(0);
        pass(lease / 30 + 5 * MS).await;
        assert!(guard.remaining() > lease * 9 / 10, "{lease:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn claims_whose_renewals_fail_together_are_retried_in_batches() {
    const LOCKS: usize = 2_000;
    let (_, client, backend) = Fixture::with_faulty_backend();
    let guards = hold_many(&client, LOCKS).await;
    let renew = backend.control(Verb::Renew);
    renew.fail_before(usize::MAX);
    pass(20 * SECOND).await;
    let (calls, elements) = (renew.count(), renew.elements.load(Ordering::Relaxed));
    assert!(elements > 8 * LOCKS, "{elements} renewals in 10 s");
    assert!(elements > 100 * calls, "{calls} calls for {elements} renewals");
    renew.fail_before(0);
    pass(2 * SECOND).await;
    assert!(guards.iter().all(|guard| guard.remaining() > 25 * SECOND));
}

/// The store's lease, and so the time of the next renewal, is far shorter than the client's.
#[tokio::test(start_paused = true)]
async fn a_shorter_renewed_lease_is_renewed_in_time() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    backend.renew_for(600 * MS);
    pass(60 * SECOND).await;
    assert!(guard.is_held());
}

/// A lease that claims share may be seconds old at the grant. Its first renewal counts from what is left of it.
#[tokio::test(start_paused = true)]
async fn a_grant_on_an_old_lease_is_renewed_in_time() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    backend.age_leases(15 * SECOND);
    pass(16 * SECOND).await;
    let guard = client.mutex("k").lock().await.unwrap();
    assert!(guard.remaining() < 15 * SECOND);
    let renew = backend.control(Verb::Renew);
    pass(4 * SECOND).await;
    assert_eq!(renew.count(), 0);
    pass(SECOND).await;
    assert_eq!(renew.count(), 1);
}

/// A store that is slow would become slower if the client sent renewals again that are still in flight. But one that never
/// answers gets another request while the lease lasts.
#[tokio::test(start_paused = true)]
async fn an_unanswered_renewal_is_sent_again_after_a_third_of_the_lease() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let renew = backend.control(Verb::Renew);
    renew.hold_before();
    let guard = client.mutex("k").lease(3 * SECOND).lock().await.unwrap();
    while renew.count() == 0 {
        pass(10 * MS).await;
    }
    pass(800 * MS).await;
    assert_eq!(renew.count(), 1, "the first renewal is in flight");
    pass(300 * MS).await;
    assert_eq!(renew.count(), 2);
    renew.resume();
    pass(60 * SECOND).await;
    assert!(guard.is_held());
}

/// A confirmed renewal leaves the time of the next one as it is: a third of the lease after the last was sent.
#[tokio::test(start_paused = true)]
async fn renewals_are_sent_every_third_of_the_lease() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let renew = backend.control(Verb::Renew);
    renew.delay(300 * MS);
    let guard = client.mutex("k").lease(3 * SECOND).lock().await.unwrap();
    pass(60 * SECOND).await;
    assert!((59..=67).contains(&renew.count()), "{} renewals", renew.count());
    assert!(guard.is_held());
}
