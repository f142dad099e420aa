//! A caller's own call to the store, and what follows from the answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tenure_backend::{AcquireReply, BackendError, Call, Claim, Effect, Fairness, Fault, Instant};
use tokio::sync::Notify;

use super::hold::Hold;
use super::in_flight::Adoptable;
use super::queue::{CallAdopted, CallEnded, CallOutcome, CallReply, CallerKind, SharedQueue, WaiterId};
use super::request::LockRequest;
use super::tasks::ABANDONED;
use crate::error::Error;

/// What a task or the caller needs to handle the answer to the caller's own call.
pub(crate) struct OwnCall {
    pub(crate) queue: Arc<SharedQueue>,
    pub(crate) id: WaiterId,
    pub(crate) request: LockRequest,
    pub(crate) claim: Arc<Claim>,
    pub(crate) kind: CallerKind,
    pub(crate) tries: bool,
}

/// What the store's answer means for the caller.
pub(crate) enum Judged {
    /// The caller holds the key, since this time.
    Held(Arc<Hold>, Instant),
    /// The caller waits with this claim.
    Waits(Arc<Claim>),
    /// The caller only tried, and the lock is busy.
    Refused,
    Failed(Error),
    /// The caller was dropped, or its time limit has passed. Its claim is released.
    Left,
}

impl OwnCall {
    /// Decides what the answer means for the caller, and reports it to the queue.
    fn judge(&self, answer: Result<AcquireReply, BackendError>) -> Judged {
        let OwnCall {
            queue, claim, tries, ..
        } = self;
        let context = queue.context();
        match &answer {
            // As in the poller: no server may have been asked.
            Ok(AcquireReply::Ended | AcquireReply::TooLate) => {}
            Ok(_) => context.store_answered(),
            Err(error) if error.is_transient() && !tries => context.store_failed(&queue.key, error),
            Err(_) => {}
        }
        match answer {
            Ok(AcquireReply::Granted(grant)) => match queue.accept(claim, grant, &self.request) {
                Some(hold) => self.granted(hold),
                None => {
                    queue.withdraw(claim);
                    if *tries {
                        self.fail(no_answer(
                            "the store answered too late for a lease this short: try again",
                        ))
                    } else {
                        self.wait_anew()
                    }
                }
            },
            Ok(AcquireReply::Waiting { .. }) if *tries => {
                if claim.fairness == Fairness::Fifo {
                    queue.withdraw(claim);
                }
                match self.end(CallOutcome::Ended(Ok(()))).0 {
                    CallReply::Closed => Judged::Failed(queue.services.tasks.closed()),
                    _ => Judged::Refused,
                }
            }
            Ok(AcquireReply::Waiting { .. }) => self.wait(claim, |queue, claim| queue.withdraw(claim)),
            Ok(_) if *tries => self.fail(no_answer(
                "the store could not judge this request in time: try again",
            )),
            Ok(_) => self.wait_anew(),
            // The claim may be in the store's queue: a poller asks again, so that the claim keeps its place there.
            Err(error) if self.keeps_place(&error) => match error.effect() {
                Effect::Unknown => self.wait(claim, SharedQueue::withdraw_unanswered),
                Effect::None => self.wait(claim, |_, _| {}),
            },
            Err(error) => {
                if error.effect() == Effect::Unknown {
                    queue.withdraw_unanswered(claim);
                }
                if error.is_transient() && !tries {
                    self.wait_anew()
                } else {
                    self.fail(error.into())
                }
            }
        }
    }

    /// Returns whether the claim keeps its place in the store's queue after `error`. It does if the claim is fair, the
    /// attempt is not a try, and the error is transient. After an unanswered call, the store must also remember ended
    /// claims: otherwise that call could still place the claim after its withdrawal.
    fn keeps_place(&self, error: &BackendError) -> bool {
        let forgets = !self.queue.context().store.profile().remembers_ended;
        let fair = self.claim.fairness == Fairness::Fifo && !self.tries;
        fair && error.is_transient() && !(forgets && error.effect() == Effect::Unknown)
    }

    /// Reports to the queue how the call ended. Also returns the time of the report.
    fn end(&self, outcome: CallOutcome) -> (CallReply, Instant) {
        self.queue.apply_at(CallEnded {
            id: self.id,
            request: &self.request,
            outcome,
        })
    }

    fn granted(&self, hold: Arc<Hold>) -> Judged {
        match self.end(CallOutcome::Granted(hold.clone())) {
            (CallReply::Accepted, now) => Judged::Held(hold, now),
            (reply, _) => {
                self.queue.reject(&hold);
                self.gone(reply)
            }
        }
    }

    fn fail(&self, error: Error) -> Judged {
        self.end(CallOutcome::Ended(Err(error.clone())));
        Judged::Failed(error)
    }

    /// Makes the caller wait with a new claim.
    pub(crate) fn wait_anew(&self) -> Judged {
        let claim = self.queue.claim(&self.request, self.claim.fairness, 1);
        self.wait(&claim, |_, _| {})
    }

    /// Makes the caller wait with `claim`. If the caller has left or the client is closed, `undo` withdraws a fair
    /// claim from the store's queue.
    fn wait(&self, claim: &Arc<Claim>, undo: impl FnOnce(&Arc<SharedQueue>, &Arc<Claim>)) -> Judged {
        let queue = &self.queue;
        let is_fair = claim.fairness == Fairness::Fifo;
        let signal = (self.kind == CallerKind::Queues).then(|| Arc::new(Notify::new()));
        let (reply, _) = self.end(match &signal {
            Some(signal) => CallOutcome::Queued(signal.clone()),
            None => CallOutcome::Waits(is_fair.then(|| claim.clone())),
        });
        if reply != CallReply::Accepted {
            if is_fair {
                undo(queue, claim);
            }
            return self.gone(reply);
        }
        if let Some(signal) = signal {
            queue.poll_for(self.id, self.request.clone(), claim.clone(), signal);
        }
        Judged::Waits(claim.clone())
    }

    /// What the answer means for a caller that has left, or whose client was closed.
    fn gone(&self, reply: CallReply) -> Judged {
        match reply {
            CallReply::Closed => Judged::Failed(self.queue.services.tasks.closed()),
            CallReply::Left | CallReply::Accepted => Judged::Left,
        }
    }
}

/// A caller's own call in flight. Its answer is handled once, by the caller or by a task that adopts the call.
pub(crate) struct Asking {
    pub(crate) call: Call<AcquireReply>,
    /// `None` after the answer was handled.
    pub(crate) own: Option<OwnCall>,
}

impl Future for Asking {
    type Output = Judged;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Judged> {
        let answer = ready!(Pin::new(&mut self.call).poll(cx));
        let own = self.own.take();
        Poll::Ready(own.map_or(Judged::Left, |own| own.judge(answer)))
    }
}

impl Adoptable for Asking {
    fn prepare(&mut self, waker: Option<Waker>) -> Option<Waker> {
        let own = self.own.as_ref()?;
        own.queue.apply(CallAdopted {
            id: own.id,
            request: &own.request,
            kind: own.kind,
            waker,
        })
    }
}

/// If the runtime ends and drops the call unanswered, the waiting caller gets the error `ABANDONED`.
impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            own.fail(ABANDONED);
        }
    }
}

fn no_answer(message: &str) -> Error {
    Error::Backend(BackendError::new(Fault::Unavailable, Effect::None, message))
}
