//! RenewRequest: keeping claims alive, one by one in a batch, and learning why one is gone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{BackendError, Claim, ClaimRef, Instant, TokenRange, escape_control};

/// A wish to keep one claim alive.
///
/// # Examples
/// ```
/// use tenure_backend::{Claim, RenewRequest};
///
/// /// Tells the store that the holder of a claim with a fixed lease is alive.
/// fn show_alive(claim: &Claim) -> RenewRequest {
///     RenewRequest { shorten_only: true, ..RenewRequest::of(claim) }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct RenewRequest {
    /// Which claim.
    pub claim: ClaimRef,
    /// For how long from the moment the store acts.
    pub lease: Duration,
    /// In which phase: a claim in another one is left as it is and answered `Gone(Missing)`.
    pub only: Phase,
    /// Keeps the claim for the smaller of `lease` and what its lease has left, and answers with that.
    ///
    /// For a claim whose lease is fixed: the store learns that it is alive, and does not lengthen its lease.
    pub shorten_only: bool,
    /// Lifts the key's token counter to at least the last token of this run, and records the run as the claim's,
    /// in one atomic step with "the claim is alive". A quorum writes its maximum back with it.
    pub raise: Option<TokenRange>,
}

impl RenewRequest {
    /// Renews that claim for its own lease if it holds its key, and raises no counter.
    pub fn of(claim: &Claim) -> Self {
        RenewRequest {
            claim: claim.at.clone(),
            lease: claim.lease,
            only: Phase::Granted,
            shorten_only: false,
            raise: None,
        }
    }

    /// End of the claim's lease after this renewal: `asked` by the lease that it asks for, `current` without it.
    pub fn end(&self, current: Instant, asked: Instant) -> Instant {
        if self.shorten_only {
            asked.min(current)
        } else {
            asked
        }
    }
}

/// In which phase a claim must be to be renewed.
///
/// # Examples
/// ```
/// use tenure_backend::Phase;
///
/// /// A store's test, before it touches a claim.
/// fn concerns(only: Phase, is_granted: bool) -> bool {
///     match only {
///         Phase::Waiting => !is_granted,
///         Phase::Granted => is_granted,
///         Phase::Either => true,
///     }
/// }
/// assert!(!concerns(Phase::Waiting, true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Only while it waits in the queue.
    Waiting,
    /// Only while it holds the key.
    Granted,
    /// In both.
    Either,
}

/// What became of one renewal.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_backend::{BackendError, Effect, Fault, Instant, RenewReply};
///
/// /// Until when the store keeps a claim, as its holder may believe.
/// fn kept_until(before: Instant, answer: &RenewReply) -> Instant {
///     match answer {
///         RenewReply::Alive { held_from, lease } => before.max(*held_from + *lease),
///         RenewReply::Gone(_) => Instant::ORIGIN,
///         RenewReply::Unknown(_) => before,
///     }
/// }
/// let before = Instant::ORIGIN + Duration::from_secs(30);
/// let silent = BackendError::new(Fault::Unavailable, Effect::Unknown, "no answer within 3 s");
/// assert_eq!(kept_until(before, &RenewReply::Unknown(silent)), before);
/// ```
#[derive(Debug)]
pub enum RenewReply {
    /// The claim is alive.
    Alive {
        /// As in [`Grant::held_from`](crate::Grant).
        held_from: Instant,
        /// As in [`Grant::lease`](crate::Grant).
        lease: Duration,
    },
    /// The claim is gone for good; renewal never re-creates one.
    Gone(Loss),
    /// Nobody knows: it may have been renewed. The claim still stands until its deadline.
    Unknown(BackendError),
}

/// Why a claim that was granted is gone, as far as the store knows.
///
/// # Examples
/// ```
/// use tenure_backend::Loss;
///
/// assert_eq!(Loss::Evicted { by: Some("ada".into()) }.to_string(), "it was evicted by ada");
/// // All that a store can say that does not remember what has ended.
/// assert_eq!(Loss::Missing.to_string(), "the store has no record of it");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// Its lease ended without a renewal.
    Expired,
    /// Somebody took it away.
    Evicted {
        /// Who, if they said so: text of others, which `Display` escapes as [`escape_control`] does.
        by: Option<Arc<str>>,
    },
    /// The session or connection that carried it ended.
    Session,
    /// There is no record of it, and nobody knows why.
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
    fn a_renewal_that_only_shortens_ends_at_the_earlier_moment() {
        let claim = ClaimRef {
            key: crate::LockKey::new("k").unwrap(),
            id: crate::ClaimId::new(crate::ClientId::from_random([0; 16]), 1),
        };
        let [early, late] = [1, 2].map(|s| Instant::ORIGIN + Duration::from_secs(s));
        for (shorten_only, ends) in [(true, [early, early]), (false, [early, late])] {
            let renewal = RenewRequest {
                claim: claim.clone(),
                lease: Duration::from_secs(1),
                only: Phase::Granted,
                shorten_only,
                raise: None,
            };
            let end = |(current, asked)| renewal.end(current, asked);
            assert_eq!([(late, early), (early, late)].map(end), ends);
        }
    }

    #[test]
    fn who_evicted_a_claim_is_shown_without_what_a_terminal_would_obey() {
        let by = Some("ada\u{1b}[2J\n".into());
        assert_eq!(
            Loss::Evicted { by }.to_string(),
            "it was evicted by ada\\u{1b}[2J\\n"
        );
    }
}
