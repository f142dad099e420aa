//! What is between a client and the memory store: a spy beneath the weather that sees every act of the store and can
//! swap it for an empty one, and a wire above it that stands still while the client is paused and ends when it dies.
//! The weather is `tenure_testkit::Chaos`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Cause, Claim, Effect, Fault, HolderId, ReleaseReply, ReleaseRequest,
    ReleaseTarget, RenewReply, Wakes,
};
use tenure_memory::Memory;
use tenure_testkit::{Dice, Exchange, Faults, Reply, Request, When};

use crate::log::{Note, word};
use crate::world::World;

/// One client's door to the store, or to the empty one that replaced it.
#[derive(Debug)]
pub(crate) struct Spy {
    pub(crate) world: Arc<World>,
    pub(crate) client: usize,
    pub(crate) stores: Vec<Arc<Memory>>,
}

impl Spy {
    fn saw(&self, claim: &Claim, standing: &AcquireReply) {
        self.world.say(Note::Stands {
            client: self.client,
            claim: claim.at.id.number(),
            standing: word(standing),
        });
        if let AcquireReply::Granted(_) = standing {
            self.world.restored(claim.at.id);
        }
        self.world.queues.lock().saw(&self.world, claim, standing);
    }

    fn saw_release(&self, departure: &ReleaseRequest, answer: &ReleaseReply) {
        let ReleaseReply::Done { freed, successor, .. } = answer else {
            return;
        };
        if let Some(note) = Note::released(self.client, departure, answer) {
            self.world.say(note);
        }
        if let ReleaseTarget::Claim(claim) = &departure.target {
            self.world.queues.lock().left(claim);
        }
        if let (Some(successor), Some(standing)) = (&departure.successor, successor) {
            self.saw(&successor.claim, standing);
        }
        if matches!(departure.cause, Cause::Evicted { .. }) {
            for id in freed {
                if let HolderId::Claim(id) = id {
                    self.world.evicted(*id, departure.target.key());
                }
            }
        }
    }
}

impl Faults for Spy {
    fn store(&self) -> Arc<dyn Backend> {
        self.stores[self.world.epoch()].clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        for element in call {
            if when == When::Before && self.world.is_down() {
                let message = "simulation: the store is down";
                element.fail(BackendError::new(Fault::Unavailable, Effect::None, message));
            }
            match (&element.request, &mut element.reply) {
                (Request::Acquire(claim, _), Some(Ok(Reply::Acquire(standing)))) => self.saw(claim, standing),
                (Request::Renew(renewal), Some(Ok(Reply::Renew(answer)))) => {
                    let claim = renewal.claim.id.number();
                    self.world.say(Note::renewed(self.client, claim, answer));
                    if let RenewReply::Alive { lease, .. } = answer {
                        let until = self.world.now() + *lease;
                        self.world.queues.lock().renewed(&renewal.claim, until);
                    }
                }
                (Request::Release(departure), Some(Ok(Reply::Release(answer)))) => {
                    self.saw_release(departure, answer);
                }
                (_, Some(Ok(Reply::Watch(wakes)))) => {
                    let heard = std::mem::replace(wakes, Wakes::new(stream::empty()));
                    *wakes = Wakes::new(heard.take_until(Box::pin(self.world.restart())));
                }
                _ => {}
            }
        }
    }
}

/// One client's wire.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) world: Arc<World>,
    pub(crate) client: usize,
    /// The store in its weather, and without it, for when the weather has ended.
    pub(crate) weather: Arc<dyn Backend>,
    pub(crate) calm: Arc<dyn Backend>,
    pub(crate) dice: Mutex<Dice>,
}

/// A call leaves when the client runs, and its answer arrives when the client runs again.
impl Faults for Wire {
    fn store(&self) -> Arc<dyn Backend> {
        if self.world.is_calm() {
            &self.calm
        } else {
            &self.weather
        }
        .clone()
    }

    async fn on(&self, when: When, _: &mut [Exchange]) {
        if when == When::After {
            let late = {
                let mut dice = self.dice.lock();
                let slow = dice.chance(5);
                let most = if slow { 400 } else { 3 };
                dice.below(most)
            };
            if !self.world.is_calm() && late > 0 {
                // sleep: time is paused, and this is the network's.
                tokio::time::sleep(Duration::from_millis(late)).await;
            }
        }
        self.world.runs(self.client).await;
    }
}
