//! A backend of one's own, whole: mutexes in this process's memory.
//! It has no queue, no wake-ups and one token for each grant; its profile says so, and the suite judges it by that.

use std::collections::HashMap;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{
    Backend, BackendError, Batch, Call, Cause, Claim, ClaimRef, Clock, Departure, Each, Fencing,
    FencingToken, Finding, Grant, Holder, HolderId, HolderStatus, Inspection, Instant, Kind, LeaseClock,
    Limits, Liveness, LockKey, LockStatus, Loss, MAX_PLACE_AHEAD, Mode, Order, Page, Phase, Profile, Query,
    Reach, Released, Renewal, Renewed, Standing, TokenRun, WakeUp, Wakes,
};
use tenure_testkit::{ManualClock, Subject};

const PROFILE: Profile = Profile {
    store: "shelf",
    layout: "map",
    reach: Reach::Process,
    mutex: Order::Unfair,
    read_write: Order::None,
    semaphore: Order::None,
    liveness: Liveness::Lease(LeaseClock::Shared),
    hazards: &[],
    fencing: Fencing::Process,
    wake_up: WakeUp::Poll,
    remembers_ended: true,
    tells_others: false,
    inspection: Inspection {
        lists: false,
        queue: false,
        labels: true,
        remaining: true,
    },
    first_renewal: None,
    limits: Limits {
        min_lease: Duration::from_millis(1),
        max_lease: Duration::from_secs(86_400),
        max_grants: NonZeroU32::MIN,
        max_batch: NonZeroU32::MAX,
        margin: None,
        late_by: Duration::ZERO,
    },
};

/// One client of a shelf.
#[derive(Debug)]
struct Shelf {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
    closed: AtomicBool,
}

/// What all clients share. Every call takes its lock once: that makes it atomic.
#[derive(Debug, Default)]
struct State {
    held: HashMap<LockKey, Held>,
    /// Claims that ended, why, and until when that must be remembered.
    ended: HashMap<ClaimRef, (Loss, Instant)>,
    last_token: u64,
}

#[derive(Debug)]
struct Held {
    claim: Arc<Claim>,
    tokens: TokenRun,
    from: Instant,
    lease: Duration,
}

impl State {
    /// Forgets what may be forgotten, and ends every lease whose time has come.
    fn settle(&mut self, now: Instant) {
        self.ended.retain(|_, (_, until)| *until > now);
        let ended = &mut self.ended;
        self.held.retain(|_, held| {
            let alive = held.from + held.lease > now;
            if !alive {
                ended.insert(held.claim.at.clone(), (Loss::Expired, now + MAX_PLACE_AHEAD));
            }
            alive
        });
    }

    fn acquire(&mut self, claim: &Arc<Claim>, place_by: Instant, now: Instant) -> Standing {
        if self.ended.contains_key(&claim.at) {
            return Standing::Ended;
        }
        if let Some(held) = self.held.get_mut(&claim.at.key) {
            if held.claim.at != claim.at {
                let poll_after = held.from + held.lease - now;
                return Standing::Waiting {
                    ahead: None,
                    poll_after: poll_after.max(Duration::from_millis(1)),
                };
            }
            (held.from, held.lease) = (now, lease(claim.lease));
            return Standing::Granted(held.grant());
        }
        if now > place_by {
            return Standing::TooLate;
        }
        self.last_token += 1;
        let first = FencingToken::new(self.last_token).expect("nobody counts to 2^63");
        let held = Held {
            claim: claim.clone(),
            tokens: TokenRun::new(first, NonZeroU32::MIN).expect("a run of one token ends at its first"),
            from: now,
            lease: lease(claim.lease),
        };
        let grant = held.grant();
        self.held.insert(claim.at.key.clone(), held);
        Standing::Granted(grant)
    }

    fn renew(&mut self, renewal: Renewal, now: Instant) -> Renewed {
        match self.held.get_mut(&renewal.who.key) {
            Some(held) if held.claim.at == renewal.who && renewal.only != Phase::Waiting => {
                let until = renewal.end(held.from + held.lease, now + lease(renewal.lease));
                (held.from, held.lease) = (now, until - now);
                if let Some(raise) = renewal.raise {
                    held.tokens = raise;
                    self.last_token = self.last_token.max(raise.last().get());
                }
                Renewed::Alive {
                    held_from: held.from,
                    lease: held.lease,
                }
            }
            _ => {
                let why = self.ended.get(&renewal.who).map(|(loss, _)| loss.clone());
                Renewed::Gone(why.unwrap_or(Loss::Missing))
            }
        }
    }

    fn release(&mut self, departure: Departure, now: Instant) -> Released {
        let key = departure.who.key();
        let holder = self.held.get(key).filter(|held| match &departure.who {
            Holder::Claim(named) => held.claim.at == *named,
            Holder::All(_) => true,
            Holder::Foreign { .. } => false,
        });
        let (gone, lease) = match (holder, &departure.who) {
            (Some(held), _) => (Some(held.claim.at.clone()), held.lease),
            (None, Holder::Claim(named)) => (Some(named.clone()), Duration::ZERO),
            (None, _) => (None, Duration::ZERO),
        };
        let freed = holder.map(|held| HolderId::Claim(held.claim.at.id));
        if freed.is_some() {
            self.held.remove(key);
        }
        if let Some(gone) = gone {
            let why = match departure.cause {
                Cause::Evicted { by } => Loss::Evicted { by },
                Cause::Unlocked | Cause::Withdrawn => Loss::Missing,
            };
            let until = now + lease.max(MAX_PLACE_AHEAD);
            self.ended.entry(gone).or_insert((why, until));
        }
        let heir = departure
            .heir
            .map(|heir| self.acquire(&heir.claim, heir.place_by, now));
        Released::Done {
            freed: Batch::from_iter(freed),
            others: None,
            heir,
        }
    }
}

impl Held {
    fn grant(&self) -> Grant {
        Grant {
            tokens: Some(self.tokens),
            held_from: self.from,
            lease: self.lease,
            evidence: None,
        }
    }

    fn status(&self, now: Instant) -> LockStatus {
        let holder = HolderStatus {
            id: HolderId::Claim(self.claim.at.id),
            label: Some(self.claim.label.clone()),
            mode: Mode::Exclusive,
            token: Some(self.tokens.first()),
            remaining: Some(self.from + self.lease - now),
        };
        LockStatus {
            key: self.claim.at.key.clone(),
            kind: Kind::Mutex,
            holders: vec![holder],
            waiters: None,
        }
    }
}

/// A lease that was asked for, rounded up to what the profile promises.
fn lease(asked: Duration) -> Duration {
    asked.max(PROFILE.limits.min_lease)
}

impl Shelf {
    /// Does something to the state as it stands at one reading of the clock, unless this client was closed.
    fn with<T>(&self, work: impl FnOnce(&mut State, Instant) -> T) -> Result<T, BackendError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(BackendError::closed());
        }
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.settle(now);
        Ok(work(&mut state, now))
    }

    fn each<Q, A>(
        &self,
        batch: Batch<Q>,
        work: impl Fn(&mut State, Q, Instant) -> A,
        unknown: impl Fn(BackendError) -> A,
    ) -> Each<A> {
        let judge = |element| {
            self.with(|state, now| work(state, element, now))
                .unwrap_or_else(&unknown)
        };
        Each::ready(batch.into_iter().map(judge).collect())
    }
}

fn admissible(claim: &Claim) -> Result<(), BackendError> {
    if !PROFILE.serves(claim.mode, claim.fairness) {
        return Err(BackendError::unsupported("a shelf has unfair mutexes only"));
    }
    admissible_lease(claim.lease)
}

fn admissible_lease(lease: Duration) -> Result<(), BackendError> {
    if lease > PROFILE.limits.max_lease {
        let (fault, effect) = (tenure_backend::Fault::Limit, tenure_backend::Effect::None);
        return Err(BackendError::new(
            fault,
            effect,
            "a shelf keeps nothing for more than a day",
        ));
    }
    Ok(())
}

impl Backend for Shelf {
    fn profile(&self) -> &Profile {
        &PROFILE
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, place_by: Instant) -> Call<Standing> {
        Call::ready(
            admissible(&claim).and_then(|()| self.with(|state, now| state.acquire(&claim, place_by, now))),
        )
    }

    fn renew(self: Arc<Self>, batch: Batch<Renewal>) -> Each<Renewed> {
        let one = |renewal: Renewal| {
            admissible_lease(renewal.lease)?;
            self.with(|state, now| state.renew(renewal, now))
        };
        let judge = |renewal| one(renewal).unwrap_or_else(Renewed::Unknown);
        Each::ready(batch.into_iter().map(judge).collect())
    }

    fn release(self: Arc<Self>, batch: Batch<Departure>) -> Each<Released> {
        self.each(batch, State::release, Released::Unknown)
    }

    fn watch(self: Arc<Self>, _: Arc<Claim>) -> Call<Wakes> {
        Call::ready(Err(BackendError::unsupported("a shelf wakes nobody: ask again")))
    }

    fn reconnects(&self) -> Option<Wakes> {
        None
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        Call::ready(match query {
            Query::Key(key) => self.with(|state, now| Page {
                items: state
                    .held
                    .get(&key)
                    .map(|held| held.status(now))
                    .into_iter()
                    .collect(),
                next: None,
            }),
            Query::Prefix { .. } => Err(BackendError::unsupported("a shelf cannot list its keys")),
        })
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        Call::ready(self.with(|_, _| Vec::new()))
    }

    fn close(self: Arc<Self>) -> Call<()> {
        self.closed.store(true, Ordering::Relaxed);
        Call::ready(Ok(()))
    }
}

/// A shelf on a clock that the suite moves.
#[derive(Default)]
struct ShelfUnderTest {
    clock: ManualClock,
    state: Arc<Mutex<State>>,
}

impl Subject for ShelfUnderTest {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        self.client_on(Arc::new(self.clock.clone()))
            .expect("a shelf reads its client's clock")
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.clock.advance(time);
        Box::pin(std::future::ready(()))
    }

    fn client_on(&self, clock: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        let state = self.state.clone();
        let closed = AtomicBool::new(false);
        Some(Call::ready(Ok(Arc::new(Shelf { clock, state, closed }))))
    }
}

async fn subject() -> impl Subject {
    ShelfUnderTest::default()
}

tenure_testkit::conformance!(subject);
tenure_testkit::conformance_under_chaos!(subject);
tenure_testkit::agrees_with_the_model!(subject, walks: 1_000);
