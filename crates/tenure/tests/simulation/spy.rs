//! What is between a client and the memory store: a spy beneath the weather that sees every act of the store and can
//! swap it for an empty one, and a wire above it that stands still while the client is paused and ends when it dies.
//! The weather is `tenure_testkit::Chaos`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use tenure_backend::{
    Backend, BackendError, Batch, Call, Cause, Claim, Clock, Departure, Each, Effect, Fault, Finding, Holder,
    HolderId, Instant, LockStatus, Page, Profile, Query, Released, Renewal, Renewed, Standing, Wakes,
};
use tenure_memory::Memory;
use tenure_testkit::Dice;

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
    fn store(&self) -> Result<Arc<Memory>, BackendError> {
        if self.world.is_down() {
            let message = "simulation: the store is down";
            return Err(BackendError::new(Fault::Unavailable, Effect::None, message));
        }
        Ok(self.stores[self.world.epoch()].clone())
    }

    fn saw(&self, claim: &Claim, standing: &Standing) {
        self.world.say(Note::Stands {
            client: self.client,
            claim: claim.at.id.number(),
            standing: word(standing),
        });
        if let Standing::Granted(_) = standing {
            self.world.restored(claim.at.id);
        }
        self.world.queues.lock().saw(&self.world, claim, standing);
    }
}

impl Backend for Spy {
    fn profile(&self) -> &Profile {
        self.stores[0].profile()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.stores[0].clock()
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, place_by: Instant) -> Call<Standing> {
        Call::new(async move {
            let standing = self.store()?.acquire(claim.clone(), place_by).await?;
            self.saw(&claim, &standing);
            Ok(standing)
        })
    }

    fn renew(self: Arc<Self>, batch: Batch<Renewal>) -> Each<Renewed> {
        Each::new(async move {
            let store = match self.store() {
                Ok(store) => store,
                Err(error) => return batch.iter().map(|_| Renewed::Unknown(error.clone())).collect(),
            };
            let answers = store.renew(batch.clone()).await;
            for (renewal, answer) in batch.iter().zip(&answers) {
                let claim = renewal.who.id.number();
                self.world.say(Note::renewed(self.client, claim, answer));
                if let Renewed::Alive { lease, .. } = answer {
                    let until = self.world.now() + *lease;
                    self.world.queues.lock().renewed(&renewal.who, until);
                }
            }
            answers
        })
    }

    fn release(self: Arc<Self>, batch: Batch<Departure>) -> Each<Released> {
        Each::new(async move {
            let store = match self.store() {
                Ok(store) => store,
                Err(error) => return batch.iter().map(|_| Released::Unknown(error.clone())).collect(),
            };
            let answers = store.release(batch.clone()).await;
            for (departure, answer) in batch.iter().zip(&answers) {
                let Released::Done { freed, heir, .. } = answer else {
                    continue;
                };
                if let Some(note) = Note::released(self.client, departure, answer) {
                    self.world.say(note);
                }
                if let Holder::Claim(claim) = &departure.who {
                    self.world.queues.lock().left(claim);
                }
                if let (Some(heir), Some(standing)) = (&departure.heir, heir) {
                    self.saw(&heir.claim, standing);
                }
                if matches!(departure.cause, Cause::Evicted { .. }) {
                    for id in freed {
                        if let HolderId::Claim(id) = id {
                            self.world.evicted(*id, departure.who.key());
                        }
                    }
                }
            }
            answers
        })
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        let restart = Box::pin(self.world.restart());
        Call::new(async move {
            let wakes = self.store()?.watch(claim).await?;
            Ok(Wakes::new(wakes.take_until(restart)))
        })
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        match self.store() {
            Ok(store) => store.inspect(query),
            Err(error) => Call::ready(Err(error)),
        }
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        self.stores[0].clone().examine()
    }

    fn close(self: Arc<Self>) -> Call<()> {
        self.stores[self.world.epoch()].clone().close()
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

impl Wire {
    /// Carries a call: it leaves when the client runs, and its answer arrives when the client runs again.
    async fn carry<T, F: Future<Output = T>>(self: Arc<Self>, call: impl FnOnce(Arc<dyn Backend>) -> F) -> T {
        self.world.runs(self.client).await;
        let calm = self.world.is_calm();
        let answer = call(if calm { &self.calm } else { &self.weather }.clone()).await;
        let late = {
            let mut dice = self.dice.lock();
            let slow = dice.chance(5);
            let most = if slow { 400 } else { 3 };
            dice.below(most)
        };
        if !calm && late > 0 {
            // sleep: time is paused, and this is the network's.
            tokio::time::sleep(Duration::from_millis(late)).await;
        }
        self.world.runs(self.client).await;
        answer
    }
}

impl Backend for Wire {
    fn profile(&self) -> &Profile {
        self.weather.profile()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.calm.clock()
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, place_by: Instant) -> Call<Standing> {
        Call::new(self.carry(move |store| store.acquire(claim, place_by)))
    }

    fn renew(self: Arc<Self>, batch: Batch<Renewal>) -> Each<Renewed> {
        Each::new(self.carry(move |store| store.renew(batch)))
    }

    fn release(self: Arc<Self>, batch: Batch<Departure>) -> Each<Released> {
        Each::new(self.carry(move |store| store.release(batch)))
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        Call::new(self.carry(move |store| store.watch(claim)))
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        Call::new(self.carry(move |store| store.inspect(query)))
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        self.calm.clone().examine()
    }

    fn close(self: Arc<Self>) -> Call<()> {
        self.calm.clone().close()
    }
}
