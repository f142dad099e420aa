//! What all parts of one client share: its store, its clock, its names, its lines and its watchdog.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tenure_backend::{
    Backend, BackendError, Claim, ClaimId, ClaimRef, ClientId, Clock, Fairness, Instant, LockKey,
    MAX_PLACE_AHEAD, Mode, Order, OwnerId,
};
use tokio::sync::Notify;

use crate::error::Error;
use crate::line::Line;
use crate::lines::Lines;
use crate::owner::Owner;
use crate::queue::Places;
use crate::scan::Scans;
use crate::settings::Settings;
use crate::store::Store;
use crate::telemetry::{Meters, Rounds};
use crate::want::{Options, Want};
use crate::watchdog::Watchdog;

/// Bells that claims share, so that a claim need not carry one.
const LOSS_BELLS: usize = 16;

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) backend: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    /// What the settings say of a lock of which nothing else was asked.
    pub(crate) options: Arc<Options>,
    pub(crate) id: ClientId,
    pub(crate) lines: Lines,
    pub(crate) watchdog: Watchdog,
    /// What watchers of this client look at together.
    pub(crate) scans: Arc<Scans>,
    claims: AtomicU64,
    owners: AtomicU64,
    /// Attempts and held claims, for the limit.
    live: AtomicUsize,
    dice: AtomicU64,
    pub(crate) places: Places,
    losses: [Notify; LOSS_BELLS],
    /// It was told that the store does not answer, and it has not answered since: what it said instead.
    out_of_reach: AtomicBool,
    weather: Mutex<Option<BackendError>>,
    meters: OnceLock<Meters>,
    rounds: OnceLock<Rounds>,
}

impl Engine {
    pub(crate) fn new(backend: Arc<dyn Backend>, settings: Settings) -> Arc<Self> {
        let settings = settings.within_reason();
        let random = settings.seed.unwrap_or_else(|| {
            let mut random = [0; 16];
            // Without the system's randomness two clients could take one name, and free each other's locks.
            getrandom::fill(&mut random).expect("the operating system has random numbers to give");
            random
        });
        let clock = backend.clock().clone();
        let seed = random
            .iter()
            .fold(1, |seed: u64, byte| seed.rotate_left(8) ^ u64::from(*byte));
        let backend = Store::new(backend);
        Arc::new(Engine {
            watchdog: Watchdog::new(backend.clone(), clock.clone(), settings.own_thread),
            backend,
            clock,
            options: Arc::new(Options::new(&settings)),
            settings,
            id: ClientId::from_random(random),
            lines: Lines::default(),
            scans: Arc::default(),
            claims: AtomicU64::new(0),
            owners: AtomicU64::new(0),
            live: AtomicUsize::new(0),
            dice: AtomicU64::new(seed),
            places: Places::default(),
            losses: Default::default(),
            out_of_reach: AtomicBool::new(false),
            weather: Mutex::default(),
            meters: OnceLock::new(),
            rounds: OnceLock::new(),
        })
    }

    /// Whoever waits without a limit learns nothing else of a store that does not answer. A warning once, until it does.
    pub(crate) fn tell_weather(&self, key: &LockKey, error: &BackendError) {
        *self.weather.lock() = Some(error.clone());
        if self.out_of_reach.swap(true, Ordering::Relaxed) {
            tracing::debug!(%key, %error, "the store does not answer, and is asked again");
        } else {
            tracing::warn!(%key, %error, "the store does not answer, and is asked again");
        }
    }

    /// The store has answered.
    pub(crate) fn weather_is_over(&self) {
        if self.out_of_reach.load(Ordering::Relaxed) {
            self.out_of_reach.store(false, Ordering::Relaxed);
        }
    }

    /// What the store said instead of an answer, if it has not answered since.
    pub(crate) fn weather(&self) -> Option<BackendError> {
        let out = self.out_of_reach.load(Ordering::Relaxed);
        out.then(|| self.weather.lock().clone()).flatten()
    }

    /// Asks the store about every claim that this client holds on that key: what comes of it is the guards' to tell.
    pub(crate) fn ask_about(&self, key: &LockKey) {
        for line in self.lines.all().into_iter().filter(|line| line.key == *key) {
            for held in line.holders() {
                if held.has_departed() {
                    // Whoever has it kept asks.
                    self.loss_bell(held.claim.at.id).notify_waiters();
                    continue;
                }
                let line = line.clone();
                self.watchdog
                    .spawn(async move { drop(line.engine.watchdog.verify(&held).await) });
            }
        }
    }

    /// Names a new claim on the line's key, for a caller that no other waits behind. It reserves one grant: where
    /// tokens follow the server's clock in microseconds, they stay behind it up to a million locks a second.
    pub(crate) fn claim(&self, line: &Line, want: &Want, fairness: Fairness) -> Arc<Claim> {
        self.claim_for_run(line, want, fairness, 1)
    }

    /// The same with so many grants, as far as there may be.
    pub(crate) fn claim_for_run(
        &self,
        line: &Line,
        want: &Want,
        fairness: Fairness,
        reserve: u32,
    ) -> Arc<Claim> {
        let most = want.grants(self);
        let grants = NonZeroU32::new(reserve).map_or(NonZeroU32::MIN, |reserve| reserve.min(most));
        let number = self.claims.fetch_add(1, Ordering::Relaxed) + 1;
        Arc::new(Claim {
            at: ClaimRef {
                key: line.key.clone(),
                id: ClaimId::new(self.id, number),
            },
            owner: OwnerId(want.options.owner.as_ref().map_or(0, Owner::number)),
            label: want.options.label.clone(),
            mode: want.mode,
            fairness,
            lease: want.options.lease,
            grants,
        })
    }

    /// How a claim of that mode is placed: where the store has one order, an unfair one queues there like a fair one.
    pub(crate) fn fairness(&self, mode: Mode, wanted: Fairness) -> Fairness {
        match self.backend.profile().order(mode) {
            Order::FifoForBoth => Fairness::Fifo,
            _ => wanted,
        }
    }

    /// The client's instruments, made when they are first needed.
    pub(crate) fn meters(&self) -> &Meters {
        self.meters
            .get_or_init(|| Meters::new(self.backend.profile().store, None))
    }

    /// The watchdog's instruments.
    pub(crate) fn rounds(&self) -> &Rounds {
        self.rounds
            .get_or_init(|| Rounds::new(self.backend.profile().store))
    }

    /// The bell that is rung when the claim is lost; some claims share one.
    pub(crate) fn loss_bell(&self, claim: ClaimId) -> &Notify {
        &self.losses[claim.number() as usize % LOSS_BELLS]
    }

    /// The number of a new owner, from 1: 0 is nobody's.
    pub(crate) fn next_owner(&self) -> NonZeroU64 {
        NonZeroU64::MIN.saturating_add(self.owners.fetch_add(1, Ordering::Relaxed))
    }

    /// After which moment a claim asked for at `now` is not to be placed any more.
    pub(crate) fn place_by(&self, now: Instant) -> Instant {
        now + self.settings.call_limit.min(MAX_PLACE_AHEAD)
    }

    /// Reserves a place for an attempt or a held claim.
    pub(crate) fn reserve(self: &Arc<Self>) -> Result<Place, Error> {
        if self.live.fetch_add(1, Ordering::Relaxed) >= self.settings.max_claims {
            self.live.fetch_sub(1, Ordering::Relaxed);
            let message = format!(
                "this client holds or waits for {} locks, its limit: release some, or raise Settings::max_claims",
                self.settings.max_claims
            );
            return Err(Error::Limit(message.into()));
        }
        Ok(Place(self.clone()))
    }

    /// A number to spread waits and renewals with; it need not be good.
    pub(crate) fn dice(&self) -> u64 {
        let mut x = self.dice.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.watchdog.stop();
    }
}

/// A reserved place among the client's claims; free again when dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Engine>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::Relaxed);
    }
}
