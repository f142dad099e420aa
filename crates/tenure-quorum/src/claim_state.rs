//! What the requests for one claim share: whether the client still wants it, and which members may have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The state of a claim. Clones share it, so that the task of a request to a slow member can read it when the reply
/// arrives.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimState(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_unwanted: AtomicBool,
    /// A bit for each member that may have the claim. Members from the 65th on have no bit, and always may have it.
    members: AtomicU64,
}

fn bit(member: usize) -> u64 {
    u32::try_from(member)
        .ok()
        .and_then(|member| 1_u64.checked_shl(member))
        .unwrap_or(0)
}

impl ClaimState {
    /// Declares the claim unwanted: if a member's grant of it arrives later, the quorum releases it at that member.
    pub(crate) fn give_up(&self) {
        self.0.is_unwanted.store(true, Ordering::SeqCst);
    }

    /// Returns whether the claim is still wanted.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.0.is_unwanted.load(Ordering::SeqCst)
    }

    /// Notes that the member gets a request to place the claim. Returns whether it could not have the claim before.
    pub(crate) fn ask(&self, member: usize) -> bool {
        self.0.members.fetch_or(bit(member), Ordering::SeqCst) & bit(member) == 0
    }

    /// Notes that a request to place the claim failed at the member without effect. `is_first` is the result of
    /// [`ask`](Self::ask) for this request: if it is false, an earlier one may have placed the claim.
    pub(crate) fn refused(&self, member: usize, is_first: bool) {
        if is_first {
            self.0.members.fetch_and(!bit(member), Ordering::SeqCst);
        }
    }

    /// Notes that the member may have placed the claim.
    pub(crate) fn reached(&self, member: usize) {
        self.0.members.fetch_or(bit(member), Ordering::SeqCst);
    }

    pub(crate) fn may_be_at(&self, member: usize) -> bool {
        bit(member) == 0 || self.0.members.load(Ordering::SeqCst) & bit(member) != 0
    }
}
