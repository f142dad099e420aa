//! One attempt at one claim, as a future: asks the store in place, waits for an offer, and leaves nothing behind
//! wherever it is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tenure_backend::{
    BackendError, Call, Claim, ClaimRef, Effect, Fairness, Fault, Instant, PASS_WINDOW, Standing,
};
use tracing::Span;

use crate::belief::believe_until;
use crate::drive;
use crate::engine::Place;
use crate::error::Error;
use crate::guard::Guard;
use crate::held::Held;
use crate::line::{Enter, Line};
use crate::owner::{Reentry, Seat};
use crate::telemetry::{Outcome, acquiring, granted};
use crate::timer::Limit;
use crate::verdict::Verdict;
use crate::waiter::{CallPoll, Leftover, Offer, WaitPoll, Waiter};
use crate::want::Want;

/// The store has not said in time whether the lock is busy.
pub(crate) fn unanswered() -> Error {
    let message = "the store did not answer within the time limit";
    BackendError::new(Fault::Unavailable, Effect::Unknown, message).into()
}

/// For how long a caller is ready to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    Forever,
    Within(Duration),
    /// Not at all: `None` if it is busy.
    Try,
}

impl Patience {
    /// A limit of nothing is a try: a free lock is taken, however long the store's answer travels. True if it was one.
    pub(crate) fn or_try(self) -> (Self, bool) {
        match self {
            Patience::Within(Duration::ZERO) => (Patience::Try, true),
            other => (other, false),
        }
    }
}

/// Told once, when the wait begins, which claim waits.
pub(crate) type OnWaiting = Box<dyn FnOnce(&ClaimRef) + Send>;

pub(crate) struct Attempt {
    line: Result<Arc<Line>, Error>,
    want: Want,
    patience: Patience,
    /// That it is busy is told as a time-out: the caller had a limit, of nothing.
    busy_is_late: bool,
    on_waiting: Option<OnWaiting>,
    limit: Option<Limit>,
    place: Option<Place>,
    seat: Option<Box<Seat>>,
    stage: Stage,
    /// When it asked first, until it has ended.
    since: Option<Instant>,
    /// Whether it is counted among those that wait.
    waits: bool,
    span: Span,
}

enum Stage {
    Start,
    /// The call is under way, polled in place until the client's task takes it over.
    Calling(Arc<Waiter>, Arc<Claim>),
    Waiting(Arc<Waiter>),
    Done,
}

impl Attempt {
    pub(crate) fn new(line: Result<Arc<Line>, Error>, want: Want, patience: Patience) -> Self {
        let (patience, busy_is_late) = patience.or_try();
        Attempt {
            line,
            want,
            patience,
            busy_is_late,
            on_waiting: None,
            limit: None,
            place: None,
            seat: None,
            stage: Stage::Start,
            since: None,
            waits: false,
            span: Span::none(),
        }
    }

    pub(crate) fn on_waiting(&mut self, told: OnWaiting) {
        self.on_waiting = Some(told);
    }

    fn tries(&self) -> bool {
        matches!(self.patience, Patience::Try)
    }

    /// Polls the attempt; `Ok(None)` says that it only tried and the lock is busy.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Guard>, Error>> {
        let line = match &self.line {
            Ok(line) => line.clone(),
            Err(error) => return Poll::Ready(Err(error.clone())),
        };
        // Where a store answers at once, a task that locks and unlocks in a loop would never let others run.
        let progress = ready!(tokio::task::coop::poll_proceed(cx));
        if matches!(self.stage, Stage::Start) {
            self.span = acquiring(&line.key, self.want.mode);
        }
        let span = std::mem::replace(&mut self.span, Span::none());
        let polled = span.in_scope(|| self.poll_on(&line, cx));
        self.span = span;
        let Poll::Ready(end) = polled else {
            if !self.waits {
                self.waits = true;
                line.meters().waiters.increment(1);
            }
            return Poll::Pending;
        };
        progress.made_progress();
        let end = match end {
            Ok(None) if self.busy_is_late => Err(Error::Timeout),
            end => end,
        };
        let now = match &end {
            Ok(Some(guard)) => {
                granted(&self.span, guard);
                guard.since()
            }
            _ => line.engine.clock.now(),
        };
        self.ended(&line, Outcome::of(&end), now);
        Poll::Ready(end)
    }

    /// Counts how the attempt ended.
    fn ended(&mut self, line: &Line, outcome: Outcome, now: Instant) {
        let meters = line.meters();
        if std::mem::take(&mut self.waits) {
            meters.waiters.decrement(1);
        }
        // An owner who enters again has not asked the store.
        let since = self.since.take().unwrap_or(now);
        meters.acquisition(outcome, now - since);
    }

    fn poll_on(&mut self, line: &Arc<Line>, cx: &mut Context<'_>) -> Poll<Result<Option<Guard>, Error>> {
        if let Some(end) = self.enter_again(line, cx) {
            self.abandon(line);
            return Poll::Ready(end);
        }
        loop {
            let step = match &self.stage {
                Stage::Start => self.start(line, cx),
                Stage::Calling(waiter, claim) => {
                    let (waiter, claim) = (waiter.clone(), claim.clone());
                    self.poll_calling(line, waiter, &claim, cx)
                }
                Stage::Waiting(waiter) => {
                    let waiter = waiter.clone();
                    self.poll_waiting(line, &waiter, cx)
                }
                Stage::Done => panic!("an acquisition was polled after it had finished"),
            };
            match step {
                Poll::Ready(None) => {}
                Poll::Ready(Some(end)) => {
                    self.stage = Stage::Done;
                    self.seat = None;
                    return Poll::Ready(end);
                }
                Poll::Pending => return self.poll_limit(line, cx),
            }
        }
    }

    /// An owner that holds the key, by now, has it at once.
    fn enter_again(&mut self, line: &Arc<Line>, cx: &mut Context<'_>) -> Option<End> {
        if matches!(self.stage, Stage::Done) {
            return None;
        }
        let owner = self.want.options.owner.as_ref()?;
        match owner.enter(line, self.want.mode, &mut self.seat, cx.waker()) {
            Reentry::Again(held) => {
                let now = line.engine.clock.now();
                Some(Ok(Some(Guard::new(held, 0, self.place.take(), now))))
            }
            Reentry::Refused(error) => Some(Err(error)),
            Reentry::No => None,
        }
    }

    /// The first poll.
    fn start(&mut self, line: &Arc<Line>, cx: &mut Context<'_>) -> Poll<Option<End>> {
        if let Err(error) = self.admit(line) {
            return Poll::Ready(Some(Err(error)));
        }
        let now = line.engine.clock.now();
        self.since.get_or_insert(now);
        let serves_unfair = line
            .engine
            .backend
            .profile()
            .serves(self.want.mode, Fairness::Unfair);
        let fairness = match self.want.options.fairness {
            // A try does not queue, if the store can do without.
            Fairness::Fifo if self.tries() && serves_unfair => Fairness::Unfair,
            fairness => fairness,
        };
        let fairness = line.engine.fairness(self.want.mode, fairness);
        if fairness == Fairness::Unfair {
            match line.enter(&self.want, self.tries()) {
                Enter::Ask => {}
                Enter::Busy => return Poll::Ready(Some(Ok(None))),
                Enter::Closed => return Poll::Ready(Some(Err(line.engine.watchdog.closed()))),
                Enter::Wait(waiter) => {
                    if self.on_waiting.is_some() {
                        self.tell_waiting(&line.engine.claim(line, &self.want, fairness));
                    }
                    self.stage = Stage::Waiting(waiter);
                    return Poll::Ready(None);
                }
            }
        }
        let claim = line.engine.claim(line, &self.want, fairness);
        let place_by = line.engine.place_by(now);
        let mut call = line.engine.backend.acquire(claim.clone(), place_by);
        match Pin::new(&mut call).poll(cx) {
            Poll::Ready(answer) => self.judge(line, answer, claim, None),
            Poll::Pending => {
                let waiter =
                    Waiter::calling(line, &self.want, self.tries(), (call, claim.clone()), cx.waker());
                self.stage = Stage::Calling(waiter.clone(), claim);
                line.engine
                    .watchdog
                    .track_call(&waiter, line.engine.settings.offer_window);
                Poll::Pending
            }
        }
    }

    /// Checks all that can be checked before anything is sent.
    fn admit(&mut self, line: &Arc<Line>) -> Result<(), Error> {
        let profile = line.engine.backend.profile();
        self.want.check()?;
        let (mode, fairness) = (self.want.mode, self.want.options.fairness);
        if !profile.serves(mode, fairness) {
            // The order is at fault only if the store knows the other.
            let order = match fairness {
                Fairness::Fifo if profile.serves(mode, Fairness::Unfair) => "fair ",
                Fairness::Unfair if profile.serves(mode, Fairness::Fifo) => "unfair ",
                Fairness::Fifo | Fairness::Unfair => "",
            };
            let message = format!(
                "{} ({}) has no {order}locks of mode {mode}",
                profile.store, profile.layout
            );
            return Err(BackendError::unsupported(message).into());
        }
        if believe_until(Instant::ORIGIN, self.want.options.lease, profile.limits.margin) == Instant::ORIGIN {
            let message = format!(
                "{} takes more off a lease than this one has: ask for a longer one",
                profile.store
            );
            return Err(Error::Invalid(message.into()));
        }
        line.engine.watchdog.start(&line.engine)?;
        if self.place.is_none() {
            self.place = Some(line.engine.reserve()?);
        }
        Ok(())
    }

    fn poll_calling(
        &mut self,
        line: &Arc<Line>,
        waiter: Arc<Waiter>,
        claim: &Claim,
        cx: &mut Context<'_>,
    ) -> Poll<Option<End>> {
        match waiter.poll_call(cx) {
            CallPoll::Pending => Poll::Pending,
            CallPoll::Taken => {
                if waiter.is_waiting() {
                    self.tell_waiting(claim);
                }
                self.stage = Stage::Waiting(waiter);
                Poll::Ready(None)
            }
            CallPoll::Answer(answer, claim) => self.judge(line, answer, claim, Some(waiter)),
        }
    }

    /// The call was answered in place.
    fn judge(
        &mut self,
        line: &Arc<Line>,
        answer: Result<Standing, BackendError>,
        claim: Arc<Claim>,
        waiter: Option<Arc<Waiter>>,
    ) -> Poll<Option<End>> {
        // Whatever comes of it, a drop from here on has no call to see to.
        self.stage = Stage::Done;
        Poll::Ready(
            match Verdict::of(line, answer, &claim, &self.want, self.tries()) {
                Verdict::Held(held) => Some(Ok(Some(self.guard(held, 0)))),
                Verdict::Refused => Some(Ok(None)),
                Verdict::Failed(error) => Some(Err(error)),
                Verdict::Wait(claim) => {
                    let waiter = waiter.unwrap_or_else(|| Waiter::waiting(line, &self.want));
                    self.stage = Stage::Waiting(waiter.clone());
                    drive::wait(waiter, claim.clone());
                    self.tell_waiting(&claim);
                    None
                }
            },
        )
    }

    fn poll_waiting(
        &mut self,
        line: &Arc<Line>,
        waiter: &Arc<Waiter>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<End>> {
        match waiter.poll_wait(cx) {
            WaitPoll::Pending => Poll::Pending,
            WaitPoll::Revived => {
                self.wait_again(line, waiter);
                // It may have been answered at once: the client was closed.
                Poll::Ready(None)
            }
            WaitPoll::Offer(offer) => self.receive(line, waiter, offer),
            WaitPoll::Refused => Poll::Ready(Some(Ok(None))),
            WaitPoll::Failed(error) => Poll::Ready(Some(Err(error))),
        }
    }

    /// A grant was offered and taken: it is returned if it is still worth something at this very moment.
    fn receive(&mut self, line: &Arc<Line>, waiter: &Arc<Waiter>, offer: Offer) -> Poll<Option<End>> {
        let now = line.engine.clock.now();
        let Offer { held, nth, passed } = offer;
        let fresh = !passed || now - held.confirmed() < PASS_WINDOW;
        if fresh && held.is_believed(now) {
            return Poll::Ready(Some(Ok(Some(self.guard(held, nth)))));
        }
        self.wait_again(line, waiter);
        line.leave_behind(&held);
        Poll::Ready(None)
    }

    /// Waits once more, where it stood in this client's queue, or at the tail of the store's; a try tries once more.
    fn wait_again(&mut self, line: &Arc<Line>, waiter: &Arc<Waiter>) {
        if self.tries() {
            self.stage = Stage::Start;
        } else if line.engine.fairness(self.want.mode, self.want.options.fairness) == Fairness::Fifo {
            drive::wait(
                waiter.clone(),
                line.engine.claim(line, &self.want, Fairness::Fifo),
            );
        } else {
            line.revive(waiter);
        }
    }

    fn guard(&mut self, held: Arc<Held>, nth: u32) -> Guard {
        if let Some(owner) = &self.want.options.owner {
            owner.holds(&held);
        }
        let now = held.line.engine.clock.now();
        Guard::new(held, nth, self.place.take(), now)
    }

    fn tell_waiting(&mut self, claim: &Claim) {
        if let Some(told) = self.on_waiting.take() {
            told(&claim.at);
        }
    }

    /// Whether the caller's patience has ended.
    fn poll_limit(&mut self, line: &Arc<Line>, cx: &mut Context<'_>) -> Poll<Result<Option<Guard>, Error>> {
        let Patience::Within(limit) = self.patience else {
            return Poll::Pending;
        };
        let engine = &line.engine;
        let limit = self.limit.get_or_insert_with(|| Limit::new(engine, limit));
        if limit.poll(engine, cx).is_pending() {
            return Poll::Pending;
        }
        let error = self.why_late(line);
        self.abandon(line);
        Poll::Ready(Err(error))
    }

    /// Whether the lock was not free in time, or the store did not say: its silence is no busy lock.
    fn why_late(&self, line: &Line) -> Error {
        let silent = match &self.stage {
            Stage::Calling(waiter, _) | Stage::Waiting(waiter) => {
                waiter.is_unanswered() || line.is_unanswered(self.want.mode)
            }
            Stage::Start | Stage::Done => false,
        };
        match line.engine.weather() {
            Some(weather) => weather.into(),
            None if silent => unanswered(),
            None => Error::Timeout,
        }
    }

    /// Gives the attempt up: what it left is withdrawn or handed to the next.
    fn abandon(&mut self, line: &Arc<Line>) {
        self.seat = None;
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Start | Stage::Done => {}
            Stage::Calling(waiter, _) | Stage::Waiting(waiter) => match waiter.go() {
                Leftover::Nothing => line.forget_waiter(&waiter),
                Leftover::Offer(offer) => {
                    line.forget_waiter(&waiter);
                    line.leave_behind(&offer.held);
                }
                Leftover::Call(call, claim) => self.give_up_call(line, call, claim),
            },
        }
    }

    fn give_up_call(&self, line: &Arc<Line>, call: Call<Standing>, claim: Arc<Claim>) {
        if claim.fairness == Fairness::Unfair && !self.tries() {
            line.stop_asking();
        }
        line.engine
            .watchdog
            .spawn(drive::finish_and_withdraw(line.clone(), call, claim));
    }
}

/// How an attempt ends.
type End = Result<Option<Guard>, Error>;

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Ok(line) = &self.line {
            let line = line.clone();
            self.abandon(&line);
            if self.since.is_some() {
                self.ended(&line, Outcome::Cancelled, line.engine.clock.now());
            }
        }
    }
}
