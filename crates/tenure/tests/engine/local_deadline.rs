//! The local deadline of a grant, with late replies and suspended machines.

use std::sync::Arc;
use std::time::Duration;

use tenure::LostCause;

use crate::faulty_backend::Verb;
use crate::fixture::{Fixture, LOCAL_LEASE, MS, SECOND, lost, pass, served_within, settle, spawned};

/// R14, R22: the local deadline counts from the request, so a reply that takes 4 s leaves 6 s of a lease of 10 s.
#[tokio::test(start_paused = true)]
async fn a_late_reply_does_not_extend_the_local_deadline() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    backend.control(Verb::Acquire).delay(4 * SECOND);
    let guard = client.mutex("k").lease(10 * SECOND).lock().await.unwrap();
    assert!(guard.remaining() <= 6 * SECOND, "{:?}", guard.remaining());
}

/// R14, R22: after a renewal, the local deadline counts from the renewal's request.
#[tokio::test(start_paused = true)]
async fn a_late_renewal_does_not_extend_the_local_deadline() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    backend.control(Verb::Renew).delay(8 * SECOND);
    let sent = tokio::time::Instant::now();
    guard.verify().await.unwrap();
    assert!(sent.elapsed() >= 8 * SECOND);
    assert!(guard.remaining() <= 22 * SECOND, "{:?}", guard.remaining());
}

/// R13: a renewal whose reply comes after the local deadline does not restore the lock, whether or not the watchdog or
/// the holder noticed the loss before.
#[tokio::test(start_paused = true)]
async fn a_renewal_after_the_deadline_does_not_restore_the_lock() {
    for (case, suspended, looks) in [
        ("the watchdog has noticed", false, true),
        ("the holder has noticed", true, true),
        ("not checked before", true, false),
    ] {
        let (fixture, client, backend) = Fixture::with_faulty_backend();
        let guard = client.mutex("k").lock().await.unwrap();
        backend.control(Verb::Renew).hold_after();
        pass(11 * SECOND).await;
        assert_eq!(
            backend.control(Verb::Renew).count(),
            1,
            "its renewal is on the way"
        );
        let rest = LOCAL_LEASE - 11 * SECOND;
        if suspended {
            fixture.clock.suspend(rest);
        } else {
            pass(rest + 10 * MS).await;
        }
        assert!(!looks || !guard.is_held(), "{case}");
        backend.control(Verb::Renew).resume();
        settle().await;
        assert!(!guard.is_held() && guard.loss().is_some(), "{case}");
        pass(SECOND).await;
        assert!(!guard.is_held(), "{case}: lost is lost");
    }
}

/// R19: a grant arrives when its lease has ended. The caller does not get it: the client acquires again.
#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_expired_is_released_and_retried() {
    // In the first case the reply comes within 100 ms, so the caller's own poll reads it, not a task.
    for (lease, reply, left) in [(60 * MS, 80 * MS, 30 * MS), (SECOND, 2 * SECOND, 900 * MS)] {
        let (fixture, client, backend) = Fixture::with_faulty_backend();
        backend.control(Verb::Acquire).hold_after();
        let waiting = tokio::spawn(client.mutex("k").lease(lease).lock());
        pass(reply).await;
        backend.control(Verb::Acquire).resume();
        let guard = served_within(SECOND, waiting).await;
        let remaining = guard.remaining();
        assert!(guard.is_held() && remaining > left, "{lease:?}: {remaining:?}");
        let holders = fixture.status("k").await.unwrap().holders;
        let ids: Vec<_> = holders.into_iter().map(|holder| holder.id).collect();
        assert_eq!(ids, [tenure::HolderId::Claim(guard.claim().id)], "{lease:?}");
    }
}

/// A call of `verify` does not move the end of a fixed lease: one of 10 s ends in the store 10 s after the grant,
/// even if no release arrives.
#[tokio::test(start_paused = true)]
async fn verify_neither_prolongs_nor_shortens_a_fixed_lease() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").fixed_lease(10 * SECOND).lock().await.unwrap();
    backend.control(Verb::Release).hold_before();
    pass(2 * SECOND).await;
    guard.verify().await.unwrap();
    assert!(guard.remaining() < 8 * SECOND);
    let left = fixture.status("k").await.unwrap().holders[0].remaining.unwrap();
    assert!(left > guard.remaining() + 100 * MS, "{left:?}");
    assert!(left <= 8 * SECOND, "{left:?}");
    pass(8 * SECOND + 10 * MS).await;
    assert!(fixture.is_free("k").await);
}

/// R22: after a suspend that is longer than the lease, the first `is_held` returns false.
#[tokio::test(start_paused = true)]
async fn a_suspended_machine_wakes_without_the_lock() {
    let (fixture, [client]) = Fixture::clients();
    let guard = client.mutex("k").lock().await.unwrap();
    assert!(guard.is_held());
    fixture.clock.suspend(LOCAL_LEASE);
    assert!(!guard.is_held(), "timers have not run, the clock has");
    let woke = tokio::time::Instant::now();
    lost(&guard).await;
    assert!(
        woke.elapsed() <= SECOND,
        "timers read the lease clock at least once a second"
    );
}

/// R22: timers stop during a suspend. So `lost` reads the lease clock, which does not stop, once a second.
#[tokio::test(start_paused = true)]
async fn waiting_for_loss_notices_a_suspend_within_a_second() {
    let (fixture, [client]) = Fixture::clients();
    let guard = Arc::new(client.mutex("k").lock().await.unwrap());
    let watched = guard.clone();
    let waiting = spawned(async move { lost(&watched).await }).await;
    fixture.clock.suspend(LOCAL_LEASE);
    let woke = tokio::time::Instant::now();
    waiting.await.unwrap();
    assert!(woke.elapsed() <= SECOND + 5 * MS);
}

/// If the last renewal was answered, a lock whose lease ends during a suspend is lost as `Expired`, not
/// `Unreachable`.
#[tokio::test(start_paused = true)]
async fn a_suspend_after_an_answered_renewal_is_not_unreachable() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    pass(11 * SECOND).await;
    assert_eq!(backend.control(Verb::Renew).count(), 1);
    fixture.clock.suspend(LOCAL_LEASE);
    assert_eq!(guard.loss().unwrap().cause, LostCause::Expired);
}

/// A store may renew a claim for less time than asked: here 6 s instead of 30 s.
#[tokio::test(start_paused = true)]
async fn a_shorter_renewed_lease_moves_the_deadline_back() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    backend.renew_for(6 * SECOND);
    pass(60 * SECOND).await;
    assert!(guard.is_held(), "it is renewed as often as that takes");
    backend.control(Verb::Renew).fail_before(usize::MAX);
    pass(6 * SECOND).await;
    assert!(!guard.is_held());
    assert!(fixture.client().mutex("k").try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn an_older_renewal_reply_does_not_lengthen_a_deadline() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    let renewals = backend.control(Verb::Renew);
    renewals.delay(2 * SECOND);
    pass(10 * SECOND).await;
    renewals.delay(Duration::ZERO);
    backend.renew_for(6 * SECOND);
    guard.verify().await.unwrap();
    renewals.fail_before(usize::MAX);
    pass(3 * SECOND).await;
    assert!(guard.is_held());
    assert!(guard.remaining() < 3 * SECOND, "{:?}", guard.remaining());
}

#[tokio::test(start_paused = true)]
async fn a_guard_reports_the_granted_lease() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lease(7 * SECOND).lock().await.unwrap();
    assert_eq!(guard.lease(), 7 * SECOND);
    backend.round_up_to(10 * SECOND);
    let guard = client.mutex("l").lease(7 * SECOND).lock().await.unwrap();
    assert_eq!(guard.lease(), 10 * SECOND);
    assert!(guard.remaining() > 9 * SECOND);
}

/// The time limits of a lock and of a multi-lock count suspended time, although timers do not.
#[tokio::test(start_paused = true)]
async fn a_time_limit_counts_suspended_time() {
    let (fixture, [other, client]) = Fixture::clients();
    let _guard = other.mutex("k").lock().await.unwrap();
    let alone = tokio::spawn(client.mutex("k").lock_within(60 * SECOND));
    let several = tenure::multi([client.mutex("k"), client.mutex("l")]).lock_within(60 * SECOND);
    let several = tokio::spawn(several);
    // In 2.5 s, both waiting tasks wake and read the clock more than once.
    pass(2_500 * MS).await;
    fixture.clock.suspend(120 * SECOND);
    let soon = tokio::time::timeout(2 * SECOND, async { (alone.await, several.await) }).await;
    let (alone, several) = soon.expect("both read the lease clock once a second");
    assert!(matches!(alone.unwrap(), Err(tenure::Error::Timeout)));
    assert!(matches!(several.unwrap(), Err(tenure::Error::Timeout)));
}
