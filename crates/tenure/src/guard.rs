//! The guard of a held lock: its local deadline, its loss and its release.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tenure_backend::{BackendError, ClaimRef, Effect, Fault, FencingToken, Instant, LockKey, Mode};
use tracing::Instrument;

use crate::engine::attempt::Taken;
use crate::engine::context::Place;
use crate::engine::deadline::unlock_limit;
use crate::engine::hold::Hold;
use crate::engine::owner::Owner;
use crate::engine::queue::{Exit, SharedQueue};
use crate::engine::releaser::Left;
use crate::engine::services::Services;
use crate::engine::timer::{nap, within};
use crate::error::{Error, Lost, LostCause};
use crate::telemetry::holding;

mod downgrade;

/// A held lock. Dropping the guard releases the lock.
///
/// The guard may move between tasks and threads. Dropping it never blocks and never panics, even outside a runtime. The
/// watchdog then releases the lock, usually within a round trip; if the store does not answer, the lock becomes free
/// when its lease ends. [`unlock`](Guard::unlock) waits until the release is confirmed.
///
/// # Guarantees
/// - While [`is_held`](Guard::is_held) is true, it is false for every conflicting guard of another client, on every
///   store whose clock is correct. The exceptions are an eviction, a session that ended, and data that the store lost:
///   the holder detects them at its next renewal, within a third of its lease, or within a second after a connection to
///   the store was replaced. A fixed lease has no renewals. The guard's local deadline is earlier than the end of the
///   lease, by default `held_from + lease − lease/100 − max(10 ms, lease/100)`.
/// - Loss is permanent: a guard that has reported a loss is never held again.
/// - No guarantee that a process that was paused does nothing after the local deadline: only a [`token`](Guard::token)
///   that the resource checks protects against that.
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
#[must_use = "a guard releases its lock when it is dropped"]
pub struct Guard {
    held: Option<Held>,
    /// Counts this guard towards the client's `max_claims` until it is dropped.
    _place: Option<Place>,
}

/// The granted claim of a guard, and the key's queue to which the claim returns.
struct Held {
    queue: Arc<SharedQueue>,
    hold: Arc<Hold>,
    /// The owner, if any, which may acquire the lock again.
    owner: Option<Owner>,
    /// The index of this grant's token in the claim's range of consecutive tokens.
    nth: u32,
    since: Instant,
}

impl Guard {
    pub(crate) fn new(taken: Taken) -> Self {
        let Taken {
            queue,
            hold,
            owner,
            nth,
            place,
            since,
        } = taken;
        queue.meters().held.increment(1);
        let held = Held {
            queue,
            hold,
            owner,
            nth,
            since,
        };
        Guard {
            held: Some(held),
            _place: place,
        }
    }

    fn held(&self) -> &Held {
        self.held
            .as_ref()
            .expect("a guard has its claim until it is consumed")
    }

    fn hold(&self) -> &Arc<Hold> {
        &self.held().hold
    }

    fn now(&self) -> Instant {
        self.held().now()
    }

    /// The fencing token of this grant: greater than the token of every earlier conflicting grant of the key.
    ///
    /// `None` if the store has no tokens. When an owner acquires a lock again, the new guard has the token of the first
    /// guard.
    pub fn token(&self) -> Option<FencingToken> {
        self.held().token()
    }

    /// Like [`token`](Self::token), but fails if the store has no tokens: for resources that must be fenced.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the store has no tokens. To detect this at startup, call
    /// [`Client::require`](crate::Client::require).
    pub fn require_token(&self) -> Result<FencingToken, Error> {
        self.token().ok_or_else(|| {
            let profile = self.held().queue.context().store.profile();
            let message = format!("{} ({}) has no fencing tokens", profile.store, profile.layout);
            tenure_backend::BackendError::unsupported(message).into()
        })
    }

    /// The key that is locked.
    pub fn key(&self) -> &LockKey {
        &self.hold().at.key
    }

    /// The mode in which the lock is held: `Read` once a [`downgrade`](Self::downgrade) of a write lock is confirmed.
    pub fn mode(&self) -> Mode {
        self.hold().mode()
    }

    /// The claim's name in the store, as shown by `tenure ls` and accepted by `tenure evict --claim`.
    pub fn claim(&self) -> &ClaimRef {
        &self.hold().at
    }

    /// Returns true until the lock is lost or its local deadline passes. Reads a clock, does no I/O.
    pub fn is_held(&self) -> bool {
        self.hold().is_held(self.now())
    }

    /// Time left until the local deadline, which each renewal moves; zero once the lock is lost.
    pub fn remaining(&self) -> Duration {
        let now = self.now();
        if self.hold().is_held(now) {
            self.hold().deadline() - now
        } else {
            Duration::ZERO
        }
    }

    /// The local deadline, on the client's lease clock. Each renewal moves it; once the lock is lost, it is the
    /// clock's origin.
    pub fn local_deadline(&self) -> Instant {
        if self.is_held() {
            self.hold().deadline()
        } else {
            Instant::ORIGIN
        }
    }

    /// The lease that the store granted: how long it keeps the lock without a renewal. This is the requested lease, but
    /// longer where the store's shortest lease is longer, and shorter where servers limit leases, as ZooKeeper's do with
    /// `maxSessionTimeout`.
    pub fn lease(&self) -> Duration {
        self.hold().given_lease()
    }

    /// The reason why the lock was lost; `None` while it is held.
    pub fn loss(&self) -> Option<Lost> {
        self.check().err()
    }

    /// Returns an error once the lock is lost. Call it between the steps of long work. Reads a clock, does no I/O.
    ///
    /// # Errors
    /// [`Lost`] on every call after the loss: stop, and do not rely on what was done since.
    pub fn check(&self) -> Result<(), Lost> {
        self.held().check()
    }

    /// Why the last renewal of the lease has failed; `None` once a renewal was confirmed.
    ///
    /// The watchdog tries again until the local deadline. So this is what to log when [`remaining`](Self::remaining) runs
    /// low, or after a loss with the cause [`Unreachable`](crate::LostCause::Unreachable). It may be the error of another
    /// lock of this client, because the client renews its locks together.
    pub fn renewal_error(&self) -> Option<Error> {
        self.hold().renewal_error()
    }

    /// Proof of the grant, such as a revision, if the backend gives one. Functions of that backend may use it to
    /// write only while the lock is held.
    pub fn evidence(&self) -> Option<&tenure_backend::Evidence> {
        self.hold().evidence()
    }

    /// Waits until the lock is lost, and returns the reason.
    ///
    /// Resolves at the local deadline even if the network is down, and never while the lock is held.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn lost(&self) -> Lost {
        self.held().lost().await
    }

    /// Runs `work` while the lock is held.
    ///
    /// Checks the local deadline before every poll of `work`. Once the lock is lost, `work` is dropped without being
    /// polled again, and its outcome is unknown. If a poll that began while the lock was held completes `work`, its
    /// output is returned. Tasks that `work` spawned are not stopped, and requests that it sent may still take effect.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`.
    ///
    /// # Errors
    /// [`Lost`]: stop, and check what `work` may have done. In a function with an error type of its own that implements
    /// `From<tenure::Error>`, write `.map_err(tenure::Error::from)?`.
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
        let span = holding(self.claim(), self.token());
        while_all_held(|| held.check(), held.lost(), work.instrument(span)).await
    }

    /// Asks the store whether the lock is held, and renews it, in one round trip. A fixed lease is not prolonged.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the renewal.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock is not held; [`Error::Backend`] if the store did not answer: the lock may or may not
    /// be held; [`Error::Closed`] if the client was closed, or its runtime has ended.
    #[doc(alias("extend", "renew", "refresh"))]
    pub async fn verify(&self) -> Result<(), Error> {
        let held = self.held();
        held.check()?;
        let verified = held.queue.services.renewer.verify(&held.hold).await;
        verified.map_err(|error| held.fenced(error))
    }

    /// Releases the lock and waits for confirmation: the store has released it, or this client has offered it to its
    /// next waiter, or keeps it to [linger](crate::Mutex::linger).
    ///
    /// While the store does not answer, the release is retried for [`unlock_limit`](crate::Settings::unlock_limit). A
    /// lock with `at_least` stays held in the store until that time has passed, even if this process ends, as far as that
    /// option says.
    ///
    /// # Cancel safety
    /// If the future is dropped at any point, the watchdog completes the release.
    ///
    /// # Errors
    /// An error does not undo the work that was done under the lock. After work that [`while_held`](Guard::while_held) has
    /// completed, log the error and return the result of the work; or drop the guard instead, which does not wait.
    ///
    /// [`Error::Lost`] if the lock was no longer held when it was released: another client may have held it meanwhile.
    /// [`Error::Backend`] if the store refused the release or did not answer in time: the watchdog retries until the lease
    /// would have ended. [`Error::Closed`] if the runtime of the client has ended: the lock becomes free when its lease ends.
    #[doc(alias = "release")]
    pub async fn unlock(self) -> Result<(), Error> {
        let mut guard = self;
        match guard.leave() {
            None => Ok(()),
            Some((held, Rest::Shared)) => Ok(held.ended(held.now())?),
            Some((held, Rest::Release)) => held.release().await,
            Some((held, Rest::Keep(until))) => Box::pin(held.keep(until)).await,
        }
    }

    /// Releases the lock at once, even if its minimum hold (`at_least`) is not over: for a multi-lock that found
    /// another member busy.
    pub(crate) async fn give_up(mut self) -> Result<(), Error> {
        match self.leave() {
            None => Ok(()),
            Some((held, Rest::Shared)) => Ok(held.ended(held.now())?),
            Some((held, Rest::Release | Rest::Keep(_))) => held.release().await,
        }
    }

    /// Releases the lock in the background, even if its minimum hold is not over; see [`give_up`](Self::give_up).
    pub(crate) fn abandon(mut self) {
        if let Some((held, rest)) = self.leave() {
            let is_shared = matches!(rest, Rest::Shared);
            held.end_behind(if is_shared { rest } else { Rest::Release });
        }
    }

    /// Takes the hold out of the guard, and returns it with the release work that remains. `None` on the second call.
    fn leave(&mut self) -> Option<(Held, Rest)> {
        let held = self.held.take()?;
        held.queue.meters().held.decrement(1);
        let hold = &held.hold;
        if let Some(owner) = &held.owner {
            if !hold.leave() {
                return Some((held, Rest::Shared));
            }
            owner.forget(hold);
        }
        let kept = hold.kept_until().filter(|until| *until > held.now());
        let rest = kept.map_or(Rest::Release, Rest::Keep);
        Some((held, rest))
    }
}

/// The release work that remains when a guard ends.
enum Rest {
    /// Nothing is released yet, because other guards of the owner share the claim.
    Shared,
    Release,
    /// The store must keep the claim until this time, because of `at_least`.
    Keep(Instant),
}

impl Held {
    fn now(&self) -> Instant {
        self.queue.context().now()
    }

    fn token(&self) -> Option<FencingToken> {
        self.hold.token(self.nth)
    }

    fn check(&self) -> Result<(), Lost> {
        self.check_at(self.now())
    }

    fn check_at(&self, now: Instant) -> Result<(), Lost> {
        self.hold.check(now).map_err(|lost| self.lost_grant(lost))
    }

    /// Puts this grant's token into the loss: each grant of a claim has its own token.
    fn lost_grant(&self, mut lost: Lost) -> Lost {
        lost.token = self.token();
        lost
    }

    /// If the error is a loss, puts this grant's token into it. Returns other errors unchanged.
    fn fenced(&self, error: Error) -> Error {
        match error {
            Error::Lost(lost) => self.lost_grant(*lost).into(),
            other => other,
        }
    }

    /// Records the hold's duration in the metrics. Returns an error if the lock was lost before `now`.
    fn ended(&self, now: Instant) -> Result<(), Lost> {
        self.queue.meters().hold.record(now - self.since);
        self.check_at(now)
    }

    /// Waits until the lock is lost, at the latest until the local deadline, even if the network is down.
    async fn lost(&self) -> Lost {
        loop {
            let mut notified = pin!(self.hold.loss_notifier().notified());
            notified.as_mut().enable();
            let now = self.now();
            if let Err(lost) = self.check_at(now) {
                return lost;
            }
            tokio::select! {
                biased;
                () = notified => {}
                () = nap(&self.queue.services.tasks, self.hold.deadline() - now) => {}
            }
        }
    }

    /// Ends the hold without waiting: background tasks do the rest of the release.
    fn end_behind(&self, rest: Rest) {
        let now = match rest {
            Rest::Release => self.queue.done_behind(&self.hold),
            Rest::Shared | Rest::Keep(_) => self.now(),
        };
        let _ = self.ended(now);
        if let Rest::Keep(until) = rest {
            let tell = tokio::sync::oneshot::channel().0;
            self.queue.keep(&self.hold, until, tell);
        }
    }

    async fn release(&self) -> Result<(), Error> {
        let (exit, now) = self.queue.done(&self.hold);
        let believed = self.ended(now);
        let mut release = match exit {
            Exit::Release(order) => self.queue.release(order),
            Exit::HandedOver | Exit::Lingers => return Ok(()),
            Exit::Shared | Exit::Gone => return Ok(believed?),
        };
        // A release that is not answered at once is boxed, so that the future of `unlock` stays small.
        let left = match release.begin() {
            Some(left) => left,
            None => Box::new(release).send(self.unlock_limit()).await?,
        };
        match left {
            Left::WasGone if believed.is_ok() => Err(Box::pin(self.why_gone()).await.into()),
            Left::Freed | Left::WasGone | Left::Absent => Ok(believed?),
        }
    }

    /// Asks the store why a claim was gone before its release, and records this loss.
    async fn why_gone(&self) -> Lost {
        let Services {
            context,
            tasks,
            renewer,
            ..
        } = &*self.queue.services;
        let asked = renewer.why_gone(&self.hold);
        let cause = within(tasks, &*context.clock, self.unlock_limit(), asked).await;
        let cause = cause.unwrap_or(LostCause::Missing);
        self.hold.lose(cause.clone());
        self.lost_grant(self.hold.lost(cause))
    }

    fn unlock_limit(&self) -> Duration {
        let left = self.hold.deadline() - self.now();
        unlock_limit(left, self.queue.context().settings.unlock_limit)
    }

    /// Makes the store keep the claim until `until`, even if this process ends, and returns the store's answer.
    async fn keep(&self, until: Instant) -> Result<(), Error> {
        let believed = self.ended(self.now());
        let (tell, told) = tokio::sync::oneshot::channel();
        self.queue.keep(&self.hold, until, tell);
        let Services { context, tasks, .. } = &*self.queue.services;
        match within(tasks, &*context.clock, context.settings.unlock_limit, told).await {
            Some(Ok(answer)) => answer.map_err(|error| self.fenced(error)),
            // No answer comes: the client was closed before and thus ended the hold, or its runtime has ended.
            Some(Err(_)) => Ok(believed?),
            None => {
                let message = "the store did not answer: the watchdog goes on asking it to keep the lock";
                Err(BackendError::new(Fault::Unavailable, Effect::Unknown, message).into())
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some((held, rest)) = self.leave() {
            held.end_behind(rest);
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

/// Polls `work` to its end. Stops if `check` fails before a poll, or when `lost` resolves.
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
