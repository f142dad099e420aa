//! What a client asks of a file, and how the claim logic answers it view by view.

use std::sync::Arc;

use smallvec::smallvec;
use tenure_backend::{
    AcquireReply, BackendError, Batch, Claim, Finding, Instant, LockStatus, Loss, Page, Query, ReleaseReply,
    ReleaseRequest, ReleaseTarget, RenewReply, RenewRequest, WakeSignal, Wakes,
};
use tokio::sync::oneshot;

use crate::claims::{self, View};
use crate::dialect::sqlite::transaction::{Ids, Transaction};

/// A input on its way to the database, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Pending<Q, A> {
    pub(crate) input: Q,
    /// What its transaction result, to be sent once that is committed.
    pub(crate) result: Option<A>,
    reply: oneshot::Sender<A>,
}

impl<Q, A> Pending<Q, A> {
    pub(crate) fn new(input: Q) -> (Self, oneshot::Receiver<A>) {
        let (reply, answer) = oneshot::channel();
        let pending = Pending {
            input,
            result: None,
            reply,
        };
        (pending, answer)
    }

    pub(crate) fn answer(self, answer: A) {
        // Nobody listens if the call was dropped; its effect stands either way.
        let _ = self.reply.send(answer);
    }

    fn answer_with_result(mut self) {
        let result = self.result.take();
        self.answer(result.expect("a request is result before it is answered"));
    }
}

impl<Q, A> Pending<Batch<Q>, Batch<A>> {
    /// Gives every element of a batch the same answer.
    fn answer_each(self, answer: impl Fn() -> A) {
        let answers = self.input.iter().map(|_| answer()).collect();
        self.answer(answers);
    }
}

/// A request that runs in a write transaction, alone or together with others.
#[derive(Debug)]
pub(crate) enum Write {
    Acquire(Pending<(Arc<Claim>, Instant), Result<AcquireReply, BackendError>>),
    Renew(Pending<Batch<RenewRequest>, Batch<RenewReply>>),
    Release(Pending<Batch<ReleaseRequest>, Batch<ReleaseReply>>),
    Watch(Pending<Arc<Claim>, Result<Wakes, BackendError>>),
    Unwatch(Arc<Claim>),
}

/// Any request.
#[derive(Debug)]
pub(crate) enum Request {
    Write(Write),
    /// Wake-ups of that claim, by that signal, were dropped.
    Unsubscribe(Arc<Claim>, WakeSignal),
    Inspect(Pending<Query, Result<Page<LockStatus>, BackendError>>),
    Examine(Pending<(), Result<Vec<Finding>, BackendError>>),
    Close(Pending<(), Result<(), BackendError>>),
}

impl Write {
    /// Whether what it does must survive a power failure.
    ///
    /// Grants must, for their tokens. Renewals do for good measure: they are rare. A release or a registration
    /// that the power took away frees nothing that the next boot does not free too, at the latest when its lease ends.
    pub(crate) fn must_sync(&self) -> bool {
        match self {
            Write::Acquire(_) | Write::Renew(_) => true,
            Write::Release(pending) => pending.input.iter().any(|request| request.successor.is_some()),
            Write::Watch(_) | Write::Unwatch(_) => false,
        }
    }

    /// Decides every part of the request, one after the other.
    pub(crate) fn execute(&mut self, transaction: &mut Transaction<'_, '_>) -> rusqlite::Result<()> {
        match self {
            Write::Acquire(pending) => {
                let (claim, not_after) = &pending.input;
                let ids = smallvec![claim.at.id];
                let decide = |view: &mut View| claims::acquire(view, claim, *not_after);
                pending.result = Some(transaction.visit(&claim.at.key, ids, decide)?);
            }
            Write::Renew(pending) => {
                let renew = |renewal: &RenewRequest| {
                    let ids = smallvec![renewal.claim.id];
                    transaction.visit(&renewal.claim.key, ids, |view| claims::renew(view, renewal))
                };
                pending.result = Some(pending.input.iter().map(renew).collect::<Result<_, _>>()?);
            }
            Write::Release(pending) => {
                let release = |request: &ReleaseRequest| {
                    let ids = claims_of(request);
                    transaction.visit(request.target.key(), ids, |view| claims::release(view, request))
                };
                pending.result = Some(pending.input.iter().map(release).collect::<Result<_, _>>()?);
            }
            Write::Watch(pending) => register(transaction, &pending.input)?,
            Write::Unwatch(claim) => {
                let ids = smallvec![claim.at.id];
                transaction.visit(&claim.at.key, ids, |view| claims::unwatch(view, claim))?;
            }
        }
        Ok(())
    }

    /// Sends what was result, now that it is committed. `arm` makes the wake-ups of a watch.
    pub(crate) fn answer(self, subscribe: impl FnOnce(Arc<Claim>) -> Wakes) {
        match self {
            Write::Acquire(pending) => pending.answer_with_result(),
            Write::Renew(pending) => pending.answer_with_result(),
            Write::Release(pending) => pending.answer_with_result(),
            Write::Watch(pending) => {
                let wakes = subscribe(pending.input.clone());
                pending.answer(Ok(wakes));
            }
            Write::Unwatch(_) => {}
        }
    }

    /// Answers that the database is gone for good, and all claims in it with it.
    pub(crate) fn fail_lost(self, error: &BackendError) {
        match self {
            Write::Renew(pending) => pending.answer_each(|| RenewReply::Gone(Loss::Missing)),
            write => write.fail(error),
        }
    }

    /// Answers that the request failed.
    pub(crate) fn fail(self, error: &BackendError) {
        match self {
            Write::Acquire(pending) => pending.answer(Err(error.clone())),
            Write::Renew(pending) => pending.answer_each(|| RenewReply::Unknown(error.clone())),
            Write::Release(pending) => pending.answer_each(|| ReleaseReply::Unknown(error.clone())),
            Write::Watch(pending) => pending.answer(Err(error.clone())),
            Write::Unwatch(_) => {}
        }
    }
}

impl Request {
    /// How many claims it is about.
    pub(crate) fn claims(&self) -> usize {
        match self {
            Request::Write(Write::Renew(pending)) => pending.input.len(),
            Request::Write(Write::Release(pending)) => pending.input.len(),
            _ => 1,
        }
    }

    /// Answers that the request failed.
    pub(crate) fn fail(self, error: &BackendError) {
        match self {
            Request::Write(write) => write.fail(error),
            Request::Unsubscribe(..) => {}
            Request::Inspect(pending) => pending.answer(Err(error.clone())),
            Request::Examine(pending) => pending.answer(Err(error.clone())),
            Request::Close(pending) => pending.answer(Ok(())),
        }
    }
}

/// Registers a watcher, or renews its registration.
pub(crate) fn register(transaction: &mut Transaction<'_, '_>, claim: &Claim) -> rusqlite::Result<()> {
    let ids = smallvec![claim.at.id];
    transaction.visit(&claim.at.key, ids, |view| claims::watch(view, claim))
}

fn claims_of(request: &ReleaseRequest) -> Ids {
    let mut ids = Ids::new();
    if let ReleaseTarget::Claim(claim) = &request.target {
        ids.push(claim.id);
    }
    if let Some(successor) = &request.successor {
        ids.push(successor.claim.at.id);
    }
    ids
}
