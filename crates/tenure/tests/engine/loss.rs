//! How a holder learns that its lock is lost, and what it can still do then.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure::{Error, LostCause, Settings};

use crate::faulty_backend::Verb;
use crate::fixture::{
    Fixture, LOCAL_LEASE, MS, SECOND, assert_error, evict, hold_many, lost, pass, queued, served, settle,
    spawned,
};

/// The watchdog renews after each third of the lease while the guard lives: 30 to 36 times in 300 s.
#[tokio::test(start_paused = true)]
async fn a_lock_is_held_for_as_long_as_its_guard_lives() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    pass(300 * SECOND).await;
    assert!(guard.is_held());
    guard.verify().await.unwrap();
    let renewals = backend.control(Verb::Renew).count();
    assert!((30..=36).contains(&renewals), "{renewals} renewals in 300 s");
    assert!(guard.remaining() > 19 * SECOND);
    guard.unlock().await.unwrap();
}

/// R14, R28: a lock is reported lost at the local deadline, even if the store answers no call.
#[tokio::test(start_paused = true)]
async fn a_silent_network_is_a_loss_at_the_local_deadline() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    let locked = tokio::time::Instant::now();
    backend.control(Verb::Renew).hold_before();
    backend.control(Verb::Release).hold_before();
    let lost = lost(&guard).await;
    let after = locked.elapsed();
    assert!(after >= LOCAL_LEASE && after < LOCAL_LEASE + 50 * MS, "{after:?}");
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert!(matches!(lost.cause, LostCause::Expired | LostCause::Unreachable));
    assert!(
        !fixture.is_free("k").await,
        "the local deadline is before the end of the lease"
    );
}

#[tokio::test(start_paused = true)]
async fn failed_renewals_are_reported_as_the_cause_of_loss() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    backend.control(Verb::Renew).fail_before(usize::MAX);
    assert_eq!(lost(&guard).await.cause, LostCause::Unreachable);
}

/// R5, R6: a failed renewal is retried within the same third of the lease, and never releases the lock.
#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_retried_and_releases_nothing() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    pass(8 * SECOND).await;
    backend.control(Verb::Renew).fail_before(3);
    pass(6 * SECOND).await;
    assert!(
        backend.control(Verb::Renew).count() >= 4,
        "tried again within the same third"
    );
    assert_eq!(backend.control(Verb::Release).count(), 0);
    assert!(guard.remaining() > 20 * SECOND);
    backend.control(Verb::Renew).fail_after(5);
    pass(60 * SECOND).await;
    assert!(guard.is_held());
}

/// R4: a renewal that is in flight during the release does not place the claim again.
#[tokio::test(start_paused = true)]
async fn a_renewal_in_flight_does_not_restore_a_released_lock() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    backend.control(Verb::Renew).hold_before();
    pass(11 * SECOND).await;
    assert_eq!(
        backend.control(Verb::Renew).count(),
        1,
        "its renewal is on the way"
    );
    guard.unlock().await.unwrap();
    backend.control(Verb::Renew).resume();
    settle().await;
    assert!(fixture.is_free("k").await);
    let before = backend.control(Verb::Renew).count();
    pass(60 * SECOND).await;
    let renewals = backend.control(Verb::Renew).count();
    assert_eq!(renewals, before, "a released claim is not renewed");
    let other = fixture.client().mutex("k").try_lock().await.unwrap();
    assert!(other.is_some());
}

/// R28: an evicted holder learns of the eviction, and the label of the client that evicted it.
#[tokio::test(start_paused = true)]
async fn an_evicted_holder_learns_of_it_within_a_third_of_its_lease() {
    let (fixture, [client]) = Fixture::clients();
    let operator = fixture.client_with(Settings::default().label("operator"));
    let guard = client.mutex("k").lock().await.unwrap();
    assert_eq!(evict(&operator, "k").await.len(), 1);
    let evicted = tokio::time::Instant::now();
    let lost = lost(&guard).await;
    assert!(evicted.elapsed() <= 10 * SECOND, "{:?}", evicted.elapsed());
    let by = Some("operator".into());
    assert_eq!(lost.cause, LostCause::Evicted { by });
    assert_error!(guard.unlock().await, Error::Lost(_));
}

/// The grants of local hand-overs share a claim, but each has its own token. A loss names the token of the lost grant.
#[tokio::test(start_paused = true)]
async fn a_loss_names_the_key_and_the_token_of_its_grant() {
    let (_, [client]) = Fixture::clients();
    let first = client.mutex("k").lock().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..4 {
        waiters.push(spawned(client.mutex("k").lock()).await);
    }
    let (mut claim, mut token, mut second) = (first.claim().clone(), first.token(), first);
    for waiter in waiters {
        (claim, token) = (second.claim().clone(), second.token());
        second.unlock().await.unwrap();
        second = served(waiter).await;
    }
    assert_eq!(*second.claim(), claim, "it was handed over");
    assert!(second.token() > token);
    assert_eq!(second.check(), Ok(()));
    evict(&client, "k").await;
    let lost = lost(&second).await;
    assert_eq!(
        (lost.key.as_str(), lost.token, lost.member),
        ("k", second.token(), None)
    );
    assert_eq!(second.check(), Err(lost.clone()));
    for answer in [second.verify().await, second.unlock().await] {
        assert!(matches!(answer, Err(Error::Lost(error)) if *error == lost));
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_its_own_client_evicts_learns_at_once() {
    let (_, [client]) = Fixture::clients();
    for mutex in [client.mutex("k"), client.mutex("k").fixed_lease(20 * SECOND)] {
        let guard = mutex.lock().await.unwrap();
        let waiting = spawned(client.mutex("k").lock()).await;
        evict(&client, "k").await;
        let evicted = tokio::time::Instant::now();
        lost(&guard).await;
        drop(served(waiting).await);
        assert!(evicted.elapsed() < SECOND, "{:?}", evicted.elapsed());
        pass(SECOND).await;
    }
}

/// The renewal that finds the claim gone also wakes this client's waiters: they do not wait for the local deadline.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_an_evicted_holder_is_served_after_its_renewal() {
    let (fixture, [client]) = Fixture::clients();
    let guard = client.mutex("k").lock().await.unwrap();
    let waiting = spawned(client.mutex("k").lock()).await;
    evict(&fixture.client(), "k").await;
    let evicted = tokio::time::Instant::now();
    drop(served(waiting).await);
    assert!(evicted.elapsed() <= 11 * SECOND, "{:?}", evicted.elapsed());
    assert!(!guard.is_held());
}

/// A fixed lease is not renewed, so no renewal detects its eviction. If local tasks wait, the client asks the store
/// about the claim after a third of the lease, at the latest after 10 s.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_an_evicted_fixed_lease_need_not_wait() {
    let fixture = Fixture::new();
    for (lease, most) in [(12 * SECOND, 4 * SECOND), (3600 * SECOND, 10 * SECOND)] {
        let (client, operator) = (fixture.client(), fixture.client());
        let guard = client.mutex("k").fixed_lease(lease).lock().await.unwrap();
        let waiting = spawned(client.mutex("k").lock()).await;
        evict(&operator, "k").await;
        let evicted = tokio::time::Instant::now();
        let next = served(waiting).await;
        assert!(evicted.elapsed() <= most + SECOND, "{:?}", evicted.elapsed());
        assert!(!guard.is_held());
        next.unlock().await.unwrap();
    }
}

/// After a reconnect, the store may have lost its data. The client renews at once, so holders soon learn of a loss.
#[tokio::test(start_paused = true)]
async fn a_reconnect_renews_every_claim_at_once() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let operator = fixture.client();
    let mutex = client.mutex("k");
    for mutex in [mutex.clone(), mutex.fixed_lease(20 * SECOND)] {
        let guard = mutex.lock().await.unwrap();
        evict(&operator, "k").await;
        pass(SECOND).await;
        assert!(guard.is_held());
        backend.reconnect();
        settle().await;
        assert!(!guard.is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_after_a_reconnect_are_spread_over_a_second() {
    let fixture = Fixture::new();
    let two = NonZeroU32::new(2).unwrap();
    let (client, backend) = fixture.faulty_client_where(|profile| profile.limits.max_batch = two);
    let _guards = hold_many(&client, 20).await;
    pass(SECOND).await;
    let renewals = backend.control(Verb::Renew);
    backend.reconnect();
    pass(50 * MS).await;
    assert_eq!(renewals.count(), 1);
    pass(500 * MS).await;
    assert!((4..8).contains(&renewals.count()), "{}", renewals.count());
    pass(500 * MS).await;
    assert_eq!(renewals.count(), 10);
    assert_eq!(renewals.elements.load(Ordering::Relaxed), 20);
    // Renewals after a reconnect are spread over a second. `close` waits only for those that were sent.
    backend.reconnect();
    settle().await;
    client.close(100 * MS).await.unwrap();
}

/// A program can log why a renewal has failed; once one was confirmed, there is nothing to log.
#[tokio::test(start_paused = true)]
async fn the_error_of_a_renewal_is_known_until_one_is_confirmed() {
    let (_fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    assert!(guard.renewal_error().is_none());
    let renewals = backend.control(Verb::Renew);
    renewals.fail_before(1);
    while renewals.count() == 0 {
        pass(100 * MS).await;
    }
    let error = guard.renewal_error().expect("a renewal has failed");
    assert!(
        error.to_string().contains("the test lets this call fail"),
        "{error}"
    );
    assert!(guard.is_held());
    pass(2 * SECOND).await;
    assert!(guard.renewal_error().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_has_no_error_of_another_locks_renewal() {
    let (_fixture, client, backend) = Fixture::with_faulty_backend();
    let fixed = client
        .mutex("fixed")
        .fixed_lease(600 * SECOND)
        .lock()
        .await
        .unwrap();
    fixed.verify().await.expect("it is held");
    let renewed = client.mutex("renewed").lock().await.unwrap();
    let renewals = backend.control(Verb::Renew);
    let before = renewals.count();
    renewals.fail_before(1);
    while renewals.count() == before {
        pass(100 * MS).await;
    }
    assert!(renewed.renewal_error().is_some());
    assert!(fixed.renewal_error().is_none());
}

#[tokio::test(start_paused = true)]
async fn verify_asks_the_store() {
    let (_, [client, operator]) = Fixture::clients();
    let guard = client.mutex("k").lock().await.unwrap();
    guard.verify().await.unwrap();
    evict(&operator, "k").await;
    assert!(guard.is_held(), "the holder does not know yet");
    assert_error!(guard.verify().await, Error::Lost(_));
    assert!(!guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn verify_finishes_after_its_caller_was_dropped() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let operator = fixture.client();
    let guard = client.mutex("k").lock().await.unwrap();
    backend.control(Verb::Renew).hold_before();
    let asked = queued(Box::pin(guard.verify())).await;
    drop(asked);
    evict(&operator, "k").await;
    backend.control(Verb::Renew).resume();
    settle().await;
    assert!(!guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_loss_ends_as_soon_as_it_is_known() {
    let (_, [client]) = Fixture::clients();
    let guard = Arc::new(client.mutex("k").lock().await.unwrap());
    let watched = guard.clone();
    let waiting = spawned(async move { lost(&watched).await }).await;
    evict(&client, "k").await;
    assert!(guard.verify().await.is_err());
    settle().await;
    assert!(waiting.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_never_renewed() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").fixed_lease(2 * SECOND).lock().await.unwrap();
    let locked = tokio::time::Instant::now();
    assert_eq!(lost(&guard).await.cause, LostCause::Expired);
    assert!(locked.elapsed() < 2 * SECOND);
    assert_eq!(backend.control(Verb::Renew).count(), 0);
    pass(100 * MS).await;
    assert!(fixture.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_the_hold_and_releases_the_lock() {
    let (fixture, [client]) = Fixture::clients();
    let guard = client.mutex("k").max_hold(45 * SECOND).lock().await.unwrap();
    let locked = tokio::time::Instant::now();
    assert_eq!(lost(&guard).await.cause, LostCause::MaxHold);
    let held = locked.elapsed();
    assert!(held >= 45 * SECOND && held < 46 * SECOND, "{held:?}");
    fixture.freed("k", 100 * MS).await;
    assert!(client.mutex("k").try_lock().await.unwrap().is_some());
    assert_error!(guard.unlock().await, Error::Lost(_));
}

#[tokio::test(start_paused = true)]
async fn work_is_not_polled_after_the_local_deadline() {
    let fixture = Fixture::new();
    let guard = fixture.client().mutex("k").lock().await.unwrap();
    let (polled_late, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (clock, late) = (fixture.clock.clone(), polled_late.clone());
    let tell_drop = SetOnDrop(dropped.clone());
    let work = async move {
        let _tell_drop = tell_drop;
        clock.suspend(LOCAL_LEASE);
        tokio::task::yield_now().await;
        late.store(true, Ordering::Relaxed);
    };
    assert!(guard.while_held(work).await.is_err());
    assert!(!polled_late.load(Ordering::Relaxed) && dropped.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn output_of_a_poll_that_began_while_held_is_returned() {
    let fixture = Fixture::new();
    let guard = fixture.client().mutex("k").lock().await.unwrap();
    let clock = fixture.clock.clone();
    let output = guard.while_held(async move {
        clock.suspend(LOCAL_LEASE);
        7
    });
    assert_eq!(output.await, Ok(7));
    assert!(
        guard.while_held(async { 8 }).await.is_err(),
        "work that begins too late is not begun"
    );
}

#[tokio::test(start_paused = true)]
async fn work_that_waits_is_dropped_at_the_deadline() {
    let (_, [client]) = Fixture::clients();
    let guard = client.mutex("k").fixed_lease(SECOND).lock().await.unwrap();
    let before = tokio::time::Instant::now();
    let work = guard.while_held(std::future::pending::<()>());
    let ended = tokio::time::timeout(120 * SECOND, work).await;
    assert!(ended.expect("never dropped").is_err());
    assert!(before.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_lock_of_a_dead_holder_ends_with_its_lease() {
    let fixture = Fixture::new();
    fixture.dead_holder("k", 3 * SECOND).await;
    let start = tokio::time::Instant::now();
    let _guard = fixture.client().mutex("k").lock().await.unwrap();
    let waited = start.elapsed();
    assert!(
        waited >= 3 * SECOND && waited < 3 * SECOND + 200 * MS,
        "{waited:?}"
    );
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
