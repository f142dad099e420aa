//! One member of a quorum: the requests that it has not answered, and the claims that may be left at it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, Claim, Effect, Fault, ReleaseReply, ReleaseRequest,
};
use tokio::time::Instant;

use crate::claim_state::ClaimState;
use crate::leftovers::{Leftovers, may_pass};

/// The most unanswered requests at a member that is silent: that has answered none for the time limit of a round.
const MAX_UNANSWERED: usize = 64;

/// A store of the quorum.
#[derive(Debug)]
pub(crate) struct Member {
    /// The member's index in the configuration.
    pub(crate) number: usize,
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) leftovers: Arc<Leftovers>,
    /// A member that answers nothing for this time is silent.
    pub(crate) time_limit: Duration,
    pub(crate) requests: Mutex<Unanswered>,
}

/// The placements and releases that a member has not answered.
#[derive(Debug)]
pub(crate) struct Unanswered {
    count: usize,
    /// Time of the last answer, or of the first request after it.
    since: Instant,
    /// Whether the last request failed without an answer.
    failed: bool,
}

impl Default for Unanswered {
    fn default() -> Self {
        Unanswered {
            count: 0,
            since: Instant::now(),
            failed: false,
        }
    }
}

/// A request to release, and what this client knows of its claims.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) request: ReleaseRequest,
    /// The claim to release, if the client held it.
    pub(crate) held: Option<ClaimState>,
    /// The successor that the request names.
    pub(crate) successor: Option<ClaimState>,
    /// Time after which the member has no claim to release any more.
    pub(crate) longest: Duration,
}

impl Member {
    /// Places a claim, and notes in `state` whether the member may have it.
    pub(crate) fn acquire(
        self: Arc<Self>,
        claim: Arc<Claim>,
        not_after: tenure_backend::Instant,
        state: &ClaimState,
    ) -> impl Future<Output = Result<AcquireReply, BackendError>> + Send + use<> {
        let (state, is_first) = (state.clone(), state.ask(self.number));
        async move {
            let vote = match self.begin() {
                Ok(()) => self.store.clone().acquire(claim, not_after).await,
                Err(silent) => return Err(silent).inspect_err(|_| state.refused(self.number, is_first)),
            };
            self.end(matches!(&vote, Err(error) if error.is_transient()));
            match &vote {
                Err(error) if error.effect() == Effect::None => state.refused(self.number, is_first),
                _ => state.reached(self.number),
            }
            vote
        }
    }

    /// Releases a batch of claims. If the member does not confirm a release, it is repeated in the background, unless
    /// the member never got the claim.
    pub(crate) fn release(
        self: Arc<Self>,
        batch: Arc<[Release]>,
    ) -> impl Future<Output = Batch<ReleaseReply>> + Send + use<> {
        let successors = batch.iter().map(|release| release.successor.as_ref());
        let are_first: Vec<bool> = successors
            .map(|state| state.is_some_and(|state| state.ask(self.number)))
            .collect();
        async move {
            let requests = batch.iter().map(|release| release.request.clone());
            let replies = match self.begin() {
                Ok(()) => {
                    let replies = self.store.clone().release(requests.collect()).await;
                    self.end(replies.iter().all(may_pass));
                    replies
                }
                Err(silent) => requests.map(|_| ReleaseReply::Unknown(silent.clone())).collect(),
            };
            for (at, (release, is_first)) in batch.iter().zip(are_first).enumerate() {
                self.note(release, is_first, replies.get(at));
            }
            replies
        }
    }

    /// Notes a member's reply to a release; `None` if it returned too few.
    fn note(&self, release: &Release, is_first: bool, reply: Option<&ReleaseReply>) {
        if let Some(successor) = &release.successor {
            match reply {
                Some(ReleaseReply::Unknown(error)) if error.effect() == Effect::None => {
                    successor.refused(self.number, is_first);
                }
                _ => successor.reached(self.number),
            }
        }
        let is_confirmed = reply.is_some_and(|reply| !may_pass(reply));
        let may_have_it = release
            .held
            .as_ref()
            .is_none_or(|state| state.may_be_at(self.number));
        if !is_confirmed && may_have_it {
            self.leftovers.add(&release.request, release.longest);
        }
    }

    /// Counts a request. Fails if the member is silent and has [`MAX_UNANSWERED`] already.
    fn begin(&self) -> Result<(), BackendError> {
        let now = Instant::now();
        let mut requests = self.requests.lock();
        if requests.count == 0 && !requests.failed {
            requests.since = now;
        }
        if requests.count >= MAX_UNANSWERED && now - requests.since > self.time_limit {
            let message = "a server of the quorum does not answer: it gets no more requests until it does";
            return Err(BackendError::new(Fault::Unavailable, Effect::None, message));
        }
        requests.count += 1;
        Ok(())
    }

    /// Counts the end of a request.
    fn end(&self, failed: bool) {
        let mut requests = self.requests.lock();
        requests.count -= 1;
        requests.failed = failed;
        if !failed {
            requests.since = Instant::now();
        }
    }
}
