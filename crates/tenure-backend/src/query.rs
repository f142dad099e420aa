//! What people and tools see of a store's locks. Never asked to decide who holds.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::{FencingToken, HolderId, Kind, LockKey, Mode};

/// Which keys to look at.
///
/// # Examples
/// ```
/// use std::num::NonZeroU32;
/// use tenure_backend::{LockKey, Query};
///
/// let one = Query::Key(LockKey::new("order:42").unwrap());
/// let limit = NonZeroU32::new(100).unwrap();
/// let orders = Query::Prefix { prefix: "order:".into(), after: None, limit };
/// // How to go on after the first hundred stands with `Page`.
/// assert_ne!(one, orders);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// One key.
    Key(LockKey),
    /// Every key with holders or waiters that begins so, in an order of the store's own. What changes between two pages can
    /// be missed or named twice; what stays is named, and once, unless the store says otherwise.
    Prefix {
        /// The beginning; empty for all keys.
        prefix: Arc<str>,
        /// Where the page before ended.
        after: Option<Cursor>,
        /// How many keys a page has at the most.
        limit: NonZeroU32,
    },
}

/// A place in a long listing. Its text is the store's own.
///
/// # Examples
/// See [`Page`]: nobody reads a cursor but the store that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub Arc<str>);

/// A part of a listing.
///
/// # Examples
/// ```
/// use tenure_backend::{Cursor, Page, Query};
/// # use std::num::NonZeroU32;
/// # use tenure_backend::LockStatus;
///
/// /// The query for the page behind this one.
/// fn following<T>(query: Query, page: &Page<T>) -> Option<Query> {
///     match (query, page.next.clone()) {
///         (Query::Prefix { prefix, limit, .. }, Some(next)) => {
///             Some(Query::Prefix { prefix, after: Some(next), limit })
///         }
///         _ => None,
///     }
/// }
/// # let query = Query::Prefix { prefix: "order:".into(), after: None, limit: NonZeroU32::MIN };
/// # let (items, next) = (Vec::<LockStatus>::new(), Some(Cursor("order:42".into())));
/// // An empty page may have one behind it: only `next` tells.
/// assert!(following(query.clone(), &Page { items: items.clone(), next }).is_some());
/// assert_eq!(following(query, &Page { items, next: None }), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What was found. A key that nobody holds or waits for is not among it.
    pub items: Vec<T>,
    /// Where the next page begins; `None` on the last, also if that is full. A store that would have to look at very many
    /// keys to know may announce a page that turns out to be empty.
    pub next: Option<Cursor>,
}

/// One key, as it stood when the store looked.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// use tenure_backend::{HolderId, HolderStatus, Kind, LockKey, LockStatus, Mode};
///
/// let holder = HolderStatus {
///     id: HolderId::parse("thread-12"),
///     label: None,
///     mode: Mode::Exclusive,
///     token: None,
///     remaining: Some(Duration::from_secs(12)),
/// };
/// let key = LockKey::new("order:42").unwrap();
/// let status = LockStatus { key, kind: Kind::Mutex, holders: vec![holder], waiters: None };
/// // `None` is "cannot be told", and not "nobody".
/// let waiters = status.waiters.map_or("unknown".to_owned(), |waiters| waiters.len().to_string());
/// assert_eq!(waiters, "unknown");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockStatus {
    /// Its name.
    pub key: LockKey,
    /// What it is used as.
    pub kind: Kind,
    /// Who holds it.
    pub holders: Vec<HolderStatus>,
    /// Who stands in the store's queue, in order; `None` where the store cannot tell.
    ///
    /// Unfair claims stand in none, unless the store serves them in order all the same: an empty queue does not say that
    /// nobody waits.
    pub waiters: Option<Vec<WaiterStatus>>,
}

/// One holder.
///
/// # Examples
/// ```
/// use tenure_backend::{ReleaseTarget, HolderId, HolderStatus, LockKey, Mode};
///
/// let status = HolderStatus {
///     id: HolderId::parse("thread-12"),
///     label: None,
///     mode: Mode::Exclusive,
///     token: None,
///     remaining: None,
/// };
/// // From what is shown to what a release takes: a Java thread can be evicted too.
/// let holder = status.id.on(LockKey::new("order:42").unwrap());
/// assert!(matches!(holder, ReleaseTarget::Foreign { .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderStatus {
    /// Its name, as eviction takes it; foreign names are another kind of client's.
    pub id: HolderId,
    /// What it calls itself, where the layout records that; `None` too before
    /// [`Profile::first_renewal`](crate::Profile::first_renewal), if the store has one.
    pub label: Option<Arc<str>>,
    /// How it holds the key.
    pub mode: Mode,
    /// The grant's token, or the first one of its run; `None` too before its first renewal, as with the label.
    pub token: Option<FencingToken>,
    /// What is left of its lease, rounded up to what the store can tell; `None` where liveness is a session, or the
    /// store cannot tell.
    pub remaining: Option<Duration>,
}

/// One waiter in the store's queue.
///
/// # Examples
/// See [`LockStatus`]; [`HolderId::on`] makes of its name what a release takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterStatus {
    /// Its name, as eviction takes it.
    pub id: HolderId,
    /// What it calls itself, where the layout records that.
    pub label: Option<Arc<str>>,
    /// How it wants to hold the key.
    pub mode: Mode,
}
