//! Options at their limits, what is told of a claim that was taken away, and what a client leaves behind.
//! Misuse of futures is in `hazards.rs`, and locks that outlive their guards are in `kept.rs`.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tenure::{Client, Error, LostCause, Settings, multi};

use crate::stage::{Stage, Verb, stage};
use crate::world::{
    MS, SECOND, World, assert_error, begun, evict, hold_many, pass, poll_once, queued, runtime, settle,
};

#[tokio::test(start_paused = true)]
async fn options_that_contradict_each_other_are_refused_before_anything_is_sent() {
    let (_, client, stage) = World::with_stage();
    let mutex = || client.mutex("k");
    for refused in [
        mutex().max_hold(Duration::ZERO),
        mutex().max_hold(29 * MS),
        mutex().lease(Duration::ZERO),
        mutex().lease(29 * MS),
        mutex().at_least(2 * SECOND).max_hold(SECOND),
        mutex().at_least(2 * SECOND).fixed_lease(SECOND),
    ] {
        assert_error!(refused.lock().await, Error::Invalid(_));
        assert_error!(refused.try_lock().await, Error::Invalid(_));
    }
    assert_eq!(stage.act(Verb::Acquire).count(), 0);
    assert!(mutex().at_least(SECOND).max_hold(SECOND).lock().await.is_ok());
    let shortest = client.mutex("l").lease(30 * MS).max_hold(30 * MS);
    assert!(shortest.lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn settings_of_nothing_are_as_short_as_they_can_be_and_still_work() {
    let world = World::new();
    let mut settings = Settings::default();
    (settings.call_limit, settings.offer_window) = (Duration::ZERO, Duration::ZERO);
    let (client, stage) = world.staged_with(settings);
    let mutex = client.mutex("k");
    // A call that travels for a while still places its claim.
    stage.act(Verb::Acquire).hold_before();
    let tried = tokio::spawn(mutex.try_lock());
    pass(50 * MS).await;
    stage.act(Verb::Acquire).go_on();
    let guard = tried.await.unwrap().unwrap().expect("it is free");
    // And an offer waits for a while for its waiter.
    let mut waiting = queued(mutex.lock()).await;
    guard.unlock().await.unwrap();
    pass(5 * MS).await;
    let guard = poll_once(&mut waiting).await.expect("it was offered the key");
    guard.unwrap().unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unlock_says_that_the_lock_was_evicted() {
    let (world, [client]) = World::clients();
    let guard = client.mutex("k").lock().await.unwrap();
    evict(&world.client(), "k").await;
    assert!(guard.is_held(), "nobody has told it");
    match guard.unlock().await {
        Err(Error::Lost(lost)) => assert!(matches!(lost.cause, LostCause::Evicted { .. }), "{lost:?}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_gives_all_its_locks_back_in_few_calls() {
    let world = World::new();
    let hundred = NonZeroU32::new(100).unwrap();
    let (client, stage) = world.staged_where(|profile| profile.limits.max_batch = hundred);
    let guards = hold_many(&client, 1_000).await;
    let release = stage.act(Verb::Release);
    // One batch fails as a whole: each of its claims is given back by itself.
    release.fail_before(1);
    client.close(SECOND).await.unwrap();
    assert_eq!(release.count(), 10 + 100);
    for n in 0..1_000 {
        assert!(world.is_free(&format!("k{n}")).await);
    }
    drop(guards);
}

#[test]
fn with_a_thread_of_its_own_a_client_needs_no_runtime_around_it() {
    let settings = Settings::default().own_thread(true);
    let world = World::new();
    let [unused, client, late] = [(); 3].map(|()| world.client_with(settings.clone()));
    drive(async {
        let members = [client.mutex("k"), client.mutex("l")];
        let guards = multi(members.clone()).lock_within(SECOND).await.unwrap();
        assert!(multi(members).try_lock().await.unwrap().is_none());
        // Its first call is one that has to wait.
        let waited = multi([late.mutex("k")]).lock_within(50 * MS).await;
        assert_error!(waited, Error::Timeout);
        guards.unlock().await.unwrap();
        for client in [client, late, unused] {
            client.close(SECOND).await.unwrap();
        }
    });
}

/// Polls a future to its end on this thread, without any runtime.
fn drive(work: impl Future<Output = ()>) {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut work = std::pin::pin!(work);
    let end = std::time::Instant::now() + 10 * SECOND;
    while work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        std::thread::park_timeout(SECOND);
        assert!(std::time::Instant::now() < end, "nobody wakes it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_locks_in_a_loop_lets_others_run() {
    let client = World::new().client();
    let ran = Arc::new(AtomicBool::new(false));
    let others = ran.clone();
    let locking = tokio::spawn(async move {
        for _ in 0..10_000 {
            client.mutex("k").lock().await.unwrap().unlock().await.unwrap();
            if others.load(Ordering::Relaxed) {
                return true;
            }
        }
        false
    });
    let other = tokio::spawn(async move { ran.store(true, Ordering::Relaxed) });
    other.await.unwrap();
    assert!(locking.await.unwrap(), "it ran alone");
}

#[tokio::test(start_paused = true)]
async fn a_try_that_missed_its_offer_tries_again_and_does_not_wait() {
    let (world, client, stage) = World::with_stage();
    let acquire = stage.act(Verb::Acquire);
    acquire.hold_before();
    let late = begun(client.mutex("k").try_lock()).await;
    // Taken over, granted, offered, and not taken.
    pass(200 * MS).await;
    acquire.go_on();
    pass(SECOND).await;
    let guard = world.client().mutex("k").lock().await.unwrap();
    let answer = tokio::time::timeout(SECOND, late).await;
    let answer = answer.expect("a try never waits for another");
    assert!(answer.unwrap().is_none());
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_nothing_takes_a_free_lock_however_slow_the_store_is() {
    let (world, client, stage) = World::with_stage();
    stage.act(Verb::Acquire).delay(50 * MS);
    let (one, other) = (client.mutex("k"), client.mutex("l"));
    let guard = one.lock_within(Duration::ZERO).await.unwrap();
    let busy = one.lock_within(Duration::ZERO).await;
    assert!(matches!(busy, Err(Error::Timeout)), "{busy:?}");
    let both = multi([&one, &other]);
    let busy = both.lock_within(Duration::ZERO).await;
    assert!(matches!(busy, Err(Error::Timeout)), "{busy:?}");
    guard.unlock().await.unwrap();
    let guards = both.lock_within(Duration::ZERO).await.unwrap();
    drop(guards);
    world.freed("k", SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn guards_that_are_dropped_together_are_given_back_together() {
    let (world, client, stage) = World::with_stage();
    drop(hold_many(&client, 1_000).await);
    settle().await;
    let most = client.profile().limits.max_batch.get() as usize;
    let calls = stage.act(Verb::Release).count();
    assert!(calls <= 1_000_usize.div_ceil(most) + 1, "{calls}");
    assert!(world.is_free("k0").await && world.is_free("k999").await);
}

#[test]
fn a_client_leaves_nothing_when_its_runtime_ends() {
    let world = World::new();
    let store = world.backend();
    let before = Arc::strong_count(&store);
    for what in ["guard", "kept", "renewal", "call", "waiter", "fair waiter"] {
        for alive in [false, true] {
            let runtime = runtime();
            let stage = stage(store.clone());
            stage.yield_everywhere(1);
            let left = runtime.block_on(async {
                let left = leave(&stage, what, alive).await;
                // Either it goes with the runtime, before anybody had a chance to act, or it outlives it.
                alive.then_some(left)
            });
            drop(runtime);
            drop(left);
            drop(stage);
            assert_eq!(Arc::strong_count(&store), before, "{what}, alive: {alive}");
        }
    }
}

/// What has ended waits for no time of its own.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_dropped_after_its_calls_is_gone_at_once() {
    let world = World::new();
    let store = world.backend();
    let before = Arc::strong_count(&store);
    let stage = stage(store.clone());
    stage.yield_everywhere(1);
    let client = Client::new(stage.clone(), Settings::default());
    let guard = client.mutex("k").lock().await.unwrap();
    guard.unlock().await.unwrap();
    drop((client, stage));
    settle().await;
    assert_eq!(Arc::strong_count(&store), before);
}

/// Brings a client of its own into that state; drops the client, and answers what its user still has.
async fn leave(stage: &Arc<Stage>, what: &str, alive: bool) -> Box<dyn std::any::Any> {
    let client = Client::new(stage.clone(), Settings::default());
    // A key of its own: what nobody gave back holds it for as long as its lease.
    let mutex = client.mutex(format!("{what} {alive}"));
    match what {
        "guard" => Box::new(mutex.lock().await.unwrap()),
        "kept" => Box::new(mutex.at_least(SECOND).lock().await.unwrap()),
        "renewal" => {
            let guard = mutex.lock().await.unwrap();
            Box::new(begun(Box::pin(async move { guard.verify().await })).await)
        }
        "call" => Box::new(begun(mutex.lock()).await),
        waiter => {
            let guard = mutex.lock().await.unwrap();
            let mutex = if waiter == "waiter" { mutex } else { mutex.fair() };
            Box::new((queued(mutex.lock()).await, guard))
        }
    }
}
