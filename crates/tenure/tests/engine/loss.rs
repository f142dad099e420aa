//! How a holder learns that it has lost its lock, and what it may still do.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure::{Error, LostCause, Settings};

use crate::stage::Verb;
use crate::world::{
    BELIEF, MS, SECOND, World, assert_error, evict, hold_many, lost, pass, queued, served, settle, spawned,
};

/// The watchdog renews at a third of the lease for as long as the guard lives.
#[tokio::test(start_paused = true)]
async fn a_lock_is_held_for_as_long_as_its_guard_lives() {
    let (_, client, stage) = World::with_stage();
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
    let (world, client, stage) = World::with_stage();
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
    let (_, client, stage) = World::with_stage();
    let guard = client.mutex("k").lock().await.unwrap();
    stage.act(Verb::Renew).fail_before(usize::MAX);
    assert_eq!(lost(&guard).await.cause, LostCause::Unreachable);
}

/// R5, R6: a renewal that fails is tried again within the same third, and never gives the lock up.
#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_tried_again_and_releases_nothing() {
    let (_, client, stage) = World::with_stage();
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

/// R4: a renewal that was under way when the lock was released does not bring it back.
#[tokio::test(start_paused = true)]
async fn a_renewal_under_way_does_not_bring_a_released_lock_back() {
    let (world, client, stage) = World::with_stage();
    let guard = client.mutex("k").lock().await.unwrap();
    stage.act(Verb::Renew).hold_before();
    pass(11 * SECOND).await;
    assert_eq!(stage.act(Verb::Renew).count(), 1, "its renewal is on the way");
    guard.unlock().await.unwrap();
    stage.act(Verb::Renew).go_on();
    settle().await;
    assert!(world.is_free("k").await);
    let before = stage.act(Verb::Renew).count();
    pass(60 * SECOND).await;
    let renewals = stage.act(Verb::Renew).count();
    assert_eq!(renewals, before, "nobody renews what is released");
    let other = world.client().mutex("k").try_lock().await.unwrap();
    assert!(other.is_some());
}

/// R28: a holder is told that its lock is gone, and by whom.
#[tokio::test(start_paused = true)]
async fn an_evicted_holder_learns_within_a_third_of_its_lease_who_did_it() {
    let (world, [client]) = World::clients();
    let operator = world.client_with(Settings::default().label("operator"));
    let guard = client.mutex("k").lock().await.unwrap();
    assert_eq!(evict(&operator, "k").await.len(), 1);
    let evicted = tokio::time::Instant::now();
    let lost = lost(&guard).await;
    assert!(evicted.elapsed() <= 10 * SECOND, "{:?}", evicted.elapsed());
    let by = Some("operator".into());
    assert_eq!(lost.cause, LostCause::Evicted { by });
    assert_error!(guard.unlock().await, Error::Lost(_));
}

/// Grants that are handed over in memory share a claim, and each has a token of its own.
#[tokio::test(start_paused = true)]
async fn a_loss_names_the_key_and_the_token_of_its_grant() {
    let (_, [client]) = World::clients();
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
    let (_, [client]) = World::clients();
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

/// Nobody renews it, but others of its client must not wait for a lock that is free.
#[tokio::test(start_paused = true)]
async fn who_waits_behind_a_fixed_lease_that_was_evicted_has_the_lock_long_before_its_end() {
    let world = World::new();
    for (lease, most) in [(12 * SECOND, 4 * SECOND), (3600 * SECOND, 10 * SECOND)] {
        let (client, operator) = (world.client(), world.client());
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

/// DESIGN §3: after a failover that lost data the holder learns soon.
#[tokio::test(start_paused = true)]
async fn a_replaced_connection_renews_what_is_held_at_once() {
    let (world, client, stage) = World::with_stage();
    let operator = world.client();
    let mutex = client.mutex("k");
    for mutex in [mutex.clone(), mutex.fixed_lease(20 * SECOND)] {
        let guard = mutex.lock().await.unwrap();
        evict(&operator, "k").await;
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
    let two = NonZeroU32::new(2).unwrap();
    let (client, stage) = world.staged_where(|profile| profile.limits.max_batch = two);
    let _guards = hold_many(&client, 20).await;
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
    let (_, [client, operator]) = World::clients();
    let guard = client.mutex("k").lock().await.unwrap();
    guard.verify().await.unwrap();
    evict(&operator, "k").await;
    assert!(guard.is_held(), "nobody has told it");
    assert_error!(guard.verify().await, Error::Lost(_));
    assert!(!guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_question_about_a_lock_is_answered_though_whoever_asked_has_gone() {
    let (world, client, stage) = World::with_stage();
    let operator = world.client();
    let guard = client.mutex("k").lock().await.unwrap();
    stage.act(Verb::Renew).hold_before();
    let asked = queued(Box::pin(guard.verify())).await;
    drop(asked);
    evict(&operator, "k").await;
    stage.act(Verb::Renew).go_on();
    settle().await;
    assert!(!guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_loss_is_told_as_soon_as_it_is_known() {
    let (_, [client]) = World::clients();
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
    let (world, client, stage) = World::with_stage();
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
    let (world, [client]) = World::clients();
    let guard = client.mutex("k").max_hold(45 * SECOND).lock().await.unwrap();
    let locked = tokio::time::Instant::now();
    assert_eq!(lost(&guard).await.cause, LostCause::MaxHold);
    let held = locked.elapsed();
    assert!(held >= 45 * SECOND && held < 46 * SECOND, "{held:?}");
    world.freed("k", 100 * MS).await;
    assert!(client.mutex("k").try_lock().await.unwrap().is_some());
    assert_error!(guard.unlock().await, Error::Lost(_));
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
    let (_, [client]) = World::clients();
    let guard = client.mutex("k").fixed_lease(SECOND).lock().await.unwrap();
    let before = tokio::time::Instant::now();
    let work = guard.while_held(std::future::pending::<()>());
    let ended = tokio::time::timeout(120 * SECOND, work).await;
    assert!(ended.expect("never dropped").is_err());
    assert!(before.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_dead_holders_lock_frees_itself_with_its_lease() {
    let world = World::new();
    world.dead_holder("k", 3 * SECOND).await;
    let start = tokio::time::Instant::now();
    let _guard = world.client().mutex("k").lock().await.unwrap();
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
