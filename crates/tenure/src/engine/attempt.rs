//! One attempt at one lock, as a future. If dropped, tasks of the client finish or undo what it began.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tenure_backend::{AcquireReply, BackendError, Call, Claim, ClaimRef, Effect, Fairness, Fault, Instant};
use tracing::Span;

use super::context::Place;
use super::deadline::local_deadline;
use super::hold::Hold;
use super::in_flight::InFlight;
use super::own_call::{Asking, Judged, OwnCall};
use super::owner::{Owner, Reentry, Seat};
use super::queue::{
    Arrival, Arrived, Ask, CallerKind, CallerLeft, FIRST_RESERVE, PollReply, Polled, SharedQueue, WaiterId,
};
use super::releaser::Release;
use super::request::LockRequest;
use super::tasks::ABANDONED;
use super::timer::{self, Limit};
use crate::error::Error;
use crate::telemetry::{Outcome, acquiring};

/// The error if the store did not say within the time limit whether the lock is busy.
pub(crate) fn unanswered() -> Error {
    let message = "the store did not answer within the time limit";
    BackendError::new(Fault::Unavailable, Effect::Unknown, message).into()
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    Forever,
    Within(Duration),
    /// Does not wait: the attempt ends with `None` if the lock is busy.
    Try,
}

impl Patience {
    /// Waits for at most `limit`, or for as long as it takes if there is none.
    pub(crate) fn up_to(limit: Option<Duration>) -> Self {
        limit.map_or(Patience::Forever, Patience::Within)
    }

    /// Turns a time limit of zero into a try, which waits for the store's answer, but not for the lock. Also returns
    /// whether the limit was zero.
    pub(crate) fn or_try(self) -> (Self, bool) {
        match self {
            Patience::Within(Duration::ZERO) => (Patience::Try, true),
            other => (other, false),
        }
    }
}

/// A callback for when the attempt begins to wait. It gets the waiting claim.
pub(crate) type OnWaiting = Box<dyn FnOnce(&ClaimRef) + Send>;

/// A grant that the caller gets as a guard.
pub(crate) struct Taken {
    pub(crate) queue: Arc<SharedQueue>,
    pub(crate) hold: Arc<Hold>,
    /// The owner that may lock again while it holds the guard.
    pub(crate) owner: Option<Owner>,
    /// Index, from 0, of the grant's token among those that the claim reserved.
    pub(crate) nth: u32,
    pub(crate) place: Option<Place>,
    pub(crate) since: Instant,
}

/// How an attempt ends. `None`: the attempt was a try, and the lock is busy.
type End = Result<Option<Taken>, Error>;

pub(crate) struct Attempt {
    queue: Result<Arc<SharedQueue>, Error>,
    request: LockRequest,
    patience: Patience,
    /// Reports a busy lock as `Timeout`: the caller passed a limit of zero.
    busy_is_timeout: bool,
    on_waiting: Option<OnWaiting>,
    /// In a box of its own, so that an attempt stays small: few have a limit.
    limit: Option<Box<Limit>>,
    place: Option<Place>,
    seat: Option<Box<Seat>>,
    stage: Stage,
    /// Time at which the attempt first joined the queue; `None` again when the attempt has ended.
    since: Option<Instant>,
    /// Whether the metric of waiting attempts counts this one.
    is_counted: bool,
    span: Span,
}

enum Stage {
    Start,
    /// The caller polls its own call to the store.
    Calling(InFlight<Asking>, WaiterId, Arc<Claim>),
    /// The caller waits in the queue. `Some`: a claim that is not yet passed to the `on_waiting` callback.
    Waiting(WaiterId, Option<Arc<Claim>>),
    Done,
}

impl Attempt {
    pub(crate) fn new(
        queue: Result<Arc<SharedQueue>, Error>,
        request: LockRequest,
        patience: Patience,
    ) -> Self {
        let (patience, busy_is_timeout) = patience.or_try();
        Attempt {
            queue,
            request,
            patience,
            busy_is_timeout,
            on_waiting: None,
            limit: None,
            place: None,
            seat: None,
            stage: Stage::Start,
            since: None,
            is_counted: false,
            span: Span::none(),
        }
    }

    pub(crate) fn on_waiting(&mut self, call: OnWaiting) {
        self.on_waiting = Some(call);
    }

    fn tries(&self) -> bool {
        matches!(self.patience, Patience::Try)
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let queue = match &self.queue {
            Ok(queue) => queue.clone(),
            Err(error) => return Poll::Ready(Err(error.clone())),
        };
        // Yields to other tasks: a store that answers at once would let a loop of lock and unlock run for ever.
        let progress = ready!(tokio::task::coop::poll_proceed(cx));
        if matches!(self.stage, Stage::Start) {
            self.span = acquiring(&queue.key, self.request.mode);
        }
        let span = std::mem::replace(&mut self.span, Span::none());
        let polled = span.in_scope(|| self.poll_on(&queue, cx));
        self.span = span;
        let Poll::Ready(end) = polled else {
            if !self.is_counted {
                self.is_counted = true;
                queue.meters().waiters.increment(1);
            }
            return Poll::Pending;
        };
        progress.made_progress();
        let end = match end {
            Ok(None) if self.busy_is_timeout => Err(Error::Timeout),
            end => end,
        };
        let now = match &end {
            Ok(Some(taken)) => {
                crate::telemetry::granted(&self.span, &taken.hold.at, taken.hold.token(taken.nth));
                taken.since
            }
            _ => queue.context().now(),
        };
        self.ended(&queue, Outcome::of(&end), now);
        Poll::Ready(end)
    }

    /// Records the outcome and the duration of the attempt in the metrics.
    fn ended(&mut self, queue: &SharedQueue, outcome: Outcome, now: Instant) {
        let meters = queue.meters();
        if std::mem::take(&mut self.is_counted) {
            meters.waiters.decrement(1);
        }
        // Without a time, the attempt ended before it joined the queue: by re-entry, or because it was refused.
        let since = self.since.take().unwrap_or(now);
        meters.acquisition(outcome, now - since);
    }

    fn poll_on(&mut self, queue: &Arc<SharedQueue>, cx: &mut Context<'_>) -> Poll<End> {
        if let Some(end) = self.enter_again(queue, cx) {
            self.abandon(queue);
            return Poll::Ready(end);
        }
        loop {
            let step = match &self.stage {
                Stage::Start => self.start(queue, cx),
                Stage::Calling(call, id, claim) => match (call.poll(cx), *id) {
                    (Poll::Pending, _) => Poll::Pending,
                    (Poll::Ready(Some(judged)), id) => self.judged(queue, id, judged),
                    (Poll::Ready(None), id) => {
                        self.stage = Stage::Waiting(id, Some(claim.clone()));
                        Poll::Ready(None)
                    }
                },
                &Stage::Waiting(id, _) => self.poll_waiting(queue, id, cx),
                Stage::Done => panic!("an acquisition was polled after it had finished"),
            };
            match step {
                Poll::Ready(None) => {}
                Poll::Ready(Some(end)) => {
                    self.stage = Stage::Done;
                    self.seat = None;
                    return Poll::Ready(end);
                }
                Poll::Pending => return self.poll_limit(queue, cx),
            }
        }
    }

    /// Ends the attempt if its owner already holds the key, with one more guard or an error. `None`: the attempt goes
    /// on.
    fn enter_again(&mut self, queue: &Arc<SharedQueue>, cx: &mut Context<'_>) -> Option<End> {
        if matches!(self.stage, Stage::Done) {
            return None;
        }
        let owner = self.request.options.owner.as_ref()?;
        let context = queue.context();
        let now = context.now();
        let (mode, seat) = (self.request.mode, &mut self.seat);
        match owner.enter(context.id, &queue.key, mode, now, seat, cx.waker()) {
            Reentry::Again(hold) => Some(Ok(Some(self.taken(queue, hold, 0, now)))),
            Reentry::Refused(error) => Some(Err(error)),
            Reentry::No => None,
        }
    }

    /// Starts the attempt: joins the queue, and calls the store if the queue says so.
    fn start(&mut self, queue: &Arc<SharedQueue>, cx: &mut Context<'_>) -> Poll<Option<End>> {
        if let Err(error) = self.admit(queue) {
            return Poll::Ready(Some(Err(error)));
        }
        let context = queue.context();
        let mode = self.request.mode;
        let profile = context.store.profile();
        let fairness = match self.request.options.fairness {
            // A try does not join the store's queue, unless the store has only fair locks of this mode.
            Fairness::Fifo if self.tries() && profile.serves(mode, Fairness::Unfair) => Fairness::Unfair,
            fairness => fairness,
        };
        let kind = CallerKind::of(fairness, self.tries());
        let arrived = Arrived {
            request: &self.request,
            kind,
            waker: cx.waker(),
        };
        let (arrival, now) = queue.apply_at(arrived);
        self.since.get_or_insert(now);
        let ask = match arrival {
            Arrival::Ask(ask) => ask,
            Arrival::Held(hold, nth) => {
                return Poll::Ready(Some(Ok(Some(self.granted(queue, hold, nth, now)))));
            }
            Arrival::Busy => return Poll::Ready(Some(Ok(None))),
            Arrival::Closed => return Poll::Ready(Some(Err(queue.services.tasks.closed()))),
            Arrival::Wait(id) => {
                self.stage = Stage::Waiting(id, None);
                if self.on_waiting.is_some() {
                    let claim = queue.claim(&self.request, fairness, 1);
                    self.report_waiting(&claim);
                }
                return Poll::Pending;
            }
        };
        self.ask(queue, ask, kind, now, cx)
    }

    /// Calls the store.
    fn ask(
        &mut self,
        queue: &Arc<SharedQueue>,
        ask: Ask,
        kind: CallerKind,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<Option<End>> {
        let Ask { id, reserve, after } = ask;
        let context = queue.context();
        let fairness = match kind {
            CallerKind::Queues => Fairness::Fifo,
            // Readers and callers for permits ask side by side, and then wait behind one claim of the poller.
            CallerKind::Waits if !self.request.is_shared() => context.waiting_fairness(self.request.mode),
            CallerKind::Waits | CallerKind::Tries => Fairness::Unfair,
        };
        let reserve = match (kind, fairness) {
            (CallerKind::Waits, Fairness::Fifo) => reserve.max(FIRST_RESERVE),
            _ => reserve,
        };
        let claim = queue.claim(&self.request, fairness, reserve);
        let call = match after {
            None => context.store.acquire(claim.clone(), context.not_after(now)),
            Some(order) => ask_after(queue.clone(), queue.release(order), claim.clone()),
        };
        let own = Some(self.own_call(queue, id, claim.clone(), kind));
        let mut asking = Asking { call, own };
        match Pin::new(&mut asking).poll(cx) {
            Poll::Ready(judged) => self.judged(queue, id, judged),
            Poll::Pending => {
                let in_flight = InFlight::new(&queue.services.tasks, asking, Some(cx.waker().clone()));
                let adoptable = in_flight.adoptable();
                self.stage = Stage::Calling(in_flight, id, claim);
                queue.services.releaser.adopt_later(&adoptable);
                Poll::Pending
            }
        }
    }

    /// Checks the request as far as possible without a call. Starts the client's tasks. Enforces `max_claims`.
    fn admit(&mut self, queue: &Arc<SharedQueue>) -> Result<(), Error> {
        let context = queue.context();
        let profile = context.store.profile();
        self.request.check()?;
        let (mode, fairness) = (self.request.mode, self.request.options.fairness);
        if !profile.serves(mode, fairness) {
            // The error says "fair" or "unfair" only if the store serves this mode in the other order.
            let order = match fairness {
                Fairness::Fifo if profile.serves(mode, Fairness::Unfair) => "fair ",
                Fairness::Unfair if profile.serves(mode, Fairness::Fifo) => "unfair ",
                Fairness::Fifo | Fairness::Unfair => "",
            };
            let mut message = format!(
                "{} ({}) has no {order}locks of mode {mode}",
                profile.store, profile.layout
            );
            if let Some(fuller) = profile.fuller_layout {
                message += &format!("; its layout `{fuller}` has more kinds");
            }
            return Err(BackendError::unsupported(message).into());
        }
        let lease = self.request.options.lease;
        if local_deadline(Instant::ORIGIN, lease, &profile.limits) == Instant::ORIGIN {
            let message = format!(
                "{} takes more off a lease than this one has: ask for a longer one",
                profile.store
            );
            return Err(Error::Invalid(message.into()));
        }
        queue.services.start()?;
        if self.place.is_none() {
            self.place = Some(context.reserve()?);
        }
        Ok(())
    }

    fn judged(&mut self, queue: &Arc<SharedQueue>, id: WaiterId, judged: Judged) -> Poll<Option<End>> {
        // The call has ended: if the attempt is dropped now, there is no call to adopt.
        self.stage = Stage::Done;
        Poll::Ready(match judged {
            Judged::Held(hold, now) => Some(Ok(Some(self.granted(queue, hold, 0, now)))),
            Judged::Refused => Some(Ok(None)),
            Judged::Failed(error) => Some(Err(error)),
            Judged::Left => Some(Err(ABANDONED)),
            Judged::Waits(claim) => {
                self.stage = Stage::Waiting(id, None);
                self.report_waiting(&claim);
                None
            }
        })
    }

    fn poll_waiting(
        &mut self,
        queue: &Arc<SharedQueue>,
        id: WaiterId,
        cx: &mut Context<'_>,
    ) -> Poll<Option<End>> {
        let (reply, now) = queue.apply_at(Polled {
            id,
            waker: cx.waker(),
        });
        Poll::Ready(match reply {
            PollReply::Waiting => {
                if let Stage::Waiting(_, claim) = &mut self.stage
                    && let Some(claim) = claim.take()
                {
                    self.report_waiting(&claim);
                }
                return Poll::Pending;
            }
            PollReply::Held(hold, nth) => Some(Ok(Some(self.granted(queue, hold, nth, now)))),
            PollReply::Ask(ask) => return self.ask(queue, ask, CallerKind::Waits, now, cx),
            PollReply::Refused => Some(Ok(None)),
            PollReply::Failed(error) => Some(Err(error)),
            PollReply::Closed => Some(Err(queue.services.tasks.closed())),
            PollReply::Missed if self.tries() => {
                self.stage = Stage::Start;
                None
            }
            PollReply::Missed => {
                // The attempt missed an offer and lost its place. It waits again, with a new claim at the tail of the
                // store's queue.
                let claim = queue.claim(&self.request, Fairness::Fifo, 1);
                self.own_call(queue, id, claim, CallerKind::Queues).wait_anew();
                None
            }
        })
    }

    fn own_call(
        &self,
        queue: &Arc<SharedQueue>,
        id: WaiterId,
        claim: Arc<Claim>,
        kind: CallerKind,
    ) -> OwnCall {
        OwnCall {
            queue: queue.clone(),
            id,
            request: self.request.clone(),
            claim,
            kind,
            tries: self.tries(),
        }
    }

    fn granted(&mut self, queue: &Arc<SharedQueue>, hold: Arc<Hold>, nth: u32, now: Instant) -> Taken {
        if let Some(owner) = &self.request.options.owner {
            owner.holds(&hold);
        }
        self.taken(queue, hold, nth, now)
    }

    fn taken(&mut self, queue: &Arc<SharedQueue>, hold: Arc<Hold>, nth: u32, since: Instant) -> Taken {
        Taken {
            queue: queue.clone(),
            hold,
            owner: self.request.options.owner.clone(),
            nth,
            place: self.place.take(),
            since,
        }
    }

    fn report_waiting(&mut self, claim: &Claim) {
        if let Some(call) = self.on_waiting.take() {
            call(&claim.at);
        }
    }

    fn poll_limit(&mut self, queue: &Arc<SharedQueue>, cx: &mut Context<'_>) -> Poll<End> {
        let Patience::Within(limit) = self.patience else {
            return Poll::Pending;
        };
        let (tasks, clock) = (&queue.services.tasks, &queue.context().clock);
        let limit = || Box::new(timer::limit(tasks, clock, limit));
        ready!(Pin::new(self.limit.get_or_insert_with(limit)).poll(cx));
        let error = self.why_late(queue);
        self.abandon(queue);
        Poll::Ready(Err(error))
    }

    /// The error when the time limit has passed: the lock was busy, or the store did not answer.
    fn why_late(&self, queue: &Arc<SharedQueue>) -> Error {
        let is_silent = match &self.stage {
            Stage::Calling(..) => true,
            Stage::Waiting(id, _) => queue.is_unanswered(*id, self.request.mode),
            Stage::Start | Stage::Done => false,
        };
        match queue.context().store_error() {
            Some(error) => error.into(),
            None if is_silent => unanswered(),
            None => Error::Timeout,
        }
    }

    /// Gives up the attempt. Tasks finish its call, and release its claim or offer it to the next waiter.
    fn abandon(&mut self, queue: &Arc<SharedQueue>) {
        self.seat = None;
        let (id, is_calling, call) = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Start | Stage::Done => return,
            Stage::Calling(call, id, _) => (id, true, Some(call)),
            Stage::Waiting(id, _) => (id, false, None),
        };
        queue.apply(CallerLeft {
            id,
            request: &self.request,
            is_calling,
        });
        // Dropping the call makes a task adopt it, i.e. poll it to its end.
        drop(call);
    }
}

/// Releases a lingering claim (kept after its unlock), then asks the store for `claim`.
fn ask_after(queue: Arc<SharedQueue>, release: Release, claim: Arc<Claim>) -> Call<AcquireReply> {
    Call::new(async move {
        let context = queue.context();
        let limit = context.settings.unlock_limit.min(claim.lease);
        // If the release fails, a task retries it, and the store answers the acquire below with "busy".
        let _ = Box::new(release).send(limit).await;
        let not_after = context.not_after(context.now());
        context.store.acquire(claim, not_after).await
    })
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Ok(queue) = &self.queue {
            let queue = queue.clone();
            self.abandon(&queue);
            if self.since.is_some() {
                self.ended(&queue, Outcome::Cancelled, queue.context().now());
            }
        }
    }
}
