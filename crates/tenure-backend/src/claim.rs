//! A claim as its client describes it, and the constants of the protocol between client and store.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::{ClaimRef, Fairness, Mode, OwnerId};

/// How far ahead `not_after` may lie: a store that remembers an ended claim for so long cannot be tricked into
/// placing it again by a request that was delayed on the way.
pub const MAX_NOT_AFTER: Duration = Duration::from_secs(10);

/// For how long after the store confirmed a claim its client may hand it on within its own process.
///
/// It is the same for every client of every store: an eviction bars the key for this long
/// ([`ReleaseRequest::cooldown`](crate::ReleaseRequest)), so that no grant that is passed on is older than another's.
pub const HANDOVER_WINDOW: Duration = Duration::from_millis(10);

/// How long a key is left to a client whose turn it is: long enough for a wake-up and a request.
///
/// A store keeps a freed key that long for the claim that it woke. A claim that must let others go first polls again
/// after this time, and a client that has had its turns leaves the store alone for it.
pub const TURN: Duration = Duration::from_millis(10);

/// One attempt to hold one key, with all a store needs to know to grant it.
///
/// In the store a claim is absent, waiting or granted. The client names it before the first byte is sent and
/// never uses the name again, so that every call about it is safe to repeat.
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
/// // Whoever tries again makes another claim, which differs from the first by its name alone.
/// assert_ne!(claim(1).at, claim(2).at);
/// ```
#[derive(Clone, Debug)]
pub struct Claim {
    /// The key, and the claim's name.
    pub at: ClaimRef,
    /// On whose behalf it was made.
    pub owner: OwnerId,
    /// What people see in `tenure ls`, such as `user@host:pid`.
    pub label: Arc<str>,
    /// How it wants to hold the key.
    pub mode: Mode,
    /// Whether it queues in the store.
    pub fairness: Fairness,
    /// How long the store keeps it without a renewal, granted or waiting.
    pub lease: Duration,
    /// How many fencing tokens a grant reserves: the client may hand the claim on so many times less one.
    pub grants: NonZeroU32,
}

impl Claim {
    /// A claim for exclusive use: unfair, with one token and without a label.
    pub fn of(at: ClaimRef, lease: Duration) -> Self {
        Claim {
            at,
            owner: OwnerId(0),
            label: Arc::from(""),
            mode: Mode::Exclusive,
            fairness: Fairness::Unfair,
            lease,
            grants: NonZeroU32::MIN,
        }
    }
}
