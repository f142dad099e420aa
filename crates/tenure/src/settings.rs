//! What a client can be told at its making: defaults, limits and switches.

use std::sync::Arc;
use std::time::Duration;

const MIN_CALL_LIMIT: Duration = Duration::from_millis(100);
const MIN_OFFER_WINDOW: Duration = Duration::from_millis(10);

/// How a [`Client`](crate::Client) behaves: what may be set of its defaults and limits.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure::Settings;
///
/// let settings = Settings::default().lease(Duration::from_secs(10)).label("importer");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The lease of locks that name none: 30 s, as Redisson's `lockWatchdogTimeout`.
    pub lease: Duration,
    /// What `tenure ls` shows for this client's locks: `user@host:pid`.
    pub label: Arc<str>,
    /// How long one call to place a claim may take before the store refuses to place it: 5 s. At least 100 ms, at most
    /// 10 s.
    pub call_limit: Duration,
    /// How long an offered grant waits for its waiter to be polled before it goes to the next: 100 ms. At least 10 ms.
    pub offer_window: Duration,
    /// Whether an unlock hands the claim to the next waiter of this client in memory: yes.
    ///
    /// Turned off, each hand-over goes through the store.
    pub passing: bool,
    /// How many grants one run of such hand-overs has at the most before the store is asked again: 256. A lock for
    /// which no other task of this client waits reserves 1. A run reserves twice as many as the one before handed out.
    pub grants: u32,
    /// How long a client keeps a claim in memory after an unlock that no local task waits for, so that its next `lock` of the
    /// key needs no call: zero by default, at most 10 ms. See [`Mutex::linger`](crate::Mutex::linger).
    pub linger: Duration,
    /// How long `unlock` asks anew while the store does not answer: 5 s, and never beyond the lease. A call that is under
    /// way then may take as long again.
    pub unlock_limit: Duration,
    /// How many claims this client may hold or wait for at once: 1,000,000.
    pub max_claims: usize,
    /// Whether the watchdog and the store's connections run on a thread of their own, for programs whose tasks block their
    /// runtime: no.
    pub own_thread: bool,
    /// Whether metrics tell keys apart by a label: no, since there may be millions of them.
    pub key_labels: bool,
    /// Where the client's name and the jitter of its timers come from; none by default: the operating system.
    ///
    /// For tests that must be repeated exactly. Two clients of one seed have one name, and free each other's locks.
    #[doc(hidden)]
    pub seed: Option<[u8; 16]>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            lease: Duration::from_secs(30),
            label: default_label(),
            call_limit: Duration::from_secs(5),
            offer_window: Duration::from_millis(100),
            passing: true,
            grants: 256,
            linger: Duration::ZERO,
            unlock_limit: Duration::from_secs(5),
            max_claims: 1_000_000,
            own_thread: false,
            key_labels: false,
            seed: None,
        }
    }
}

impl Settings {
    /// With nothing so short that no call or offer could ever succeed.
    pub(crate) fn within_reason(mut self) -> Self {
        self.call_limit = self.call_limit.max(MIN_CALL_LIMIT);
        self.offer_window = self.offer_window.max(MIN_OFFER_WINDOW);
        self
    }

    /// Sets [`Settings::lease`].
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets [`Settings::label`].
    #[must_use]
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets [`Settings::passing`].
    #[must_use]
    pub fn passing(mut self, passing: bool) -> Self {
        self.passing = passing;
        self
    }

    /// Sets [`Settings::linger`].
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets [`Settings::max_claims`].
    #[must_use]
    pub fn max_claims(mut self, max_claims: usize) -> Self {
        self.max_claims = max_claims;
        self
    }

    /// Sets [`Settings::unlock_limit`].
    #[must_use]
    pub fn unlock_limit(mut self, limit: Duration) -> Self {
        self.unlock_limit = limit;
        self
    }

    /// Sets [`Settings::own_thread`].
    #[must_use]
    pub fn own_thread(mut self, own_thread: bool) -> Self {
        self.own_thread = own_thread;
        self
    }

    /// Sets [`Settings::key_labels`].
    #[must_use]
    pub fn key_labels(mut self, key_labels: bool) -> Self {
        self.key_labels = key_labels;
        self
    }
}

/// `user@host:pid`, as far as the environment and the system tell.
fn default_label() -> Arc<str> {
    let user = ["USER", "LOGNAME", "USERNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok());
    let user = user.unwrap_or_else(|| "unknown".to_owned());
    format!("{user}@{}:{}", host(), std::process::id()).into()
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "localhost".to_owned())
}
