//! Releases claims in the background at members that granted them although the quorum as a whole did not, or that did
//! not confirm a release.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Backend, Batch, Cause, Claim, ClaimRef, ReleaseReply, ReleaseRequest, ReleaseTarget};
use tokio::time::{Instant, sleep};

/// The first pause between two attempts to release. Each pause is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Releases a claim at one member. Repeats that until the member confirms it, or until the claim's lease has ended.
pub(crate) async fn release_at(member: Arc<dyn Backend>, claim: Arc<Claim>) {
    let request = ReleaseRequest::of(&claim, Cause::Withdrawn);
    repeat(&member, request, claim.lease).await;
}

/// Repeats a release that was not confirmed. A release of other targets than a claim is not repeated, because another
/// holder may have the key by now.
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
