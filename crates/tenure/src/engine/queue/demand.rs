//! The waiters for which pollers ask the store: the local waiters of a key, or one waiter in the store's queue.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Claim, Fairness};
use tokio::sync::Notify;

use super::effects::{Standing, SuccessorRequest};
use super::polls::{IsWanted, PollFailed, PollGranted, PollerLooks, PollerStep, QueueFailed, QueueGranted};
use super::shared::SharedQueue;
use super::waiter::WaiterId;
use crate::engine::poller::{self, Demand, Found, Next, Pause};
use crate::engine::request::LockRequest;
use crate::engine::tasks::ABANDONED;
use crate::error::Error;

impl SharedQueue {
    pub(super) fn start_poller(self: &Arc<Self>) {
        let services = self.services.clone();
        let demand = LocalDemand {
            queue: self.clone(),
            request: None,
        };
        self.services.tasks.spawn(poller::run(services, demand));
    }

    /// Starts a poller for one waiter in the store's queue. `signal` is notified when the waiter leaves.
    pub(crate) fn poll_for(
        self: &Arc<Self>,
        id: WaiterId,
        request: LockRequest,
        claim: Arc<Claim>,
        signal: Arc<Notify>,
    ) {
        let services = self.services.clone();
        let demand = StoreDemand {
            queue: self.clone(),
            id,
            request,
            claim: Some(claim),
            signal,
            is_served: false,
        };
        self.services.tasks.spawn(poller::run(services, demand));
    }
}

impl SharedQueue {
    /// Withdraws a claim for which a poller asks no longer: a fair one may have a place in the store's queue, and an unanswered
    /// call may have placed any.
    fn give_up(self: &Arc<Self>, claim: Arc<Claim>, is_uncertain: bool) {
        if is_uncertain {
            self.withdraw_unanswered(&claim);
        } else if claim.fairness == Fairness::Fifo {
            self.withdraw(&claim);
        }
    }
}

/// The local waiters of a key. The poller asks for one after the other.
struct LocalDemand {
    queue: Arc<SharedQueue>,
    /// The request for which the poller asks the store.
    request: Option<LockRequest>,
}

impl Demand for LocalDemand {
    fn signal(&self) -> &Notify {
        self.queue.signal()
    }

    fn next(&mut self) -> Next {
        match self.queue.apply(PollerLooks) {
            PollerStep::Exit => Next::Exit,
            PollerStep::Rest(time) => Next::Rest(time),
            PollerStep::Verify(hold) => Next::Verify(hold),
            PollerStep::AskAgain(Standing { request, claim }) => {
                self.request = Some(request);
                Next::Ask(claim, Pause::AT_ONCE)
            }
            PollerStep::Ask(SuccessorRequest { request, reserve }, pause) => {
                let fairness = self.queue.context().waiting_fairness(request.mode);
                let claim = self.queue.claim(&request, fairness, reserve);
                self.request = Some(request);
                Next::Ask(claim, pause)
            }
        }
    }

    fn is_wanted(&self, _: &Claim) -> Option<Duration> {
        self.queue.apply(IsWanted(self.request.as_ref()?))
    }

    fn found(&mut self, claim: Arc<Claim>, found: Found, is_uncertain: bool) -> bool {
        let queue = &self.queue;
        let Some(request) = self.request.take() else {
            return true;
        };
        match found {
            Found::Granted(grant) => queue.deliver(&claim, grant, &request, PollGranted),
            Found::Ended => false,
            Found::Unconfirmed => {
                queue.withdraw_unanswered(&claim);
                false
            }
            Found::Unwanted => {
                queue.give_up(claim, is_uncertain);
                true
            }
            Found::Failed(error) => {
                queue.give_up(claim, is_uncertain);
                queue.apply(PollFailed {
                    request: &request,
                    error: error.into(),
                });
                true
            }
        }
    }
}

/// A waiter in the store's queue.
struct StoreDemand {
    queue: Arc<SharedQueue>,
    id: WaiterId,
    request: LockRequest,
    /// The waiter's claim in the store's queue, for the poller's first request; `None` after that.
    claim: Option<Arc<Claim>>,
    signal: Arc<Notify>,
    is_served: bool,
}

impl StoreDemand {
    fn fail(&mut self, error: Error) {
        self.is_served = true;
        self.queue.apply(QueueFailed { id: self.id, error });
    }
}

impl Demand for StoreDemand {
    fn signal(&self) -> &Notify {
        &self.signal
    }

    fn next(&mut self) -> Next {
        if self.is_served {
            return Next::Exit;
        }
        // Asks for the queued claim first. If that claim has ended, asks for a new one, at the tail of the store's
        // queue.
        let claim = self.claim.take();
        let claim = claim.unwrap_or_else(|| self.queue.claim(&self.request, Fairness::Fifo, 1));
        Next::Ask(claim, Pause::AT_ONCE)
    }

    fn is_wanted(&self, _: &Claim) -> Option<Duration> {
        self.queue.is_waiting(self.id).then_some(Duration::MAX)
    }

    fn found(&mut self, claim: Arc<Claim>, found: Found, is_uncertain: bool) -> bool {
        let queue = &self.queue;
        let error = match found {
            Found::Granted(grant) => {
                if is_uncertain {
                    queue.expect_late_call(claim.clone());
                }
                let id = self.id;
                let report = |granted| QueueGranted { id, granted };
                self.is_served = queue.deliver(&claim, grant, &self.request, report);
                return self.is_served;
            }
            Found::Ended => return false,
            Found::Unconfirmed => {
                queue.withdraw_unanswered(&claim);
                return false;
            }
            Found::Failed(error) => error.into(),
            Found::Unwanted => queue.services.tasks.closed(),
        };
        queue.give_up(claim, is_uncertain);
        self.fail(error);
        true
    }
}

/// If the runtime ends and drops the poller, the waiting caller gets `ABANDONED`.
impl Drop for StoreDemand {
    fn drop(&mut self) {
        if !self.is_served {
            self.fail(ABANDONED);
        }
    }
}
