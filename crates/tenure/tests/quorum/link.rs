//! The layers between a client and one member. From the member upwards: the member itself, which may be down, empty or
//! recovering; `tenure_testkit::Chaos`; and the network, which delays and loses messages of a client that may be paused.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{AcquireReply, Backend, BackendError, Cause, Effect, Fault, HolderId, ReleaseReply};
use tenure_memory::Memory;
use tenure_testkit::{Chaos, Dice, Exchange, FaultRates, Faults, FaultyBackend, Reply, Request, When};

use crate::world::World;

/// How bad the network is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    /// The faults of [`Chaos`].
    pub(crate) rates: FaultRates,
    /// Longest delay of a usual message.
    pub(crate) delay: Duration,
    /// Percentage of messages that are delayed for up to `late`.
    pub(crate) slow: u8,
    /// Percentage of requests that vanish: the client waits for a while, and then does not know their effect.
    pub(crate) vanish: u8,
    pub(crate) late: Duration,
}

/// Connects a client to one member.
pub(crate) fn connect(
    world: &Arc<World>,
    client: usize,
    member: usize,
    network: Network,
    dice: &mut Dice,
) -> Arc<dyn Backend> {
    let clock = Arc::new(world.clients[client].clock.clone());
    let server = MemberServer {
        world: world.clone(),
        client,
        member,
        stores: world.members[member]
            .stores
            .each_ref()
            .map(|store| store.client(clock.clone())),
    };
    let calm: Arc<dyn Backend> = Arc::new(FaultyBackend::new(server));
    let faulty = Arc::new(Chaos::new(calm.clone(), dice.roll(), network.rates));
    let profile = faulty.profile().clone();
    let link = Link {
        world: world.clone(),
        client,
        member,
        network,
        calm,
        faulty,
        dice: Mutex::new(Dice::new(dice.roll())),
    };
    Arc::new(FaultyBackend::new(link).with_profile(profile))
}

/// The member's process, as one client sees it.
#[derive(Debug)]
struct MemberServer {
    world: Arc<World>,
    client: usize,
    member: usize,
    stores: [Arc<Memory>; 2],
}

impl MemberServer {
    /// While the member recovers, it grants nothing: it answers `Recovering` to an acquire, and drops the successor of a
    /// release. Renewals and releases are carried out.
    fn recover(&self, element: &mut Exchange) {
        match &mut element.request {
            Request::Acquire(..) => element.reply = Some(Ok(Reply::Acquire(AcquireReply::Recovering))),
            Request::Release(release) => release.successor = None,
            _ => {}
        }
    }

    fn note(&self, element: &Exchange) {
        let Some(Ok(reply)) = &element.reply else { return };
        match (&element.request, reply) {
            (Request::Acquire(claim, _), Reply::Acquire(reply)) => self.say(claim.at.id.number(), reply),
            (Request::Renew(renewal), Reply::Renew(reply)) => self.say(renewal.claim.id.number(), reply),
            (Request::Release(release), Reply::Release(ReleaseReply::Done { freed, successor, .. })) => {
                let successor = release
                    .successor
                    .as_ref()
                    .map(|next| (next.claim.at.id.number(), successor));
                self.world.say(format!(
                    "client {} at member {}: {:?} frees {freed:?}, then {successor:?}",
                    self.client, self.member, release.cause
                ));
                if matches!(release.cause, Cause::Evicted { .. }) {
                    for id in freed {
                        if let HolderId::Claim(id) = id {
                            self.world.evicted(*id);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn say(&self, claim: u64, reply: &impl std::fmt::Debug) {
        let (client, member) = (self.client, self.member);
        self.world.say(format!(
            "client {client} at member {member}, claim {claim}: {reply:?}"
        ));
    }
}

impl Faults for MemberServer {
    fn store(&self) -> Arc<dyn Backend> {
        self.stores[self.world.members[self.member].epoch()].clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        for element in call {
            match when {
                When::Before if self.world.is_down(self.member) => {
                    element.fail(BackendError::new(
                        Fault::Unavailable,
                        Effect::None,
                        "the member is down",
                    ));
                }
                When::Before if self.world.is_recovering(self.member) => self.recover(element),
                When::Before => {}
                When::After => self.note(element),
            }
        }
    }
}

/// The network between a client and a member.
#[derive(Debug)]
struct Link {
    world: Arc<World>,
    client: usize,
    member: usize,
    network: Network,
    /// The member with random faults. `calm` is the same member without them, for the time after all faults.
    faulty: Arc<dyn Backend>,
    calm: Arc<dyn Backend>,
    dice: Mutex<Dice>,
}

impl Link {
    async fn delay(&self) {
        let most = {
            let mut dice = self.dice.lock();
            let is_slow = dice.chance(self.network.slow);
            let most = if is_slow {
                self.network.late
            } else {
                self.network.delay
            };
            Duration::from_micros(dice.below(1 + u64::try_from(most.as_micros()).unwrap_or(0)))
        };
        if !self.world.is_calm() && !most.is_zero() {
            // sleep: advances paused time by the delay of the message.
            tokio::time::sleep(most).await;
        }
    }
}

impl Faults for Link {
    fn store(&self) -> Arc<dyn Backend> {
        if self.world.is_calm() {
            &self.calm
        } else {
            &self.faulty
        }
        .clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        // A paused client sends its request only after the pause. Once sent, the request arrives even if the client
        // is paused or dies. A client that is paused when the reply comes reads the reply after the pause
        // (`When::After` below).
        if when == When::Before {
            self.world.runs(self.client).await;
        }
        self.delay().await;
        let vanishes = when == When::Before && self.dice.lock().chance(self.network.vanish);
        if !self.world.is_calm() && (vanishes || self.world.is_cut(self.client, self.member)) {
            // sleep: advances paused time until the client gives the call up.
            tokio::time::sleep(self.network.late).await;
            for element in call.iter_mut() {
                element.fail(BackendError::new(Fault::Unavailable, Effect::Unknown, "no reply"));
            }
        }
        if when == When::After {
            self.world.runs(self.client).await;
        }
    }
}
