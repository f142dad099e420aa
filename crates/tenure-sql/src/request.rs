//! What a client asks of a dialect, and how the claim logic answers it view by view.
//! How requests reach a database, and in which transactions they are served, is the dialect's.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tenure_backend::{
    BackendError, Batch, Claim, ClaimId, Departure, Finding, Holder, Instant, LockKey, LockStatus, Loss,
    Page, Query, Released, Renewal, Renewed, Standing, Wakes,
};
use tokio::sync::oneshot;

use crate::claims::{self, View};

/// A question on its way to the database, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Ask<Q, A> {
    pub(crate) question: Q,
    reply: oneshot::Sender<A>,
}

impl<Q, A> Ask<Q, A> {
    pub(crate) fn new(question: Q) -> (Self, oneshot::Receiver<A>) {
        let (reply, answer) = oneshot::channel();
        (Ask { question, reply }, answer)
    }

    pub(crate) fn answer(self, answer: A) {
        // Nobody listens if the call was dropped; its effect stands either way.
        let _ = self.reply.send(answer);
    }
}

/// A request that runs in a write transaction, alone or together with others.
#[derive(Debug)]
pub(crate) enum Write {
    Acquire(Ask<(Arc<Claim>, Instant), Result<Standing, BackendError>>),
    Renew(Ask<Batch<Renewal>, Batch<Renewed>>),
    Release(Ask<Batch<Departure>, Batch<Released>>),
    Watch(Ask<Arc<Claim>, Result<Wakes, BackendError>>),
    Unwatch(Arc<Claim>),
}

/// Any request.
#[derive(Debug)]
pub(crate) enum Request {
    Write(Write),
    Inspect(Ask<Query, Result<Page<LockStatus>, BackendError>>),
    Examine(Ask<(), Result<Vec<Finding>, BackendError>>),
    Close(Ask<(), Result<(), BackendError>>),
}

/// What a [`Write`] decided, to be sent once its transaction is committed.
#[derive(Debug)]
pub(crate) enum Decided {
    Acquire(Result<Standing, BackendError>),
    Renew(Batch<Renewed>),
    Release(Batch<Released>),
    Interest,
}

/// The claims whose rows a step needs, whatever their phase.
pub(crate) type Ids = SmallVec<[ClaimId; 2]>;

/// One transaction of a dialect, as the claim logic sees it.
pub(crate) trait Transaction {
    /// Why it failed; the whole transaction is undone then.
    type Error;

    /// Reads the view of a key with the rows of `ids`, lets `decide` change it, and writes what changed.
    fn visit<T>(
        &mut self,
        key: &LockKey,
        ids: Ids,
        decide: impl FnOnce(&mut View) -> T,
    ) -> Result<T, Self::Error>;
}

impl Write {
    /// Whether what it does must survive a power failure.
    ///
    /// Grants must, for their tokens. Renewals do for good measure: they are rare. A release or a registration
    /// that the power took away frees nothing that the next boot does not free too, at the latest when its lease ends.
    pub(crate) fn must_last(&self) -> bool {
        match self {
            Write::Acquire(_) | Write::Renew(_) => true,
            Write::Release(ask) => ask.question.iter().any(|departure| departure.heir.is_some()),
            Write::Watch(_) | Write::Unwatch(_) => false,
        }
    }

    /// Decides every part of the request, one after the other.
    pub(crate) fn decide<T: Transaction>(&self, transaction: &mut T) -> Result<Decided, T::Error> {
        match self {
            Write::Acquire(ask) => {
                let (claim, place_by) = &ask.question;
                let ids = smallvec![claim.at.id];
                let standing =
                    transaction.visit(&claim.at.key, ids, |view| claims::acquire(view, claim, *place_by));
                standing.map(Decided::Acquire)
            }
            Write::Renew(ask) => {
                let mut renew = |renewal: &Renewal| {
                    let ids = smallvec![renewal.who.id];
                    transaction.visit(&renewal.who.key, ids, |view| claims::renew(view, renewal))
                };
                let all: Result<_, _> = ask.question.iter().map(&mut renew).collect();
                all.map(Decided::Renew)
            }
            Write::Release(ask) => {
                let mut release = |departure: &Departure| {
                    let ids = departing(departure);
                    transaction.visit(departure.who.key(), ids, |view| claims::release(view, departure))
                };
                let all: Result<_, _> = ask.question.iter().map(&mut release).collect();
                all.map(Decided::Release)
            }
            Write::Watch(ask) => register(transaction, &ask.question).map(|()| Decided::Interest),
            Write::Unwatch(claim) => {
                let ids = smallvec![claim.at.id];
                let done = transaction.visit(&claim.at.key, ids, |view| claims::unwatch(view, claim));
                done.map(|()| Decided::Interest)
            }
        }
    }

    /// Sends what was decided, now that it is committed. `arm` makes the wake-ups of a watch.
    pub(crate) fn answer(self, decided: Decided, arm: impl FnOnce(Arc<Claim>) -> Wakes) {
        match (self, decided) {
            (Write::Acquire(ask), Decided::Acquire(standing)) => ask.answer(standing),
            (Write::Renew(ask), Decided::Renew(renewed)) => ask.answer(renewed),
            (Write::Release(ask), Decided::Release(released)) => ask.answer(released),
            (Write::Watch(ask), Decided::Interest) => {
                let wakes = arm(ask.question.clone());
                ask.answer(Ok(wakes));
            }
            (Write::Unwatch(_), Decided::Interest) => {}
            (write, decided) => unreachable!("{write:?} was decided as {decided:?}"),
        }
    }

    /// Answers that the database is gone for good, and all claims in it with it.
    pub(crate) fn lose(self, error: &BackendError) {
        match self {
            Write::Renew(ask) => {
                let gone = |_: &Renewal| Renewed::Gone(Loss::Missing);
                let answers = ask.question.iter().map(gone).collect();
                ask.answer(answers);
            }
            write => write.fail(error),
        }
    }

    /// Answers that the request failed.
    pub(crate) fn fail(self, error: &BackendError) {
        match self {
            Write::Acquire(ask) => ask.answer(Err(error.clone())),
            Write::Renew(ask) => {
                let unknown = |_: &Renewal| Renewed::Unknown(error.clone());
                let answers = ask.question.iter().map(unknown).collect();
                ask.answer(answers);
            }
            Write::Release(ask) => {
                let unknown = |_: &Departure| Released::Unknown(error.clone());
                let answers = ask.question.iter().map(unknown).collect();
                ask.answer(answers);
            }
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
            Request::Inspect(ask) => ask.answer(Err(error.clone())),
            Request::Examine(ask) => ask.answer(Err(error.clone())),
            Request::Close(ask) => ask.answer(Ok(())),
        }
    }
}

/// Registers a watcher, or renews its registration.
pub(crate) fn register<T: Transaction>(transaction: &mut T, claim: &Claim) -> Result<(), T::Error> {
    let ids = smallvec![claim.at.id];
    transaction.visit(&claim.at.key, ids, |view| claims::watch(view, claim))
}

fn departing(departure: &Departure) -> Ids {
    let mut ids = Ids::new();
    if let Holder::Claim(claim) = &departure.who {
        ids.push(claim.id);
    }
    if let Some(heir) = &departure.heir {
        ids.push(heir.claim.at.id);
    }
    ids
}
