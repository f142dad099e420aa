//! The `Lab` for users' tests: its faults reach the holders, and it advances time on every kind of runtime.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use tenure::backend::Loss;
use tenure::fenced::{FencedCell, Stale};
use tenure::testing::Lab;
use tenure::{Acquire, Client, Error, Guard, Kind, LostCause, Settings};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
/// Maximum real time of a test. It is less than 10 s, a third of the lease, after which a client would renew without
/// the lab.
const AT_ONCE: Duration = Duration::from_secs(8);
/// Real time limit, which only a failing test reaches.
const LIMIT: Duration = Duration::from_secs(30);

async fn held(client: &Client, key: &str) -> Guard {
    client.mutex(key).lock().await.expect("it is free")
}

async fn is_free(client: &Client, key: &str) -> bool {
    let guard = client.mutex(key).try_lock().await;
    guard.expect("this client reaches the store").is_some()
}

/// Starts a task that waits for a lock, and returns when the task waits.
async fn waiting(lock: Acquire<Guard>) -> JoinHandle<Result<Guard, Error>> {
    let (began, queue) = tokio::sync::oneshot::channel();
    let lock = lock.on_waiting(|_| began.send(()).expect("the test listens"));
    let task = tokio::spawn(lock);
    queue.await.expect("it waits");
    task
}

/// Fails unless `client` gets a transient error from the store.
async fn assert_out_of_reach(client: &Client) {
    let failed = client.mutex("out of reach").try_lock().await;
    let failed = failed.expect_err("it reaches nothing");
    assert!(failed.is_transient(), "{failed}");
}

/// Runs a test with an empty lab on three runtimes: with one thread, with one thread and paused time, and with several
/// threads.
fn on_every_runtime(test: impl AsyncFn(Lab) + Copy + Send + 'static) {
    let (mut one, mut paused) = (Builder::new_current_thread(), Builder::new_current_thread());
    paused.start_paused(true);
    for (kind, builder) in [
        ("one thread", &mut one),
        ("paused", &mut paused),
        ("several threads", &mut Builder::new_multi_thread()),
    ] {
        let runtime = builder.enable_all().build().expect("tokio starts");
        let began = Instant::now();
        // Runs the test in another thread, so that this one can limit its real time: the lab may advance the timers of the
        // runtime.
        let (done, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            runtime.block_on(async { test(Lab::new()).await });
            done.send(())
        });
        if ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            panic!("{kind}: it hangs");
        }
        let sent = thread.join().expect("the test passes");
        sent.expect("the test waits for the result");
        let took = began.elapsed();
        assert!(took < AT_ONCE, "{kind}: {took:?} went by in reality");
    }
}

#[test]
fn losing_a_lock_on_demand_takes_effect_at_once() {
    on_every_runtime(async |lab| {
        let guard = held(&lab.client(), "k").await;
        lab.lose("k");
        let lost = guard.lost().await;
        let by = Some("the lab".into());
        assert_eq!(lost.cause, LostCause::Evicted { by });
        assert!(!guard.is_held());
        assert!(lab.holders("k").is_empty());
        assert!(matches!(guard.unlock().await, Err(Error::Lost(_))));
    });
}

#[test]
fn a_guard_reports_every_cause_of_loss() {
    on_every_runtime(async |lab| {
        let client = lab.client();
        for (loss, cause) in [
            (Loss::Expired, LostCause::Expired),
            (Loss::Session, LostCause::Session),
            (Loss::Missing, LostCause::Missing),
            (Loss::Evicted { by: None }, LostCause::Evicted { by: None }),
        ] {
            let guard = held(&client, "k").await;
            let work = guard.while_held(std::future::pending::<()>());
            lab.lose_as("k", loss);
            assert_eq!(work.await.expect_err("the work ends").cause, cause);
        }
    });
}

#[test]
fn a_waiter_gets_a_lost_lock_with_a_greater_token() {
    on_every_runtime(async |lab| {
        let (one, other) = (lab.client(), lab.client());
        let cell = FencedCell::new("initial");
        let old = held(&one, "k").await;
        lab.lose("k");
        let new = held(&other, "k").await;
        let (stale, fresh) = (
            old.token().expect("memory has tokens"),
            new.token().expect("memory has tokens"),
        );
        assert_eq!(cell.write(fresh, "new"), Ok(()));
        assert_eq!(cell.write(stale, "old"), Err(Stale::new(Some(fresh))));
        assert_eq!(cell.read(), "new");
        assert_eq!(lab.holders("k")[0].token, Some(fresh));
    });
}

#[test]
fn moving_time_renews_leases() {
    on_every_runtime(async |lab| {
        let guard = held(&lab.client(), "k").await;
        let before = lab.now();
        lab.advance(3600 * SECOND).await;
        assert!(lab.now() - before >= 3600 * SECOND);
        assert!(guard.is_held(), "{:?}", guard.loss());
        assert_eq!(lab.holders("k").len(), 1);
        guard.unlock().await.expect("it is held");
    });
}

#[test]
fn a_suspension_beyond_the_lease_loses_the_lock() {
    on_every_runtime(async |lab| {
        let guard = held(&lab.client(), "k").await;
        lab.suspend(LEASE / 2).await;
        assert!(guard.is_held(), "half a lease is not enough");
        lab.suspend(LEASE).await;
        assert!(!guard.is_held());
        assert_eq!(guard.lost().await.cause, LostCause::Expired);
        assert!(is_free(&lab.client(), "k").await);
    });
}

#[test]
fn a_cut_off_client_loses_its_locks_before_the_next_grant() {
    on_every_runtime(async |lab| {
        let (one, other) = (lab.client(), lab.client());
        let guard = held(&one, "k").await;
        lab.cut_off(&one);
        assert!(!is_free(&other, "k").await);
        lab.advance(LEASE - Duration::from_millis(500)).await;
        assert_eq!(guard.lost().await.cause, LostCause::Unreachable);
        lab.advance(SECOND).await;
        assert!(is_free(&other, "k").await);
        assert_out_of_reach(&one).await;
        lab.restore();
        assert!(is_free(&one, "other").await);
    });
}

#[test]
fn a_waiter_outlasts_a_failing_store() {
    on_every_runtime(async |lab| {
        let client = lab.client();
        let held = held(&client, "held").await;
        lab.fail();
        assert_out_of_reach(&client).await;
        let waiting = tokio::spawn(client.mutex("k").lock());
        lab.advance(LEASE / 3).await;
        assert!(!waiting.is_finished());
        assert!(held.is_held(), "a renewal that fails does not release");
        lab.restore();
        lab.advance(LEASE / 3).await;
        let guard = waiting.await.expect("it does not panic");
        let guard = guard.expect("the store is back");
        assert!(guard.is_held() && held.is_held());
    });
}

#[test]
fn moving_time_ends_limits_and_fixed_leases() {
    on_every_runtime(async |lab| {
        let (one, other) = (lab.client(), lab.client());
        let guard = one.mutex("k").fixed_lease(200 * SECOND).lock().await;
        let guard = guard.expect("it is free");
        let limited = waiting(other.mutex("k").lock_within(50 * SECOND)).await;
        lab.advance(100 * SECOND).await;
        let limited = limited.await.expect("it does not panic");
        assert!(matches!(limited, Err(Error::Timeout)), "{limited:?}");
        assert!(guard.is_held());
        lab.advance(100 * SECOND).await;
        assert_eq!(guard.lost().await.cause, LostCause::Expired);
    });
}

#[test]
fn a_waiter_gets_the_lock_of_a_cut_off_holder() {
    on_every_runtime(async |lab| {
        let (one, other) = (lab.client(), lab.client());
        let guard = held(&one, "k").await;
        lab.cut_off(&one);
        let next = waiting(other.mutex("k").fair().lock()).await;
        lab.advance(LEASE + SECOND).await;
        let next = next.await.expect("it does not panic");
        let next = next.expect("the lease has ended");
        assert!(next.token() > guard.token());
        assert!(!guard.is_held());
    });
}

#[test]
fn the_lab_shows_held_locks() {
    on_every_runtime(async |lab| {
        assert!(lab.keys().is_empty());
        let client = lab.client_with(Settings::default().label("the importer"));
        let _mutex = held(&client, "a").await;
        let permits = client.semaphore("b", 3).acquire_many(2).await;
        let _permits = permits.expect("they are free");
        let keys = lab.keys();
        let keys: Vec<_> = keys
            .iter()
            .map(|status| (status.key.as_str(), status.kind))
            .collect();
        let of = 3.try_into().expect("three is not zero");
        assert_eq!(keys, [("a", Kind::Mutex), ("b", Kind::Semaphore { of })]);
        assert_eq!(lab.holders("a")[0].label.as_deref(), Some("the importer"));
        assert!(lab.holders("free").is_empty());
    });
}

#[tokio::test(start_paused = true)]
async fn paused_time_advances_when_every_task_is_idle() {
    let lab = Lab::new();
    let began = (lab.now(), Instant::now());
    let _held = held(&lab.client(), "k").await;
    let busy = lab.client().mutex("k").lock_within(300 * SECOND).await;
    assert!(matches!(busy, Err(Error::Timeout)));
    assert!(lab.now() - began.0 >= 300 * SECOND);
    assert!(began.1.elapsed() < AT_ONCE);
}

#[tokio::test]
async fn on_a_current_thread_runtime_the_lab_moves_all_timers() {
    let lab = Lab::new();
    let (began, real) = (tokio::time::Instant::now(), Instant::now());
    // sleep: `lab.advance` makes it end at once.
    let sleeper = tokio::spawn(tokio::time::sleep(600 * SECOND));
    tokio::join!(lab.advance(400 * SECOND), lab.advance(200 * SECOND));
    sleeper.await.expect("it does not panic");
    assert!(began.elapsed() >= 600 * SECOND);
    assert!(real.elapsed() < AT_ONCE);
    let (began, real) = (tokio::time::Instant::now(), Instant::now());
    while real.elapsed() < Duration::from_millis(5) {
        std::hint::spin_loop();
    }
    assert!(began.elapsed() > Duration::ZERO, "time goes on by itself again");
}

#[test]
fn a_suspended_thread_loses_its_lock() {
    let lab = Lab::new();
    let client = lab.blocking_client_with(Settings::default().lease(5 * SECOND));
    let guard = client.mutex("k").lock().expect("it is free");
    assert_eq!(guard.lease(), 5 * SECOND);
    lab.blocking_suspend(6 * SECOND);
    assert!(!guard.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_multi_thread_runtime_the_lab_moves_lock_time_only() {
    let lab = Lab::new();
    let began = tokio::time::Instant::now();
    lab.advance(600 * SECOND).await;
    assert!(began.elapsed() < AT_ONCE);
}

#[test]
fn threads_have_their_lab_too() {
    let lab = Lab::new();
    let began = Instant::now();
    let (one, other) = (lab.blocking_client(), lab.blocking_client());
    let guard = one.mutex("k").lock().expect("it is free");
    lab.blocking_advance(600 * SECOND);
    assert!(guard.is_held());
    lab.lose("k");
    assert!(matches!(guard.lost().cause, LostCause::Evicted { .. }));
    let next = other.mutex("k").lock().expect("it is free");
    assert!(next.token() > guard.token());
    std::thread::scope(|scope| {
        let limited = scope.spawn(|| one.mutex("k").lock_within(60 * SECOND).map(|_| ()));
        while !limited.is_finished() {
            lab.blocking_advance(10 * SECOND);
        }
        let limited = limited.join().expect("it does not panic");
        assert!(matches!(limited, Err(Error::Timeout)), "{limited:?}");
    });
    drop((lab, one, other));
    assert!(next.is_held(), "a guard keeps its lab's time going");
    next.unlock().expect("it is held");
    assert!(began.elapsed() < AT_ONCE);
}

#[tokio::test]
#[should_panic(expected = "nobody holds \"k\": there is nothing to lose")]
async fn losing_a_free_lock_panics() {
    let lab = Lab::new();
    let guard = held(&lab.client(), "k").await;
    guard.unlock().await.expect("it is held");
    lab.lose("k");
}

#[tokio::test]
#[should_panic(expected = "only a client of this lab can be cut off")]
async fn a_client_of_another_lab_cannot_be_cut_off() {
    Lab::new().cut_off(&Lab::new().client());
}

#[test]
fn a_lab_can_travel_between_threads() {
    fn travels<T: Send + Sync + 'static>() {}
    travels::<Lab>();
}
