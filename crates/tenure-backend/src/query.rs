//! Queries and replies of `inspect`, for people and tools. No client decides by a reply whether it holds a lock.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::{FencingToken, HolderId, Kind, LockKey, Mode};

/// The keys that `inspect` shows.
///
/// # Examples
/// ```
/// use std::num::NonZeroU32;
/// use tenure_backend::{LockKey, Query};
///
/// let one = Query::Key(LockKey::new("order:42").unwrap());
/// let limit = NonZeroU32::new(100).unwrap();
/// let orders = Query::Prefix { prefix: "order:".into(), after: None, limit };
/// // The example of `Page` shows how to query for the next hundred.
/// assert_ne!(one, orders);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// One key.
    Key(LockKey),
    /// All keys with a prefix that have holders or waiters, in an order that the store chooses.
    ///
    /// A key that changes between two pages can be missing or appear twice. A key that does not change appears exactly
    /// once, unless the store's documentation says otherwise.
    Prefix {
        /// The prefix. An empty one matches all keys.
        prefix: Arc<str>,
        /// `next` of the previous page; `None` for the first page.
        after: Option<Cursor>,
        /// Greatest number of keys in one page.
        limit: NonZeroU32,
    },
}

/// A position in a listing, as text that only the store that wrote it can read.
///
/// # Examples
/// See [`Page`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub(crate) Arc<str>);

impl Cursor {
    /// Creates a cursor. `position` is any text from which the store finds the next page.
    pub fn new(position: impl Into<Arc<str>>) -> Self {
        Cursor(position.into())
    }

    /// Returns the text, for the store that wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One page of a listing.
///
/// # Examples
/// ```
/// use tenure_backend::{Cursor, Page, Query};
/// # use std::num::NonZeroU32;
/// # use tenure_backend::LockStatus;
///
/// /// The query for the next page.
/// fn next_query<T>(query: Query, page: &Page<T>) -> Option<Query> {
///     match (query, page.next.clone()) {
///         (Query::Prefix { prefix, limit, .. }, Some(next)) => {
///             Some(Query::Prefix { prefix, after: Some(next), limit })
///         }
///         _ => None,
///     }
/// }
/// # let query = Query::Prefix { prefix: "order:".into(), after: None, limit: NonZeroU32::MIN };
/// # let (items, next) = (Vec::<LockStatus>::new(), Some(Cursor::new("order:42")));
/// // Even after an empty page there may be another one: only `next` decides.
/// assert!(next_query(query.clone(), &Page::new(items.clone(), next)).is_some());
/// assert_eq!(next_query(query, &Page::new(items, None)), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Page<T> {
    /// The keys with a holder or a waiter, as they were when the store looked.
    pub items: Vec<T>,
    /// Cursor of the next page; `None` on the last page, even if that is full.
    ///
    /// If a store would have to read very many keys to know whether more match, it may announce a next page that
    /// turns out empty.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// Creates a page.
    pub fn new(items: Vec<T>, next: Option<Cursor>) -> Self {
        Page { items, next }
    }
}

/// Holders and waiters of one key at the moment of the query.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// use tenure_backend::{HolderId, HolderStatus, Kind, LockKey, LockStatus, Mode};
///
/// let remaining = Some(Duration::from_secs(12));
/// let holder = HolderStatus::new(HolderId::parse("thread-12"), None, Mode::Exclusive, None, remaining);
/// let key = LockKey::new("order:42").unwrap();
/// let status = LockStatus::new(key, Kind::Mutex, vec![holder], None);
/// // `None` means that the store cannot tell, not that no claim waits.
/// let waiters = status.waiters.map_or("unknown".to_owned(), |waiters| waiters.len().to_string());
/// assert_eq!(waiters, "unknown");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStatus {
    /// The key.
    pub key: LockKey,
    /// The kind of lock that the key is used as.
    pub kind: Kind,
    /// The claims that hold the key.
    pub holders: Vec<HolderStatus>,
    /// The claims in the store's queue, in order; `None` if the store cannot tell.
    ///
    /// Unfair claims are in it only if the store serves them in order too. So an empty queue does not mean that no
    /// claim waits.
    pub waiters: Option<Vec<WaiterStatus>>,
}

impl LockStatus {
    /// Creates the status of a key.
    pub fn new(
        key: LockKey,
        kind: Kind,
        holders: Vec<HolderStatus>,
        waiters: Option<Vec<WaiterStatus>>,
    ) -> Self {
        LockStatus {
            key,
            kind,
            holders,
            waiters,
        }
    }
}

/// One holder of a key.
///
/// # Examples
/// ```
/// use tenure_backend::{ReleaseTarget, HolderId, HolderStatus, LockKey, Mode};
///
/// let status = HolderStatus::new(HolderId::parse("thread-12"), None, Mode::Exclusive, None, None);
/// // The holder's ID makes a release target, so a Java thread can be evicted too.
/// let target = status.id.on(LockKey::new("order:42").unwrap());
/// assert!(matches!(target, ReleaseTarget::Foreign { .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderStatus {
    /// The holder's ID, with which it can be evicted. A holder that is no Tenure claim has a foreign ID.
    pub id: HolderId,
    /// The claim's label; `None` for a foreign holder, if the store does not record labels, or before the claim's
    /// [first renewal](crate::Profile::first_renewal).
    pub label: Option<Arc<str>>,
    /// How the claim holds the key.
    pub mode: Mode,
    /// The first token of the grant; `None` if the store has no tokens, for a foreign holder, or before the first
    /// renewal.
    pub token: Option<FencingToken>,
    /// Time left of the lease, rounded up to the store's precision; `None` if the claim lives as long as a session, or if
    /// the store cannot tell.
    pub remaining: Option<Duration>,
}

impl HolderStatus {
    /// Creates the status of a holder.
    pub fn new(
        id: HolderId,
        label: Option<Arc<str>>,
        mode: Mode,
        token: Option<FencingToken>,
        remaining: Option<Duration>,
    ) -> Self {
        HolderStatus {
            id,
            label,
            mode,
            token,
            remaining,
        }
    }
}

/// One waiting claim in the store's queue.
///
/// # Examples
/// See [`LockStatus`]. [`HolderId::on`] turns the waiter's ID into a release target.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterStatus {
    /// The waiter's ID, with which it can be evicted.
    pub id: HolderId,
    /// The claim's label; `None` for a foreign waiter, or if the store does not record labels.
    pub label: Option<Arc<str>>,
    /// How the claim is to hold the key.
    pub mode: Mode,
}

impl WaiterStatus {
    /// Creates the status of a waiter.
    pub fn new(id: HolderId, label: Option<Arc<str>>, mode: Mode) -> Self {
        WaiterStatus { id, label, mode }
    }
}
