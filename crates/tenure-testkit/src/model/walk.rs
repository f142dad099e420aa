//! Runs one random walk: sends the request of each step to a store, and checks the reply against the model.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Cause, Claim, HANDOVER_WINDOW, Instant, LockKey, Query, ReleaseTarget, Successor};

use super::key_state::CallTimes;
use super::plan::{CLIENTS, ClaimPlan, KEYS, SLOTS, Step};
use super::state::ModelState;
use crate::Request;
use crate::faulty::send;
use crate::suite::{Fixture, TestClient, eviction_request, release_request, renew_request};

/// Time between the `not_after` of a late request and its sending.
const LATE: Duration = Duration::from_millis(50);

/// Claim in a slot, by which steps refer to it.
#[derive(Clone)]
struct WalkClaim {
    client: usize,
    claim: Arc<Claim>,
    not_after: Instant,
}

struct Walk<'a> {
    fixture: &'a Fixture,
    clients: Vec<TestClient>,
    keys: Vec<LockKey>,
    claims: [Option<WalkClaim>; SLOTS],
    state: ModelState,
    transcript: &'a mut Vec<String>,
}

/// Carries out the steps, and appends each to `transcript`.
///
/// Returns the number of checked steps. The walk ends early, without an error, if a lease may have expired during a
/// call or the store could not be reached.
///
/// # Errors
/// Describes the first reply that the contract does not allow.
pub(super) async fn walk(
    fixture: &Fixture,
    steps: &[Step],
    transcript: &mut Vec<String>,
) -> Result<usize, String> {
    let mut clients = Vec::new();
    // `CLIENTS` clients place claims, and one more inspects and evicts.
    for _ in 0..=CLIENTS {
        clients.push(fixture.client().await);
    }
    let mut walk = Walk {
        fixture,
        clients,
        keys: (0..KEYS).map(|_| fixture.key()).collect(),
        claims: Default::default(),
        state: ModelState::new(fixture.profile().clone()),
        transcript,
    };
    for (number, step) in steps.iter().enumerate() {
        if !walk.take(step).await? {
            return Ok(number);
        }
    }
    Ok(steps.len())
}

impl Walk<'_> {
    /// Carries out a step, then inspects all keys. Returns false if a reply could not be checked.
    async fn take(&mut self, step: &Step) -> Result<bool, String> {
        self.wait_until_certain().await;
        if let Step::Pass(time) = step {
            self.transcript.push(format!("{step:?}"));
            self.fixture.pass(*time).await;
            self.wait_until_certain().await;
        } else if let Some((client, request)) = self.request(step)
            && !self.exchange(client, request, Some(step)).await?
        {
            return Ok(false);
        }
        for key in self.keys.clone() {
            let shown = self.exchange(CLIENTS, Request::Inspect(Query::Key(key)), None);
            if !shown.await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets time pass until no lease can end during the next call.
    async fn wait_until_certain(&mut self) {
        while let Some(until) = self.state.uncertain_until(self.now()) {
            let time = until - self.now();
            self.transcript.push(format!("waits {time:?} for a lease to end"));
            self.fixture.pass(time).await;
        }
        self.state.expire_leases(self.now());
    }

    fn now(&self) -> Instant {
        self.clients[0].now()
    }

    /// Sends a request and checks the reply. Returns false on a transient error or if a lease may have ended.
    async fn exchange(
        &mut self,
        client: usize,
        request: Request,
        step: Option<&Step>,
    ) -> Result<bool, String> {
        let backend = self.clients[client].backend().clone();
        let before = self.now();
        let answers = send(backend, vec![request.clone()]).await;
        let at = CallTimes {
            before,
            after: self.now(),
        };
        let [answer] = &answers[..] else {
            return Err(format!("one request has {answers:?} instead of one reply"));
        };
        self.transcript
            .extend(step.map(|step| format!("{step:?}: {answer:?}")));
        let is_transient = answer.as_ref().is_err_and(|error| error.is_transient());
        if is_transient || self.state.may_have_expired_during(at) {
            return Ok(false);
        }
        let verdict = self.state.check(&request, at, answer);
        verdict.map_err(|why| format!("the reply to {request:?} must not be {answer:?}: {why}"))?;
        Ok(true)
    }

    /// Returns the request of a step and its client. `None` if the slot is empty or the contract does not define the
    /// reply.
    fn request(&mut self, step: &Step) -> Option<(usize, Request)> {
        match *step {
            Step::Pass(_) => None,
            Step::Place { client, key, plan } => {
                let named = self.new_claim(client, self.keys[key].clone(), plan);
                Some((client, Request::Acquire(named.claim, named.not_after)))
            }
            Step::Poll { slot } => {
                let named = self.claims[slot].clone()?;
                let acquire = Request::Acquire(named.claim.clone(), named.not_after);
                self.is_defined(&named.claim).then_some((named.client, acquire))
            }
            Step::Renew {
                slot,
                only,
                lease,
                shorten_only,
                raise,
                downgrade,
            } => {
                let named = self.claims[slot].clone()?;
                let mut renewal = renew_request(&named.claim, only);
                (renewal.lease, renewal.shorten_only) = (lease, shorten_only);
                renewal.downgrade = downgrade;
                let raises = raise && self.fixture.profile().raises_tokens;
                renewal.raise = raises.then(|| self.state.range_beyond(&renewal)).flatten();
                Some((named.client, Request::Renew(renewal)))
            }
            Step::Release {
                slot,
                is_withdrawal,
                successor,
            } => {
                let leaving = self.claims[slot].clone()?;
                let key = leaving.claim.at.key.clone();
                let successor = successor.map(|plan| self.new_claim(leaving.client, key, plan));
                let cause = if is_withdrawal {
                    Cause::Withdrawn
                } else {
                    Cause::Unlocked
                };
                Some(self.release_by_client(&leaving, cause, successor))
            }
            Step::HandOver { slot, to } => {
                let leaving = self.claims[slot].clone()?;
                Some(self.release_by_client(&leaving, Cause::Unlocked, self.claims[to].clone()))
            }
            Step::Evict { slot, with_cooldown } => {
                let at = self.claims[slot].as_ref()?.claim.at.clone();
                Some((CLIENTS, eviction(ReleaseTarget::Claim(at), with_cooldown)))
            }
            Step::EvictAll { key, with_cooldown } => Some((
                CLIENTS,
                eviction(ReleaseTarget::All(self.keys[key].clone()), with_cooldown),
            )),
        }
    }

    /// Creates the planned claim, and puts it into its slot.
    fn new_claim(&mut self, client: usize, key: LockKey, plan: ClaimPlan) -> WalkClaim {
        let claim = self.clients[client].claim_as(&key, plan.mode, |claim| {
            claim.fairness = plan.fairness;
            claim.lease = plan.lease;
            claim.grants = NonZeroU32::new(plan.grants).expect("a plan asks for at least one token");
        });
        let now = self.clients[client].now();
        let not_after = plan.ahead.map_or(now - LATE, |ahead| now + ahead);
        let named = WalkClaim {
            client,
            claim,
            not_after,
        };
        self.claims[plan.slot] = Some(named.clone());
        named
    }

    /// Returns whether the contract defines the reply to polling a claim. It does not if the store forgets ended
    /// claims and the claim has ended.
    fn is_defined(&self, claim: &Claim) -> bool {
        self.fixture.profile().remembers_ended || !self.state.ended.contains_key(&claim.at)
    }

    /// Returns a claim's client, and the request to release the claim. Leaves out a successor for which the contract
    /// defines no reply, such as one on another key.
    fn release_by_client(
        &self,
        leaving: &WalkClaim,
        cause: Cause,
        successor: Option<WalkClaim>,
    ) -> (usize, Request) {
        let (at, client) = (&leaving.claim.at, leaving.client);
        let successor = successor.filter(|successor| {
            let other = &successor.claim.at;
            successor.client == client
                && other.key == at.key
                && other != at
                && self.is_defined(&successor.claim)
        });
        let mut release = release_request(&leaving.claim, cause);
        release.successor =
            successor.map(|WalkClaim { claim, not_after, .. }| Successor { claim, not_after });
        (client, Request::Release(release))
    }
}

/// Request for an eviction, with a cooldown of 10 ms or without.
fn eviction(who: ReleaseTarget, with_cooldown: bool) -> Request {
    let cooldown = if with_cooldown {
        HANDOVER_WINDOW
    } else {
        Duration::ZERO
    };
    Request::Release(eviction_request(who, cooldown))
}
