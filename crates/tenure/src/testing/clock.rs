//! The clock of a lab: a runtime's time, which can be advanced, plus the time it was suspended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_backend::{Clock, Instant};
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::{Mutex, oneshot};

/// A start far enough from the origin that subtractions never saturate.
const START: Instant = Instant::from_nanos(1_000_000_000_000_000);

/// A clock that follows one runtime's time, whatever thread reads it.
///
/// All timers of the lab's clients are that runtime's too, so that clock and timers move together.
#[derive(Debug)]
pub(crate) struct LabClock {
    pub(crate) runtime: Handle,
    began: tokio::time::Instant,
    suspended_nanos: AtomicU64,
    /// Allows one caller at a time to advance the time, because each pauses and resumes the runtime's time.
    passing: Mutex<()>,
    /// Dropped with the lab, which ends the runtime if it is the lab's own.
    _alive: Option<oneshot::Sender<()>>,
}

impl LabClock {
    /// Uses the time of the current runtime if it is single-threaded, and otherwise starts a runtime.
    pub(crate) fn new() -> Self {
        let current = Handle::try_current().ok();
        let movable = current.filter(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread);
        let (runtime, alive) = match movable {
            Some(runtime) => (runtime, None),
            None => on_a_thread(),
        };
        let began = {
            let _entered = runtime.enter();
            tokio::time::Instant::now()
        };
        LabClock {
            runtime,
            began,
            suspended_nanos: AtomicU64::new(0),
            passing: Mutex::new(()),
            _alive: alive,
        }
    }

    /// Advances the time while all tasks run: timers fire in order.
    pub(crate) async fn pass(&self, time: Duration) {
        let _one_at_a_time = self.passing.lock().await;
        let was_paused = is_paused();
        if !was_paused {
            tokio::time::pause();
        }
        // Tokio advances paused time to the next timer whenever all tasks are idle.
        tokio::time::sleep(time).await;
        if !was_paused {
            tokio::time::resume();
        }
    }

    /// Advances the time while no task runs and no timer counts.
    pub(crate) fn suspend(&self, time: Duration) {
        let nanos = (Instant::ORIGIN + time).as_nanos();
        self.suspended_nanos.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for LabClock {
    fn now(&self) -> Instant {
        let _entered = self.runtime.enter();
        let suspended = Duration::from_nanos(self.suspended_nanos.load(Ordering::SeqCst));
        START + self.began.elapsed() + suspended
    }
}

/// Returns true if the current runtime's time is paused. Tokio has no query for this.
fn is_paused() -> bool {
    let (theirs, real) = (tokio::time::Instant::now(), std::time::Instant::now());
    while real.elapsed() < Duration::from_micros(10) {
        std::hint::spin_loop();
    }
    tokio::time::Instant::now() == theirs
}

/// A runtime on a thread of its own, until the sender is dropped.
fn on_a_thread() -> (Handle, Option<oneshot::Sender<()>>) {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system can create a runtime");
    let handle = runtime.handle().clone();
    let (alive, gone) = oneshot::channel::<()>();
    std::thread::Builder::new()
        .name("tenure-lab".to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                let _ = gone.await;
            });
        })
        .expect("the system can start a thread");
    (handle, Some(alive))
}
