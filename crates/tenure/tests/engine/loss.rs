//! How a holder learns that it has lost its lock, and what it may still do.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::{Client, Error, Guard, Holder, Lost, LostCause, Settings};

use crate::stage::{Verb, stage_with_profile};
use crate::world::{MS, SECOND, World, pass, poll_once, served, settle};

/// Waits for the loss, but not for ever.
async fn lost(guard: &Guard) -> Lost {
    tokio::time::timeout(120 * SECOND, guard.lost())
        .await
        .expect("the loss is never told")
}

/// The default lease less drift and margin.
const BELIEF: Duration = Duration::from_millis(29_400);

/// The watchdog renews at a third of the lease for as long as the guard lives.
#[tokio::test(start_paused = true)]
async fn a_lock_is_held_for_as_long_as_its_guard_lives() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = client.mutex("k").lock().await.unwrap();
    pass(300 * SECOND).await;
    assert!(guard.is_held());
    guard.verify().await.unwrap();
    let renewals = stage.act(Verb::Renew).count();
    assert!((30..=36).contains(&renewals), "{renewals} renewals in 300 s");
    assert!(guard.remaining() > 19 * SECOND);
    guard.unlock().await.unwrap();
}

/// R14, R28: loss is announced on the local deadline even when the network is silent.
#[tokio::test(start_paused = true)]
async fn a_silent_network_is_a_loss_at_the_local_deadline() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = client.mutex("k").lock().await.unwrap();
    let locked = tokio::time::Instant::now();
    stage.act(Verb::Renew).hold_before();
    stage.act(Verb::Release).hold_before();
    let lost = lost(&guard).await;
    let after = locked.elapsed();
    assert!(after >= BELIEF && after < BELIEF + 50 * MS, "{after:?}");
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert!(matches!(lost.cause, LostCause::Expired | LostCause::Unreachable));
    assert!(!world.is_free("k").await, "belief ends before the store's lease");
}

#[tokio::test(start_paused = true)]
async fn renewals_that_fail_until_the_deadline_are_named_as_the_cause() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = client.mutex("k").lock().await.unwrap();
    stage.act(Verb::Renew).fail_before(usize::MAX);
    assert_eq!(lost(&guard).await.cause, LostCause::Unreachable);
}

/// R5, R6: a renewal that fails is tried again within the same third, and never gives the lock up.
#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_tried_again_and_releases_nothing() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = client.mutex("k").lock().await.unwrap();
    pass(8 * SECOND).await;
    stage.act(Verb::Renew).fail_before(3);
    pass(6 * SECOND).await;
    assert!(
        stage.act(Verb::Renew).count() >= 4,
        "tried again within the same third"
    );
    assert_eq!(stage.act(Verb::Release).count(), 0);
    assert!(guard.remaining() > 20 * SECOND);
    stage.act(Verb::Renew).fail_after(5);
    pass(60 * SECOND).await;
    assert!(guard.is_held());
}

/// R13: once lost, a late renewal does not bring the lock back.
#[tokio::test(start_paused = true)]
async fn loss_is_sticky_though_a_renewal_is_answered_later() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = client.mutex("k").lock().await.unwrap();
    stage.act(Verb::Renew).hold_after();
    pass(BELIEF + 10 * MS).await;
    assert!(!guard.is_held());
    stage.act(Verb::Renew).go_on();
    pass(SECOND).await;
    assert!(!guard.is_held(), "lost is lost");
    assert!(guard.loss().is_some());
}

/// R13: nor does one that is answered before the watchdog has looked.
#[tokio::test(start_paused = true)]
async fn loss_that_was_seen_once_is_seen_for_ever() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = client.mutex("k").lock().await.unwrap();
    stage.act(Verb::Renew).hold_after();
    pass(11 * SECOND).await;
    assert_eq!(stage.act(Verb::Renew).count(), 1, "its renewal is on the way");
    world.clock.suspend(BELIEF - 11 * SECOND);
    assert!(!guard.is_held());
    stage.act(Verb::Renew).go_on();
    settle().await;
    assert!(!guard.is_held(), "seen once, it is seen for ever");
}

/// R22: a machine that was suspended beyond the lease wakes without belief, at the first look.
#[tokio::test(start_paused = true)]
async fn a_suspended_machine_wakes_without_the_lock() {
    let world = World::new();
    let guard = world.client().mutex("k").lock().await.unwrap();
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
    let world = World::new();
    let guard = Arc::new(world.client().mutex("k").lock().await.unwrap());
    let waiting = tokio::spawn({
        let guard = guard.clone();
        async move { lost(&guard).await }
    });
    settle().await;
    world.clock.suspend(BELIEF);
    let woke = tokio::time::Instant::now();
    waiting.await.unwrap();
    assert!(woke.elapsed() <= SECOND + 5 * MS);
}

/// Which of its renewals was the last to be answered decides what a loss is called.
#[tokio::test(start_paused = true)]
async fn a_suspend_after_a_renewal_that_was_answered_is_no_fault_of_the_stores() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = client.mutex("k").lock().await.unwrap();
    pass(11 * SECOND).await;
    assert_eq!(stage.act(Verb::Renew).count(), 1);
    world.clock.suspend(BELIEF);
    assert_eq!(guard.loss().unwrap().cause, LostCause::Expired);
}

/// R28: a holder is told that its lock is gone, and by whom.
#[tokio::test(start_paused = true)]
async fn an_evicted_holder_learns_within_a_third_of_its_lease_who_did_it() {
    let world = World::new();
    let (client, operator) = (
        world.client(),
        world.client_with(Settings::default().label("operator")),
    );
    let guard = client.mutex("k").lock().await.unwrap();
    let freed = operator.evict(Holder::All(guard.key().clone())).await.unwrap();
    assert_eq!(freed.len(), 1);
    let evicted = tokio::time::Instant::now();
    let lost = lost(&guard).await;
    assert!(evicted.elapsed() <= 10 * SECOND, "{:?}", evicted.elapsed());
    assert_eq!(
        lost.cause,
        LostCause::Evicted {
            by: Some("operator".into())
        }
    );
    assert!(matches!(guard.unlock().await, Err(Error::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_its_own_client_evicts_learns_at_once() {
    let world = World::new();
    let client = world.client();
    for mutex in [client.mutex("k"), client.mutex("k").fixed_lease(20 * SECOND)] {
        let guard = mutex.lock().await.unwrap();
        let waiting = tokio::spawn(client.mutex("k").lock());
        settle().await;
        client.evict(Holder::All(guard.key().clone())).await.unwrap();
        let evicted = tokio::time::Instant::now();
        lost(&guard).await;
        drop(served(waiting).await);
        assert!(evicted.elapsed() < SECOND, "{:?}", evicted.elapsed());
        pass(SECOND).await;
    }
}

/// Nobody renews it, but others of its client must not wait for a lock that is free.
#[tokio::test(start_paused = true)]
async fn who_waits_behind_a_fixed_lease_that_was_evicted_has_the_lock_long_before_its_end() {
    let world = World::new();
    for (lease, most) in [(12 * SECOND, 4 * SECOND), (3600 * SECOND, 10 * SECOND)] {
        let (client, operator) = (world.client(), world.client());
        let guard = client.mutex("k").fixed_lease(lease).lock().await.unwrap();
        let waiting = tokio::spawn(client.mutex("k").lock());
        settle().await;
        operator.evict(Holder::All(guard.key().clone())).await.unwrap();
        let evicted = tokio::time::Instant::now();
        let next = served(waiting).await;
        assert!(evicted.elapsed() <= most + SECOND, "{:?}", evicted.elapsed());
        assert!(!guard.is_held());
        next.unlock().await.unwrap();
    }
}

/// A store may keep a claim for less than it was asked for.
#[tokio::test(start_paused = true)]
async fn belief_follows_a_renewal_that_the_store_keeps_for_less() {
    let world = World::new();
    let (client, stage) = world.staged();
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
    let world = World::new();
    let (client, stage) = world.staged();
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

/// DESIGN §3: after a failover that lost data the holder learns soon.
#[tokio::test(start_paused = true)]
async fn a_replaced_connection_renews_what_is_held_at_once() {
    let world = World::new();
    let ((client, stage), operator) = (world.staged(), world.client());
    let mutex = client.mutex("k");
    for mutex in [mutex.clone(), mutex.fixed_lease(20 * SECOND)] {
        let guard = mutex.lock().await.unwrap();
        operator.evict(Holder::All(guard.key().clone())).await.unwrap();
        pass(SECOND).await;
        assert!(guard.is_held());
        stage.reconnect();
        settle().await;
        assert!(!guard.is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_after_a_replaced_connection_are_spread_over_a_second() {
    let world = World::new();
    let mut profile = world.backend().profile().clone();
    profile.limits.max_batch = NonZeroU32::new(2).unwrap();
    let stage = stage_with_profile(world.backend(), profile);
    let client = Client::new(stage.clone(), Settings::default());
    let mut guards = Vec::new();
    for n in 0..20 {
        guards.push(client.mutex(format!("k{n}")).lock().await.unwrap());
    }
    pass(SECOND).await;
    let renewals = stage.act(Verb::Renew);
    stage.reconnect();
    pass(50 * MS).await;
    assert_eq!(renewals.count(), 1);
    pass(500 * MS).await;
    assert!((4..8).contains(&renewals.count()), "{}", renewals.count());
    pass(500 * MS).await;
    assert_eq!(renewals.count(), 10);
    assert_eq!(renewals.elements.load(Ordering::Relaxed), 20);
    // The client need not wait for batches that are still to come.
    stage.reconnect();
    settle().await;
    client.close(100 * MS).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn verify_asks_the_store() {
    let world = World::new();
    let (client, operator) = (world.client(), world.client());
    let guard = client.mutex("k").lock().await.unwrap();
    guard.verify().await.unwrap();
    operator.evict(Holder::All(guard.key().clone())).await.unwrap();
    assert!(guard.is_held(), "nobody has told it");
    assert!(matches!(guard.verify().await, Err(Error::Lost(_))));
    assert!(!guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_question_about_a_lock_is_answered_though_whoever_asked_has_gone() {
    let world = World::new();
    let ((client, stage), operator) = (world.staged(), world.client());
    let guard = client.mutex("k").lock().await.unwrap();
    stage.act(Verb::Renew).hold_before();
    let mut asked = Box::pin(guard.verify());
    assert!(poll_once(&mut asked).await.is_none());
    settle().await;
    drop(asked);
    operator.evict(Holder::All(guard.key().clone())).await.unwrap();
    stage.act(Verb::Renew).go_on();
    settle().await;
    assert!(!guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_loss_is_told_as_soon_as_it_is_known() {
    let world = World::new();
    let client = world.client();
    let guard = Arc::new(client.mutex("k").lock().await.unwrap());
    let waiting = tokio::spawn({
        let guard = guard.clone();
        async move { lost(&guard).await }
    });
    settle().await;
    client.evict(Holder::All(guard.key().clone())).await.unwrap();
    assert!(guard.verify().await.is_err());
    settle().await;
    assert!(waiting.is_finished());
}

#[tokio::test(start_paused = true)]
async fn an_unlock_after_an_eviction_says_that_the_lock_was_lost() {
    let world = World::new();
    let (client, operator) = (world.client(), world.client());
    let guard = client.mutex("k").lock().await.unwrap();
    operator.evict(Holder::All(guard.key().clone())).await.unwrap();
    assert!(matches!(guard.unlock().await, Err(Error::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_never_renewed() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = client.mutex("k").fixed_lease(2 * SECOND).lock().await.unwrap();
    let locked = tokio::time::Instant::now();
    assert_eq!(lost(&guard).await.cause, LostCause::Expired);
    assert!(locked.elapsed() < 2 * SECOND);
    assert_eq!(stage.act(Verb::Renew).count(), 0);
    pass(100 * MS).await;
    assert!(world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_longest_hold_ends_the_hold_and_gives_the_lock_back() {
    let world = World::new();
    let client = world.client();
    let guard = client.mutex("k").max_hold(45 * SECOND).lock().await.unwrap();
    let locked = tokio::time::Instant::now();
    assert_eq!(lost(&guard).await.cause, LostCause::MaxHold);
    assert!(
        (45 * SECOND..46 * SECOND).contains(&locked.elapsed()),
        "{:?}",
        locked.elapsed()
    );
    world.freed("k", 100 * MS).await;
    assert!(client.mutex("k").try_lock().await.unwrap().is_some());
    assert!(matches!(guard.unlock().await, Err(Error::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_kept_for_at_least_its_time_though_its_guard_goes() {
    let world = World::new();
    let client = world.client();
    let mutex = client.mutex("k").at_least(40 * SECOND);
    drop(mutex.lock().await.unwrap());
    pass(39 * SECOND).await;
    assert!(
        client.mutex("k").try_lock().await.unwrap().is_none(),
        "kept, and renewed meanwhile"
    );
    pass(SECOND + 50 * MS).await;
    assert!(client.mutex("k").try_lock().await.unwrap().is_some());

    pass(SECOND).await;
    mutex.lock().await.unwrap().unlock().await.unwrap();
    client.close(SECOND).await.unwrap();
    pass(39 * SECOND).await;
    assert!(!world.is_free("k").await, "the store keeps it by itself");
    pass(SECOND).await;
    assert!(world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn work_is_never_polled_again_once_belief_has_ended() {
    let world = World::new();
    let guard = world.client().mutex("k").lock().await.unwrap();
    let (polled_late, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (clock, late) = (world.clock.clone(), polled_late.clone());
    let tell_drop = SetOnDrop(dropped.clone());
    let work = async move {
        let _tell_drop = tell_drop;
        clock.suspend(BELIEF);
        tokio::task::yield_now().await;
        late.store(true, Ordering::Relaxed);
    };
    assert!(guard.while_held(work).await.is_err());
    assert!(!polled_late.load(Ordering::Relaxed) && dropped.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn output_of_a_poll_that_began_while_held_is_returned() {
    let world = World::new();
    let guard = world.client().mutex("k").lock().await.unwrap();
    let clock = world.clock.clone();
    let output = guard.while_held(async move {
        clock.suspend(BELIEF);
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
    let world = World::new();
    let guard = world
        .client()
        .mutex("k")
        .fixed_lease(SECOND)
        .lock()
        .await
        .unwrap();
    let before = tokio::time::Instant::now();
    let work = guard.while_held(std::future::pending::<()>());
    assert!(
        tokio::time::timeout(120 * SECOND, work)
            .await
            .expect("never dropped")
            .is_err()
    );
    assert!(before.elapsed() < SECOND);
}

/// DESIGN §4: a grant that arrives dead is given back, never returned.
#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_dead_is_given_back_and_asked_for_again() {
    let world = World::new();
    let (client, stage) = world.staged();
    stage.act(Verb::Acquire).hold_after();
    let waiting = tokio::spawn(client.mutex("k").lease(SECOND).lock());
    pass(2 * SECOND).await;
    stage.act(Verb::Acquire).go_on();
    let guard = waiting.await.unwrap().unwrap();
    assert!(
        guard.is_held() && guard.remaining() > 900 * MS,
        "{:?}",
        guard.remaining()
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_holders_lock_frees_itself_with_its_lease() {
    let world = World::new();
    world.dead_holder("k", 3 * SECOND).await;
    let before = tokio::time::Instant::now();
    let _guard = world.client().mutex("k").lock().await.unwrap();
    assert!(
        (3 * SECOND..3 * SECOND + 200 * MS).contains(&before.elapsed()),
        "{:?}",
        before.elapsed()
    );
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
