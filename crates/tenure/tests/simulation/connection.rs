//! Layers between a client and the memory store. From the store upwards: a recorder of all replies, which switches to
//! an empty store after a data loss; `tenure_testkit::Chaos`; and a connection that stops while the client is paused or
//! dead.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Cause, Claim, ClaimId, ClientId, Effect, Fairness, Fault, HolderId,
    Invalidation, Invalidations, LockKey, ReleaseReply, ReleaseRequest, ReleaseTarget, RenewReply, Wakes,
};
use tenure_memory::Memory;
use tenure_testkit::{Dice, Exchange, Faults, Reply, Request, When};

use crate::log::{LogEntry, word};
use crate::simulation::Simulation;

/// Records the replies of the store to one client.
#[derive(Debug)]
pub(crate) struct StoreRecorder {
    pub(crate) sim: Arc<Simulation>,
    pub(crate) client: usize,
    pub(crate) stores: Vec<Arc<Memory>>,
}

impl StoreRecorder {
    fn saw(&self, claim: &Claim, standing: &AcquireReply) {
        self.sim.say(LogEntry::Stands {
            client: self.client,
            claim: claim.at.id.number(),
            standing: word(standing),
        });
        if let AcquireReply::Granted(_) = standing {
            self.sim.restored(claim.at.id);
        }
        self.sim.queues.lock().saw(&self.sim, claim, standing);
    }

    fn saw_release(&self, departure: &ReleaseRequest, answer: &ReleaseReply) {
        let ReleaseReply::Done { freed, successor, .. } = answer else {
            return;
        };
        if let Some(note) = LogEntry::released(self.client, departure, answer) {
            self.sim.say(note);
        }
        if let ReleaseTarget::Claim(claim) = &departure.target {
            self.sim.queues.lock().left(claim);
        }
        if let (Some(successor), Some(standing)) = (&departure.successor, successor) {
            self.saw(&successor.claim, standing);
        }
        if matches!(departure.cause, Cause::Evicted { .. }) {
            for id in freed {
                if let HolderId::Claim(id) = id {
                    self.sim.evicted(*id, departure.target.key());
                }
            }
        }
    }
}

impl Faults for StoreRecorder {
    fn store(&self) -> Arc<dyn Backend> {
        self.stores[self.sim.epoch()].clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        for element in call {
            if when == When::Before && self.sim.is_down() {
                let message = "simulation: the store is down";
                element.fail(BackendError::new(Fault::Unavailable, Effect::None, message));
            }
            match (&element.request, &mut element.reply) {
                (Request::Acquire(claim, _), Some(Ok(Reply::Acquire(standing)))) => self.saw(claim, standing),
                (Request::Renew(renewal), Some(Ok(Reply::Renew(answer)))) => {
                    let claim = renewal.claim.id.number();
                    self.sim.say(LogEntry::renewed(self.client, claim, answer));
                    if let RenewReply::Alive { lease, .. } = answer {
                        let until = self.sim.now() + *lease;
                        self.sim.queues.lock().renewed(&renewal.claim, until);
                    }
                }
                (Request::Release(departure), Some(Ok(Reply::Release(answer)))) => {
                    self.saw_release(departure, answer);
                }
                (_, Some(Ok(Reply::Watch(wakes)))) => {
                    let heard = std::mem::replace(wakes, Wakes::new(stream::empty()));
                    *wakes = Wakes::new(heard.take_until(Box::pin(self.sim.restart())));
                }
                _ => {}
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct ClientConnection {
    pub(crate) sim: Arc<Simulation>,
    pub(crate) client: usize,
    /// The store with random faults. `calm` is the same store without them, for the time after all faults.
    pub(crate) faulty: Arc<dyn Backend>,
    pub(crate) calm: Arc<dyn Backend>,
    pub(crate) dice: Mutex<Dice>,
    /// The key of the client's last request: the store hints at it falsely.
    pub(crate) asked: Arc<Mutex<Option<LockKey>>>,
    /// The unfair claims of which the client knows that the store may have granted them without its knowledge.
    pub(crate) unconfirmed: Mutex<BTreeSet<ClaimId>>,
}

/// The unfair claim that a request places or polls, if any.
fn unfair(request: &Request) -> Option<&Claim> {
    let claim = match request {
        Request::Acquire(claim, _) => claim,
        Request::Release(departure) => &departure.successor.as_ref()?.claim,
        _ => return None,
    };
    Some(&**claim).filter(|claim| claim.fairness == Fairness::Unfair)
}

/// Delays replies at random. Sends requests and delivers replies only while the client is not paused. Checks that the
/// client asks no more for an unfair claim of unknown outcome, which would keep the key from others (L4).
impl Faults for ClientConnection {
    fn store(&self) -> Arc<dyn Backend> {
        if self.sim.is_calm() {
            &self.calm
        } else {
            &self.faulty
        }
        .clone()
    }

    /// Passes on the store's hints: some are lost, some come twice, and false ones come in between. None of this may make
    /// a difference, because hints decide nothing.
    fn invalidations(&self, client: ClientId) -> Option<Invalidations> {
        let mut dice = Dice::new(self.dice.lock().roll());
        let mut times = Dice::new(dice.roll());
        let hints = self.store().invalidations(client)?.flat_map(move |hint| {
            let times = usize::try_from(times.below(3)).unwrap_or(1);
            stream::iter(vec![hint; times])
        });
        let (sim, asked) = (self.sim.clone(), self.asked.clone());
        let lies = stream::unfold(dice, move |mut dice| {
            let (sim, asked) = (sim.clone(), asked.clone());
            async move {
                // sleep: advances paused time to the next false hint.
                tokio::time::sleep(Duration::from_millis(5 + dice.below(400))).await;
                let key = asked.lock().clone().filter(|_| dice.chance(80));
                (!sim.is_calm()).then(|| (key.map_or(Invalidation::All, Invalidation::Key), dice))
            }
        });
        Some(Invalidations::new(stream::select(hints, lies)))
    }

    fn called(&self, requests: &[Request]) {
        for request in requests {
            let key = match request {
                Request::Acquire(claim, _) => &claim.at.key,
                Request::Renew(renewal) => &renewal.claim.key,
                Request::Release(departure) => departure.target.key(),
                Request::Watch(_) | Request::Inspect(_) => continue,
            };
            *self.asked.lock() = Some(key.clone());
        }
        for claim in requests.iter().filter_map(unfair) {
            if self.unconfirmed.lock().contains(&claim.at.id) {
                let message = format!(
                    "claim {} is asked for after an unknown outcome",
                    claim.at.id.number()
                );
                self.sim.violated("L4", message);
            }
        }
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        if when == When::After {
            let late = {
                let mut dice = self.dice.lock();
                let slow = dice.chance(5);
                let most = if slow { 400 } else { 3 };
                dice.below(most)
            };
            if !self.sim.is_calm() && late > 0 {
                // sleep: advances paused time by the network delay.
                tokio::time::sleep(Duration::from_millis(late)).await;
            }
        }
        self.sim.runs(self.client).await;
        for element in call {
            let is_unknown = matches!(&element.reply, Some(Err(error)) if error.effect() == Effect::Unknown);
            let unconfirmed = unfair(&element.request).filter(|_| is_unknown);
            self.unconfirmed
                .lock()
                .extend(unconfirmed.map(|claim| claim.at.id));
        }
    }
}
