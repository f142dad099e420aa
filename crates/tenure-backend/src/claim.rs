//! A claim as its client describes it, and the constants of the protocol between client and store.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::{ClaimRef, Fairness, Mode, OwnerId};

/// The greatest time from now to a request's `not_after`: 10 s.
///
/// If a store remembers an ended claim for at least this long, a delayed request cannot place it again (B4, B5).
pub const MAX_NOT_AFTER: Duration = Duration::from_secs(10);

/// How long a client may hand a claim over to its own waiters after the store last confirmed the claim: 10 ms.
///
/// This time is the same for every client of every store. An eviction pauses the key for as long
/// ([`ReleaseRequest::cooldown`](crate::ReleaseRequest)). So every local hand-over of the evicted claim happens before
/// the store grants the key again, and tokens are used in ascending order.
pub const HANDOVER_WINDOW: Duration = Duration::from_millis(10);

/// How long a freed key is reserved for the client that goes next: 10 ms, enough for a wake-up and a request.
///
/// A store that reserves turns keeps a freed key this long for the claim that it woke (B22). A successor that has to let
/// other clients go first is polled after this time (B15).
pub const TURN: Duration = Duration::from_millis(10);

/// One attempt to hold one key, with everything that a store needs to grant it.
///
/// In the store a claim is absent, waiting or granted. The client chooses the claim's ID before it sends the first
/// byte, and uses the ID for no other claim. So every call about a claim is safe to repeat (B7).
///
/// The fields are complete: a store must act on each, so a new one is a breaking change.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_backend::{Claim, ClaimId, ClaimRef, ClientId, LockKey};
///
/// let client = ClientId::from_random([7; 16]);
/// let claim = |number| {
///     let at = ClaimRef { key: LockKey::new("order:42").unwrap(), id: ClaimId::new(client, number) };
///     Claim { label: "ada@web-1:4711".into(), ..Claim::of(at, Duration::from_secs(30)) }
/// };
/// // A second attempt is a second claim. Here the two differ only in the ID.
/// assert_ne!(claim(1).at, claim(2).at);
/// ```
#[derive(Clone, Debug)]
pub struct Claim {
    /// The key and the claim's ID.
    pub at: ClaimRef,
    /// Number that the client gave to the claim's owner. By it the client, not the store, recognizes re-entry.
    pub owner: OwnerId,
    /// Text that `tenure ls` shows to people, such as `user@host:pid`.
    pub label: Arc<str>,
    /// How the claim holds the key: alone, shared, or with permits.
    pub mode: Mode,
    /// Whether the claim is fair. A fair claim queues in the store.
    pub fairness: Fairness,
    /// How long the store keeps the claim, waiting or granted, without a renewal.
    pub lease: Duration,
    /// Number of fencing tokens that a grant reserves: one for the grant, and one for each local hand-over.
    pub grants: NonZeroU32,
    /// Whether the claim is a candidate's in an election. A store that shares elections with other programs shows them the
    /// label as the candidate's value, alone and as it is.
    pub is_candidate: bool,
}

impl Claim {
    /// Creates an exclusive, unfair claim with one token and no label.
    pub fn of(at: ClaimRef, lease: Duration) -> Self {
        Claim {
            at,
            owner: OwnerId::new(0),
            label: Arc::from(""),
            mode: Mode::Exclusive,
            fairness: Fairness::Unfair,
            lease,
            grants: NonZeroU32::MIN,
            is_candidate: false,
        }
    }
}
