//! One random walk: takes the steps on a store, and has each answer judged.
//!
//! # Cancel safety
//! A walk that is dropped leaves its claims to their leases, in a store that was made for it alone.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    Batch, Cause, Claim, Departure, Heir, Holder, Instant, LockKey, PASS_WINDOW, Query, Released, Renewal,
    Renewed,
};

use super::ledger::{Ledger, Verdict};
use super::room::At;
use super::step::{Ask, CLIENTS, KEYS, Lease, SLOTS, Step};
use crate::suite::{Client, Trial};

/// How long ago the `place_by` of a request was that comes too late.
const LATE: Duration = Duration::from_millis(50);

/// How far a walk has come.
#[derive(Debug)]
pub(super) enum Came {
    /// To its end.
    Through,
    /// So many steps: a lease ended while a call was on its way, or the store could not be reached.
    OnlyTo(usize),
    /// To an answer that the contract does not allow.
    Apart(String),
}

/// Why a walk goes no further.
enum Stop {
    Unsure,
    Apart(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Stop::Apart(why)
    }
}

/// A claim that the walk knows by a number.
#[derive(Clone)]
struct Known {
    client: usize,
    claim: Arc<Claim>,
    place_by: Instant,
}

struct Walk<'a> {
    trial: &'a Trial,
    clients: Vec<Client>,
    keys: Vec<LockKey>,
    known: [Option<Known>; SLOTS],
    ledger: Ledger,
    told: &'a mut Vec<String>,
}

/// Takes the steps, and tells of each in `told`.
pub(super) async fn walk(trial: &Trial, steps: &[Step], told: &mut Vec<String>) -> Came {
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
        match walk.take(step).await {
            Ok(()) => {}
            Err(Stop::Unsure) => return Came::OnlyTo(number),
            Err(Stop::Apart(why)) => return Came::Apart(why),
        }
    }
    Came::Through
}

impl Walk<'_> {
    async fn take(&mut self, step: &Step) -> Result<(), Stop> {
        self.wait_until_sure().await;
        match *step {
            Step::Place { client, key, ask } => {
                let known = self.introduce(client, key, ask);
                self.acquire(step, &known).await
            }
            Step::Poll { slot } => match self.known[slot].clone() {
                Some(known) if self.may_ask(&known.claim) => self.acquire(step, &known).await,
                _ => Ok(()),
            },
            Step::Pass(time) => {
                self.told.push(format!("{step:?}"));
                self.trial.pass(time).await;
                self.wait_until_sure().await;
                for key in self.keys.clone() {
                    self.look(&key).await?;
                }
                Ok(())
            }
            Step::Renew {
                slot,
                only,
                lease,
                shorten_only,
                raise,
            } => {
                let Some(known) = self.known[slot].clone() else {
                    return Ok(());
                };
                let mut renewal = Renewal {
                    who: known.claim.at.clone(),
                    lease: self.lease(lease),
                    only,
                    shorten_only,
                    raise: None,
                };
                renewal.raise = raise.then(|| self.ledger.beyond(&renewal)).flatten();
                self.renew(step, &known, renewal).await
            }
            Step::Release { .. } | Step::HandOver { .. } | Step::Evict { .. } | Step::EvictAll { .. } => {
                match self.departure(step) {
                    Some((client, departure)) => self.depart(step, client, departure).await,
                    None => Ok(()),
                }
            }
        }
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

    fn lease(&self, lease: Lease) -> Duration {
        match lease {
            Lease::Brief => self.trial.brief(),
            Lease::Long => self.trial.long(),
        }
    }

    /// Makes a claim, which is known by its number from here on.
    fn introduce(&mut self, client: usize, key: usize, ask: Ask) -> Known {
        let lease = self.lease(ask.lease);
        let claim = self.clients[client].claim_as(&self.keys[key], ask.mode, |claim| {
            claim.fairness = ask.fairness;
            claim.lease = lease;
            claim.grants = NonZeroU32::new(ask.grants).expect("an ask is for a grant at least");
        });
        let now = self.clients[client].now();
        let place_by = ask.ahead.map_or(now - LATE, |ahead| now + ahead);
        let known = Known {
            client,
            claim,
            place_by,
        };
        self.known[ask.slot] = Some(known.clone());
        known
    }

    /// Whether the contract says what becomes of such a request: a store that does not remember its ended claims
    /// is not asked for them.
    fn may_ask(&self, claim: &Claim) -> bool {
        self.trial.profile().remembers_ended || !self.ledger.ended.contains_key(&claim.at)
    }

    async fn acquire(&mut self, step: &Step, known: &Known) -> Result<(), Stop> {
        let Known {
            client,
            claim,
            place_by,
        } = known;
        let before = self.now();
        let answer = self.clients[*client].acquire_by(claim, *place_by).await;
        let at = self.answered(step, before, &answer)?;
        if answer.as_ref().is_err_and(|error| error.is_weather()) {
            return Err(Stop::Unsure);
        }
        self.judged(|ledger| ledger.acquire(claim, *place_by, at, &answer))?;
        self.look(&claim.at.key).await
    }

    async fn renew(&mut self, step: &Step, known: &Known, renewal: Renewal) -> Result<(), Stop> {
        let backend = self.clients[known.client].backend().clone();
        let before = self.now();
        let mut answers = backend.renew(Batch::from_iter([renewal.clone()])).await;
        let at = self.answered(step, before, &answers)?;
        let answer = answers.pop().filter(|_| answers.is_empty());
        let answer = answer.ok_or_else(|| "one renewal has one answer".to_owned())?;
        if matches!(&answer, Renewed::Unknown(error) if error.is_weather()) {
            return Err(Stop::Unsure);
        }
        self.judged(|ledger| ledger.renew(&renewal, at, &answer))?;
        self.look(&renewal.who.key).await
    }

    async fn depart(&mut self, step: &Step, client: usize, departure: Departure) -> Result<(), Stop> {
        let backend = self.clients[client].backend().clone();
        let before = self.now();
        let mut answers = backend.release(Batch::from_iter([departure.clone()])).await;
        let at = self.answered(step, before, &answers)?;
        let answer = answers.pop().filter(|_| answers.is_empty());
        let answer = answer.ok_or_else(|| "one departure has one answer".to_owned())?;
        if matches!(&answer, Released::Unknown(error) if error.is_weather()) {
            return Err(Stop::Unsure);
        }
        self.judged(|ledger| ledger.release(&departure, at, &answer))?;
        self.look(departure.who.key()).await
    }

    /// The departure that a step means, and the client that asks for it.
    fn departure(&mut self, step: &Step) -> Option<(usize, Departure)> {
        let bar = |bars| if bars { PASS_WINDOW } else { Duration::ZERO };
        let evicted = || Cause::Evicted {
            by: Some(Arc::from("alice")),
        };
        let (slot, cause, bar) = match *step {
            Step::EvictAll { key, bars } => {
                let departure = Departure {
                    who: Holder::All(self.keys[key].clone()),
                    cause: evicted(),
                    heir: None,
                    bar: bar(bars),
                };
                return Some((CLIENTS, departure));
            }
            Step::Evict { slot, bars } => (slot, evicted(), bar(bars)),
            Step::Release {
                slot,
                withdraws: true,
                ..
            } => (slot, Cause::Withdrawn, Duration::ZERO),
            Step::Release { slot, .. } | Step::HandOver { slot, .. } => {
                (slot, Cause::Unlocked, Duration::ZERO)
            }
            _ => return None,
        };
        let leaves = self.known[slot].clone()?;
        let departure = Departure {
            who: Holder::Claim(leaves.claim.at.clone()),
            cause,
            heir: self.heir(step, &leaves),
            bar,
        };
        let operated = matches!(step, Step::Evict { .. });
        Some((if operated { CLIENTS } else { leaves.client }, departure))
    }

    fn heir(&mut self, step: &Step, leaves: &Known) -> Option<Heir> {
        let heir = match *step {
            Step::Release { heir, .. } => {
                let key = self.keys.iter().position(|key| *key == leaves.claim.at.key)?;
                Some(self.introduce(leaves.client, key, heir?))
            }
            Step::HandOver { to, .. } => self.known[to].clone(),
            _ => None,
        }?;
        let fits = heir.client == leaves.client
            && heir.claim.at.key == leaves.claim.at.key
            && heir.claim.at != leaves.claim.at
            && self.may_ask(&heir.claim);
        fits.then_some(Heir {
            claim: heir.claim,
            place_by: heir.place_by,
        })
    }

    /// Tells of a step that was answered; when that was.
    fn answered(&mut self, step: &Step, before: Instant, answer: &dyn std::fmt::Debug) -> Result<At, Stop> {
        let after = self.now();
        let at = At { before, after };
        self.told.push(format!("{step:?}: {answer:?}"));
        if self.ledger.was_overtaken(at) {
            return Err(Stop::Unsure);
        }
        Ok(at)
    }

    fn judged(&mut self, judge: impl FnOnce(&mut Ledger) -> Verdict) -> Result<(), Stop> {
        judge(&mut self.ledger).map_err(|why| Stop::Apart(format!("That answer is not allowed: {why}")))
    }

    /// Has what is shown of a key judged too.
    async fn look(&mut self, key: &LockKey) -> Result<(), Stop> {
        let backend = self.clients[CLIENTS].backend().clone();
        let before = self.now();
        let page = backend.inspect(Query::Key(key.clone())).await;
        let at = At {
            before,
            after: self.now(),
        };
        if self.ledger.was_overtaken(at) || page.as_ref().is_err_and(|error| error.is_weather()) {
            return Err(Stop::Unsure);
        }
        let page = page.map_err(|error| format!("the key cannot be shown: {error}"))?;
        let status = page.items.first();
        let verdict = self.ledger.shows(key, at, status);
        verdict.map_err(|why| Stop::Apart(format!("Then {status:?} is shown, which is not so: {why}")))
    }
}
