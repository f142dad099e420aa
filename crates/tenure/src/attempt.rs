//! One attempt at one claim, as a future: asks the store in place, waits for an offer, and leaves nothing behind
//! wherever it is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tenure_backend::{BackendError, Call, Claim, ClaimRef, Effect, Fairness, Mode, PASS_WINDOW, Standing};

use crate::drive;
use crate::engine::Place;
use crate::error::Error;
use crate::guard::Guard;
use crate::held::Held;
use crate::line::{Enter, Line};
use crate::owner::{Reentry, Ticket};
use crate::waiter::{CallPoll, Leftover, Offer, WaitPoll, Waiter};
use crate::want::Want;

/// For how long a caller is ready to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    Forever,
    Within(Duration),
    /// Not at all: `None` if it is busy.
    Try,
}

/// Told once, when the wait begins, which claim waits.
pub(crate) type OnWaiting = Box<dyn FnOnce(&ClaimRef) + Send>;

pub(crate) struct Attempt {
    line: Result<Arc<Line>, Error>,
    want: Arc<Want>,
    patience: Patience,
    on_waiting: Option<OnWaiting>,
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
    place: Option<Place>,
    ticket: Option<Ticket>,
    stage: Stage,
}

enum Stage {
    Start,
    /// The call is under way, polled in place until the client's task takes it over.
    Calling(Arc<Waiter>),
    Waiting(Arc<Waiter>),
    Done,
}

/// What the answer to a caller's own call means.
pub(crate) enum Verdict {
    Held(Arc<Held>),
    /// It only tried, and the lock is busy.
    Refused,
    /// It waits, with this claim.
    Wait(Arc<Claim>),
    Failed(Error),
}

impl Verdict {
    pub(crate) fn of(
        line: &Arc<Line>,
        answer: Result<Standing, BackendError>,
        claim: &Arc<Claim>,
        want: &Arc<Want>,
        tries: bool,
    ) -> Verdict {
        let asked = claim.fairness == Fairness::Unfair;
        let verdict = match answer {
            Ok(Standing::Granted(grant)) => {
                let held = if asked { line.hold_asked(claim, grant, want) } else { line.hold(claim, grant, want) };
                match held {
                    Some(held) => return Verdict::Held(held),
                    // It arrived dead: it is given back, and asked for anew.
                    None => {
                        line.withdraw(claim.clone());
                        Verdict::Wait(line.engine.claim(line, want, claim.fairness))
                    }
                }
            }
            Ok(Standing::Waiting { .. }) if tries => {
                if line.engine.queues_in_store(claim) {
                    line.withdraw(claim.clone());
                }
                Verdict::Refused
            }
            Ok(Standing::Ended) => Verdict::Wait(line.engine.claim(line, want, claim.fairness)),
            Ok(Standing::Recovering) if tries => Verdict::Failed(Error::Backend(BackendError::new(
                tenure_backend::Fault::Unavailable,
                Effect::None,
                "the store is recovering and grants nothing until older leases have ended: try again later",
            ))),
            Ok(_) => Verdict::Wait(claim.clone()),
            Err(error) if error.is_weather() && !tries => Verdict::Wait(claim.clone()),
            Err(error) => {
                if error.effect() == Effect::Unknown {
                    line.withdraw(claim.clone());
                }
                Verdict::Failed(error.into())
            }
        };
        match verdict {
            Verdict::Wait(_) if tries => {
                if asked {
                    line.stop_asking();
                }
                Verdict::Refused
            }
            Verdict::Wait(claim) => Verdict::Wait(claim),
            other => {
                if asked {
                    line.stop_asking();
                }
                other
            }
        }
    }
}

impl Attempt {
    pub(crate) fn new(line: Result<Arc<Line>, Error>, want: Arc<Want>, patience: Patience) -> Self {
        Attempt {
            line,
            want,
            patience,
            on_waiting: None,
            timer: None,
            place: None,
            ticket: None,
            stage: Stage::Start,
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
        loop {
            let step = match &self.stage {
                Stage::Start => self.start(&line, cx),
                Stage::Calling(waiter) => {
                    let waiter = waiter.clone();
                    self.poll_calling(&line, waiter, cx)
                }
                Stage::Waiting(waiter) => {
                    let waiter = waiter.clone();
                    self.poll_waiting(&line, &waiter, cx)
                }
                Stage::Done => panic!("an acquisition was polled after it had finished"),
            };
            match step {
                Poll::Ready(None) => {}
                Poll::Ready(Some(end)) => {
                    self.stage = Stage::Done;
                    self.ticket = None;
                    return Poll::Ready(end);
                }
                Poll::Pending => return self.poll_timer(&line, cx),
            }
        }
    }

    /// The first poll, and the first one after another attempt of the same owner has ended.
    fn start(&mut self, line: &Arc<Line>, cx: &mut Context<'_>) -> Poll<Option<End>> {
        if let Err(error) = self.admit(line) {
            return Poll::Ready(Some(Err(error)));
        }
        if self.ticket.is_none()
            && let Some(owner) = &self.want.owner
        {
            match owner.enter(line, self.want.mode, cx) {
                Reentry::Again(held) => return Poll::Ready(Some(Ok(Some(Guard::new(held, 0, self.place.take()))))),
                Reentry::Deadlock => return Poll::Ready(Some(Err(Error::WouldDeadlock))),
                Reentry::Busy if self.tries() => return Poll::Ready(Some(Ok(None))),
                Reentry::Busy => return Poll::Pending,
                Reentry::Proceed(ticket) => self.ticket = ticket,
            }
        }
        let serves_unfair = line.engine.backend.profile().serves(self.want.mode, Fairness::Unfair);
        let fairness = match self.want.fairness {
            // A try does not queue, if the store can do without.
            Fairness::Fifo if self.tries() && serves_unfair => Fairness::Unfair,
            fairness => fairness,
        };
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
        let place_by = line.engine.place_by(line.engine.clock.now());
        let mut call = line.engine.backend.clone().acquire(claim.clone(), place_by);
        match Pin::new(&mut call).poll(cx) {
            Poll::Ready(answer) => self.judge(line, answer, claim, None),
            Poll::Pending => {
                let waiter = Waiter::calling(self.want.clone(), call, claim, cx.waker());
                line.engine.watchdog.track_call(&waiter, line, self.tries());
                self.stage = Stage::Calling(waiter);
                Poll::Pending
            }
        }
    }

    /// Checks all that can be checked before anything is sent.
    fn admit(&mut self, line: &Arc<Line>) -> Result<(), Error> {
        let profile = line.engine.backend.profile();
        if let Mode::Permits { take, of } = self.want.mode
            && take > of
        {
            return Err(Error::Invalid(format!("{take} permits were asked for of a semaphore that has {of}").into()));
        }
        if self.want.lease < crate::belief::MIN_LEASE {
            return Err(Error::Invalid("a lease is at least 30 ms long: a shorter one would end on the way".into()));
        }
        if !profile.serves(self.want.mode, self.want.fairness) {
            let order = if self.want.fairness == Fairness::Fifo { "fair" } else { "unfair" };
            let message = format!("{} ({}) has no {order} locks of mode {}", profile.store, profile.layout, self.want.mode);
            return Err(BackendError::unsupported(message).into());
        }
        line.engine.watchdog.start()?;
        if self.place.is_none() {
            self.place = Some(line.engine.reserve()?);
        }
        Ok(())
    }

    fn poll_calling(&mut self, line: &Arc<Line>, waiter: Arc<Waiter>, cx: &mut Context<'_>) -> Poll<Option<End>> {
        match waiter.poll_call(cx) {
            CallPoll::Pending => Poll::Pending,
            CallPoll::Taken => {
                self.stage = Stage::Waiting(waiter);
                Poll::Ready(None)
            }
            CallPoll::Answer(answer, claim) => {
                line.engine.watchdog.untrack_call(&waiter);
                self.judge(line, answer, claim, Some(waiter))
            }
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
        Poll::Ready(match Verdict::of(line, answer, &claim, &self.want, self.tries()) {
            Verdict::Held(held) => Some(Ok(Some(self.guard(held, 0)))),
            Verdict::Refused => Some(Ok(None)),
            Verdict::Failed(error) => Some(Err(error)),
            Verdict::Wait(claim) => {
                let waiter = waiter.unwrap_or_else(|| Waiter::waiting(self.want.clone()));
                self.stage = Stage::Waiting(waiter.clone());
                self.tell_waiting(&claim);
                drive::wait(line, waiter, claim);
                None
            }
        })
    }

    fn poll_waiting(&mut self, line: &Arc<Line>, waiter: &Arc<Waiter>, cx: &mut Context<'_>) -> Poll<Option<End>> {
        match waiter.poll_wait(cx) {
            WaitPoll::Pending => Poll::Pending,
            WaitPoll::Revived => {
                if self.want.fairness == Fairness::Fifo {
                    let claim = line.engine.claim(line, &self.want, Fairness::Fifo);
                    drive::wait(line, waiter.clone(), claim);
                } else {
                    line.revive();
                }
                Poll::Pending
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
        if self.want.fairness == Fairness::Fifo {
            line.leave_behind(&held);
            drive::wait(line, waiter.clone(), line.engine.claim(line, &self.want, Fairness::Fifo));
        } else {
            line.return_late(waiter.clone(), &held);
        }
        Poll::Ready(None)
    }

    fn guard(&mut self, held: Arc<Held>, nth: u32) -> Guard {
        if let Some(ticket) = self.ticket.take() {
            ticket.holds(&held);
        }
        Guard::new(held, nth, self.place.take())
    }

    fn tell_waiting(&mut self, claim: &Claim) {
        if let Some(told) = self.on_waiting.take() {
            told(&claim.at);
        }
    }

    /// Whether the caller's patience has ended.
    fn poll_timer(&mut self, line: &Arc<Line>, cx: &mut Context<'_>) -> Poll<Result<Option<Guard>, Error>> {
        let Patience::Within(limit) = self.patience else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.abandon(line);
        Poll::Ready(Err(Error::Timeout))
    }

    /// Gives the attempt up: what it left is withdrawn or handed to the next.
    fn abandon(&mut self, line: &Arc<Line>) {
        self.ticket = None;
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Start | Stage::Done => {}
            Stage::Calling(waiter) | Stage::Waiting(waiter) => {
                line.engine.watchdog.untrack_call(&waiter);
                match waiter.go() {
                    Leftover::Nothing => line.forget_waiter(&waiter),
                    Leftover::Offer(offer) => {
                        line.forget_waiter(&waiter);
                        line.leave_behind(&offer.held);
                    }
                    Leftover::Call(call, claim) => self.give_up_call(line, call, claim),
                }
            }
        }
    }

    fn give_up_call(&self, line: &Arc<Line>, call: Call<Standing>, claim: Arc<Claim>) {
        if claim.fairness == Fairness::Unfair {
            line.stop_asking();
        }
        line.engine.watchdog.spawn(drive::finish_and_withdraw(line.clone(), call, claim));
    }
}

/// How an attempt ends.
type End = Result<Option<Guard>, Error>;

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Ok(line) = &self.line {
            let line = line.clone();
            self.abandon(&line);
        }
    }
}
