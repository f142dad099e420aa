//! The trait by which the author of a store makes it available to the suite, with hooks for failures and delays.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Backend, Call, Clock, Fault, LockKey};

/// Store under test: fresh and empty for each case.
///
/// The suite asks it for clients, advances time only through [`pass`](Subject::pass), and drops it when the case has
/// ended.
///
/// # Examples
/// See [`conformance!`](crate::conformance); the tutorial of `tenure-backend` has a complete subject.
pub trait Subject: Send + Sync + 'static {
    /// Creates a client of the store, with its own connection.
    fn client(&self) -> Call<Arc<dyn Backend>>;

    /// Lets `time` pass for the store and for the clocks of its clients.
    ///
    /// A store with an injected clock advances that clock; a store with its own clock sleeps.
    ///
    /// # Cancel safety
    /// If the future is dropped, less time may have passed. The suite never drops it.
    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Returns true if [`pass`](Subject::pass) moves the store's running clock and does not sleep. Leases that a case lets
    /// end are then longer, so that they outlast a busy machine.
    fn passes_without_sleep(&self) -> bool {
        false
    }

    /// Creates a client on `clock`, with a store that reads the same clock. Returns `None` if the store has its own
    /// clock.
    ///
    /// The client may have a store of its own, so other clients of the subject may not see its claims.
    fn client_on(&self, clock: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>>;

    /// Shuts the store down in an orderly way and starts it again with its stored data. Returns `None` if the store
    /// keeps no data or cannot be restarted by a test.
    ///
    /// Clients created before the restart need not work after it. A store within one machine restarts only with that
    /// machine, so its clients end too.
    fn restart(&self) -> Option<Call<()>> {
        None
    }

    /// Makes every call of this subject's clients fail with `failure`; with `None`, calls succeed again. Returns
    /// `None` if the store cannot be made to fail in this way.
    fn set_failure(&self, failure: Option<StoreFailure>) -> Option<Call<()>> {
        let _ = failure;
        None
    }

    /// Returns true if the store refuses names with stray braces, such as `a{b`, without effect (R30).
    ///
    /// In a cluster the text in braces decides on which server a key is.
    fn refuses_stray_braces(&self) -> bool {
        false
    }

    /// The length of the store's longest key, in characters, if it is shorter than that of a [`LockKey`]: a column of a
    /// foreign table may be narrow. A longer key is refused without effect.
    fn longest_key(&self) -> usize {
        LockKey::MAX_BYTES
    }

    /// Returns true if the store may end a waiting claim at any time, as a quorum does when only a minority of its
    /// members has granted the claim. The engine then continues with a new claim.
    fn may_end_waiting_claims(&self) -> bool {
        false
    }

    /// Creates a client whose messages can be delayed. Returns `None` if the store offers no way to delay them.
    fn slow_client(&self) -> Option<Call<SlowClient>> {
        None
    }
}

/// Client whose requests and replies can be delayed.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_testkit::SlowClient;
///
/// /// Delays each request of the client by 300 ms.
/// fn delay_requests(client: &SlowClient) {
///     client.link.delay(Duration::from_millis(300), Duration::ZERO);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct SlowClient {
    /// Connection of the client.
    pub backend: Arc<dyn Backend>,
    /// Link between the client and the store.
    pub link: Arc<dyn Link>,
}

/// Link between a client and its store whose delays a test sets.
///
/// # Examples
/// See [`SlowClient`].
pub trait Link: fmt::Debug + Send + Sync + 'static {
    /// Sets the delays of all later requests and replies. The delays pass on the clocks of both the client and the
    /// store.
    fn delay(&self, requests: Duration, answers: Duration);
}

/// Failure of a whole store that is not transient.
///
/// # Examples
/// ```
/// use tenure_backend::Fault;
/// use tenure_testkit::StoreFailure;
///
/// assert_eq!(StoreFailure::AccessDenied.fault(), Fault::Denied);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// The store denies access: the password was changed, or the file belongs to another user.
    AccessDenied,
    /// The store answers, but cannot work: a table is missing, or the disk is full.
    Broken,
}

impl StoreFailure {
    /// Fault of every call while the store fails this way.
    pub const fn fault(self) -> Fault {
        match self {
            StoreFailure::AccessDenied => Fault::Denied,
            StoreFailure::Broken => Fault::Store,
        }
    }
}
