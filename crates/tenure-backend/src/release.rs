//! Release: unlock, withdrawal and eviction are one operation with different causes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{AcquireReply, BackendError, Batch, Claim, ClaimId, ClaimRef, Instant, LockKey};

/// A wish to make one holder or waiter absent.
///
/// # Examples
/// ```
/// use tenure_backend::{Cause, ReleaseRequest, ReleaseTarget, HolderId, LockKey, HANDOVER_WINDOW};
///
/// // An operator takes a Java thread's lock away. The cooldown outlasts every grant passed on in memory.
/// let key = LockKey::new("order:42").unwrap();
/// let departure = ReleaseRequest {
///     target: HolderId::parse("thread-12").on(key.clone()),
///     cause: Cause::Evicted { by: Some("ada".into()) },
///     successor: None,
///     cooldown: HANDOVER_WINDOW,
/// };
/// assert_eq!(departure.target.key(), &key);
/// ```
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    /// Who goes.
    pub target: ReleaseTarget,
    /// Why.
    pub cause: Cause,
    /// Who may take over within the same atomic step. Only with `ReleaseTarget::Claim`, and of the same key.
    pub successor: Option<Successor>,
    /// The key then admits nobody for so long: [`HANDOVER_WINDOW`](crate::HANDOVER_WINDOW) for an eviction, else zero.
    ///
    /// A store that grants one token per claim may ignore it.
    pub cooldown: Duration,
}

impl ReleaseRequest {
    /// Ends that claim, and names no successor and no cooldown.
    pub fn of(claim: &Claim, cause: Cause) -> Self {
        ReleaseRequest {
            target: ReleaseTarget::Claim(claim.at.clone()),
            cause,
            successor: None,
            cooldown: Duration::ZERO,
        }
    }
}

/// A claim that waits in the releasing client, and may be granted by the release itself.
///
/// # Examples
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tenure_backend::{Cause, Claim, ReleaseRequest, Successor, Instant};
///
/// /// An unlock and the next waiter's grant, in one round trip.
/// fn hand_over(held: &Claim, waiting: Arc<Claim>, now: Instant) -> ReleaseRequest {
///     assert_eq!(held.at.key, waiting.at.key, "a successor is of the same key");
///     let successor = Successor { claim: waiting, not_after: now + Duration::from_secs(5) };
///     ReleaseRequest { successor: Some(successor), ..ReleaseRequest::of(held, Cause::Unlocked) }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Successor {
    /// The claim. It is placed as `acquire` would place it, after the departure.
    pub claim: Arc<Claim>,
    /// As for `acquire`: after this moment it is not placed, and answered `TooLate`.
    pub not_after: Instant,
}

/// Who departs.
///
/// # Examples
/// ```
/// use tenure_backend::{ClaimId, ClaimRef, ClientId, ReleaseTarget, LockKey};
///
/// /// Whether a release of it may be repeated after a lost reply.
/// fn may_be_repeated(holder: &ReleaseTarget) -> bool {
///     match holder {
///         ReleaseTarget::Claim(_) | ReleaseTarget::Foreign { .. } => true,
///         // Somebody else may hold the key by then.
///         ReleaseTarget::All(_) => false,
///     }
/// }
/// let key = LockKey::new("order:42").unwrap();
/// let id = ClaimId::new(ClientId::from_random([7; 16]), 3);
/// assert!(may_be_repeated(&ReleaseTarget::Claim(ClaimRef { key: key.clone(), id })));
/// assert!(!may_be_repeated(&ReleaseTarget::All(key)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseTarget {
    /// A claim of ours, waiting or granted.
    Claim(ClaimRef),
    /// Another kind of client's hold: a Java thread, a row of another tool.
    Foreign {
        /// The key it holds.
        key: LockKey,
        /// The store's name for it, as [`HolderId::Foreign`] shows it.
        id: Arc<str>,
    },
    /// Everybody who holds the key. Waiters stay.
    All(LockKey),
}

impl ReleaseTarget {
    /// The key concerned.
    pub fn key(&self) -> &LockKey {
        match self {
            ReleaseTarget::Claim(claim) => &claim.key,
            ReleaseTarget::Foreign { key, .. } | ReleaseTarget::All(key) => key,
        }
    }
}

/// The name of a holder, as people see it and as `tenure evict --claim` takes it.
///
/// # Examples
/// ```
/// use tenure_backend::HolderId;
///
/// let ours = HolderId::parse("07070707-0707-4707-8707-070707070707:3");
/// let foreign = HolderId::parse("07070707-0707-4707-8707-070707070707:thread-12");
/// assert!(matches!(ours, HolderId::Claim(_)) && matches!(foreign, HolderId::Foreign(_)));
/// assert_eq!(HolderId::parse(&ours.to_string()), ours);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HolderId {
    /// A claim of ours.
    Claim(ClaimId),
    /// The store's name for another kind of client's hold.
    Foreign(Arc<str>),
}

impl HolderId {
    /// Reads what `Display` wrote: a claim if the text is one, else a foreign name.
    pub fn parse(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| HolderId::Foreign(Arc::from(text)), HolderId::Claim)
    }

    /// The holder of that name on a key.
    pub fn on(self, key: LockKey) -> ReleaseTarget {
        match self {
            HolderId::Claim(id) => ReleaseTarget::Claim(ClaimRef { key, id }),
            HolderId::Foreign(id) => ReleaseTarget::Foreign { key, id },
        }
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HolderId::Claim(id) => fmt::Display::fmt(id, f),
            HolderId::Foreign(id) => f.write_str(id),
        }
    }
}

/// Why somebody departs.
///
/// # Examples
/// ```
/// use tenure_backend::{Cause, Loss};
///
/// /// What a holder is told at its next renewal, where the store remembers it.
/// fn loss(cause: Cause) -> Loss {
///     match cause {
///         Cause::Evicted { by } => Loss::Evicted { by },
///         // Its own client ended it, and asks no more.
///         Cause::Unlocked | Cause::Withdrawn => Loss::Missing,
///     }
/// }
/// assert_eq!(loss(Cause::Evicted { by: Some("ada".into()) }).to_string(), "it was evicted by ada");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The holder is done.
    Unlocked,
    /// The client gave the claim up: a guard or a waiting future was dropped, or a wait timed out.
    Withdrawn,
    /// Somebody else takes it away; the holder learns at its next renewal.
    Evicted {
        /// Who, for the holder to read.
        by: Option<Arc<str>>,
    },
}

/// What became of one departure.
///
/// # Examples
/// ```
/// use tenure_backend::{Batch, HolderId, ReleaseReply};
///
/// let done = |freed| ReleaseReply::Done { freed, others: Some(0), successor: None };
/// let first = done(Batch::from_iter([HolderId::parse("thread-12")]));
/// let repeated = done(Batch::new());
/// // Either way the holder is absent; `freed` tells whether this very call made it so.
/// let freed = |answer| match answer {
///     ReleaseReply::Done { freed, .. } => freed.len(),
///     ReleaseReply::Unknown(_) => 0,
/// };
/// assert_eq!((freed(first), freed(repeated)), (1, 0));
/// ```
#[derive(Debug)]
pub enum ReleaseReply {
    /// Whoever was named is absent.
    Done {
        /// Who held the key or queued for it and is gone by this very call; empty on a repetition.
        freed: Batch<HolderId>,
        /// How many wait elsewhere, not for this client; `None` where the store cannot tell. It may count one who has
        /// just gone.
        others: Option<u32>,
        /// Where the successor stands, if there was one.
        successor: Option<AcquireReply>,
    },
    /// Nobody knows whether it took effect. Repeating it is safe.
    Unknown(BackendError),
}
