//! Requests and replies of `release`. Unlocking, withdrawing and evicting are one operation with three causes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{AcquireReply, BackendError, Batch, Claim, ClaimId, ClaimRef, Instant, LockKey};

/// A request to remove one holder or waiter, or all holders of a key.
///
/// The fields are complete: a store must act on each, so a new one is a breaking change.
///
/// # Examples
/// ```
/// use tenure_backend::{Cause, ReleaseRequest, ReleaseTarget, HolderId, LockKey, HANDOVER_WINDOW};
///
/// // An operator evicts a Java thread. The cooldown lasts as long as a client may hand a claim over locally.
/// let key = LockKey::new("order:42").unwrap();
/// let request = ReleaseRequest {
///     target: HolderId::parse("thread-12").on(key.clone()),
///     cause: Cause::Evicted { by: Some("ada".into()) },
///     successor: None,
///     cooldown: HANDOVER_WINDOW,
/// };
/// assert_eq!(request.target.key(), &key);
/// ```
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    /// The holder or waiter to remove, or all holders.
    pub target: ReleaseTarget,
    /// Why the target is removed.
    pub cause: Cause,
    /// A claim that the store may grant in the same atomic step. Allowed only with `ReleaseTarget::Claim`, and
    /// only on the released claim's key.
    pub successor: Option<Successor>,
    /// Time after the release of a granted claim in which the store grants the key to no claim (B13).
    ///
    /// [`HANDOVER_WINDOW`](crate::HANDOVER_WINDOW) for an eviction, otherwise zero. A store that grants one token per
    /// claim may ignore the cooldown: its claims are never handed over locally.
    pub cooldown: Duration,
}

impl ReleaseRequest {
    /// Creates a request to release one claim, without a successor and without a cooldown.
    pub fn of(claim: &Claim, cause: Cause) -> Self {
        ReleaseRequest {
            target: ReleaseTarget::Claim(claim.at.clone()),
            cause,
            successor: None,
            cooldown: Duration::ZERO,
        }
    }
}

/// A claim of the releasing client that the release itself may grant.
///
/// # Examples
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tenure_backend::{Cause, Claim, ReleaseRequest, Successor, Instant};
///
/// /// Unlocks, and grants the next waiter of the same client, in one round trip.
/// fn hand_over(held: &Claim, waiting: Arc<Claim>, now: Instant) -> ReleaseRequest {
///     assert_eq!(held.at.key, waiting.at.key, "a successor is for the same key");
///     let successor = Successor { claim: waiting, not_after: now + Duration::from_secs(5) };
///     ReleaseRequest { successor: Some(successor), ..ReleaseRequest::of(held, Cause::Unlocked) }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Successor {
    /// The claim. The release grants it as `acquire` would, unless another client waits (B15).
    pub claim: Arc<Claim>,
    /// The latest time at which the store may grant or queue the claim. Later it answers `TooLate`.
    pub not_after: Instant,
}

/// A holder or waiter to release, or all holders of a key.
///
/// # Examples
/// ```
/// use tenure_backend::{ClaimId, ClaimRef, ClientId, ReleaseTarget, LockKey};
///
/// /// Returns whether a client may repeat a release after a lost reply.
/// fn may_repeat(target: &ReleaseTarget) -> bool {
///     match target {
///         ReleaseTarget::Claim(_) | ReleaseTarget::Foreign { .. } => true,
///         // By then another client may hold the key, and would lose it.
///         ReleaseTarget::All(_) => false,
///     }
/// }
/// let key = LockKey::new("order:42").unwrap();
/// let id = ClaimId::new(ClientId::from_random([7; 16]), 3);
/// assert!(may_repeat(&ReleaseTarget::Claim(ClaimRef { key: key.clone(), id })));
/// assert!(!may_repeat(&ReleaseTarget::All(key)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseTarget {
    /// A claim of a Tenure client, waiting or granted.
    Claim(ClaimRef),
    /// A holder or waiter that is not a Tenure claim, such as a Java thread or a row of another tool.
    Foreign {
        /// The key that the target holds or waits for.
        key: LockKey,
        /// The text of [`HolderId::Foreign`] for this target.
        id: Arc<str>,
    },
    /// All holders of the key. Its waiters stay.
    All(LockKey),
}

impl ReleaseTarget {
    /// Returns the key of the target.
    pub fn key(&self) -> &LockKey {
        match self {
            ReleaseTarget::Claim(claim) => &claim.key,
            ReleaseTarget::Foreign { key, .. } | ReleaseTarget::All(key) => key,
        }
    }
}

/// ID of a holder or waiter, as `inspect` shows it and as `tenure evict --claim` accepts it.
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
    /// A claim of a Tenure client.
    Claim(ClaimId),
    /// The store's name for a holder or waiter that is not a Tenure claim.
    Foreign(Arc<str>),
}

impl HolderId {
    /// Reads what `Display` wrote: a claim if the text has the form of a [`ClaimId`], otherwise a foreign name.
    pub fn parse(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| HolderId::Foreign(Arc::from(text)), HolderId::Claim)
    }

    /// Makes a release target of this holder or waiter of `key`.
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

/// Why a release removes a holder or waiter.
///
/// A store removes the target whatever the cause, and treats a cause that it does not know as `Withdrawn`.
///
/// # Examples
/// ```
/// use tenure_backend::{Cause, Loss};
///
/// /// The loss that the claim's next renewal reports, if the store remembers it.
/// fn loss(cause: Cause) -> Loss {
///     match cause {
///         Cause::Evicted { by } => Loss::Evicted { by },
///         // The claim's own client ended it, and does not renew it any more.
///         _ => Loss::Missing,
///     }
/// }
/// assert_eq!(loss(Cause::Evicted { by: Some("ada".into()) }).to_string(), "it was evicted by ada");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The client gives up a claim that it held: a guard was unlocked or dropped, its local deadline passed, or the
    /// client closes.
    Unlocked,
    /// The client gives up a claim that no guard has held: a waiting future was dropped, a wait timed out, or the grant
    /// came too late.
    Withdrawn,
    /// Another client or an operator evicts the claim. The holder finds out at its next renewal.
    Evicted {
        /// Name of the evictor, shown to the holder.
        by: Option<Arc<str>>,
    },
}

/// Reply to one [`ReleaseRequest`].
///
/// The cases are complete: the engine must act on each, so a new one is a breaking change.
///
/// # Examples
/// ```
/// use tenure_backend::{Batch, HolderId, ReleaseReply};
///
/// let done = |freed| ReleaseReply::Done { freed, others: Some(0), successor: None };
/// let first = done(Batch::from_iter([HolderId::parse("thread-12")]));
/// let repeated = done(Batch::new());
/// // After both replies the holder is gone. `freed` shows that only the first call removed it.
/// let freed = |reply| match reply {
///     ReleaseReply::Done { freed, .. } => freed.len(),
///     ReleaseReply::Unknown(_) => 0,
/// };
/// assert_eq!((freed(first), freed(repeated)), (1, 0));
/// ```
#[derive(Debug)]
pub enum ReleaseReply {
    /// The target is gone, whether or not this call removed it.
    Done {
        /// Holders and queued claims that this call removed; empty if there was nothing to remove.
        freed: Batch<HolderId>,
        /// Number of claims of other clients that queue, or that wait and watch for wake-ups. The store may count a
        /// claim that has just left, and does not count a watcher that let its turn pass (B22). `None` if the store
        /// cannot know.
        others: Option<u32>,
        /// State of the successor, if the request named one.
        successor: Option<AcquireReply>,
    },
    /// The release failed. Whether it took effect depends on the error's [`Effect`](crate::Effect). It is safe to
    /// repeat the release of one holder or waiter (B7).
    Unknown(BackendError),
}
