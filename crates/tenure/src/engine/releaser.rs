//! The releaser: releases claims, for callers that wait for the answer and for callers that do not.
//!
//! A release is retried after a transient error, or if no answer comes. `unlock` polls its own release. The
//! releaser's task sends the other ones in batches, and adopts calls that are in flight for longer than the offer
//! window.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::smallvec;
use tenure_backend::{
    AcquireReply, BackendError, BatchCall, Cause, Claim, ClaimId, ClaimRef, Effect, Fault, HolderId,
    ReleaseReply, ReleaseRequest, ReleaseTarget, Successor,
};
use tokio::sync::{Notify, oneshot};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::context::{Context, backoff};
use super::in_flight::{Adopt, Adoptable, InFlight, OverdueCalls};
use super::request::LockRequest;
use super::tasks::{Alarm, Tasks};
use super::timer::{rest, sleep, within};
use crate::error::{Error, no_answer};
use crate::telemetry::Meters;

/// The shortest pause between two checks for overdue calls: those in flight for longer than the offer window.
const OVERDUE_LOOK: Duration = Duration::from_millis(5);

#[derive(Clone)]
pub(crate) struct Releaser(Arc<Shared>);

struct Shared {
    context: Arc<Context>,
    tasks: Tasks,
    pending: Mutex<Pending>,
    signal: Notify,
    /// The claim whose release failed last and is still retried, and the error.
    failing: Mutex<Option<(ClaimId, BackendError)>>,
}

#[derive(Default)]
struct Pending {
    /// Releases that callers do not wait for.
    releases: Vec<Release>,
    calls: OverdueCalls,
    alarm: Alarm,
}

/// The release of one claim, with the state of its retries.
pub(crate) struct Release {
    /// The queue of the claim's key. Keeps a dropped client alive until the release has ended.
    origin: Arc<dyn Origin>,
    claim: ClaimRef,
    /// The lease that the claim asked for: it limits the time for which the release is retried.
    lease: Duration,
    cause: Cause,
    successor: Option<NamedSuccessor>,
    /// The request in flight. Kept here, so that it outlives a future that polls it.
    call: Option<BatchCall<ReleaseReply>>,
    tries: u32,
    /// A closing client waits until this token is dropped.
    _token: TaskTrackerToken,
}

/// The part of a key's queue that a release needs.
pub(crate) trait Origin: Send + Sync {
    fn releaser(&self) -> &Releaser;

    fn meters(&self) -> &Meters;

    /// Called with the answer about the successor, the claim that the release named to get the key next.
    ///
    /// `others`: number of waiting claims of other clients, if the store reports it. `state`: state of the
    /// successor; `None` if the store did not answer. `may_be_placed`: whether an unanswered request may have placed
    /// the successor, or may still do so.
    fn successor_answered(
        self: Arc<Self>,
        successor: NamedSuccessor,
        others: Option<u32>,
        state: Option<AcquireReply>,
        may_be_placed: bool,
    );
}

/// The claim that the store may grant in the same step as the release.
pub(crate) struct NamedSuccessor {
    pub(crate) claim: Arc<Claim>,
    pub(crate) request: LockRequest,
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// This request removed the claim.
    Freed,
    /// The claim was absent before the first request.
    WasGone,
    /// The claim is absent. An earlier try may have removed it.
    Absent,
}

type Answer = Result<Left, BackendError>;

impl Releaser {
    pub(crate) fn new(context: &Arc<Context>, tasks: &Tasks) -> Self {
        Releaser(Arc::new(Shared {
            context: context.clone(),
            tasks: tasks.clone(),
            pending: Mutex::default(),
            signal: Notify::new(),
            failing: Mutex::default(),
        }))
    }

    /// Sends a release for a caller that does not wait for it.
    pub(crate) fn send_later(&self, release: Release) {
        let mut pending = self.0.pending.lock();
        if self.0.tasks.is_gone() {
            // No task is left to send the release: the lease ends the claim.
            drop(pending);
            return;
        }
        pending.releases.push(release);
        if pending.releases.len() == 1 {
            drop(pending);
            self.0.signal.notify_one();
        }
    }

    /// Makes a task adopt a call that is still in flight after the offer window.
    pub(crate) fn adopt_later(&self, call: &Arc<dyn Adopt>) {
        let due = self.0.context.now() + self.0.context.settings.offer_window;
        let mut pending = self.0.pending.lock();
        pending.calls.push(due, Arc::downgrade(call));
        let is_sooner = pending.alarm.add(due);
        drop(pending);
        if is_sooner {
            self.0.signal.notify_one();
        }
        if self.0.tasks.is_closed() {
            // The client is closing and may have adopted the calls in the list already, so this one is adopted here.
            call.clone().adopt();
        }
    }

    /// Makes tasks adopt all calls in flight: the client closes, or its runtime has ended.
    pub(crate) fn adopt_all(&self) {
        let calls = mem::take(&mut self.0.pending.lock().calls);
        calls.adopt();
    }

    /// The last error of a release that is still retried; `None` if the store has refused none, or has not answered.
    pub(crate) fn last_error(&self) -> Option<BackendError> {
        let failing = self.0.failing.lock();
        failing.as_ref().map(|(_, error)| error.clone())
    }

    /// Drops releases that were not sent, because no runtime is left: leases end the claims.
    pub(crate) fn drop_pending(&self) {
        let releases = mem::take(&mut self.0.pending.lock().releases);
        drop(releases);
    }

    /// The releaser's task: sends releases in batches, and adopts overdue calls.
    pub(crate) async fn run(self) {
        let Shared {
            context,
            tasks,
            pending,
            signal,
            ..
        } = &*self.0;
        let most = context.store.profile().limits.max_batch.get() as usize;
        while !tasks.is_gone() {
            let now = context.now();
            let (releases, calls, next) = {
                let mut pending = pending.lock();
                let calls = pending.calls.take_due(now);
                let due = pending.calls.next_due();
                let next = pending.alarm.next(now, due);
                (mem::take(&mut pending.releases), calls, next)
            };
            calls.adopt();
            let mut releases = releases.into_iter().peekable();
            while releases.peek().is_some() {
                let batch = releases.by_ref().take(most).collect();
                tasks.spawn(Release::send_batch(batch));
            }
            let pause = next.map(|next| (next - now).max(OVERDUE_LOOK));
            tokio::select! {
                biased;
                () = tasks.ended().cancelled() => {}
                () = signal.notified() => {}
                () = rest(pause) => {}
            }
        }
        self.drop_pending();
    }
}

impl Release {
    pub(crate) fn new(
        origin: Arc<dyn Origin>,
        claim: ClaimRef,
        lease: Duration,
        cause: Cause,
        successor: Option<NamedSuccessor>,
        token: TaskTrackerToken,
    ) -> Self {
        Release {
            origin,
            claim,
            lease,
            cause,
            successor,
            call: None,
            tries: 0,
            _token: token,
        }
    }

    fn shared(&self) -> &Shared {
        &self.origin.releaser().0
    }

    /// Sends the release. Retries it after a transient error or if no answer comes: for up to `limit`, then in a
    /// task. At the limit, returns the error of the last try that the store answered.
    ///
    /// Other callers may wait for the key, so a task adopts the release if the caller has not polled it to its end
    /// within the offer window.
    ///
    /// # Cancel safety
    /// If dropped after its first poll, a task finishes the release.
    ///
    /// # Errors
    /// That of the store; [`Error::Closed`] if the client's runtime ends.
    pub(crate) async fn send(mut self: Box<Self>, limit: Duration) -> Result<Left, Error> {
        if let Some(left) = self.begin() {
            return Ok(left);
        }
        let releaser = self.origin.releaser().clone();
        let (tell, told) = oneshot::channel();
        let work = Unlocking(Box::pin(async move {
            // Fails if the caller was dropped.
            let _ = tell.send(self.finish(limit).await);
        }));
        let in_flight = InFlight::new(&releaser.0.tasks, work, None);
        releaser.adopt_later(&in_flight.adoptable());
        // Returns at the answer, or when a task has adopted the release; that task then sends the answer. It is dropped if
        // the client's runtime ends.
        poll_fn(|cx| in_flight.poll(cx)).await;
        match told.await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(releaser.0.tasks.closed()),
        }
    }

    /// Sends the request. Returns the result if the store confirms at once; otherwise [`send`](Self::send) continues.
    pub(crate) fn begin(&mut self) -> Option<Left> {
        let call = self.call();
        let answer = call.take_ready().map(|mut answers| answers.pop())?;
        self.call = None;
        self.settle(answer)
            .map_err(|error| self.call = Some(BatchCall::ready(smallvec![ReleaseReply::Unknown(error)])))
            .ok()
    }

    /// Sends several releases in one call. Those that fail, and those that were already in flight, are finished one
    /// by one.
    async fn send_batch(batch: Vec<Release>) {
        let (in_flight, fresh): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|release| release.call.is_some());
        in_flight.into_iter().for_each(Release::finish_later);
        let Some(first) = fresh.first() else { return };
        let store = &first.shared().context.store;
        let answers = store
            .release(fresh.iter().map(Release::departure).collect())
            .await;
        let mut answers = answers.into_iter();
        for mut release in fresh {
            release.tries += 1;
            if let Err(error) = release.settle(answers.next()) {
                release.note(&error);
                release.finish_later();
            }
        }
    }

    /// Sends a release, and retries it as long as its claim may be in the store. Retries a withdrawal also as long as
    /// an unanswered request may place the claim.
    pub(crate) async fn send_for_good(mut self) {
        let limit = match self.cause {
            Cause::Withdrawn => self.lease.max(self.shared().context.settings.call_limit),
            _ => self.lease,
        };
        if let Err(error) = self.run(limit, &mut None).await {
            self.forget_error();
            self.origin.meters().unreturned.increment(1);
            tracing::warn!(key = %self.claim.key, claim = %self.claim.id, %error,
                "a lock could not be given back: it ends with its lease");
        }
    }

    fn finish_later(self) {
        let tasks = self.shared().tasks.clone();
        tasks.spawn(self.send_for_good());
    }

    async fn finish(mut self: Box<Self>, limit: Duration) -> Answer {
        let Shared { context, tasks, .. } = self.shared();
        let (context, tasks) = (context.clone(), tasks.clone());
        let mut last_error = None;
        // At the limit, the request in flight stays in `self.call`.
        let answer = within(&tasks, &*context.clock, limit, self.run(limit, &mut last_error)).await;
        let answer = answer.unwrap_or_else(|| {
            Err(last_error.unwrap_or_else(|| {
                let message = "the store did not answer the unlock: the watchdog goes on asking it";
                BackendError::new(Fault::Unavailable, Effect::Unknown, message)
            }))
        });
        if answer.is_err() {
            self.finish_later();
        }
        answer
    }

    /// Keeps the error for [`Releaser::last_error`].
    fn note(&self, error: &BackendError) {
        *self.shared().failing.lock() = Some((self.claim.id, error.clone()));
    }

    fn forget_error(&self) {
        let mut failing = self.shared().failing.lock();
        if failing.as_ref().is_some_and(|(claim, _)| *claim == self.claim.id) {
            *failing = None;
        }
    }

    /// Sends the request until it succeeds, fails for good, or `limit` is over. Puts the error of each try into
    /// `last_error`.
    async fn run(&mut self, limit: Duration, last_error: &mut Option<BackendError>) -> Answer {
        let mut give_up = None;
        loop {
            let released = poll_fn(|cx| Pin::new(self.call()).poll(cx)).await.pop();
            self.call = None;
            let error = match self.settle(released) {
                Ok(left) => {
                    if self.tries > 1 {
                        self.forget_error();
                    }
                    return Ok(left);
                }
                Err(error) => error,
            };
            self.note(&error);
            *last_error = Some(error.clone());
            let Shared { context, tasks, .. } = self.shared();
            let now = context.now();
            let give_up = *give_up.get_or_insert(now + limit);
            let may_succeed = error.is_transient() || error.effect() == Effect::Unknown;
            if !may_succeed || now >= give_up {
                return Err(error);
            }
            // Tries for the last time at the limit itself, because the store may keep the claim until then.
            let pause = backoff(self.tries, context.dice()).min(give_up - now);
            sleep(tasks, pause).await;
            if tasks.is_gone() {
                return Err(error);
            }
        }
    }

    /// The request in flight, or a new one.
    fn call(&mut self) -> &mut BatchCall<ReleaseReply> {
        let call = self.call.take().unwrap_or_else(|| {
            self.tries += 1;
            self.shared().context.store.release(smallvec![self.departure()])
        });
        self.call.insert(call)
    }

    fn departure(&self) -> ReleaseRequest {
        let context = &self.shared().context;
        ReleaseRequest {
            target: ReleaseTarget::Claim(self.claim.clone()),
            cause: self.cause.clone(),
            successor: self.successor.as_ref().map(|successor| Successor {
                claim: successor.claim.clone(),
                not_after: context.not_after(context.now()),
            }),
            cooldown: Duration::ZERO,
        }
    }

    /// Handles the reply, and reports the successor to the queue. Fails if the reply is an error or missing.
    ///
    /// If the outcome is unknown, the queue withdraws the successor, because it may keep the key from other clients.
    /// The next try releases the claim alone.
    fn settle(&mut self, released: Option<ReleaseReply>) -> Answer {
        let error = match released {
            Some(ReleaseReply::Done {
                freed,
                others,
                successor,
            }) => {
                self.deliver(others, successor);
                return Ok(match () {
                    () if freed.contains(&HolderId::Claim(self.claim.id)) => Left::Freed,
                    () if self.tries == 1 => Left::WasGone,
                    () => Left::Absent,
                });
            }
            Some(ReleaseReply::Unknown(error)) => error,
            None => no_answer(),
        };
        if error.effect() == Effect::Unknown {
            self.deliver(None, None);
        }
        Err(error)
    }

    fn deliver(&mut self, others: Option<u32>, state: Option<AcquireReply>) {
        if let Some(successor) = self.successor.take() {
            let was_granted = matches!(state, Some(AcquireReply::Granted(_)));
            let may_be_placed = !was_granted && (self.tries > 1 || (self.tries == 1 && state.is_none()));
            let origin = self.origin.clone();
            origin.successor_answered(successor, others, state, may_be_placed);
        }
    }
}

/// If the release ends unanswered, with its last retry or with the runtime, tells the queue that no successor comes.
impl Drop for Release {
    fn drop(&mut self) {
        self.deliver(None, None);
    }
}

/// A release that `unlock` polls. At its end it sends the answer to `unlock`.
struct Unlocking(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Future for Unlocking {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl Adoptable for Unlocking {
    fn prepare(&mut self, waker: Option<Waker>) -> Option<Waker> {
        waker
    }
}
