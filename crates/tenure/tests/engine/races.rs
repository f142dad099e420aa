//! Interleavings that once went wrong somewhere: calls that outlast their callers, futures that are kept and not
//! polled, clients that close in between. Calls that are taken over from their callers are in `taken_over.rs`.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake};

use futures_util::FutureExt;
use tenure::{Client, Error, Mutex, Settings};
use tokio::runtime::Runtime;

use crate::stage::{Verb, stage};
use crate::world::{MS, SECOND, World, assert_error, pass, runtime, settle, spawned, worker};

/// R26: what a failed poll says of itself says nothing of the claim that an earlier call placed.
#[tokio::test(start_paused = true)]
async fn a_fair_waiter_whose_poll_is_refused_leaves_no_ghost() {
    let (world, client, stage) = World::with_stage();
    let guard = world.client().mutex("k").fair().lock().await.unwrap();
    let waiting = spawned(client.mutex("k").fair().lock()).await;
    assert_eq!(world.queue("k").await.len(), 1);
    stage.act(Verb::Acquire).refuse(1);
    pass(11 * SECOND).await;
    assert_error!(waiting.await.unwrap(), Error::Backend(_));
    settle().await;
    assert_eq!(world.queue("k").await.len(), 0);
    guard.unlock().await.unwrap();
}

#[test]
fn on_a_thread_of_its_own_too_close_confirms_what_it_gave_back() {
    runtime().block_on(async {
        let stage = stage(tenure_memory::Memory::new());
        let client = Client::new(stage.clone(), Settings::default().own_thread(true));
        let guard = client.mutex("k").lock().await.unwrap();
        stage.act(Verb::Release).hold_before();
        let closer = client.clone();
        let close = tokio::spawn(async move { closer.close(10 * SECOND).await });
        // sleep: longer than the watchdog sleeps between two looks at its clock.
        tokio::time::sleep(1_200 * MS).await;
        assert!(!close.is_finished());
        stage.act(Verb::Release).go_on();
        close.await.unwrap().unwrap();
        assert!(!guard.is_held());
    });
}

#[test]
fn waiters_on_another_runtime_are_told_when_the_watchdogs_ends() {
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
        let ended = ended.expect("stranded").unwrap();
        assert!(matches!(ended, Err(Error::Closed(why)) if why.contains("runtime")));
    }
    assert!(!guard.is_held(), "nobody renews it");
}

/// R16, and a store that answers too late for its lease, must not be asked in a loop without a pause.
#[tokio::test(start_paused = true)]
async fn a_store_that_always_answers_too_late_is_asked_with_pauses() {
    let (world, client, stage) = World::with_stage();
    stage.act(Verb::Acquire).delay(100 * MS);
    let never = client.mutex("k").lease(50 * MS).lock_within(10 * SECOND).await;
    assert_error!(never, Error::Timeout);
    let asked = stage.act(Verb::Acquire).count();
    assert!((5..60).contains(&asked), "{asked} times in 10 s");
    world.freed("k", SECOND).await;
}

/// A waker that takes the lock again.
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

/// Q8: no lock of the queue is held while a waker runs, or while the store is called.
#[test]
fn wakers_and_calls_may_lock_the_same_key() {
    let (tell, told) = std::sync::mpsc::channel();
    let work = async move {
        let (_, client, stage) = World::with_stage();
        let mutex = client.mutex("k").linger(10 * MS);
        for verb in [Verb::Acquire, Verb::Release] {
            let (mutex, tell) = (mutex.clone(), tell.clone());
            stage.act(verb).meanwhile(move || {
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

/// A clock that stands still. The thread `second` ends this runtime when it reads the clock for the given time.
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
            // A thread of another runtime may not wait for this.
            let end = std::thread::spawn(|| runtime.shutdown_timeout(10 * SECOND));
            end.join().unwrap();
        }
        tenure_backend::Instant::from_nanos(1_000_000_000_000)
    }
}

#[test]
fn a_wait_with_a_limit_does_not_panic_when_the_runtime_of_its_client_ends() {
    let (first, second) = (worker("first"), worker("second"));
    let clock = Arc::new(EndsRuntime::default());
    let store = tenure_memory::MemoryStore::new(clock.clone());
    let client = Client::new(store.client(clock.clone()), Settings::default());
    let _guard = first.block_on(client.mutex("k").lock()).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let lock = client.mutex("k").lock_within(50 * MS);
    let waiting = second.spawn(lock.on_waiting(move |_| tell.send(()).unwrap()));
    told.recv_timeout(10 * SECOND).unwrap();
    // sleep: its limit has been set by then; what it waits for comes later.
    std::thread::sleep(20 * MS);
    // The timer ends, the queue reads the clock, then the limit reads the clock: meanwhile the runtime ends.
    *clock.0.lock() = Some((2, first));
    let ended = second.block_on(async { tokio::time::timeout(10 * SECOND, waiting).await });
    let ended = ended.expect("stranded").expect("it panicked");
    assert!(matches!(ended, Err(Error::Closed(why)) if why.contains("runtime")));
}
