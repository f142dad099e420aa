//! The client's own task: renews what is held, takes over calls that nobody polls, and runs what callers leave
//! behind. One for each client, started by its first attempt.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use smallvec::smallvec;
use tenure_backend::{Backend, Batch, Clock, Instant, Phase, Renewal, Renewed};
use tokio::runtime::{EnterGuard, Handle};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::belief::{renew_after, retry_after, stall_after};
use crate::drive;
use crate::engine::Engine;
use crate::error::{Error, Lost};
use crate::held::Held;
use crate::release::backoff;
use crate::timer::{RECHECK, sleep};
use crate::waiter::Waiter;
use crate::wheel::Wheel;

const CLOSED: &str = "this client was closed: make another one";
const RUNTIME_GONE: &str = "the runtime on which this client's watchdog ran has ended: make another client, or use Settings::own_thread";
const NO_RUNTIME: &str =
    "a client needs a tokio runtime with a timer: call it inside one, or use Settings::own_thread";

// The states of a watchdog, in the order in which they can follow each other.
const NEW: u8 = 0;
const RUNNING: u8 = 1;
const SHUT: u8 = 2;
const GONE: u8 = 3;
const STOPPED: u8 = 4;

#[derive(Debug)]
pub(crate) struct Watchdog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    own_thread: bool,
    state: AtomicU8,
    starting: Mutex<()>,
    runtime: OnceLock<Handle>,
    /// For telling the lines that the runtime has ended.
    engine: OnceLock<Weak<Engine>>,
    due: Mutex<Due>,
    bell: Notify,
    closing: Notify,
    /// Tasks under way on behalf of callers.
    busy: AtomicUsize,
    idle: Notify,
}

#[derive(Debug)]
struct Due {
    wheel: Wheel,
    /// Calls that their callers may have stopped polling, in the order in which they are taken over. One that has
    /// ended stays until its time.
    calls: VecDeque<(Instant, Arc<Waiter>)>,
    /// When the watchdog wakes by itself.
    wakes_at: Instant,
}

impl Watchdog {
    pub(crate) fn new(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, own_thread: bool) -> Self {
        let due = Due {
            wheel: Wheel::new(clock.now()),
            calls: VecDeque::new(),
            wakes_at: Instant::NEVER,
        };
        Watchdog(Arc::new(Shared {
            backend,
            clock,
            own_thread,
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
            let runtime = on_a_thread(watchdog)?;
            let _ = self.0.runtime.set(runtime);
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

    /// Enters the client's runtime, for its timers; nothing if there is none yet.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.0.runtime.get().map(Handle::enter)
    }

    /// Watches over a claim that was granted.
    pub(crate) fn track(&self, held: &Arc<Held>, now: Instant) {
        let due = next_look(held, now + renew_after(held.lease(), held.line.engine.dice()));
        let mut all = self.0.due.lock();
        all.wheel.insert(held.clone(), due);
        self.0.wake_by(all, due);
    }

    /// Stops watching over a claim.
    pub(crate) fn untrack(&self, held: &Held) {
        let entry = self.0.due.lock().wheel.remove(&held.mark);
        drop(entry);
    }

    /// Takes a caller's call over if it is still under way after the offer window.
    pub(crate) fn track_call(&self, waiter: &Arc<Waiter>) {
        let due = self.0.clock.now() + waiter.line.engine.settings.offer_window;
        let mut all = self.0.due.lock();
        all.calls.push_back((due, waiter.clone()));
        self.0.wake_by(all, due);
        if self.is_closed() {
            // Too late for the close to have seen it.
            take_over(waiter.clone());
        }
    }

    /// Asks the store at once whether a claim is alive.
    pub(crate) async fn verify(&self, held: &Arc<Held>) -> Result<(), Error> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let (shared, held) = (self.0.clone(), held.clone());
        self.spawn(async move {
            let failed = renew(&shared, vec![held]).await;
            let _ = answer.send(failed);
        });
        match answered.await {
            Ok(None) => Ok(()),
            Ok(Some(error)) => Err(error),
            Err(_) => Err(self.closed()),
        }
    }

    /// Has the store keep a claim until then by itself: its holder is done.
    pub(crate) async fn keep(&self, held: &Arc<Held>, until: Instant) {
        let mut failures = 0;
        loop {
            let now = self.0.clock.now();
            if !held.is_believed(now) {
                break;
            }
            let renewal = Renewal {
                who: held.claim.at.clone(),
                lease: until - now,
                only: Phase::Granted,
                raise: None,
            };
            match self.0.backend.clone().renew(smallvec![renewal]).await.pop() {
                Some(Renewed::Unknown(error)) if error.is_weather() => {
                    failures += 1;
                    sleep(self, backoff(failures, held.line.engine.dice())).await;
                }
                _ => break,
            }
        }
        held.line.leave_standing(held);
    }

    /// Refuses new attempts, wakes what waits, and takes over every call under way.
    pub(crate) fn shut(&self) {
        self.0.state.fetch_max(SHUT, Ordering::SeqCst);
        self.0.closing.notify_waiters();
        let calls = std::mem::take(&mut self.0.due.lock().calls);
        calls.into_iter().for_each(|(_, waiter)| take_over(waiter));
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

impl Shared {
    /// Wakes the watchdog if it would wake too late by itself: locking does not wake a task each time.
    fn wake_by(&self, mut due: MutexGuard<'_, Due>, at: Instant) {
        if at < due.wakes_at {
            due.wakes_at = at;
            drop(due);
            self.bell.notify_one();
        }
    }

    fn reschedule(&self, held: &Held, at: Instant) {
        self.due.lock().wheel.reschedule(&held.mark, at);
    }
}

/// When to look at a claim: at `renewal`, or at its deadline if that comes first or it is not renewed.
fn next_look(held: &Held, renewal: Instant) -> Instant {
    if held.want.renewed {
        renewal.min(held.deadline())
    } else {
        held.deadline()
    }
}

/// Runs the watchdog on a thread and a runtime of its own, which end with it.
fn on_a_thread(watchdog: impl Future<Output = ()> + Send + 'static) -> Result<Handle, Error> {
    const NO_THREAD: Error = Error::Closed("the system gave no thread for the watchdog");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|_| NO_THREAD)?;
    let handle = runtime.handle().clone();
    let thread = std::thread::Builder::new().name("tenure-watchdog".to_owned());
    thread
        .spawn(move || runtime.block_on(watchdog))
        .map_err(|_| NO_THREAD)?;
    Ok(handle)
}

/// Says that the watchdog's task is no more.
struct Gone(Arc<Shared>);

impl Drop for Gone {
    fn drop(&mut self) {
        let gone = |state| (state < GONE).then_some(GONE);
        if self
            .0
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, gone)
            .is_err()
        {
            return;
        }
        self.0.closing.notify_waiters();
        // Nobody is left to wait or to renew: whoever does so on another runtime is told.
        if let Some(engine) = self.0.engine.get().and_then(Weak::upgrade) {
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

fn spawn(shared: &Arc<Shared>, work: impl Future<Output = ()> + Send + 'static) {
    let Some(runtime) = shared.runtime.get() else {
        return;
    };
    let busy = Busy::new(shared.clone());
    runtime.spawn(async move {
        work.await;
        drop(busy);
    });
}

/// The watchdog's loop.
async fn run(shared: Arc<Shared>, _gone: Gone) {
    while shared.state.load(Ordering::Acquire) < GONE {
        let next = tick(&shared);
        let now = shared.clock.now();
        match next {
            None => shared.bell.notified().await,
            Some(next) if next > now => {
                tokio::select! {
                    () = shared.bell.notified() => {}
                    () = tokio::time::sleep((next - now).min(RECHECK)) => {}
                }
            }
            Some(_) => tokio::task::yield_now().await,
        }
    }
}

/// Sees to everything that is due, and says when to look again.
fn tick(shared: &Arc<Shared>) -> Option<Instant> {
    let now = shared.clock.now();
    let (due, calls) = {
        let mut all = shared.due.lock();
        let over = all.calls.partition_point(|(at, _)| *at <= now);
        (
            all.wheel.take_due(now, may_be_early),
            all.calls.drain(..over).collect::<Vec<_>>(),
        )
    };
    calls.into_iter().for_each(|(_, waiter)| take_over(waiter));
    let mut renewals = Vec::new();
    let mut stalled = Duration::ZERO;
    for (held, at) in due {
        if now - at > stall_after(held.lease()) {
            stalled = stalled.max(now - at);
        }
        if let Err(lost) = held.check(now) {
            tell_lost(&held, &lost);
            continue;
        }
        if held.has_departed() {
            continue;
        }
        // Back into the wheel at once: a renewal that never answers is tried again within the same third.
        let again = next_look(&held, now + stall_after(held.lease()));
        shared.due.lock().wheel.insert(held.clone(), again);
        if held.want.renewed {
            renewals.push(held);
        }
    }
    if !stalled.is_zero() {
        tracing::warn!(
            "runtime stalled {} ms: leases are renewed late",
            stalled.as_millis()
        );
    }
    let most = shared.backend.profile().limits.max_batch.get() as usize;
    while !renewals.is_empty() {
        let rest = renewals.split_off(most.min(renewals.len()));
        let batch = std::mem::replace(&mut renewals, rest);
        let work = shared.clone();
        spawn(shared, async move {
            renew(&work, batch).await;
        });
    }
    let mut due = shared.due.lock();
    let next = due
        .wheel
        .next_due()
        .into_iter()
        .chain(due.calls.front().map(|(at, _)| *at))
        .min();
    due.wakes_at = next.unwrap_or(Instant::NEVER);
    next
}

/// Renewals may be a twelfth of their lease early, so that they travel together.
fn may_be_early(held: &Held) -> Duration {
    if held.want.renewed {
        held.lease() / 12
    } else {
        Duration::ZERO
    }
}

/// Takes a call over from a caller who may have stopped polling it.
fn take_over(waiter: Arc<Waiter>) {
    if let Some((call, claim)) = waiter.take_call() {
        let line = waiter.line.clone();
        line.engine.watchdog.spawn(drive::finish(waiter, call, claim));
    }
}

/// Renews a batch of claims of one store. Answers why the first one is not renewed, if it is not.
async fn renew(shared: &Shared, batch: Vec<Arc<Held>>) -> Option<Error> {
    let renewals: Batch<Renewal> = batch
        .iter()
        .map(|held| Renewal {
            who: held.claim.at.clone(),
            lease: renewed_lease(held, shared),
            only: Phase::Granted,
            raise: None,
        })
        .collect();
    let answers = shared.backend.clone().renew(renewals).await;
    let now = shared.clock.now();
    let mut first = None;
    for (held, answer) in batch.iter().zip(answers) {
        let failed = match answer {
            _ if held.has_departed() => held.check(now).err().map(Error::Lost),
            Renewed::Alive { .. } if !held.want.renewed => held.check(now).err().map(Error::Lost),
            Renewed::Alive { held_from, lease } => {
                held.extend(held_from, lease, now);
                let renewal = now + renew_after(held.lease(), held.line.engine.dice());
                shared.reschedule(held, next_look(held, renewal));
                held.check(now).err().map(Error::Lost)
            }
            Renewed::Gone(loss) => {
                held.lose(loss.into());
                shared.due.lock().wheel.remove(&held.mark);
                let lost = held.check(now).err();
                if let Some(lost) = &lost {
                    warn_lost(held, lost);
                    held.line.look_again();
                }
                lost.map(Error::Lost)
            }
            Renewed::Unknown(error) => {
                tracing::debug!(key = %held.claim.at.key, claim = %held.claim.at.id, %error, "a renewal failed");
                held.strain();
                shared.reschedule(held, next_look(held, now + retry_after(held.lease())));
                Some(error.into())
            }
        };
        first = first.or(failed);
    }
    first
}

/// For how long a claim is to be kept from now on: a fixed lease gets what is left of it, and no more.
fn renewed_lease(held: &Held, shared: &Shared) -> Duration {
    if held.want.renewed {
        held.claim.lease
    } else {
        held.deadline() - shared.clock.now()
    }
}

/// Belief in a claim has ended: its line looks for the next holder, and what may still stand in the store is given
/// back.
fn tell_lost(held: &Arc<Held>, lost: &Lost) {
    if !held.has_departed() {
        warn_lost(held, lost);
        held.line.leave_behind(held);
    }
}

fn warn_lost(held: &Held, lost: &Lost) {
    tracing::warn!(key = %held.claim.at.key, claim = %held.claim.at.id, cause = lost.cause.as_str(), "{lost}");
}
