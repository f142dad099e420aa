//! Departures that cases ask for, and what became of them.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{AcquireReply, Cause, Claim, HolderId, ReleaseRequest, ReleaseTarget};

/// What became of a departure that went through.
///
/// # Examples
/// See [`Trial`](super::Trial), whose example releases a claim.
#[derive(Debug)]
pub struct Departed {
    /// Who was freed by it.
    pub freed: Vec<HolderId>,
    /// How many wait elsewhere.
    pub others: Option<u32>,
    /// Where the successor stands.
    pub successor: Option<AcquireReply>,
    /// Whether an earlier try may have taken effect: then nobody may be left to be freed.
    pub repeated: bool,
}

impl Departed {
    /// Asserts that it freed that claim, and nobody else.
    pub fn freed_it(&self, claim: &Claim) {
        if !(self.repeated && self.freed.is_empty()) {
            assert_eq!(
                self.freed,
                [HolderId::Claim(claim.at.id)],
                "who was freed by releasing {:?}",
                claim.at
            );
        }
    }

    /// Asserts that it freed nobody.
    pub fn freed_nobody(&self) {
        assert_eq!(self.freed, [], "a release of somebody who is absent frees nobody");
    }
}

/// A departure of that claim, without a successor or a cooldown.
pub(crate) fn departure(claim: &Claim, cause: Cause) -> ReleaseRequest {
    ReleaseRequest {
        target: ReleaseTarget::Claim(claim.at.clone()),
        cause,
        successor: None,
        cooldown: Duration::ZERO,
    }
}

/// An eviction by alice, with that cooldown.
pub(crate) fn eviction(who: ReleaseTarget, cooldown: Duration) -> ReleaseRequest {
    let by = Some(Arc::from("alice"));
    ReleaseRequest {
        target: who,
        cause: Cause::Evicted { by },
        successor: None,
        cooldown,
    }
}
