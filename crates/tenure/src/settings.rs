//! The settings of a client: defaults, limits and switches.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::MAX_NOT_AFTER;

const MIN_CALL_LIMIT: Duration = Duration::from_millis(100);
const MIN_OFFER_WINDOW: Duration = Duration::from_millis(10);

/// The settings of a [`Client`](crate::Client): defaults for its locks, time limits and switches.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure::Settings;
///
/// let settings = Settings::default().lease(Duration::from_secs(10)).label("importer");
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) lease: Duration,
    pub(crate) label: Arc<str>,
    pub(crate) connect_limit: Option<Duration>,
    pub(crate) allow_read_only: bool,
    pub(crate) lock_limit: Option<Duration>,
    pub(crate) call_limit: Duration,
    pub(crate) offer_window: Duration,
    pub(crate) local_handover: bool,
    pub(crate) grants: u32,
    pub(crate) linger: Duration,
    pub(crate) unlock_limit: Duration,
    pub(crate) max_claims: usize,
    pub(crate) own_thread: bool,
    pub(crate) key_labels: bool,
    /// Seed of the client's ID and of the jitter of its timers; `None`: both are random.
    pub(crate) seed: Option<[u8; 16]>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            lease: Settings::DEFAULT_LEASE,
            label: Settings::default_label(),
            connect_limit: None,
            allow_read_only: false,
            lock_limit: None,
            call_limit: Duration::from_secs(5),
            offer_window: Duration::from_millis(100),
            local_handover: true,
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
    /// The lease of locks for which neither the lock nor the client sets one: 30 s.
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

    /// Returns `user@host:pid`, from the environment and the system: the label of a client that sets none.
    pub fn default_label() -> Arc<str> {
        let user = ["USER", "LOGNAME", "USERNAME"]
            .iter()
            .find_map(|name| std::env::var(name).ok());
        let user = user.unwrap_or_else(|| "unknown".to_owned());
        format!("{user}@{}:{}", host(), std::process::id()).into()
    }

    /// Raises limits that are too short for any call or offer to succeed.
    pub(crate) fn within_reason(mut self) -> Self {
        self.call_limit = self.call_limit.clamp(MIN_CALL_LIMIT, MAX_NOT_AFTER);
        self.offer_window = self.offer_window.max(MIN_OFFER_WINDOW);
        self
    }

    /// Sets the lease of locks that set none: 30 s by default, the same as Redisson's `lockWatchdogTimeout`.
    #[must_use]
    #[doc(alias = "ttl")]
    pub fn lease(self, lease: Duration) -> Self {
        Settings { lease, ..self }
    }

    /// Sets the label that `tenure ls` shows for this client's locks: `user@host:pid` by default.
    #[must_use]
    pub fn label(self, label: impl Into<Arc<str>>) -> Self {
        let label = label.into();
        Settings { label, ..self }
    }

    /// Sets how long [`connect_with`](crate::connect_with) tries to connect. By default it tries once, for the
    /// `connect_timeout` of the URL.
    ///
    /// With a limit, it tries again after each transient failure, such as a refused connection or a server that is
    /// loading its data, until the limit has passed: for services that may start before their store. It never repeats
    /// a permanent failure, such as a wrong password. The first attempt has at least a second, so that also with a shorter
    /// limit, or zero, a store that answers is connected to.
    #[must_use]
    pub fn connect_limit(self, limit: Duration) -> Self {
        let connect_limit = Some(limit);
        Settings {
            connect_limit,
            ..self
        }
    }

    /// Sets whether [`connect_with`](crate::connect_with) accepts a SQLite file that this user can read but not write:
    /// false by default.
    ///
    /// For programs that monitor locks of other users. On such a file, only [`inspect`](crate::Client::inspect),
    /// [`examine`](crate::Client::examine) and [`watch`](crate::Client::watch) work; other calls fail with
    /// [`Fault::Denied`](crate::Fault::Denied). Other stores ignore this setting.
    #[must_use]
    pub fn allow_read_only(self, allow_read_only: bool) -> Self {
        Settings {
            allow_read_only,
            ..self
        }
    }

    /// Sets how long a lock method without a limit of its own waits, such as [`Mutex::lock`](crate::Mutex::lock) or
    /// [`RwLock::write`](crate::RwLock::write): by default for as long as it takes, also while the store does not
    /// answer.
    ///
    /// Set it once in a service whose requests must not wait for ever. Such a method then ends as `lock_within` does:
    /// with [`Error::Timeout`](crate::Error::Timeout) if the lock was busy, or with
    /// [`Error::Backend`](crate::Error::Backend) if the store did not answer. A multi-lock waits for the shortest limit
    /// of its members. Elections have no limit.
    #[must_use]
    pub fn lock_limit(self, limit: Duration) -> Self {
        let lock_limit = Some(limit);
        Settings { lock_limit, ..self }
    }

    /// Sets the time limit of one call that places a claim: 5 s by default, at least 100 ms, at most 10 s. A store
    /// that receives the call later does not place the claim.
    ///
    /// This limit does not end a caller's wait for the answer: see [`Mutex::try_lock`](crate::Mutex::try_lock).
    #[must_use]
    pub fn call_limit(self, call_limit: Duration) -> Self {
        Settings { call_limit, ..self }
    }

    /// Sets how long an offered grant waits for its waiter to be polled before the next waiter gets it: 100 ms by default,
    /// at least 10 ms.
    #[must_use]
    pub fn offer_window(self, offer_window: Duration) -> Self {
        Settings { offer_window, ..self }
    }

    /// Sets whether an unlock hands the claim to the next waiter of this client in memory: true by default.
    ///
    /// If false, each hand-over goes through the store.
    #[must_use]
    pub fn local_handover(self, local_handover: bool) -> Self {
        Settings {
            local_handover,
            ..self
        }
    }

    /// Limits the local hand-overs of one claim: after this many grants the client acquires from the store again. 256
    /// by default.
    ///
    /// A claim reserves one token if no other task of this client waits and the lock does not linger. Otherwise it
    /// reserves twice as many tokens as the previous claim used.
    #[must_use]
    pub fn grants(self, grants: u32) -> Self {
        Settings { grants, ..self }
    }

    /// Sets how long a client keeps an unlocked claim in memory if no local task waits, so that its next `lock` of the
    /// key needs no call: zero by default, at most 10 ms. See [`Mutex::linger`](crate::Mutex::linger).
    #[must_use]
    pub fn linger(self, linger: Duration) -> Self {
        Settings { linger, ..self }
    }

    /// Sets how long `unlock` waits for the store, with all its tries: 5 s by default, and not beyond the local deadline,
    /// but at least 100 ms. The unlock of a lost lock waits for 1 s at most.
    ///
    /// `with` and `with_or_else` wait for their unlock too: while the store does not answer, they return the output of
    /// finished work up to 5 s later.
    #[must_use]
    pub fn unlock_limit(self, unlock_limit: Duration) -> Self {
        Settings { unlock_limit, ..self }
    }

    /// Sets how many claims this client may hold or wait for at once: 1,000,000 by default.
    #[must_use]
    pub fn max_claims(self, max_claims: usize) -> Self {
        Settings { max_claims, ..self }
    }

    /// Sets whether the watchdog and the store's connections run on a separate thread, for programs whose tasks block
    /// their runtime: false by default.
    #[must_use]
    pub fn own_thread(self, own_thread: bool) -> Self {
        Settings { own_thread, ..self }
    }

    /// Sets whether metrics have a label for the key: false by default, because there may be millions of keys.
    #[must_use]
    pub fn key_labels(self, key_labels: bool) -> Self {
        Settings { key_labels, ..self }
    }
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_a_store_could_not_keep_are_moved_to_the_nearest() {
        for (asked, kept) in [(0, 100), (100, 100), (10_000, 10_000), (3_600_000, 10_000)] {
            let settings = Settings::default().call_limit(Duration::from_millis(asked));
            assert_eq!(
                settings.within_reason().call_limit,
                Duration::from_millis(kept),
                "{asked} ms"
            );
        }
    }
}
