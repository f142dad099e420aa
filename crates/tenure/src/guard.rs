//! What a holder holds: the proof of a lock, and how it learns that the proof has ended.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tenure_backend::{BackendError, ClaimRef, Effect, Fault, FencingToken, Instant, LockKey, Mode};
use tracing::Instrument;

use crate::engine::Place;
use crate::error::{Error, Lost, LostCause};
use crate::held::Held;
use crate::line::Exit;
use crate::release::Left;
use crate::telemetry::holding;
use crate::timer::within;

/// A held lock. Dropping it gives the lock back.
///
/// It is a value: whoever has it holds the lock, whatever task or thread it is on. Dropping it never blocks and
/// never panics, also outside a runtime; the watchdog gives the lock back, within a round trip as a rule, and when
/// the store does not answer, with the end of the lease. [`unlock`](Guard::unlock) confirms it.
///
/// # Guarantees
/// - While [`is_held`](Guard::is_held) is true, no conflicting guard of another client believes the same, on every
///   store whose clock is honest; but for an eviction, a session that ended or data that the store lost, of which the
///   holder learns at its next renewal, within a third of its lease, or within a second after a connection to the store
///   was replaced. Belief ends before the lease: at `held_from + lease − lease/100 − max(10 ms, lease/100)`.
/// - Loss is sticky: once it was seen, it is seen for ever.
/// - No guarantee that a process that was paused does nothing after its deadline: only the
///   [`token`](Guard::token), checked by the resource, protects against that.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let client = tenure::connect("memory:").await?;
/// let guard = client.mutex("invoice:7").lock().await?;
/// println!("fenced by {:?}", guard.token());
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
#[must_use = "a lock is given back when its guard is dropped"]
pub struct Guard {
    held: Option<Arc<Held>>,
    nth: u32,
    since: Instant,
    /// Its place among the client's claims, for as long as it lives.
    _place: Option<Place>,
}

impl Guard {
    /// A guard that begins `now`.
    pub(crate) fn new(held: Arc<Held>, nth: u32, place: Option<Place>, now: Instant) -> Self {
        held.line.meters().held.increment(1);
        Guard {
            held: Some(held),
            nth,
            since: now,
            _place: place,
        }
    }

    /// When it began.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    fn held(&self) -> &Arc<Held> {
        self.held
            .as_ref()
            .expect("a guard has its claim until it is consumed")
    }

    fn now(&self) -> Instant {
        self.held().line.engine.clock.now()
    }

    /// The number that fences this grant: greater than that of every conflicting grant of the key before it.
    ///
    /// `None` where the store has none. A guard that an owner took again has the token of the first.
    pub fn token(&self) -> Option<FencingToken> {
        self.held().token(self.nth)
    }

    /// As [`token`](Self::token), for resources that must be fenced.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the store has no tokens: ask [`Client::require`](crate::Client::require) at the start.
    pub fn fence(&self) -> Result<FencingToken, Error> {
        self.token().ok_or_else(|| {
            let profile = self.held().line.engine.backend.profile();
            let message = format!("{} ({}) has no fencing tokens", profile.store, profile.layout);
            tenure_backend::BackendError::unsupported(message).into()
        })
    }

    /// The key that is locked.
    pub fn key(&self) -> &LockKey {
        &self.held().claim.at.key
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.held().claim.mode
    }

    /// The claim's name in the store: what `tenure ls` shows and `tenure evict --claim` takes.
    pub fn claim(&self) -> &ClaimRef {
        &self.held().claim.at
    }

    /// Whether the lock is believed to be held at this moment. Reads a clock, does no I/O.
    pub fn is_held(&self) -> bool {
        self.held().is_believed(self.now())
    }

    /// How long the lock is believed to be held unless a renewal comes; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        let now = self.now();
        if self.held().is_believed(now) {
            self.held().deadline() - now
        } else {
            Duration::ZERO
        }
    }

    /// The moment at which belief ends unless a renewal comes, on the belief clock; its origin once it is lost.
    pub fn believe_until(&self) -> Instant {
        if self.is_held() {
            self.held().deadline()
        } else {
            Instant::ORIGIN
        }
    }

    /// How long the store keeps the lock without a renewal, as it said when it granted it: what was asked for, rounded
    /// to what the store can do.
    pub fn lease(&self) -> Duration {
        self.held().given_lease()
    }

    /// Why the lock was lost; `None` while it is held.
    pub fn loss(&self) -> Option<Lost> {
        self.held().check(self.now()).err()
    }

    /// The backend's own proof of the grant, for its guarded-write helpers.
    pub fn evidence(&self) -> Option<&tenure_backend::Evidence> {
        self.held().evidence()
    }

    /// Waits until the lock is lost, and says why.
    ///
    /// It resolves at the local deadline even when the network is silent, and never while the lock is held.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn lost(&self) -> Lost {
        self.held().lost().await
    }

    /// Runs `work` for as long as the lock is held.
    ///
    /// Belief is checked before every poll of `work`. Once it has ended, `work` is never polled again but dropped,
    /// and its outcome is unknown; output of a poll that began while the lock was held is returned. What `work`
    /// spawned is not stopped, and requests it has sent may still take effect.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`.
    ///
    /// # Errors
    /// [`Lost`]: stop, and look at what `work` may have done.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
    /// # let client = tenure::connect("memory:").await?;
    /// let guard = client.mutex("report").lock().await?;
    /// let pages = guard.while_held(async { 3 }).await?;
    /// assert_eq!(pages, 3);
    /// # Ok(()) }
    /// ```
    pub async fn while_held<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        let held = self.held();
        let check = || held.check(held.line.engine.clock.now());
        while_all_held(check, held.lost(), work.instrument(holding(self))).await
    }

    /// Asks the store whether the lock is held: one round trip, which also renews it.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Lost`] if it is not; [`Error::Backend`] if the store did not answer, which says nothing of the lock;
    /// [`Error::Closed`] if the client was closed, or its runtime has ended.
    pub async fn verify(&self) -> Result<(), Error> {
        let held = self.held();
        held.check(self.now())?;
        held.line.engine.watchdog.verify(held).await
    }

    /// Gives the lock back, and confirms it: the store says that it is free, or the next waiter of this client has it.
    ///
    /// While the store does not answer, it asks again for [`unlock_limit`](crate::Settings::unlock_limit). With
    /// `at_least` the store keeps the lock until that time has come, and nothing of this process is needed for it.
    ///
    /// # Cancel safety
    /// Dropped at any point, the lock is given back by the watchdog.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was not held any more when it was given back: another may have held it meanwhile.
    /// [`Error::Backend`] if the store did not answer in time; the watchdog goes on trying until the lease would
    /// have ended. [`Error::Closed`] if the runtime of the client has ended: the lease frees it.
    pub async fn unlock(self) -> Result<(), Error> {
        let mut guard = self;
        let Some(leaving) = guard.leave() else {
            return Ok(());
        };
        let believed = leaving.believed();
        match leaving {
            Leaving::Shared(_) => Ok(believed?),
            Leaving::Last(held, None) => give_back(&held, believed).await,
            Leaving::Last(held, Some(until)) => keep(held, until, believed).await,
        }
    }

    /// Gives the lock back at once, whatever `at_least` says: for a search that did not find all it wanted.
    pub(crate) async fn give_up(mut self) -> Result<(), Error> {
        let Some(leaving) = self.leave() else {
            return Ok(());
        };
        let believed = leaving.believed();
        match leaving {
            Leaving::Shared(_) => Ok(believed?),
            Leaving::Last(held, _) => give_back(&held, believed).await,
        }
    }

    /// As [`give_up`](Self::give_up), with the rest done by the client's own task.
    pub(crate) fn abandon(mut self) {
        if let Some(Leaving::Last(held, _)) = self.leave() {
            held.line.leave_behind(&held);
        }
    }

    /// Leaves the claim; once, whatever happens to the guard afterwards.
    fn leave(&mut self) -> Option<Leaving> {
        let held = self.held.take()?;
        let now = held.line.engine.clock.now();
        let meters = held.line.meters();
        meters.held.decrement(1);
        meters.hold.record(now - self.since);
        if !held.leave() {
            return Some(Leaving::Shared(held));
        }
        if let Some(owner) = &held.options.owner {
            owner.forget(&held);
        }
        let keep_until = held
            .kept_until()
            .filter(|until| *until > now && held.is_believed(now));
        Some(Leaving::Last(held, keep_until))
    }
}

/// What a guard leaves.
enum Leaving {
    /// A claim that other guards of its owner share.
    Shared(Arc<Held>),
    /// A claim that is nobody's; until when it must be kept in the store.
    Last(Arc<Held>, Option<Instant>),
}

impl Leaving {
    fn believed(&self) -> Result<(), Lost> {
        let (Leaving::Shared(held) | Leaving::Last(held, _)) = self;
        held.check(held.line.engine.clock.now())
    }
}

async fn give_back(held: &Arc<Held>, believed: Result<(), Lost>) -> Result<(), Error> {
    let departing = match held.line.leave(held) {
        Exit::Passed => return Ok(()),
        Exit::Gone => return Ok(believed?),
        Exit::Release(departing) => departing,
    };
    let engine = &held.line.engine;
    let limit = engine.settings.unlock_limit.min(held.claim.lease);
    // Dropped at its limit, it is seen through by the watchdog, as when its caller drops it.
    let Some(left) = within(engine, limit * 2, departing.run(limit)).await else {
        let message = "the store did not answer the unlock: the watchdog goes on asking it";
        return Err(BackendError::new(Fault::Unavailable, Effect::Unknown, message).into());
    };
    match left? {
        Left::WasGone if believed.is_ok() => {
            let cause = within(engine, limit, engine.watchdog.why_gone(held)).await;
            let cause = cause.unwrap_or(LostCause::Missing);
            held.lose(cause.clone());
            Err(Lost { cause }.into())
        }
        Left::Freed | Left::WasGone | Left::Absent => Ok(believed?),
    }
}

/// Has the store keep the claim until then, also if this process ends, and says what the store said to it.
async fn keep(held: Arc<Held>, until: Instant, believed: Result<(), Lost>) -> Result<(), Error> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let engine = held.line.engine.clone();
    held.line.keep(&held, until, tell);
    match within(&engine, engine.settings.unlock_limit, told).await {
        Some(Ok(said)) => said,
        // The line was closed: the claim was given back before.
        Some(Err(_)) => Ok(believed?),
        None => {
            let message = "the store did not answer: the watchdog goes on asking it to keep the lock";
            Err(BackendError::new(Fault::Unavailable, Effect::Unknown, message).into())
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        match self.leave() {
            Some(Leaving::Last(held, Some(until))) => {
                held.line.keep(&held, until, tokio::sync::oneshot::channel().0);
            }
            Some(Leaving::Last(held, None)) => held.line.leave_behind(&held),
            Some(Leaving::Shared(_)) | None => {}
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("claim", self.claim())
            .field("mode", &self.mode())
            .field("token", &self.token())
            .field("loss", &self.loss())
            .finish()
    }
}

/// Polls `work` as long as `check` allows it, and gives up when `lost` resolves.
pub(crate) async fn while_all_held<F: Future>(
    check: impl Fn() -> Result<(), Lost>,
    lost: impl Future<Output = Lost>,
    work: F,
) -> Result<F::Output, Lost> {
    let mut work = pin!(work);
    let mut lost = pin!(lost);
    poll_fn(|cx| {
        check()?;
        if let Poll::Ready(output) = work.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        lost.as_mut().poll(cx).map(Err)
    })
    .await
}
