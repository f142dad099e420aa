//! The client's tasks: the runtime on which they run, when they wake, how they are counted, and how they end.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tenure_backend::{ClaimId, Instant};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::own_thread::OwnThread;
use crate::error::Error;

const CLOSED: &str = "this client was closed: make another one";
const RUNTIME_GONE: &str = "the runtime on which this client's watchdog ran has ended: make another client, or use Settings::own_thread";
const NO_RUNTIME: &str =
    "a client needs a tokio runtime with a timer: call it inside one, or use Settings::own_thread";

/// The error of a caller when the task that worked for it was dropped, because the client's runtime ended.
pub(crate) const ABANDONED: Error = Error::Closed(RUNTIME_GONE);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    New,
    Running,
    /// The client was closed or dropped. Releases may still be in flight.
    Closed,
    /// The runtime ended before the client did.
    Gone,
}

#[derive(Clone)]
pub(crate) struct Tasks(Arc<Shared>);

struct Shared {
    own_thread: bool,
    /// The client's own thread, on which its store was opened. `start` takes it, to run the watchdog on it.
    thread: Mutex<Option<OwnThread>>,
    life: Mutex<Life>,
    runtime: OnceLock<Handle>,
    /// Counts the unfinished work for callers: tasks and tokens. A closing client waits until none is left.
    work: TaskTracker,
    /// Counts the releases in flight. A closing client waits for them first, because they may add work.
    releases: Releases,
    /// Cancelled when the client is closed or dropped, or its runtime has ended.
    closing: CancellationToken,
    /// Cancelled when the watchdog must end: the client was dropped or has released everything after a close, or its
    /// runtime has ended.
    ended: CancellationToken,
}

impl Tasks {
    pub(crate) fn new(own_thread: bool) -> Self {
        Tasks(Arc::new(Shared {
            own_thread,
            thread: Mutex::new(None),
            life: Mutex::new(Life::New),
            runtime: OnceLock::new(),
            work: TaskTracker::new(),
            releases: Releases::default(),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
        }))
    }

    pub(crate) fn settle_on(&self, thread: OwnThread) {
        *self.0.thread.lock() = Some(thread);
    }

    pub(crate) fn has_started(&self) -> bool {
        self.0.runtime.get().is_some()
    }

    /// Starts the watchdog, on the caller's runtime or on a thread of its own. `on_gone` runs if that runtime ends
    /// before [`stop`](Self::stop).
    ///
    /// # Errors
    /// [`Error::Closed`] if the client was closed, or if there is no runtime or thread.
    #[cold]
    pub(crate) fn start(
        &self,
        watchdog: impl Future<Output = ()> + Send + 'static,
        on_gone: impl Fn() + Send + 'static,
    ) -> Result<(), Error> {
        let mut life = self.0.life.lock();
        match *life {
            Life::New => {}
            Life::Running => return Ok(()),
            Life::Closed | Life::Gone => {
                drop(life);
                return Err(self.closed());
            }
        }
        let own_thread = if self.0.own_thread {
            let thread = self.0.thread.lock().take();
            Some(thread.map_or_else(OwnThread::start, Ok)?)
        } else {
            None
        };
        let runtime = match &own_thread {
            Some(thread) => thread.runtime().clone(),
            None => Handle::try_current().map_err(|_| Error::Closed(NO_RUNTIME))?,
        };
        let _ = self.0.runtime.set(runtime.clone());
        *life = Life::Running;
        drop(life);
        let end = End {
            tasks: self.clone(),
            on_gone,
        };
        let watchdog = async move {
            let _end = end;
            watchdog.await;
        };
        match own_thread {
            Some(thread) => thread.run(watchdog),
            None => drop(runtime.spawn(watchdog)),
        }
        Ok(())
    }

    /// The error of calls after the client was closed or its runtime has ended.
    pub(crate) fn closed(&self) -> Error {
        Error::Closed(if *self.0.life.lock() == Life::Gone {
            RUNTIME_GONE
        } else {
            CLOSED
        })
    }

    /// Whether the client was closed, or its runtime has ended.
    pub(crate) fn is_closed(&self) -> bool {
        // Takes no lock, because calls to the store make this check often.
        self.0.work.is_closed()
    }

    /// Whether the watchdog must end, or has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.ended.is_cancelled()
    }

    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }

    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.0.ended
    }

    /// Runs `work` on the client's runtime. Drops `work` if the runtime has ended or the client has never started;
    /// leases then end the claims.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = self.0.runtime.get() {
            self.0.work.spawn_on(work, runtime);
        }
    }

    pub(crate) fn releases(&self) -> &Releases {
        &self.0.releases
    }

    /// Counts work for a caller as long as the token lives.
    pub(crate) fn token(&self) -> TaskTrackerToken {
        self.0.work.token()
    }

    /// Whether timers can run: the client has a runtime, or the caller is on one.
    pub(crate) fn has_timers(&self) -> bool {
        self.0.runtime.get().is_some() || Handle::try_current().is_ok()
    }

    /// The client's runtime, if it has one and the caller runs on another.
    pub(crate) fn elsewhere(&self) -> Option<&Handle> {
        let ours = self.0.runtime.get()?;
        let here = Handle::try_current().is_ok_and(|here| here.id() == ours.id());
        (!here).then_some(ours)
    }

    /// Marks the client as closed: it refuses new attempts, and its pollers end.
    pub(crate) fn shut(&self) {
        let mut life = self.0.life.lock();
        if *life != Life::Gone {
            *life = Life::Closed;
        }
        drop(life);
        self.0.close();
    }

    /// Waits until no work for callers is left.
    pub(crate) async fn settled(&self) {
        for releases in &*self.0.releases.0 {
            releases.wait().await;
        }
        self.0.work.wait().await;
    }

    /// Ends the watchdog: the client was closed or dropped.
    pub(crate) fn stop(&self) {
        self.shut();
        self.0.ended.cancel();
    }

    /// Ends the client when the watchdog's task has ended. Returns true if the client's runtime had ended before
    /// the client did.
    fn has_ended(&self) -> bool {
        let mut life = self.0.life.lock();
        let unforeseen = !self.0.ended.is_cancelled();
        if unforeseen {
            *life = Life::Gone;
        }
        drop(life);
        self.0.close();
        self.0.ended.cancel();
        unforeseen
    }
}

impl Shared {
    fn close(&self) {
        for releases in &*self.releases.0 {
            releases.close();
        }
        self.work.close();
        self.closing.cancel();
    }
}

const RELEASE_COUNTERS: usize = 16;

/// Counts releases in flight, by several counters, so that locks of different keys do not contend.
#[derive(Clone, Debug, Default)]
pub(crate) struct Releases(Arc<[TaskTracker; RELEASE_COUNTERS]>);

impl Releases {
    /// Counts the release of a claim as long as the token lives.
    pub(crate) fn token(&self, claim: ClaimId) -> TaskTrackerToken {
        self.0[claim.number() as usize % RELEASE_COUNTERS].token()
    }

    #[cfg(all(test, feature = "testing"))]
    pub(crate) fn in_flight(&self) -> usize {
        self.0.iter().map(TaskTracker::len).sum()
    }
}

/// The time at which a task next wakes. Other tasks and callers may move it to an earlier time.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<Instant>);

impl Alarm {
    /// Adds a time at which the task is needed. Returns true if the task must be woken, because it would sleep
    /// longer.
    pub(crate) fn add(&mut self, at: Instant) -> bool {
        let is_sooner = self.0.is_none_or(|set| at < set);
        if is_sooner {
            self.0 = Some(at);
        }
        is_sooner
    }

    /// Returns the time at which the task wakes next: `due` (`None`: the task is not needed), or an earlier time that
    /// was already set. Keeping the earlier time avoids a reset of the task's timer for each lock that comes or goes.
    pub(crate) fn next(&mut self, now: Instant, due: Option<Instant>) -> Option<Instant> {
        let set = self.0.filter(|at| *at > now);
        self.0 = due.into_iter().chain(set).min();
        self.0
    }
}

/// Owned by the watchdog's task. Its drop ends the client, also if the runtime drops that task.
struct End<F: Fn()> {
    tasks: Tasks,
    on_gone: F,
}

impl<F: Fn()> Drop for End<F> {
    fn drop(&mut self) {
        if self.tasks.has_ended() {
            (self.on_gone)();
        }
    }
}
