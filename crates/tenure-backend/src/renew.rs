//! Requests and replies of `renew`, and why a claim is gone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{BackendError, Claim, ClaimRef, Effect, Fault, Instant, Kind, Mode, TokenRange, escape_control};

/// A request to renew one claim.
///
/// The fields are complete: a store must act on each, so a new one is a breaking change.
///
/// # Examples
/// ```
/// use tenure_backend::{Claim, RenewRequest};
///
/// /// Tells the store that the holder of a claim with a fixed lease is alive.
/// fn confirm_alive(claim: &Claim) -> RenewRequest {
///     RenewRequest { shorten_only: true, ..RenewRequest::of(claim) }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct RenewRequest {
    /// The claim to renew.
    pub claim: ClaimRef,
    /// Length of the new lease, counted from the moment at which the store acts.
    pub lease: Duration,
    /// The phase that the claim must be in. A claim in another phase stays as it is and is answered `Gone(Missing)`.
    pub only: Phase,
    /// Sets the lease to the shorter of `lease` and the time that is left, and replies with the result.
    ///
    /// For claims with a fixed lease: the store learns that the holder is alive, but the lease does not grow.
    pub shorten_only: bool,
    /// Lifts the key's token counter to at least the last token of this range, and records the range as the claim's
    /// tokens, in the same atomic step that renews the claim. With it, a quorum raises a majority of its stores to the
    /// same token.
    pub raise: Option<TokenRange>,
    /// Turns a granted write claim into a read claim, in the same atomic step that renews it (B20).
    ///
    /// `only` must be `Phase::Granted`. A read claim stays a read claim, so the request is safe to repeat. Later
    /// renewals need not repeat it.
    pub downgrade: bool,
}

impl RenewRequest {
    /// Creates a request to renew a granted claim for the lease in `claim`, without raising the token counter.
    pub fn of(claim: &Claim) -> Self {
        RenewRequest {
            claim: claim.at.clone(),
            lease: claim.lease,
            only: Phase::Granted,
            shorten_only: false,
            raise: None,
            downgrade: false,
        }
    }

    /// Creates a request to renew a granted write claim for the lease in `claim`, and to turn it into a read claim.
    pub fn downgrading(claim: &Claim) -> Self {
        RenewRequest {
            downgrade: true,
            ..Self::of(claim)
        }
    }

    /// Returns the mode of the claim after this renewal. `current` is its mode before.
    ///
    /// # Errors
    /// [`Fault::Invalid`] if the request downgrades a claim of another kind than a read-write lock. The store then
    /// changes nothing.
    pub fn mode(&self, current: Mode) -> Result<Mode, BackendError> {
        match (self.downgrade, current.kind()) {
            (false, _) => Ok(current),
            (true, Kind::ReadWrite) => Ok(Mode::Read),
            (true, kind) => {
                let message = format!("only a write lock can be downgraded, and this claim holds {kind}");
                Err(BackendError::new(Fault::Invalid, Effect::None, message))
            }
        }
    }

    /// Returns the end of the lease after this renewal. `current` is its end before, `asked` is now plus `lease`.
    pub fn end(&self, current: Instant, asked: Instant) -> Instant {
        if self.shorten_only {
            asked.min(current)
        } else {
            asked
        }
    }
}

/// The phase that a claim must be in to be renewed.
///
/// # Examples
/// ```
/// use tenure_backend::Phase;
///
/// /// A store's check before it renews a claim.
/// fn may_renew(only: Phase, is_granted: bool) -> bool {
///     match only {
///         Phase::Waiting => !is_granted,
///         Phase::Granted => is_granted,
///         Phase::Either => true,
///     }
/// }
/// assert!(!may_renew(Phase::Waiting, true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The claim waits in the queue.
    Waiting,
    /// The claim holds the key.
    Granted,
    /// The claim waits or holds the key.
    Either,
}

/// Reply to one [`RenewRequest`].
///
/// The cases are complete: the engine must act on each, so a new one is a breaking change.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_backend::{BackendError, Effect, Fault, Instant, RenewReply};
///
/// /// The holder's deadline after a renewal, without the engine's margins.
/// fn new_deadline(deadline: Instant, reply: &RenewReply) -> Instant {
///     match reply {
///         RenewReply::Alive { held_from, lease } => *held_from + *lease,
///         RenewReply::Gone(_) => Instant::ORIGIN,
///         RenewReply::Unknown(_) => deadline,
///     }
/// }
/// let deadline = Instant::ORIGIN + Duration::from_secs(30);
/// let no_reply = BackendError::new(Fault::Unavailable, Effect::Unknown, "no reply within 3 s");
/// assert_eq!(new_deadline(deadline, &RenewReply::Unknown(no_reply)), deadline);
/// ```
#[derive(Debug)]
pub enum RenewReply {
    /// The claim is alive and renewed.
    Alive {
        /// Start of the new lease, as in [`Grant::held_from`](crate::Grant).
        held_from: Instant,
        /// Length of the new lease, as in [`Grant::lease`](crate::Grant).
        lease: Duration,
    },
    /// The claim is gone, and no renewal brings it back (B6); or the claim is in another phase than the renewal asked
    /// for, and stays as it is.
    Gone(Loss),
    /// The renewal failed. Whether it took effect depends on the error's [`Effect`]. The holder may rely on the claim
    /// until its last known local deadline.
    Unknown(BackendError),
}

/// Why a claim is gone, as far as the store knows.
///
/// # Examples
/// ```
/// use tenure_backend::Loss;
///
/// assert_eq!(Loss::Evicted { by: Some("ada".into()) }.to_string(), "it was evicted by ada");
/// // A store that does not remember ended claims reports this loss.
/// assert_eq!(Loss::Missing.to_string(), "the store has no record of it");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The lease ended without a renewal.
    Expired,
    /// Another client or an operator evicted the claim.
    Evicted {
        /// The evictor's name, if it gave one. It is foreign text: `Display` escapes it with [`escape_control`].
        by: Option<Arc<str>>,
    },
    /// The session or connection that the claim depended on ended.
    Session,
    /// The store has no record of the loss, or the claim is in another phase than the renewal asked for.
    Missing,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Expired => f.write_str("its lease ended"),
            Loss::Evicted { by: Some(by) } => write!(f, "it was evicted by {}", escape_control(by)),
            Loss::Evicted { by: None } => f.write_str("it was evicted"),
            Loss::Session => f.write_str("the session that carried it ended"),
            Loss::Missing => f.write_str("the store has no record of it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorten_only_renewal_ends_at_the_earlier_instant() {
        let claim = ClaimRef {
            key: crate::LockKey::new("k").unwrap(),
            id: crate::ClaimId::new(crate::ClientId::from_random([0; 16]), 1),
        };
        let [early, late] = [1, 2].map(|s| Instant::ORIGIN + Duration::from_secs(s));
        for (shorten_only, ends) in [(true, [early, early]), (false, [early, late])] {
            let request = RenewRequest {
                claim: claim.clone(),
                lease: Duration::from_secs(1),
                only: Phase::Granted,
                shorten_only,
                raise: None,
                downgrade: false,
            };
            let end = |(current, asked)| request.end(current, asked);
            assert_eq!([(late, early), (early, late)].map(end), ends);
        }
    }

    #[test]
    fn a_downgrade_of_a_mutex_or_of_permits_is_refused() {
        let claim = ClaimRef {
            key: crate::LockKey::new("k").unwrap(),
            id: crate::ClaimId::new(crate::ClientId::from_random([0; 16]), 1),
        };
        let claim = Claim::of(claim, Duration::from_secs(1));
        let (plain, downgrading) = (RenewRequest::of(&claim), RenewRequest::downgrading(&claim));
        let permits = Mode::Permits {
            take: std::num::NonZeroU32::MIN,
            of: std::num::NonZeroU32::MIN,
        };
        for mode in [Mode::Exclusive, Mode::Read, Mode::Write, permits] {
            assert_eq!(plain.mode(mode).unwrap(), mode);
            match downgrading.mode(mode) {
                Ok(after) => assert_eq!((mode.kind(), after), (Kind::ReadWrite, Mode::Read)),
                Err(error) => {
                    assert_ne!(mode.kind(), Kind::ReadWrite);
                    assert_eq!((error.fault(), error.effect()), (Fault::Invalid, Effect::None));
                }
            }
        }
    }

    #[test]
    fn the_name_of_an_evictor_is_shown_with_control_characters_escaped() {
        let by = Some("ada\u{1b}[2J\n".into());
        assert_eq!(
            Loss::Evicted { by }.to_string(),
            "it was evicted by ada\\u{1b}[2J\\n"
        );
    }
}
