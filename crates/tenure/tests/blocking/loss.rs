//! How a thread learns that its lock is lost, and which locks and threads a closed or dropped client leaves behind.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::backend::SystemClock;
use tenure::blocking::{Client, multi};
use tenure::{Error, LostCause, ReleaseTarget, Settings};
use tenure_memory::{Memory, MemoryStore};
use tenure_testkit::SimClock;

use crate::fixture::{
    MS, SOON, assert_error, client, client_of, held, is_free, one_queues, two_clients, until,
};

#[test]
fn loss_is_noticed_by_waiting_and_by_asking() {
    let (one, other) = two_clients();
    let guard = held(one.mutex("k").lease(3000 * MS));
    assert_eq!(guard.check(), Ok(()));
    assert_eq!(guard.lost_within(10 * MS), None, "it is held");
    let freed = other.evict(ReleaseTarget::All(guard.key().clone()));
    assert_eq!(freed.expect("memory answers").len(), 1);
    let lost = guard.lost_within(SOON).expect("a renewal tells it");
    assert!(matches!(lost.cause, LostCause::Evicted { .. }), "{lost}");
    assert_eq!(guard.check(), Err(lost.clone()));
    assert_eq!(guard.lost(), lost);
    assert!(!guard.is_held());
    assert_error!(guard.unlock(), Error::Lost(_));
}

#[test]
fn work_under_a_lost_lock_is_an_error() {
    let clock = Arc::new(SimClock::new());
    let store = MemoryStore::new(clock.clone());
    let client = Client::new(store.client(clock.clone()), Settings::default()).expect("there is a thread");
    let lease = Duration::from_secs(60);
    let short = client.mutex("k").fixed_lease(lease);
    let steps = Cell::new(0);
    let done = short.with(|guard| {
        while guard.check().is_ok() && steps.get() < 10 {
            steps.set(steps.get() + 1);
            clock.suspend(lease / 2);
        }
        "done"
    });
    assert!(matches!(done, Err(Error::Lost(_))), "{done:?}");
    assert_eq!(steps.get(), 2, "it worked while it held the lock");

    let guard = short.lock().expect("it is free");
    assert_eq!(guard.while_held(|_| 7), Ok(7));
    clock.suspend(lease);
    guard.lost();
    assert!(guard.while_held(|_| unreachable!("the lock is lost")).is_err());
}

#[test]
fn a_wait_for_loss_counts_suspended_time() {
    const HOUR: Duration = Duration::from_secs(3600);
    let clock = Arc::new(SimClock::new());
    let store = MemoryStore::new(clock.clone());
    let client = Client::new(store.client(clock.clone()), Settings::default()).expect("there is a thread");
    // Longer than all suspends of this test, so that no lock is lost.
    let [one, a, b] = ["k", "a", "b"].map(|key| client.mutex(key).lease(1000 * HOUR));
    let one = one.lock().expect("it is free");
    let both = multi([a, b]).lock().expect("they are free");
    // Not scoped threads: if the test fails, it does not wait an hour for them.
    let one = std::thread::spawn(move || one.lost_within(HOUR));
    let both = std::thread::spawn(move || both.lost_within(HOUR));
    until("both have found out", || {
        // Suspends repeatedly, because a thread counts only the suspends after its wait has begun.
        clock.suspend(HOUR);
        std::thread::sleep(50 * MS); // sleep: between two suspends; no event to wait for.
        one.is_finished() && both.is_finished()
    });
    for wait in [one, both] {
        assert_eq!(wait.join().expect("it does not panic"), None, "it is held");
    }
}

#[test]
fn a_thread_that_never_waits_keeps_its_lock_renewed() {
    let client = client();
    let guard = held(client.mutex("k").lease(3000 * MS));
    let began = Instant::now();
    while began.elapsed() < 4000 * MS {
        assert!(guard.is_held(), "lost after {:?}", began.elapsed());
        std::hint::spin_loop();
    }
    guard.unlock().expect("it is held");
}

#[test]
fn a_clients_thread_ends_with_its_last_handle() {
    let store = MemoryStore::new(Arc::new(SystemClock));
    let backend: Arc<Memory> = store.client(Arc::new(SystemClock));
    let gone = Arc::downgrade(&backend);
    let client = Client::new(backend, Settings::default()).expect("there is a thread");
    let guard = held(client.mutex("k").lease(3000 * MS));
    let mutex = client.mutex("other");
    drop(client);
    let lost = guard.lost_within(4000 * MS);
    assert_eq!(lost, None, "a guard keeps its watchdog");
    let other = mutex.lock().expect("a lock keeps its client");
    other.unlock().expect("it is held");
    drop((guard, mutex));
    until("the thread lets go of its store", || gone.upgrade().is_none());
    assert!(is_free(&client_of(&store), "k"), "the lock was released first");
}

#[test]
fn closing_ends_waits_and_releases_every_lock() {
    let (one, other) = two_clients();
    let foreign = other.mutex("busy").lock().expect("it is free");
    let mine = one.mutex("mine").lock().expect("it is free");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| one.mutex("busy").fair().lock().map(|_| ()));
        until("it queues", || one_queues(&other, "busy"));
        one.close(SOON).expect("it is confirmed");
        let waited = waiter.join().expect("the thread does not panic");
        assert_error!(waited, Error::Closed(_));
    });
    assert_eq!(mine.lost().cause, LostCause::Closed);
    assert_error!(one.mutex("mine").lock(), Error::Closed(_));
    assert!(is_free(&other, "mine"));
    foreign.unlock().expect("it is another client's");
}
