//! Requests that cases send, and the outcome of a release.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Cause, Claim, HolderId, Phase, ReleaseRequest, ReleaseTarget, RenewRequest,
};

/// Outcome of a successful release, withdrawal or eviction.
///
/// # Examples
/// See [`Fixture`](super::Fixture), whose example releases a claim.
#[derive(Debug)]
pub struct ReleaseOutcome {
    /// Holders and waiters that the release removed.
    pub freed: Vec<HolderId>,
    /// Number of waiters of other clients, if the store reports it.
    pub others: Option<u32>,
    /// The reply for the successor, if one was named.
    pub successor: Option<AcquireReply>,
    /// True if the request was sent more than once. `freed` is that of the last reply, so it is empty if an earlier
    /// request freed the claim.
    pub repeated: bool,
}

impl ReleaseOutcome {
    /// Asserts that the release freed only `claim`, or nothing if the request was sent more than once.
    pub fn freed_it(&self, claim: &Claim) {
        if !(self.repeated && self.freed.is_empty()) {
            assert_eq!(
                self.freed,
                [HolderId::Claim(claim.at.id)],
                "freed by the release of {:?}",
                claim.at
            );
        }
    }

    /// Asserts that the release freed no claim.
    pub fn freed_nothing(&self) {
        assert_eq!(self.freed, [], "the release of an absent claim frees no claim");
    }
}

/// Release of `claim`, without a successor or a cooldown.
pub(crate) fn release_request(claim: &Claim, cause: Cause) -> ReleaseRequest {
    ReleaseRequest {
        target: ReleaseTarget::Claim(claim.at.clone()),
        cause,
        successor: None,
        cooldown: Duration::ZERO,
    }
}

/// Renewal of `claim` in phase `only`, with the claim's own lease.
pub(crate) fn renew_request(claim: &Claim, only: Phase) -> RenewRequest {
    RenewRequest {
        claim: claim.at.clone(),
        lease: claim.lease,
        only,
        shorten_only: false,
        raise: None,
        downgrade: false,
    }
}

/// Request of "alice" to evict `who`.
pub(crate) fn eviction_request(who: ReleaseTarget, cooldown: Duration) -> ReleaseRequest {
    let by = Some(Arc::from("alice"));
    ReleaseRequest {
        target: who,
        cause: Cause::Evicted { by },
        successor: None,
        cooldown,
    }
}
