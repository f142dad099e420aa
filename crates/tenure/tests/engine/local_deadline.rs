//! Until when a holder may believe, when replies are late and machines sleep.

use std::sync::Arc;
use std::time::Duration;

use tenure::LostCause;

use crate::stage::Verb;
use crate::world::{BELIEF, MS, SECOND, World, lost, pass, served_within, settle, spawned};

/// R14, R22: a reply that comes late has used up belief, and does not begin it.
#[tokio::test(start_paused = true)]
async fn a_late_reply_does_not_extend_the_local_deadline() {
    let (_, client, stage) = World::with_stage();
    stage.act(Verb::Acquire).delay(4 * SECOND);
    let guard = client.mutex("k").lease(10 * SECOND).lock().await.unwrap();
    assert!(guard.remaining() <= 6 * SECOND, "{:?}", guard.remaining());
}

/// R14, R22: nor does a renewal whose reply comes late.
#[tokio::test(start_paused = true)]
async fn a_late_reply_to_a_renewal_does_not_lengthen_belief() {
    let (_, client, stage) = World::with_stage();
    let guard = client.mutex("k").lock().await.unwrap();
    stage.act(Verb::Renew).delay(8 * SECOND);
    let sent = tokio::time::Instant::now();
    guard.verify().await.unwrap();
    assert!(sent.elapsed() >= 8 * SECOND);
    assert!(guard.remaining() <= 22 * SECOND, "{:?}", guard.remaining());
}

/// R13: a renewal that is answered after the deadline does not bring the lock back: neither if the loss was seen
/// before, nor if the answer is read before anybody has looked.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_answered_after_the_deadline_does_not_bring_the_lock_back() {
    for (case, suspended, looks) in [
        ("the watchdog has noticed", false, true),
        ("the holder has noticed", true, true),
        ("nobody has looked", true, false),
    ] {
        let (world, client, stage) = World::with_stage();
        let guard = client.mutex("k").lock().await.unwrap();
        stage.act(Verb::Renew).hold_after();
        pass(11 * SECOND).await;
        assert_eq!(stage.act(Verb::Renew).count(), 1, "its renewal is on the way");
        let rest = BELIEF - 11 * SECOND;
        if suspended {
            world.clock.suspend(rest);
        } else {
            pass(rest + 10 * MS).await;
        }
        assert!(!looks || !guard.is_held(), "{case}");
        stage.act(Verb::Renew).go_on();
        settle().await;
        assert!(!guard.is_held() && guard.loss().is_some(), "{case}");
        pass(SECOND).await;
        assert!(!guard.is_held(), "{case}: lost is lost");
    }
}

/// R19: a grant whose lease has ended on the way is nobody's, also if its caller was the one to read the reply.
#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_dead_is_given_back_and_asked_for_again() {
    // Within the offer window the caller itself polls its call to the end.
    for (lease, reply, left) in [(60 * MS, 80 * MS, 30 * MS), (SECOND, 2 * SECOND, 900 * MS)] {
        let (world, client, stage) = World::with_stage();
        stage.act(Verb::Acquire).hold_after();
        let waiting = tokio::spawn(client.mutex("k").lease(lease).lock());
        pass(reply).await;
        stage.act(Verb::Acquire).go_on();
        let guard = served_within(SECOND, waiting).await;
        let remaining = guard.remaining();
        assert!(guard.is_held() && remaining > left, "{lease:?}: {remaining:?}");
        let holders = world.status("k").await.unwrap().holders;
        let ids: Vec<_> = holders.into_iter().map(|holder| holder.id).collect();
        assert_eq!(ids, [tenure::HolderId::Claim(guard.claim().id)], "{lease:?}");
    }
}

/// A fixed lease ends in the store too, whatever was asked meanwhile, and though no release arrives.
#[tokio::test(start_paused = true)]
async fn verify_neither_prolongs_nor_shortens_a_fixed_lease() {
    let (world, client, stage) = World::with_stage();
    let guard = client.mutex("k").fixed_lease(10 * SECOND).lock().await.unwrap();
    stage.act(Verb::Release).hold_before();
    pass(2 * SECOND).await;
    guard.verify().await.unwrap();
    assert!(guard.remaining() < 8 * SECOND);
    let left = world.status("k").await.unwrap().holders[0].remaining.unwrap();
    assert!(left > guard.remaining() + 100 * MS, "{left:?}");
    assert!(left <= 8 * SECOND, "{left:?}");
    pass(8 * SECOND + 10 * MS).await;
    assert!(world.is_free("k").await);
}

/// R22: a machine that was suspended beyond the lease wakes without belief, at the first look.
#[tokio::test(start_paused = true)]
async fn a_suspended_machine_wakes_without_the_lock() {
    let (world, [client]) = World::clients();
    let guard = client.mutex("k").lock().await.unwrap();
    assert!(guard.is_held());
    world.clock.suspend(BELIEF);
    assert!(!guard.is_held(), "timers have not run, the clock has");
    let woke = tokio::time::Instant::now();
    lost(&guard).await;
    assert!(
        woke.elapsed() <= SECOND,
        "timers look at the belief clock at least each second"
    );
}

/// R22: timers do not count a suspend, the belief clock does.
#[tokio::test(start_paused = true)]
async fn a_suspend_is_noticed_by_who_waits_for_the_loss_within_a_second() {
    let (world, [client]) = World::clients();
    let guard = Arc::new(client.mutex("k").lock().await.unwrap());
    let watched = guard.clone();
    let waiting = spawned(async move { lost(&watched).await }).await;
    world.clock.suspend(BELIEF);
    let woke = tokio::time::Instant::now();
    waiting.await.unwrap();
    assert!(woke.elapsed() <= SECOND + 5 * MS);
}

/// Which of its renewals was the last to be answered decides what a loss is called.
#[tokio::test(start_paused = true)]
async fn a_suspend_after_a_renewal_that_was_answered_is_no_fault_of_the_stores() {
    let (world, client, stage) = World::with_stage();
    let guard = client.mutex("k").lock().await.unwrap();
    pass(11 * SECOND).await;
    assert_eq!(stage.act(Verb::Renew).count(), 1);
    world.clock.suspend(BELIEF);
    assert_eq!(guard.loss().unwrap().cause, LostCause::Expired);
}

/// A store may keep a claim for less than it was asked for.
#[tokio::test(start_paused = true)]
async fn belief_follows_a_renewal_that_the_store_keeps_for_less() {
    let (world, client, stage) = World::with_stage();
    let guard = client.mutex("k").lock().await.unwrap();
    stage.renew_for(6 * SECOND);
    pass(60 * SECOND).await;
    assert!(guard.is_held(), "it is renewed as often as that takes");
    stage.act(Verb::Renew).fail_before(usize::MAX);
    pass(6 * SECOND).await;
    assert!(!guard.is_held());
    assert!(world.client().mutex("k").try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn an_older_renewal_reply_does_not_lengthen_a_deadline() {
    let (_, client, stage) = World::with_stage();
    let guard = client.mutex("k").lock().await.unwrap();
    let renewals = stage.act(Verb::Renew);
    renewals.delay(2 * SECOND);
    pass(10 * SECOND).await;
    renewals.delay(Duration::ZERO);
    stage.renew_for(6 * SECOND);
    guard.verify().await.unwrap();
    renewals.fail_before(usize::MAX);
    pass(3 * SECOND).await;
    assert!(guard.is_held());
    assert!(guard.remaining() < 3 * SECOND, "{:?}", guard.remaining());
}

#[tokio::test(start_paused = true)]
async fn a_guard_says_which_lease_the_store_gave() {
    let (_, client, stage) = World::with_stage();
    let guard = client.mutex("k").lease(7 * SECOND).lock().await.unwrap();
    assert_eq!(guard.lease(), 7 * SECOND);
    stage.round_up_to(10 * SECOND);
    let guard = client.mutex("l").lease(7 * SECOND).lock().await.unwrap();
    assert_eq!(guard.lease(), 10 * SECOND);
    assert!(guard.remaining() > 9 * SECOND);
}

/// Counted from then on, though its timers did not run: alone, and of several locks together.
#[tokio::test(start_paused = true)]
async fn a_time_limit_counts_the_time_that_the_machine_was_suspended() {
    let (world, [other, client]) = World::clients();
    let _guard = other.mutex("k").lock().await.unwrap();
    let alone = tokio::spawn(client.mutex("k").lock_within(60 * SECOND));
    let several = tenure::multi([client.mutex("k"), client.mutex("l")]).lock_within(60 * SECOND);
    let several = tokio::spawn(several);
    // Its timers have been set more than once by then.
    pass(2_500 * MS).await;
    world.clock.suspend(120 * SECOND);
    let soon = tokio::time::timeout(2 * SECOND, async { (alone.await, several.await) }).await;
    let (alone, several) = soon.expect("both read the belief clock once a second");
    assert!(matches!(alone.unwrap(), Err(tenure::Error::Timeout)));
    assert!(matches!(several.unwrap(), Err(tenure::Error::Timeout)));
}
