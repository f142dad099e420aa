//! What every part of a client needs: its store, clock, settings, names and metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{
    Backend, BackendError, ClaimId, ClientId, Clock, Fairness, Instant, LockKey, Mode, Order,
};
use tokio::sync::Notify;

use super::store::Store;
use crate::error::Error;
use crate::settings::Settings;
use crate::telemetry::{Meters, Rounds};

/// Number of notifiers of lost claims. Claims share them, so that no claim carries a notifier of its own.
const LOSS_NOTIFIERS: usize = 16;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    pub(crate) id: ClientId,
    counters: Counters,
    losses: [Notify; LOSS_NOTIFIERS],
    /// Whether an acquire of a waiter failed with a transient error, and no acquire was answered since.
    unreachable: AtomicBool,
    last_error: Mutex<Option<BackendError>>,
    /// An error of the last batch of renewals that was answered or given up; `None` if all its claims were renewed.
    renewal_error: Mutex<Option<BackendError>>,
    meters: OnceLock<Meters>,
    renewal_meters: OnceLock<Rounds>,
}

/// Counters that attempts change. They have cache lines of their own: a processor core that changes a counter would otherwise
/// delay the other cores' reads of the other fields.
#[derive(Debug)]
#[repr(align(128))]
struct Counters {
    claims: AtomicU64,
    owners: AtomicU64,
    /// Number of attempts and held claims at present, limited by `max_claims`.
    live: AtomicUsize,
    random: AtomicU64,
}

impl Context {
    pub(crate) fn new(backend: Arc<dyn Backend>, settings: Settings) -> Arc<Self> {
        let settings = settings.within_reason();
        let random = settings.seed.unwrap_or_else(|| {
            let mut random = [0; 16];
            // Without random names two clients could have the same ID, and release each other's locks.
            getrandom::fill(&mut random).expect("the operating system has random numbers to give");
            random
        });
        let seed = random
            .iter()
            .fold(1, |seed: u64, byte| seed.rotate_left(8) ^ u64::from(*byte));
        Arc::new(Context {
            clock: backend.clock().clone(),
            store: Store::new(backend),
            settings,
            id: ClientId::from_random(random),
            counters: Counters {
                claims: AtomicU64::new(0),
                owners: AtomicU64::new(0),
                live: AtomicUsize::new(0),
                random: AtomicU64::new(seed),
            },
            losses: Default::default(),
            unreachable: AtomicBool::new(false),
            last_error: Mutex::default(),
            renewal_error: Mutex::default(),
            meters: OnceLock::new(),
            renewal_meters: OnceLock::new(),
        })
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Records a transient error of an acquire that a waiter depends on. Until an acquire is answered, only
    /// the first such error is logged as a warning.
    pub(crate) fn store_failed(&self, key: &LockKey, error: &BackendError) {
        *self.last_error.lock() = Some(error.clone());
        let error = Error::from(error.clone());
        if self.unreachable.swap(true, Ordering::Relaxed) {
            tracing::debug!(%key, %error, "the store cannot grant the lock now, and the client tries again");
        } else {
            tracing::warn!(%key, %error, "the store cannot grant the lock now, and the client tries again");
        }
    }

    pub(crate) fn store_answered(&self) {
        // The load alone is cheap, and nearly always enough.
        if self.unreachable.load(Ordering::Relaxed) && self.unreachable.swap(false, Ordering::Relaxed) {
            tracing::info!("the store answers again");
        }
    }

    /// The last error that [`store_failed`](Self::store_failed) recorded, if no acquire was answered since.
    pub(crate) fn store_error(&self) -> Option<BackendError> {
        let unreachable = self.unreachable.load(Ordering::Relaxed);
        unreachable.then(|| self.last_error.lock().clone()).flatten()
    }

    /// Records how a batch of renewals ended: with an error of one of its claims, or without.
    pub(crate) fn renewals_ended(&self, error: Option<BackendError>) {
        *self.renewal_error.lock() = error;
    }

    pub(crate) fn renewal_error(&self) -> Option<BackendError> {
        self.renewal_error.lock().clone()
    }

    pub(crate) fn next_claim(&self) -> ClaimId {
        ClaimId::new(self.id, self.counters.claims.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The number of a new owner, from 1: 0 means no owner.
    pub(crate) fn next_owner(&self) -> std::num::NonZeroU64 {
        std::num::NonZeroU64::MIN.saturating_add(self.counters.owners.fetch_add(1, Ordering::Relaxed))
    }

    /// The fairness of a claim with which a client may wait for its unfair callers. It is `Fifo` if the store grants no
    /// other claim while one waits.
    pub(crate) fn waiting_fairness(&self, mode: Mode) -> Fairness {
        match self.store.profile().order(mode) {
            Order::FifoForBoth => Fairness::Fifo,
            _ => Fairness::Unfair,
        }
    }

    pub(crate) fn meters(&self) -> &Meters {
        self.meters
            .get_or_init(|| Meters::new(self.store.profile().store, None))
    }

    pub(crate) fn renewal_meters(&self) -> &Rounds {
        self.renewal_meters
            .get_or_init(|| Rounds::new(self.store.profile().store))
    }

    /// The notifier of the loss of `claim`. Other claims share this notifier.
    pub(crate) fn loss(&self, claim: ClaimId) -> &Notify {
        &self.losses[claim.number() as usize % LOSS_NOTIFIERS]
    }

    /// The latest time at which the store may place a claim that is sent at `now`.
    pub(crate) fn not_after(&self, now: Instant) -> Instant {
        now + self.settings.call_limit
    }

    /// Counts one more attempt or held claim. Fails at the limit `max_claims`.
    pub(crate) fn reserve(self: &Arc<Self>) -> Result<Place, Error> {
        if self.counters.live.fetch_add(1, Ordering::Relaxed) >= self.settings.max_claims {
            self.counters.live.fetch_sub(1, Ordering::Relaxed);
            let message = format!(
                "this client holds or waits for {} locks, its limit: release some, or raise Settings::max_claims",
                self.settings.max_claims
            );
            return Err(Error::Limit(message.into()));
        }
        Ok(Place(self.clone()))
    }

    /// A cheap random number that spreads waits and renewals.
    pub(crate) fn dice(&self) -> u64 {
        let random = &self.counters.random;
        let mut x = random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A random fraction, from 0 to less than 1.
    pub(crate) fn fraction(&self) -> f64 {
        (self.dice() % 1024) as f64 / 1024.0
    }
}

/// The pause after a number of failures in a row: 20 ms after the first, doubled with each further one up to 640 ms,
/// plus or minus a quarter.
pub(crate) fn backoff(failures: u32, dice: u64) -> Duration {
    let base = Duration::from_millis(20 << failures.saturating_sub(1).min(5));
    base.mul_f64(0.75 + (dice % 512) as f64 / 1024.0)
}

/// Counts one attempt or held claim against `max_claims`, until dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Context>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.counters.live.fetch_sub(1, Ordering::Relaxed);
    }
}
