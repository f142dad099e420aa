//! One caller that waits: the cell through which grants are offered to it, taken, and taken back.
//! The cell knows neither the queue it stands in nor the store.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{BackendError, Call, Claim, Instant, Standing};
use tokio::sync::Notify;

use crate::error::Error;
use crate::held::Held;
use crate::line::Line;
use crate::want::Want;
use crate::watchdog::{Busy, TakeOver};

/// A grant on its way to a waiter.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) held: Arc<Held>,
    /// Which grant of the claim's run it is.
    pub(crate) nth: u32,
    /// Handed on in memory, not granted by the store just now: it must be returned within the pass window.
    pub(crate) passed: bool,
}

/// A waiting caller, shared by its future, its line's queue and whoever drives it.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) line: Arc<Line>,
    pub(crate) want: Want,
    /// Whether it only tries: refused, it does not wait.
    pub(crate) tries: bool,
    /// When it came.
    since: Instant,
    /// Whether its own call to the store, if it made one, has its answer.
    was_answered: AtomicBool,
    state: Mutex<State>,
    /// Its place in its line's queue: smaller goes first. Written only under the line's lock.
    place: AtomicI64,
    /// Rung when its future has gone, or has taken what was offered.
    pub(crate) changed: Notify,
}

#[derive(Debug)]
enum State {
    /// The caller itself polls a call to the store; its waker is for whoever takes the call over.
    Calling(Call<Standing>, Arc<Claim>, Option<Waker>),
    /// It polls that call at this moment. It is not polled under the lock: whatever it wakes may come back here.
    Polled {
        /// It is to be taken over if this poll does not finish it; until then whoever closes the client waits.
        wanted: Option<Busy>,
    },
    /// It waits for an offer.
    Waiting(Option<Waker>),
    /// It missed an offer: nothing is offered until it is polled again.
    Dormant,
    /// A grant is its own if it is polled before the offer is taken back.
    Offered(Offer, Instant),
    /// It was refused (it only tried), or failed.
    Answered(Result<(), Error>),
    /// Its future has gone.
    Gone,
}

/// What a caller finds when it polls its own call.
pub(crate) enum CallPoll {
    Pending,
    Answer(Result<Standing, BackendError>, Arc<Claim>),
    /// The client's task drives the call: wait for its offer.
    Taken,
}

/// What a caller finds when it waits.
pub(crate) enum WaitPoll {
    Pending,
    /// It had missed an offer and is waiting again as of this poll.
    Revived,
    Offer(Offer),
    Refused,
    Failed(Error),
}

/// What a departing future leaves behind.
pub(crate) enum Leftover {
    Nothing,
    Call(Call<Standing>, Arc<Claim>),
    Offer(Offer),
}

/// What became of an offer.
pub(crate) enum Offered {
    /// It is there; wake its future.
    Yes(Option<Waker>),
    /// Its future has gone, or is not being polled: offer it to somebody else.
    No,
}

impl Waiter {
    /// A caller whose call to the store is under way.
    pub(crate) fn calling(
        line: &Arc<Line>,
        want: &Want,
        tries: bool,
        (call, claim): (Call<Standing>, Arc<Claim>),
        waker: &Waker,
    ) -> Arc<Self> {
        Self::with(
            line,
            want,
            tries,
            State::Calling(call, claim, Some(waker.clone())),
        )
    }

    /// Whether its own call to the store is still without an answer, whoever polls it.
    pub(crate) fn is_unanswered(&self) -> bool {
        !self.was_answered.load(Ordering::Relaxed)
    }

    /// Its own call was answered.
    pub(crate) fn answered(&self) {
        self.was_answered.store(true, Ordering::Relaxed);
    }

    /// A caller that waits for an offer.
    pub(crate) fn waiting(line: &Arc<Line>, want: &Want) -> Arc<Self> {
        Self::with(line, want, false, State::Waiting(None))
    }

    fn with(line: &Arc<Line>, want: &Want, tries: bool, state: State) -> Arc<Self> {
        Arc::new(Waiter {
            line: line.clone(),
            want: want.clone(),
            tries,
            since: line.engine.clock.now(),
            was_answered: AtomicBool::new(!matches!(state, State::Calling(..))),
            state: Mutex::new(state),
            place: AtomicI64::new(0),
            changed: Notify::new(),
        })
    }

    /// Whether it came after that moment.
    pub(crate) fn came_after(&self, moment: Instant) -> bool {
        self.since > moment
    }

    pub(crate) fn place(&self) -> i64 {
        self.place.load(Ordering::Relaxed)
    }

    pub(crate) fn set_place(&self, place: i64) {
        self.place.store(place, Ordering::Relaxed);
    }

    /// Polls the caller's own call in place.
    pub(crate) fn poll_call(self: &Arc<Self>, cx: &mut Context<'_>) -> CallPoll {
        let mut state = self.state.lock();
        let (mut call, claim, waker) = match std::mem::replace(&mut *state, State::Polled { wanted: None }) {
            State::Calling(call, claim, waker) => (call, claim, waker),
            other => {
                *state = other;
                return CallPoll::Taken;
            }
        };
        drop(state);
        let polled = std::pin::Pin::new(&mut call).poll(cx);
        let mut state = self.state.lock();
        if let Poll::Ready(answer) = polled {
            *state = State::Waiting(None);
            self.answered();
            return CallPoll::Answer(answer, claim);
        }
        let waker = match waker {
            Some(waker) if waker.will_wake(cx.waker()) => waker,
            _ => cx.waker().clone(),
        };
        let was = std::mem::replace(&mut *state, State::Calling(call, claim, Some(waker)));
        drop(state);
        if let State::Polled { wanted: Some(_busy) } = was {
            self.clone().take_over();
        }
        CallPoll::Pending
    }

    /// Takes the call away from its caller, who may have stopped polling it; if it polls it now, after that poll.
    pub(crate) fn take_call(&self) -> Option<(Call<Standing>, Arc<Claim>)> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Waiting(None)) {
            State::Calling(call, claim, waker) => {
                *state = State::Waiting(waker);
                Some((call, claim))
            }
            State::Polled { .. } => {
                let wanted = Some(self.line.engine.watchdog.busy());
                *state = State::Polled { wanted };
                None
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// Looks for an offer or an answer, and leaves the waker.
    pub(crate) fn poll_wait(&self, cx: &mut Context<'_>) -> WaitPoll {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Gone) {
            State::Offered(offer, _) => {
                *state = State::Waiting(None);
                drop(state);
                self.changed.notify_one();
                WaitPoll::Offer(offer)
            }
            State::Answered(Ok(())) => WaitPoll::Refused,
            State::Answered(Err(error)) => WaitPoll::Failed(error),
            State::Waiting(Some(waker)) if waker.will_wake(cx.waker()) => {
                *state = State::Waiting(Some(waker));
                WaitPoll::Pending
            }
            was => {
                *state = State::Waiting(Some(cx.waker().clone()));
                if matches!(was, State::Dormant) {
                    WaitPoll::Revived
                } else {
                    WaitPoll::Pending
                }
            }
        }
    }

    /// Offers a grant, if it waits and is being polled as far as anybody knows.
    pub(crate) fn offer(&self, offer: Offer, now: Instant) -> Offered {
        let mut state = self.state.lock();
        match &mut *state {
            State::Waiting(waker) => {
                let waker = waker.take();
                *state = State::Offered(offer, now);
                Offered::Yes(waker)
            }
            _ => Offered::No,
        }
    }

    /// Takes an offer back that was not taken within `window`; the waiter is passed over until it is polled.
    pub(crate) fn retract(&self, now: Instant, window: Duration) -> Option<Offer> {
        let mut state = self.state.lock();
        match &*state {
            State::Offered(_, at) if now - *at >= window => {
                match std::mem::replace(&mut *state, State::Dormant) {
                    State::Offered(offer, _) => Some(offer),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Has the caller look: it waits now, and may want to say so.
    pub(crate) fn nudge(&self) {
        let waker = match &*self.state.lock() {
            State::Waiting(Some(waker)) => waker.clone(),
            _ => return,
        };
        waker.wake();
    }

    /// Tells the caller that its try was refused, or that the store failed.
    pub(crate) fn answer(&self, answer: Result<(), Error>) {
        let mut state = self.state.lock();
        let waker = match &mut *state {
            State::Waiting(waker) => waker.take(),
            State::Dormant => None,
            _ => return,
        };
        *state = State::Answered(answer);
        drop(state);
        wake(waker);
    }

    /// The future goes away: nothing is offered any more, and what it left must be seen to.
    pub(crate) fn go(&self) -> Leftover {
        let was = std::mem::replace(&mut *self.state.lock(), State::Gone);
        self.changed.notify_one();
        match was {
            State::Calling(call, claim, _) => Leftover::Call(call, claim),
            State::Offered(offer, _) => Leftover::Offer(offer),
            _ => Leftover::Nothing,
        }
    }

    /// Whether it waits for an offer.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(*self.state.lock(), State::Waiting(_))
    }

    /// Whether an offer is on its way to it.
    pub(crate) fn is_offered(&self) -> bool {
        matches!(*self.state.lock(), State::Offered(..))
    }

    /// Whether its future has gone.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(*self.state.lock(), State::Gone)
    }
}

/// Wakes a future that waits, if it has said how.
pub(crate) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
