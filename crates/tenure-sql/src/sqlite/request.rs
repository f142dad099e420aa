//! Requests to the thread that serves a file, and how the claim logic executes them.

use std::sync::Arc;

use smallvec::smallvec;
use tenure_backend::{
    AcquireReply, BackendError, Batch, Claim, Finding, Instant, LockStatus, Loss, Page, Query, ReleaseReply,
    ReleaseRequest, ReleaseTarget, RenewReply, RenewRequest, WakeSignal, Wakes,
};
use tokio::sync::oneshot;

use super::transaction::{Ids, Transaction};
use crate::claims::{self, View};

/// A request, and the channel for its reply.
#[derive(Debug)]
pub(super) struct Pending<Q, A> {
    pub(super) input: Q,
    /// Result that the claim logic decided. It is sent once the transaction is committed.
    pub(super) result: Option<A>,
    reply: oneshot::Sender<A>,
}

impl<Q, A> Pending<Q, A> {
    pub(super) fn new(input: Q) -> (Self, oneshot::Receiver<A>) {
        let (reply, answer) = oneshot::channel();
        let pending = Pending {
            input,
            result: None,
            reply,
        };
        (pending, answer)
    }

    pub(super) fn answer(self, answer: A) {
        // Sending fails if the caller dropped its call. The effect of the call stays.
        let _ = self.reply.send(answer);
    }

    fn answer_with_result(mut self) {
        let result = self.result.take();
        self.answer(result.expect("a request has a result before it is answered"));
    }
}

impl<Q, A> Pending<Batch<Q>, Batch<A>> {
    /// Gives every element of a batch the same answer.
    fn answer_each(self, answer: impl Fn() -> A) {
        let answers = self.input.iter().map(|_| answer()).collect();
        self.answer(answers);
    }
}

/// A request that runs in a write transaction, alone or with others.
#[derive(Debug)]
pub(super) enum Write {
    Acquire(Pending<(Arc<Claim>, Instant), Result<AcquireReply, BackendError>>),
    Renew(Pending<Batch<RenewRequest>, Batch<RenewReply>>),
    Release(Pending<Batch<ReleaseRequest>, Batch<ReleaseReply>>),
    Watch(Pending<Arc<Claim>, Result<Wakes, BackendError>>),
    Unwatch(Arc<Claim>),
}

#[derive(Debug)]
pub(super) enum Request {
    Write(Write),
    /// Remove the claim's subscriber with this signal: its wake-up stream was dropped.
    Unsubscribe(Arc<Claim>, WakeSignal),
    Inspect(Pending<Query, Result<Page<LockStatus>, BackendError>>),
    Examine(Pending<(), Result<Vec<Finding>, BackendError>>),
    Close(Pending<(), Result<(), BackendError>>),
}

impl Write {
    /// Returns whether the commit must be synced to the disk before the request is answered.
    ///
    /// Grants, also to a successor, must survive a power failure because of their fencing tokens. Renewals are synced
    /// too, for safety: they are rare. Other releases may be lost: their claims then end with their leases, or at the
    /// next boot. Registrations for wake-ups may be lost too.
    pub(super) fn must_sync(&self) -> bool {
        match self {
            Write::Acquire(_) | Write::Renew(_) => true,
            Write::Release(pending) => pending.input.iter().any(|request| request.successor.is_some()),
            Write::Watch(_) | Write::Unwatch(_) => false,
        }
    }

    /// Runs the request on the rows of each of its claims in turn, and keeps the results.
    pub(super) fn execute(&mut self, transaction: &mut Transaction<'_, '_>) -> rusqlite::Result<()> {
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

    /// Sends the results after the commit. `subscribe` makes the wake-up stream of a `watch`.
    pub(super) fn answer(self, subscribe: impl FnOnce(Arc<Claim>) -> Wakes) {
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

    /// Fails the request because the file was replaced and all its claims are lost: renewals get `Loss::Missing`.
    pub(super) fn fail_lost(self, error: &BackendError) {
        match self {
            Write::Renew(pending) => pending.answer_each(|| RenewReply::Gone(Loss::Missing)),
            write => write.fail(error),
        }
    }

    /// Answers the request with this error.
    pub(super) fn fail(self, error: &BackendError) {
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
    /// Number of claims in the request.
    pub(super) fn claims(&self) -> usize {
        match self {
            Request::Write(Write::Renew(pending)) => pending.input.len(),
            Request::Write(Write::Release(pending)) => pending.input.len(),
            _ => 1,
        }
    }

    /// Answers the request with this error; a `Close` succeeds.
    pub(super) fn fail(self, error: &BackendError) {
        match self {
            Request::Write(write) => write.fail(error),
            Request::Unsubscribe(..) => {}
            Request::Inspect(pending) => pending.answer(Err(error.clone())),
            Request::Examine(pending) => pending.answer(Err(error.clone())),
            Request::Close(pending) => pending.answer(Ok(())),
        }
    }
}

/// Registers an unfair claim, which waits in no queue, for wake-ups. Renews a registration that it already has.
pub(super) fn register(transaction: &mut Transaction<'_, '_>, claim: &Claim) -> rusqlite::Result<()> {
    let ids = smallvec![claim.at.id];
    transaction.visit(&claim.at.key, ids, |view| claims::watch(view, claim))
}

/// Claims whose rows a release needs: the released claim, and the successor if there is one.
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
