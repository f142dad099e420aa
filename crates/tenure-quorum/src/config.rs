//! Settings of a quorum.

use std::time::Duration;

/// Settings of a quorum.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_quorum::Config;
///
/// let config = Config::default().member_timeout(Duration::from_millis(200));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    pub(crate) member_timeout: Duration,
    pub(crate) max_lease: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            member_timeout: Config::MEMBER_TIMEOUT,
            max_lease: Config::MAX_LEASE,
        }
    }
}

impl Config {
    /// Longest wait for the replies to one round of requests, unless it is [set](Config::member_timeout).
    pub const MEMBER_TIMEOUT: Duration = Duration::from_millis(500);

    /// The longest lease, unless it is [set](Config::max_lease).
    pub const MAX_LEASE: Duration = Duration::from_secs(60);

    /// Sets how long one round of requests waits for members that have not replied (500 ms by default). A call sends up
    /// to three rounds: an acquire may need a second one to agree on tokens, and one to withdraw the claim.
    ///
    /// An acquire, a renewal and the release of a held claim wait only until the replies decide them, usually those of
    /// a majority. A request to a slow member is not cancelled: if the member grants a claim after the quorum has
    /// refused it, the quorum releases the claim there.
    pub fn member_timeout(mut self, time: Duration) -> Self {
        self.member_timeout = time;
        self
    }

    /// Sets the longest lease (60 s by default). It must be equal for all clients of the members.
    ///
    /// A member that restarted without its data must grant nothing for that time. After it, every lease that the member
    /// has forgotten has ended.
    pub fn max_lease(mut self, lease: Duration) -> Self {
        self.max_lease = lease;
        self
    }
}
