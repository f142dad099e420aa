//! Fixture of one case: the store under test, its keys, its leases and its time.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure_backend::{Backend, Fairness, LockKey, Mode, Profile};

use crate::Subject;

/// Longest time between two checks whether a lease has ended: a pause of up to 50 ms, and the time of the check.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Store under test, with the leases, keys and clients that a case uses.
///
/// # Cancel safety
/// A dropped future of a method leaves at most a client or a claim behind, in a store that no other case uses.
///
/// # Examples
/// ```
/// use tenure_backend::Mode;
/// use tenure_testkit::Subject;
/// use tenure_testkit::suite::{Fixture, run};
///
/// /// A case in addition to those of the suite.
/// async fn a_released_key_is_free(fixture: Fixture) {
///     let (client, key) = (fixture.client().await, fixture.key());
///     let claim = client.claim(&key, Mode::Exclusive);
///     client.granted(&claim).await;
///     client.release(&claim).await.freed_it(&claim);
///     client.finds_free(&key, Mode::Exclusive).await;
/// }
/// fn try_it<S: Subject>(subject: impl AsyncFnOnce() -> S) {
///     run(subject, a_released_key_is_free);
/// }
/// ```
#[derive(Clone)]
pub struct Fixture {
    pub(super) subject: Arc<dyn Subject>,
    pub(super) decorate: Arc<Decorate>,
    pub(super) profile: Arc<Profile>,
    /// The clients' connections lose wake-ups on purpose.
    pub(super) loses_wake_ups: bool,
    keys: Arc<AtomicU32>,
}

/// Wraps the connection of each client, e.g. for faults.
type Decorate = dyn Fn(Arc<dyn Backend>) -> Arc<dyn Backend> + Send + Sync;

impl Fixture {
    /// Creates a fixture for the store of `subject`.
    pub async fn new(subject: impl Subject) -> Self {
        let loses_wake_ups = false;
        Fixture {
            loses_wake_ups,
            ..Self::decorated(subject, Arc::new(|backend| backend)).await
        }
    }

    /// Creates a fixture that passes the connection of each client through `decorate`, which may lose wake-ups.
    pub(super) async fn decorated(subject: impl Subject, decorate: Arc<Decorate>) -> Self {
        Self::of(Arc::new(subject), decorate).await
    }

    async fn of(subject: Arc<dyn Subject>, decorate: Arc<Decorate>) -> Self {
        let probe = connect(&*subject).await;
        let profile = Arc::new(decorate(probe).profile().clone());
        Fixture {
            subject,
            decorate,
            profile,
            loses_wake_ups: true,
            keys: Arc::default(),
        }
    }

    /// Profile of the store.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Subject that makes the store's clients.
    pub fn subject(&self) -> &Arc<dyn Subject> {
        &self.subject
    }

    /// Returns a key that this case has not used yet.
    pub fn key(&self) -> LockKey {
        let number = self.keys.fetch_add(1, Ordering::Relaxed);
        LockKey::new(format!("case:{number}")).expect("a short text without control characters")
    }

    /// Lets time pass for the store and its clients.
    pub async fn pass(&self, time: Duration) {
        self.subject.pass(time).await;
    }

    /// Lease short enough for a case to wait for its end: one second, within the store's limits. Three, in which a few slow calls
    /// fit, if the store needs longer ones; six if no case sleeps for it.
    pub fn short_lease(&self) -> Duration {
        let limits = &self.profile.limits;
        let needs_more = limits.min_lease > Duration::from_secs(1);
        let usual = match (self.subject.passes_without_sleep(), needs_more) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 1,
        };
        Duration::from_secs(usual).clamp(limits.min_lease, limits.max_lease)
    }

    /// Time after the end of a lease by which its key must be free: the store's `expiry_slack` and one check interval.
    pub fn grace(&self) -> Duration {
        self.profile.limits.expiry_slack + POLL_INTERVAL
    }

    /// Lease that outlives a case: one minute, within the store's limits.
    pub fn long_lease(&self) -> Duration {
        let limits = &self.profile.limits;
        Duration::from_secs(60).clamp(limits.min_lease, limits.max_lease)
    }

    /// `Unfair` if the store serves `mode` unfairly, otherwise `Fifo`.
    pub fn fairness(&self, mode: Mode) -> Fairness {
        if self.profile.serves(mode, Fairness::Unfair) {
            Fairness::Unfair
        } else {
            Fairness::Fifo
        }
    }
}

/// On a busy machine, as many attempts to connect as this reach their time limit before one succeeds.
const CONNECT_ATTEMPTS: u32 = 5;

/// Connects a client. As `tenure::connect` does, goes on after transient errors.
pub(super) async fn connect(subject: &dyn Subject) -> Arc<dyn Backend> {
    let mut attempt = 1;
    loop {
        match subject.client().await {
            Err(error) if error.is_transient() && attempt < CONNECT_ATTEMPTS => attempt += 1,
            connected => return connected.expect("the subject makes a client"),
        }
    }
}

/// Mode of a claim for `take` of a semaphore's `of` permits.
pub(crate) fn permits(take: u32, of: u32) -> Mode {
    let number = |n| NonZeroU32::new(n).expect("cases ask for at least one permit");
    Mode::Permits {
        take: number(take),
        of: number(of),
    }
}
