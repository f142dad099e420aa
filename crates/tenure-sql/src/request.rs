//! What a client asks of a file, and how the claim logic answers it view by view.

use std::sync::Arc;

use smallvec::smallvec;
use tenure_backend::{
    AcquireReply, BackendError, Batch, Claim, Finding, Instant, LockStatus, Loss, Page, Query, ReleaseReply,
    ReleaseRequest, ReleaseTarget, RenewReply, RenewRequest, WakeSignal, Wakes,
};
use tokio::sync::oneshot;

use crate::claims::{self, View};
use crate::dialect::sqlite::turn::{Ids, Turn};

/// A question on its way to the database, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Ask<Q, A> {
    pub(crate) question: Q,
    /// What its transaction decided, to be sent once that is committed.
    pub(crate) decided: Option<A>,
    reply: oneshot::Sender<A>,
}

impl<Q, A> Ask<Q, A> {
    pub(crate) fn new(question: Q) -> (Self, oneshot::Receiver<A>) {
        let (reply, answer) = oneshot::channel();
        let ask = Ask {
            question,
            decided: None,
            reply,
        };
        (ask, answer)
    }

    pub(crate) fn answer(self, answer: A) {
        // Nobody listens if the call was dropped; its effect stands either way.
        let _ = self.reply.send(answer);
    }

    fn answer_as_decided(mut self) {
        let decided = self.decided.take();
        self.answer(decided.expect("a request is decided before it is answered"));
    }
}

impl<Q, A> Ask<Batch<Q>, Batch<A>> {
    /// Gives every element of a batch the same answer.
    fn answer_each(self, answer: impl Fn() -> A) {
        let answers = self.question.iter().map(|_| answer()).collect();
        self.answer(answers);
    }
}

/// A request that runs in a write transaction, alone or together with others.
#[derive(Debug)]
pub(crate) enum Write {
    Acquire(Ask<(Arc<Claim>, Instant), Result<AcquireReply, BackendError>>),
    Renew(Ask<Batch<RenewRequest>, Batch<RenewReply>>),
    Release(Ask<Batch<ReleaseRequest>, Batch<ReleaseReply>>),
    Watch(Ask<Arc<Claim>, Result<Wakes, BackendError>>),
    Unwatch(Arc<Claim>),
}

/// Any request.
#[derive(Debug)]
pub(crate) enum Request {
    Write(Write),
    /// Wake-ups of that claim, by that signal, were dropped.
    Disarm(Arc<Claim>, WakeSignal),
    Inspect(Ask<Query, Result<Page<LockStatus>, BackendError>>),
    Examine(Ask<(), Result<Vec<Finding>, BackendError>>),
    Close(Ask<(), Result<(), BackendError>>),
}

impl Write {
    /// Whether what it does must survive a power failure.
    ///
    /// Grants must, for their tokens. Renewals do for good measure: they are rare. A release or a registration
    /// that the power took away frees nothing that the next boot does not free too, at the latest when its lease ends.
    pub(crate) fn must_last(&self) -> bool {
        match self {
            Write::Acquire(_) | Write::Renew(_) => true,
            Write::Release(ask) => ask.question.iter().any(|departure| departure.successor.is_some()),
            Write::Watch(_) | Write::Unwatch(_) => false,
        }
    }

    /// Decides every part of the request, one after the other.
    pub(crate) fn decide(&mut self, turn: &mut Turn<'_, '_>) -> rusqlite::Result<()> {
        match self {
            Write::Acquire(ask) => {
                let (claim, not_after) = &ask.question;
                let ids = smallvec![claim.at.id];
                let decide = |view: &mut View| claims::acquire(view, claim, *not_after);
                ask.decided = Some(turn.visit(&claim.at.key, ids, decide)?);
            }
            Write::Renew(ask) => {
                let renew = |renewal: &RenewRequest| {
                    let ids = smallvec![renewal.claim.id];
                    turn.visit(&renewal.claim.key, ids, |view| claims::renew(view, renewal))
                };
                ask.decided = Some(ask.question.iter().map(renew).collect::<Result<_, _>>()?);
            }
            Write::Release(ask) => {
                let release = |departure: &ReleaseRequest| {
                    let ids = departing(departure);
                    turn.visit(departure.target.key(), ids, |view| {
                        claims::release(view, departure)
                    })
                };
                ask.decided = Some(ask.question.iter().map(release).collect::<Result<_, _>>()?);
            }
            Write::Watch(ask) => register(turn, &ask.question)?,
            Write::Unwatch(claim) => {
                let ids = smallvec![claim.at.id];
                turn.visit(&claim.at.key, ids, |view| claims::unwatch(view, claim))?;
            }
        }
        Ok(())
    }

    /// Sends what was decided, now that it is committed. `arm` makes the wake-ups of a watch.
    pub(crate) fn answer(self, arm: impl FnOnce(Arc<Claim>) -> Wakes) {
        match self {
            Write::Acquire(ask) => ask.answer_as_decided(),
            Write::Renew(ask) => ask.answer_as_decided(),
            Write::Release(ask) => ask.answer_as_decided(),
            Write::Watch(ask) => {
                let wakes = arm(ask.question.clone());
                ask.answer(Ok(wakes));
            }
            Write::Unwatch(_) => {}
        }
    }

    /// Answers that the database is gone for good, and all claims in it with it.
    pub(crate) fn lose(self, error: &BackendError) {
        match self {
            Write::Renew(ask) => ask.answer_each(|| RenewReply::Gone(Loss::Missing)),
            write => write.fail(error),
        }
    }

    /// Answers that the request failed.
    pub(crate) fn fail(self, error: &BackendError) {
        match self {
            Write::Acquire(ask) => ask.answer(Err(error.clone())),
            Write::Renew(ask) => ask.answer_each(|| RenewReply::Unknown(error.clone())),
            Write::Release(ask) => ask.answer_each(|| ReleaseReply::Unknown(error.clone())),
            Write::Watch(ask) => ask.answer(Err(error.clone())),
            Write::Unwatch(_) => {}
        }
    }
}

impl Request {
    /// How many claims it is about.
    pub(crate) fn claims(&self) -> usize {
        match self {
            Request::Write(Write::Renew(ask)) => ask.question.len(),
            Request::Write(Write::Release(ask)) => ask.question.len(),
            _ => 1,
        }
    }

    /// Answers that the request failed.
    pub(crate) fn fail(self, error: &BackendError) {
        match self {
            Request::Write(write) => write.fail(error),
            Request::Disarm(..) => {}
            Request::Inspect(ask) => ask.answer(Err(error.clone())),
            Request::Examine(ask) => ask.answer(Err(error.clone())),
            Request::Close(ask) => ask.answer(Ok(())),
        }
    }
}

/// Registers a watcher, or renews its registration.
pub(crate) fn register(turn: &mut Turn<'_, '_>, claim: &Claim) -> rusqlite::Result<()> {
    let ids = smallvec![claim.at.id];
    turn.visit(&claim.at.key, ids, |view| claims::watch(view, claim))
}

fn departing(departure: &ReleaseRequest) -> Ids {
    let mut ids = Ids::new();
    if let ReleaseTarget::Claim(claim) = &departure.target {
        ids.push(claim.id);
    }
    if let Some(successor) = &departure.successor {
        ids.push(successor.claim.at.id);
    }
    ids
}
