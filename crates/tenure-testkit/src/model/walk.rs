//! One random walk: takes the steps on a store, and has each answer judged.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Cause, Claim, HANDOVER_WINDOW, Instant, LockKey, Query, ReleaseTarget, Successor};

use super::ledger::Ledger;
use super::room::At;
use super::step::{Ask, CLIENTS, KEYS, SLOTS, Step};
use crate::Request;
use crate::faulty::send;
use crate::suite::{Client, Trial, departure, eviction, renewal};

/// How long ago the `not_after` of a request was that comes too late.
const LATE: Duration = Duration::from_millis(50);

/// A claim that the walk knows by a number.
#[derive(Clone)]
struct Known {
    client: usize,
    claim: Arc<Claim>,
    not_after: Instant,
}

struct Walk<'a> {
    trial: &'a Trial,
    clients: Vec<Client>,
    keys: Vec<LockKey>,
    known: [Option<Known>; SLOTS],
    ledger: Ledger,
    told: &'a mut Vec<String>,
}

/// Takes the steps, and tells of each in `told`. Returns how many were judged: not all if a lease ended while a call was
/// on its way, or if the store could not be reached. Fails with an answer that the contract does not allow.
pub(super) async fn walk(trial: &Trial, steps: &[Step], told: &mut Vec<String>) -> Result<usize, String> {
    let mut clients = Vec::new();
    // One more looks on.
    for _ in 0..=CLIENTS {
        clients.push(trial.client().await);
    }
    let mut walk = Walk {
        trial,
        clients,
        keys: (0..KEYS).map(|_| trial.key()).collect(),
        known: Default::default(),
        ledger: Ledger::new(trial.profile().clone()),
        told,
    };
    for (number, step) in steps.iter().enumerate() {
        if !walk.take(step).await? {
            return Ok(number);
        }
    }
    Ok(steps.len())
}

impl Walk<'_> {
    /// Takes a step, and looks at all keys; whether the answers could be judged.
    async fn take(&mut self, step: &Step) -> Result<bool, String> {
        self.wait_until_sure().await;
        if let Step::Pass(time) = step {
            self.told.push(format!("{step:?}"));
            self.trial.pass(*time).await;
            self.wait_until_sure().await;
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

    /// Lets time pass until no lease is about to end.
    async fn wait_until_sure(&mut self) {
        while let Some(until) = self.ledger.unsure_until(self.now()) {
            let time = until - self.now();
            self.told
                .push(format!("{time:?} pass, for a lease is about to end"));
            self.trial.pass(time).await;
        }
        self.ledger.settle(self.now());
    }

    fn now(&self) -> Instant {
        self.clients[0].now()
    }

    /// Sends a request, and has the answer judged, if that can be.
    async fn exchange(
        &mut self,
        client: usize,
        request: Request,
        step: Option<&Step>,
    ) -> Result<bool, String> {
        let backend = self.clients[client].backend().clone();
        let before = self.now();
        let answers = send(backend, vec![request.clone()]).await;
        let at = At {
            before,
            after: self.now(),
        };
        let [answer] = &answers[..] else {
            return Err(format!("one request has one answer, and not {answers:?}"));
        };
        self.told.extend(step.map(|step| format!("{step:?}: {answer:?}")));
        let is_transient = answer.as_ref().is_err_and(|error| error.is_transient());
        if is_transient || self.ledger.was_overtaken(at) {
            return Ok(false);
        }
        let verdict = self.ledger.judge(&request, at, answer);
        verdict.map_err(|why| format!("{request:?} may not be answered {answer:?}: {why}"))?;
        Ok(true)
    }

    /// The request that a step means, and the client that makes it; `None` if its claim is not there.
    fn request(&mut self, step: &Step) -> Option<(usize, Request)> {
        match *step {
            Step::Pass(_) => None,
            Step::Place { client, key, ask } => {
                let known = self.introduce(client, self.keys[key].clone(), ask);
                Some((client, Request::Acquire(known.claim, known.not_after)))
            }
            Step::Poll { slot } => {
                let known = self.known[slot].clone()?;
                let acquire = Request::Acquire(known.claim.clone(), known.not_after);
                self.may_ask(&known.claim).then_some((known.client, acquire))
            }
            Step::Renew {
                slot,
                only,
                lease,
                shorten_only,
                raise,
            } => {
                let known = self.known[slot].clone()?;
                let mut renewal = renewal(&known.claim, only);
                (renewal.lease, renewal.shorten_only) = (lease, shorten_only);
                renewal.raise = raise.then(|| self.ledger.beyond(&renewal)).flatten();
                Some((known.client, Request::Renew(renewal)))
            }
            Step::Release {
                slot,
                withdraws,
                successor,
            } => {
                let leaves = self.known[slot].clone()?;
                let key = leaves.claim.at.key.clone();
                let successor = successor.map(|ask| self.introduce(leaves.client, key, ask));
                let cause = if withdraws {
                    Cause::Withdrawn
                } else {
                    Cause::Unlocked
                };
                Some(self.leaves(&leaves, cause, successor))
            }
            Step::HandOver { slot, to } => {
                let leaves = self.known[slot].clone()?;
                Some(self.leaves(&leaves, Cause::Unlocked, self.known[to].clone()))
            }
            Step::Evict { slot, bars } => {
                let at = self.known[slot].as_ref()?.claim.at.clone();
                Some((CLIENTS, evicts(ReleaseTarget::Claim(at), bars)))
            }
            Step::EvictAll { key, bars } => {
                Some((CLIENTS, evicts(ReleaseTarget::All(self.keys[key].clone()), bars)))
            }
        }
    }

    /// Makes a claim, which is known by its number from here on.
    fn introduce(&mut self, client: usize, key: LockKey, ask: Ask) -> Known {
        let claim = self.clients[client].claim_as(&key, ask.mode, |claim| {
            claim.fairness = ask.fairness;
            claim.lease = ask.lease;
            claim.grants = NonZeroU32::new(ask.grants).expect("an ask is for a grant at least");
        });
        let now = self.clients[client].now();
        let not_after = ask.ahead.map_or(now - LATE, |ahead| now + ahead);
        let known = Known {
            client,
            claim,
            not_after,
        };
        self.known[ask.slot] = Some(known.clone());
        known
    }

    /// Whether the contract says what becomes of such a request: a store that does not remember its ended claims
    /// is not asked for them.
    fn may_ask(&self, claim: &Claim) -> bool {
        self.trial.profile().remembers_ended || !self.ledger.ended.contains_key(&claim.at)
    }

    /// The release of a claim by its own client, with that successor if it can be one.
    fn leaves(&self, leaves: &Known, cause: Cause, successor: Option<Known>) -> (usize, Request) {
        let (at, client) = (&leaves.claim.at, leaves.client);
        let successor = successor.filter(|successor| {
            let other = &successor.claim.at;
            successor.client == client && other.key == at.key && other != at && self.may_ask(&successor.claim)
        });
        let mut departure = departure(&leaves.claim, cause);
        departure.successor = successor.map(|Known { claim, not_after, .. }| Successor { claim, not_after });
        (client, Request::Release(departure))
    }
}

/// An eviction, with a cooldown or without.
fn evicts(who: ReleaseTarget, bars: bool) -> Request {
    let cooldown = if bars { HANDOVER_WINDOW } else { Duration::ZERO };
    Request::Release(eviction(who, cooldown))
}
