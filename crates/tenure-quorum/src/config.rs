//! Settings of a quorum.

use std::time::Duration;

use tenure_backend::{BackendError, Effect, Fault};

/// The largest [`Config::drift`]. Half of the lease is left, and renewals are due after a third of it.
const MAX_DRIFT: f64 = 0.5;

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
    pub(crate) drift_ppm: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            member_timeout: Config::MEMBER_TIMEOUT,
            max_lease: Config::MAX_LEASE,
            drift_ppm: (Config::DRIFT * 1e6) as u32,
        }
    }
}

impl Config {
    /// Longest wait for the replies to one round of requests, unless it is [set](Config::member_timeout).
    pub const MEMBER_TIMEOUT: Duration = Duration::from_millis(500);

    /// The longest lease, unless it is [set](Config::max_lease).
    pub const MAX_LEASE: Duration = Duration::from_secs(60);

    /// The part of a lease that a holder does not use, unless it is [set](Config::drift).
    pub const DRIFT: f64 = 0.01;

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

    /// Sets the part of each lease that a holder does not use, because its clock may run slower than those of the
    /// members: 0.01 by default, at most 0.5.
    ///
    /// With 0.05, the local deadline of a lease of 30 s is 1.5 s earlier than with 0. It is always earlier by 10 ms more,
    /// or by a hundredth of the lease if that is more.
    ///
    /// # Errors
    /// [`Fault::Invalid`] for another number.
    pub fn drift(self, drift: f64) -> Result<Self, BackendError> {
        if !(0.0..=MAX_DRIFT).contains(&drift) {
            let message = format!(
                "`drift` is the part of a lease that is left for clocks of different speeds: a number from 0 to {MAX_DRIFT}, such as \
                 {}",
                Self::DRIFT
            );
            return Err(BackendError::new(Fault::Invalid, Effect::None, message));
        }
        let drift_ppm = (drift * 1e6).round() as u32;
        Ok(Config { drift_ppm, ..self })
    }
}
