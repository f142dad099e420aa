//! Rare interleavings: calls that end after their callers, runtimes that end during a call, and wakers that take a
//! lock.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake};

use futures_util::FutureExt;
use tenure::{Client, Error, Mutex, Settings};
use tokio::runtime::Runtime;

use crate::faulty_backend::{Verb, faulty};
use crate::fixture::{Fixture, MS, SECOND, assert_error, pass, runtime, settle, spawned, worker};

/// R26: the store queues a fair claim, and then refuses a poll for it. The client withdraws the claim.
#[tokio::test(start_paused = true)]
async fn a_refused_fair_poll_leaves_no_claim() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = fixture.client().mutex("k").fair().lock().await.unwrap();
    let waiting = spawned(client.mutex("k").fair().lock()).await;
    assert_eq!(fixture.queue("k").await.len(), 1);
    backend.control(Verb::Acquire).refuse(1);
    pass(11 * SECOND).await;
    assert_error!(waiting.await.unwrap(), Error::Backend(_));
    settle().await;
    assert_eq!(fixture.queue("k").await.len(), 0);
    guard.unlock().await.unwrap();
}

#[test]
fn close_on_own_thread_confirms_its_releases() {
    runtime().block_on(async {
        let backend = faulty(tenure_memory::Memory::new());
        let client = Client::new(backend.clone(), Settings::default().own_thread(true));
        let guard = client.mutex("k").lock().await.unwrap();
        backend.control(Verb::Release).hold_before();
        let closer = client.clone();
        let close = tokio::spawn(async move { closer.close(10 * SECOND).await });
        // sleep: longer than 1 s, after which a task that waits reads the lease clock again.
        tokio::time::sleep(1_200 * MS).await;
        assert!(!close.is_finished());
        backend.control(Verb::Release).resume();
        close.await.unwrap().unwrap();
        assert!(!guard.is_held());
    });
}

#[test]
fn waiters_on_other_runtimes_end_with_the_watchdogs() {
    let (first, second) = (worker("first"), worker("second"));
    let client = Client::new(tenure_memory::Memory::new(), Settings::default());
    let mutex = client.mutex("k");
    let guard = first.block_on(mutex.lock()).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let fair = mutex.clone().fair();
    let locks = [mutex.lock(), fair.lock(), fair.lock_within(60 * SECOND)];
    let waiting = locks.map(|lock| {
        let tell = tell.clone();
        second.spawn(lock.on_waiting(move |_| tell.send(()).unwrap()))
    });
    for _ in 0..waiting.len() {
        told.recv_timeout(10 * SECOND).unwrap();
    }
    first.shutdown_timeout(10 * SECOND);
    for waiting in waiting {
        let ended = second.block_on(async { tokio::time::timeout(10 * SECOND, waiting).await });
        let ended = ended.expect("the waiter never ends").unwrap();
        assert!(matches!(ended, Err(Error::Closed(why)) if why.contains("runtime")));
    }
    assert!(!guard.is_held(), "it is not renewed");
}

/// R16: every reply comes after the lease of its grant has ended. The client pauses before it asks again.
#[tokio::test(start_paused = true)]
async fn a_store_that_answers_too_late_is_polled_with_pauses() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    backend.control(Verb::Acquire).delay(100 * MS);
    let never = client.mutex("k").lease(50 * MS).lock_within(10 * SECOND).await;
    assert_error!(never, Error::Timeout);
    let asked = backend.control(Verb::Acquire).count();
    assert!((5..60).contains(&asked), "{asked} times in 10 s");
    fixture.freed("k", SECOND).await;
}

/// A waker that tries to lock the key.
struct LocksAgain {
    mutex: Mutex,
    is_woken: AtomicBool,
}

impl Wake for LocksAgain {
    fn wake(self: Arc<Self>) {
        drop(self.mutex.try_lock().now_or_never());
        self.is_woken.store(true, Ordering::Relaxed);
    }
}

/// Q8: the engine holds no internal lock while it runs a waker or calls the store: here both lock the same key.
#[test]
fn wakers_and_calls_may_lock_the_same_key() {
    let (tell, told) = std::sync::mpsc::channel();
    let work = async move {
        let (_, client, backend) = Fixture::with_faulty_backend();
        let mutex = client.mutex("k").linger(10 * MS);
        for verb in [Verb::Acquire, Verb::Release] {
            let (mutex, tell) = (mutex.clone(), tell.clone());
            backend.control(verb).meanwhile(move || {
                drop(mutex.try_lock().now_or_never());
                tell.send(verb).unwrap();
            });
        }
        let guard = mutex.lock().await.unwrap();
        let again = Arc::new(LocksAgain {
            mutex: mutex.clone(),
            is_woken: AtomicBool::new(false),
        });
        let mut waiting = mutex.lock();
        let polled = Pin::new(&mut waiting).poll(&mut Context::from_waker(&again.clone().into()));
        assert!(polled.is_pending());
        guard.unlock().await.unwrap();
        assert!(again.is_woken.load(Ordering::Relaxed));
        waiting.await.unwrap().unlock().await.unwrap();
    };
    std::thread::spawn(|| runtime().block_on(work));
    for verb in [Verb::Acquire, Verb::Release] {
        assert_eq!(told.recv_timeout(10 * SECOND).expect("it locks itself out"), verb);
    }
}

/// A clock that stands still. When the thread `second` has read it the given number of times, the clock ends the runtime.
#[derive(Debug, Default)]
struct EndsRuntime(parking_lot::Mutex<Option<(u32, Runtime)>>);

impl tenure_backend::Clock for EndsRuntime {
    fn now(&self) -> tenure_backend::Instant {
        let mut armed = self.0.lock();
        if std::thread::current().name() == Some("second")
            && let Some((readings, _)) = &mut *armed
        {
            *readings -= 1;
        }
        let due = armed.take_if(|(readings, _)| *readings == 0);
        drop(armed);
        if let Some((_, runtime)) = due {
            // In a new thread: a worker thread may not wait for the end of another runtime.
            let end = std::thread::spawn(|| runtime.shutdown_timeout(10 * SECOND));
            end.join().unwrap();
        }
        tenure_backend::Instant::from_nanos(1_000_000_000_000)
    }
}

#[test]
fn a_time_limit_survives_the_end_of_the_clients_runtime() {
    let (first, second) = (worker("first"), worker("second"));
    let clock = Arc::new(EndsRuntime::default());
    let store = tenure_memory::MemoryStore::new(clock.clone());
    let client = Client::new(store.client(clock.clone()), Settings::default());
    let _guard = first.block_on(client.mutex("k").lock()).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let lock = client.mutex("k").lock_within(50 * MS);
    let waiting = second.spawn(lock.on_waiting(move |_| tell.send(()).unwrap()));
    told.recv_timeout(10 * SECOND).unwrap();
    // sleep: lets the limit of 50 ms start, but not end.
    std::thread::sleep(20 * MS);
    // After the 50 ms, the waiter's queue reads the clock, and then the time limit reads it. At this second reading,
    // the clock ends the runtime `first`.
    *clock.0.lock() = Some((2, first));
    let ended = second.block_on(async { tokio::time::timeout(10 * SECOND, waiting).await });
    let ended = ended.expect("the waiter never ends").expect("it panicked");
    assert!(matches!(ended, Err(Error::Closed(why)) if why.contains("runtime")));
}
