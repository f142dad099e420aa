//! Options at their limits, many claims at once, clients without a runtime, and leaks after a client has ended.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tenure::{Client, Error, LostCause, Settings, multi};

use crate::faulty_backend::{FaultyBackend, Verb, faulty};
use crate::fixture::{
    Fixture, MS, SECOND, assert_error, begun, evict, hold_many, pass, poll_once, queued, runtime, settle,
};

#[tokio::test(start_paused = true)]
async fn contradictory_options_are_refused_before_any_call() {
    let (_, client, backend) = Fixture::with_faulty_backend();
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
    assert_eq!(backend.control(Verb::Acquire).count(), 0);
    assert!(mutex().at_least(SECOND).max_hold(SECOND).lock().await.is_ok());
    let shortest = client.mutex("l").lease(30 * MS).max_hold(30 * MS);
    assert!(shortest.lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn settings_of_zero_use_the_minimum_and_still_work() {
    let fixture = Fixture::new();
    let settings = Settings::default()
        .call_limit(Duration::ZERO)
        .offer_window(Duration::ZERO);
    let (client, backend) = fixture.faulty_client_with(settings);
    let mutex = client.mutex("k");
    // A call limit of zero still lets a call of 50 ms succeed.
    backend.control(Verb::Acquire).hold_before();
    let tried = tokio::spawn(mutex.try_lock());
    pass(50 * MS).await;
    backend.control(Verb::Acquire).resume();
    let guard = tried.await.unwrap().unwrap().expect("it is free");
    // An offer window of zero still lets a waiter take its offer 5 ms later.
    let mut waiting = queued(mutex.lock()).await;
    guard.unlock().await.unwrap();
    pass(5 * MS).await;
    let guard = poll_once(&mut waiting).await.expect("it was offered the key");
    guard.unwrap().unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unlock_reports_an_eviction() {
    let (fixture, [client]) = Fixture::clients();
    let guard = client.mutex("k").lock().await.unwrap();
    evict(&fixture.client(), "k").await;
    assert!(guard.is_held(), "the holder does not know yet");
    match guard.unlock().await {
        Err(Error::Lost(lost)) => assert!(matches!(lost.cause, LostCause::Evicted { .. }), "{lost:?}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn closing_releases_many_locks_in_few_calls() {
    let fixture = Fixture::new();
    let hundred = NonZeroU32::new(100).unwrap();
    let (client, backend) = fixture.faulty_client_where(|profile| profile.limits.max_batch = hundred);
    let guards = hold_many(&client, 1_000).await;
    let release = backend.control(Verb::Release);
    // One of the 10 batches fails: its 100 claims are then released by a call each.
    release.fail_before(1);
    client.close(SECOND).await.unwrap();
    assert_eq!(release.count(), 10 + 100);
    for n in 0..1_000 {
        assert!(fixture.is_free(&format!("k{n}")).await);
    }
    drop(guards);
}

#[test]
fn own_thread_needs_no_other_runtime() {
    let settings = Settings::default().own_thread(true);
    let fixture = Fixture::new();
    let [unused, client, late] = [(); 3].map(|()| fixture.client_with(settings.clone()));
    drive(async {
        let members = [client.mutex("k"), client.mutex("l")];
        let guards = multi(members.clone()).lock_within(SECOND).await.unwrap();
        assert!(multi(members).try_lock().await.unwrap().is_none());
        // The first call of `late` has to wait, because `client` holds the key.
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
        assert!(std::time::Instant::now() < end, "the future is never woken");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_loop_yields_to_other_tasks() {
    let client = Fixture::new().client();
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
async fn a_try_that_missed_its_offer_tries_again() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let acquire = backend.control(Verb::Acquire);
    acquire.hold_before();
    let late = begun(client.mutex("k").try_lock()).await;
    // A task adopts the call and gets the grant, but no poll of the future takes the grant in time.
    pass(200 * MS).await;
    acquire.resume();
    pass(SECOND).await;
    let guard = fixture.client().mutex("k").lock().await.unwrap();
    let answer = tokio::time::timeout(SECOND, late).await;
    let answer = answer.expect("a try never waits for another");
    assert!(answer.unwrap().is_none());
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_zero_limit_acquires_a_free_lock_of_a_slow_store() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    backend.control(Verb::Acquire).delay(50 * MS);
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
    fixture.freed("k", SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn guards_dropped_together_are_released_in_one_batch() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    drop(hold_many(&client, 1_000).await);
    settle().await;
    let most = client.profile().limits.max_batch.get() as usize;
    let calls = backend.control(Verb::Release).count();
    assert!(calls <= 1_000_usize.div_ceil(most) + 1, "{calls}");
    assert!(fixture.is_free("k0").await && fixture.is_free("k999").await);
}

#[test]
fn a_client_leaks_nothing_when_its_runtime_ends() {
    let fixture = Fixture::new();
    let store = fixture.backend();
    let before = Arc::strong_count(&store);
    for what in ["guard", "kept", "renewal", "call", "waiter", "fair waiter"] {
        for alive in [false, true] {
            let runtime = runtime();
            let backend = faulty(store.clone());
            backend.yield_everywhere(1);
            let left = runtime.block_on(async {
                let left = leave(&backend, what, alive).await;
                // If `alive`, the client's guards and futures (`left`) outlive the runtime. Otherwise they are
                // dropped here, before any task can run.
                alive.then_some(left)
            });
            drop(runtime);
            drop(left);
            drop(backend);
            assert_eq!(Arc::strong_count(&store), before, "{what}, alive: {alive}");
        }
    }
}

/// A timer watches for slow calls. Calls that have ended do not keep their client alive until that timer fires.
#[tokio::test(start_paused = true)]
async fn a_client_dropped_after_its_calls_ends_at_once() {
    let fixture = Fixture::new();
    let store = fixture.backend();
    let before = Arc::strong_count(&store);
    let backend = faulty(store.clone());
    backend.yield_everywhere(1);
    let client = Client::new(backend.clone(), Settings::default());
    let guard = client.mutex("k").lock().await.unwrap();
    guard.unlock().await.unwrap();
    drop((client, backend));
    settle().await;
    assert_eq!(Arc::strong_count(&store), before);
}

/// Brings a new client into the state named `what` and drops the client. Returns its guards and futures.
async fn leave(backend: &Arc<FaultyBackend>, what: &str, alive: bool) -> Box<dyn std::any::Any> {
    let client = Client::new(backend.clone(), Settings::default());
    // A separate key for each case: a claim that was not released holds its key until the lease ends.
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
