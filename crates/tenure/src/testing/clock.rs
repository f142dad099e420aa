//! The clock of a test's `Lab`: the time of a tokio runtime, which can be advanced, plus all suspended time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_backend::{Clock, Instant};
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::{Mutex, oneshot};

/// The time at which the clock starts: far enough from `Instant::ORIGIN` that subtractions never saturate.
const START: Instant = Instant::from_nanos(1_000_000_000_000_000);

/// A clock that follows one runtime's time, whatever thread reads it.
///
/// The timers of the lab's clients run on the same runtime, so that clock and timers advance together.
#[derive(Debug)]
pub(crate) struct LabClock {
    pub(crate) runtime: Handle,
    began: tokio::time::Instant,
    suspended_nanos: AtomicU64,
    /// Allows one caller at a time to advance the time, because each pauses and resumes the runtime's time.
    passing: Mutex<()>,
    /// Ends the lab's own runtime when it is dropped. `None` if the lab uses its creator's runtime.
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

    /// Advances the time by `time` while all tasks run: timers fire in order.
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

    /// Advances the clock but no timer, as if the machine had slept for `time`.
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

/// Starts a runtime on its own thread. Dropping the sender ends the runtime.
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
