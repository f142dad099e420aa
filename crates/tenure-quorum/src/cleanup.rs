//! Releases claims at single members, with retries: claims that a member granted but the quorum did not, and claims
//! whose release a member did not confirm.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Backend, Batch, Cause, Claim, ClaimRef, ReleaseReply, ReleaseRequest, ReleaseTarget};
use tokio::time::{Instant, sleep};

/// The first pause between two attempts to release. Each further pause is twice as long as the one before, up to
/// `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between two attempts to release.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Releases a claim at one member. Repeats the request after transient errors, for at most the claim's lease.
pub(crate) async fn release_at(member: Arc<dyn Backend>, claim: Arc<Claim>) {
    let request = ReleaseRequest::of(&claim, Cause::Withdrawn);
    repeat(&member, request, claim.lease).await;
}

/// Releases a claim at one member, without successor and cooldown. Repeats the request after transient errors, for at
/// most `longest`. Does nothing for other targets than a claim, because another holder may have the key by now.
pub(crate) async fn repeat_release(member: Arc<dyn Backend>, request: ReleaseRequest, longest: Duration) {
    if let ReleaseTarget::Claim(ClaimRef { .. }) = request.target {
        let request = ReleaseRequest {
            successor: None,
            cooldown: Duration::ZERO,
            ..request
        };
        repeat(&member, request, longest).await;
    }
}

async fn repeat(member: &Arc<dyn Backend>, request: ReleaseRequest, longest: Duration) {
    let until = Instant::now() + longest;
    let mut pause = FIRST_PAUSE;
    loop {
        let reply = member.clone().release(Batch::from_iter([request.clone()])).await;
        match reply.into_iter().next() {
            Some(ReleaseReply::Unknown(error)) if error.is_transient() => {}
            _ => return,
        }
        if until <= Instant::now() + pause {
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
