//! When a watchdog starts, on which runtime it works for others, and how it ends. What it does is in `rounds.rs`.

use std::future::Future;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tenure_backend::Clock;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::rounds::{Due, run};
use crate::engine::Engine;
use crate::error::Error;
use crate::own_thread::OwnThread;
use crate::release::Departing;
use crate::store::Store;

const CLOSED: &str = "this client was closed: make another one";
const RUNTIME_GONE: &str = "the runtime on which this client's watchdog ran has ended: make another client, or use Settings::own_thread";
const NO_RUNTIME: &str =
    "a client needs a tokio runtime with a timer: call it inside one, or use Settings::own_thread";

// The states of a watchdog, in the order in which they can follow each other.
const NEW: u8 = 0;
const RUNNING: u8 = 1;
pub(super) const SHUT: u8 = 2;
pub(super) const GONE: u8 = 3;
const STOPPED: u8 = 4;

#[derive(Debug)]
pub(crate) struct Watchdog(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) backend: Store,
    pub(super) clock: Arc<dyn Clock>,
    own_thread: bool,
    /// The thread on which the store was opened, until the watchdog starts there.
    thread: Mutex<Option<OwnThread>>,
    pub(super) state: AtomicU8,
    starting: Mutex<()>,
    runtime: OnceLock<Handle>,
    /// For telling the lines that the runtime has ended.
    engine: OnceLock<Weak<Engine>>,
    pub(super) due: Mutex<Due>,
    pub(super) bell: Notify,
    closing: Notify,
    /// Tasks under way on behalf of callers.
    busy: AtomicUsize,
    idle: Notify,
}

impl Watchdog {
    pub(crate) fn new(backend: Store, clock: Arc<dyn Clock>, own_thread: bool) -> Self {
        let due = Due::new(clock.now());
        Watchdog(Arc::new(Shared {
            backend,
            clock,
            own_thread,
            thread: Mutex::new(None),
            state: AtomicU8::new(NEW),
            starting: Mutex::new(()),
            runtime: OnceLock::new(),
            engine: OnceLock::new(),
            due: Mutex::new(due),
            bell: Notify::new(),
            closing: Notify::new(),
            busy: AtomicUsize::new(0),
            idle: Notify::new(),
        }))
    }

    /// Has the watchdog start on that thread.
    pub(crate) fn settle_on(&self, thread: OwnThread) {
        *self.0.thread.lock() = Some(thread);
    }

    /// Sees to it that the watchdog runs, on the caller's runtime or on a thread of its own.
    pub(crate) fn start(&self, engine: &Arc<Engine>) -> Result<(), Error> {
        match self.0.state.load(Ordering::Acquire) {
            RUNNING => Ok(()),
            NEW => self.start_now(engine),
            _ => Err(self.closed()),
        }
    }

    #[cold]
    fn start_now(&self, engine: &Arc<Engine>) -> Result<(), Error> {
        let _one_starter = self.0.starting.lock();
        if self.0.runtime.get().is_some() {
            return self.start(engine);
        }
        let _ = self.0.engine.set(Arc::downgrade(engine));
        let watchdog = run(self.0.clone(), Gone(self.0.clone()));
        let state = &self.0.state;
        if self.0.own_thread {
            let thread = self.0.thread.lock().take();
            let thread = thread.map_or_else(OwnThread::start, Ok)?;
            let _ = self.0.runtime.set(thread.run(watchdog));
        } else {
            let runtime = Handle::try_current().map_err(|_| Error::Closed(NO_RUNTIME))?;
            runtime.spawn(watchdog);
            let _ = self.0.runtime.set(runtime);
        }
        // Last, so that whoever finds it running also finds its runtime.
        state
            .compare_exchange(NEW, RUNNING, Ordering::AcqRel, Ordering::Acquire)
            .map_err(|_| self.closed())?;
        self.0.bell.notify_one();
        Ok(())
    }

    /// Why calls are refused: the client was closed, or its runtime has ended.
    pub(crate) fn closed(&self) -> Error {
        Error::Closed(if self.0.state.load(Ordering::Acquire) == GONE {
            RUNTIME_GONE
        } else {
            CLOSED
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.state.load(Ordering::Acquire) >= SHUT
    }

    /// Whether the runtime on which it ran has ended, or is about to.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.state.load(Ordering::Acquire) >= GONE
    }

    /// Why whoever waits for a task that is no more waits no longer.
    pub(crate) fn abandoned(&self) -> Error {
        Error::Closed(RUNTIME_GONE)
    }

    /// Resolves when the client is closed after this was called.
    pub(crate) fn closing(&self) -> Notified<'_> {
        self.0.closing.notified()
    }

    /// Runs `work` on the client's runtime. If that has ended, nothing is done: leases end what is left.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        spawn(&self.0, work);
    }

    /// Counts something under way on behalf of a caller, for as long as the answer lives.
    pub(crate) fn busy(&self) -> Busy {
        Busy::new(self.0.clone())
    }

    /// Whether there is a runtime whose timers can be used: the client's, or the caller's.
    pub(crate) fn has_timers(&self) -> bool {
        self.0.runtime.get().is_some() || Handle::try_current().is_ok()
    }

    /// The client's runtime, unless the caller is on it, or there is none yet.
    pub(crate) fn elsewhere(&self) -> Option<&Handle> {
        let ours = self.0.runtime.get()?;
        let here = Handle::try_current().is_ok_and(|here| here.id() == ours.id());
        (!here).then_some(ours)
    }

    /// Refuses new attempts, wakes what waits, and takes over every call under way.
    pub(crate) fn shut(&self) {
        self.0.state.fetch_max(SHUT, Ordering::SeqCst);
        self.0.closing.notify_waiters();
        let calls = std::mem::take(&mut self.0.due.lock().calls);
        calls.take_over();
    }

    /// Waits until nothing is under way on behalf of callers.
    pub(crate) async fn settled(&self) {
        loop {
            let mut idle = std::pin::pin!(self.0.idle.notified());
            idle.as_mut().enable();
            if self.0.busy.load(Ordering::SeqCst) == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Ends the watchdog's task: the client is gone.
    pub(crate) fn stop(&self) {
        let _ = self
            .0
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
                (state != GONE).then_some(STOPPED)
            });
        self.0.bell.notify_one();
    }
}

/// Says that the watchdog's task is no more.
pub(super) struct Gone(Arc<Shared>);

impl Drop for Gone {
    fn drop(&mut self) {
        let shared = &self.0;
        let gone = |state| (state < GONE).then_some(GONE);
        let unforeseen = shared
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, gone)
            .is_ok();
        // Whatever was left to be given back is left to its lease: it would keep the client alive for nothing.
        let departures = std::mem::take(&mut shared.due.lock().departures);
        departures.into_iter().for_each(Departing::forget);
        if !unforeseen {
            return;
        }
        shared.closing.notify_waiters();
        // Nobody is left to wait, to renew or to take calls over: whoever does so on another runtime is told.
        let calls = std::mem::take(&mut shared.due.lock().calls);
        calls.take_over();
        if let Some(engine) = shared.engine.get().and_then(Weak::upgrade) {
            engine.lines.all().iter().for_each(|line| drop(line.close()));
        }
    }
}

/// Counts something under way for as long as it lives, also if its runtime drops it.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Shared>);

impl Busy {
    fn new(shared: Arc<Shared>) -> Self {
        shared.busy.fetch_add(1, Ordering::AcqRel);
        Busy(shared)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Nobody waits for idleness before the client is closed.
        if self.0.busy.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.state.load(Ordering::SeqCst) >= SHUT {
            self.0.idle.notify_waiters();
        }
    }
}

pub(super) fn spawn(shared: &Arc<Shared>, work: impl Future<Output = ()> + Send + 'static) {
    let Some(runtime) = shared.runtime.get() else {
        return;
    };
    let busy = Busy::new(shared.clone());
    runtime.spawn(async move {
        work.await;
        drop(busy);
    });
}
