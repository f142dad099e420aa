//! Changes to a store's locks, found by polling the store.

mod scan;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tenure_backend::{Fault, HolderId, Instant, Kind, LockKey, LockStatus, Mode, Query};

pub(crate) use self::scan::Scans;
use self::scan::{Seen, Watcher};
use crate::engine::Engine;
use crate::engine::services::Services;
use crate::engine::timer::nap;
use crate::error::Error;

/// Default pause between two scans.
const INTERVAL: Duration = Duration::from_secs(1);
/// Minimum pause between two scans: without a pause, the watch would starve other tasks.
const SHORTEST: Duration = Duration::from_millis(1);
/// Default maximum number of keys that a watch remembers.
const LIMIT: usize = 100_000;

/// A change to the locks of a store. Each status is as the store reported it in the scan that found the change; a key
/// that the store no longer lists has a status without holders and waiters.
///
/// # Examples
/// ```
/// use tenure::Change;
///
/// fn line(change: &Change) -> Option<String> {
///     match change {
///         Change::Held(status) | Change::Holders(status) => Some(format!("{} is held", status.key)),
///         Change::Freed(status) => Some(format!("{} is free", status.key)),
///         Change::Unavailable(error) => Some(format!("no news until the store answers again: {error}")),
///         _ => None,
///     }
/// }
/// assert_eq!(line(&Change::Available), None);
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "change", rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Change {
    /// The key is held. At the previous scan it had no holder, or this is the first scan.
    Held(LockStatus),
    /// The key was held at the previous scan, and has no holder at this one. Claims may wait for it.
    Freed(LockStatus),
    /// The key is held as before, but its holders have changed, or what the store shows of one: its label, its mode, or that it
    /// has a token. On etcd, the label of a leader of Go's `Election` is the value that it proclaims.
    Holders(LockStatus),
    /// The waiters of the key have changed, and the holders have not.
    Waiters(LockStatus),
    /// The store does not answer. Reported once; the watch continues.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_message"))]
    Unavailable(Error),
    /// The store answers again. The changes that happened meanwhile follow.
    Available,
}

/// The changes to the locks of a store, one after the other.
///
/// The watch begins with the current state: every key with holders or waiters. Then it scans the store once a second
/// ([`every`](Changes::every)) and reports the differences, in the order of the keys. All prefix watchers of a client
/// share their scans: many watchers of one prefix, or of prefixes that begin with it, cost the store as much as one.
/// The watch continues while the store is unavailable, and ends when its client is closed.
///
/// # Guarantees
/// - A caller that applies every change knows the state of the store at the last scan.
/// - No guarantee that every hand-over is reported: a hold that begins and ends between two scans is not, nor is a
///   local hand-over within one client. Do not use the watch to decide whether a lock is held.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// use tenure::Change;
///
/// let client = tenure::connect("memory:").await?;
/// let _guard = client.mutex("invoice:7").lock().await?;
/// let mut changes = client.watch("invoice:");
/// let Change::Held(status) = changes.next().await? else { panic!("it is held") };
/// assert_eq!(status.key.as_str(), "invoice:7");
/// # Ok(()) }
/// ```
#[must_use = "nothing is watched until the next change is awaited"]
pub struct Changes {
    engine: Arc<Engine>,
    scope: Result<Scope, Error>,
    interval: Duration,
    limit: usize,
    /// Registers the prefix for the scans that the client's watchers share. `None` before the first scan, and for a
    /// single key.
    watcher: Option<Arc<Watcher>>,
    seen: Seen,
    /// Changes that were found and not returned yet.
    untold: VecDeque<Change>,
    /// The scan under way, which begins with a pause; `None` if there is none.
    listing: Option<Listing>,
    unavailable: bool,
    ended: bool,
}

/// A scan in progress. Returns the state of the keys, and when the scan ended.
type Listing = Pin<Box<dyn Future<Output = Result<(Seen, Instant), Error>> + Send>>;

/// The keys that the caller watches.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    /// The mutex at this key, and no other kind of lock.
    Key(LockKey),
    /// The keys under this prefix, found by scans that the client's watchers share.
    Prefix(Arc<str>, Arc<Scans>),
}

enum Watched {
    Key(LockKey),
    Prefix(Arc<Watcher>),
}

impl Changes {
    pub(crate) fn new(engine: &Arc<Engine>, scope: Result<Scope, Error>) -> Self {
        Changes {
            engine: engine.clone(),
            scope,
            interval: INTERVAL,
            limit: LIMIT,
            watcher: None,
            seen: Seen::new(),
            untold: VecDeque::new(),
            listing: None,
            unavailable: false,
            ended: false,
        }
    }

    /// Sets the pause between two scans: 1 s by default, which costs a store little; at least 1 ms.
    pub fn every(mut self, interval: Duration) -> Self {
        self.interval = interval.max(SHORTEST);
        self
    }

    /// Limits the number of keys that the watch remembers: 100,000 by default, at some hundred bytes each. With more
    /// keys, the watch ends with [`Error::Limit`].
    pub fn limit(mut self, keys: usize) -> Self {
        self.limit = keys;
        self.watcher = None;
        self
    }

    /// Waits for the next change.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change: the next call returns the change.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid key; [`Error::Unsupported`] if the store cannot list keys; [`Error::Limit`] if
    /// there are more keys than [`limit`](Changes::limit): name a longer prefix; [`Error::Closed`] once the client is
    /// closed or the runtime of its watchdog has ended, and outside a tokio runtime with timers; [`Error::Backend`] for
    /// a permanent fault of the store. After an error, the next call scans the store again.
    pub async fn next(&mut self) -> Result<Change, Error> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Change, Error>> {
        loop {
            if let Some(change) = self.untold.pop_front() {
                return Poll::Ready(Ok(change));
            }
            let mut listing = match self.listing.take() {
                Some(listing) => listing,
                None => self.next_listing(Instant::ORIGIN),
            };
            match listing.as_mut().poll(context) {
                Poll::Pending => {
                    self.listing = Some(listing);
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) if !error.is_transient() => return Poll::Ready(Err(error)),
                Poll::Ready(looked) => {
                    let ended = self.take_in(looked);
                    self.listing = Some(self.next_listing(ended + self.interval));
                }
            }
        }
    }

    /// Makes the next scan, which pauses until `from`.
    fn next_listing(&mut self, from: Instant) -> Listing {
        let (engine, interval) = (self.engine.clone(), self.interval);
        let watched = match &self.scope {
            Err(error) => return Box::pin(ready(Err(error.clone()))),
            Ok(Scope::Key(key)) => Watched::Key(key.clone()),
            Ok(Scope::Prefix(prefix, scans)) => {
                let register = || Arc::new(Watcher::new(scans, prefix.clone(), self.limit));
                Watched::Prefix(self.watcher.get_or_insert_with(register).clone())
            }
        };
        Box::pin(async move {
            let services = &engine.services;
            services.start()?;
            rest(services, from).await?;
            match watched {
                Watched::Key(key) => {
                    let status = mutex_at(&engine, &key).await?;
                    let seen = status.map(|status| (status.key.clone(), status));
                    Ok((seen.into_iter().collect(), services.context.now()))
                }
                Watched::Prefix(watcher) => watcher.look(services, interval).await,
            }
        })
    }

    /// Queues the changes that a scan found. Returns the time at which the scan ended.
    fn take_in(&mut self, looked: Result<(Seen, Instant), Error>) -> Instant {
        match looked {
            Ok((seen, ended)) => {
                if std::mem::take(&mut self.unavailable) {
                    self.untold.push_back(Change::Available);
                }
                self.untold.extend(differences(&self.seen, &seen));
                self.seen = seen;
                ended
            }
            Err(error) => {
                if !std::mem::replace(&mut self.unavailable, true) {
                    self.untold.push_back(Change::Unavailable(error));
                }
                self.engine.context().now()
            }
        }
    }
}

/// Like [`next`](Changes::next), but the stream ends after an error.
impl Stream for Changes {
    type Item = Result<Change, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let change = self.poll(context);
        self.ended = matches!(change, Poll::Ready(Err(_)));
        change.map(Some)
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("scope", &self.scope)
            .field("interval", &self.interval)
            .field("unavailable", &self.unavailable)
            .finish_non_exhaustive()
    }
}

/// Writes an error and its sources as the field `message`.
#[cfg(feature = "serde")]
fn as_message<S: serde::Serializer>(error: &Error, serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeStruct;

    let mut object = serializer.serialize_struct("Unavailable", 1)?;
    object.serialize_field("message", &error.to_string())?;
    object.end()
}

/// Sleeps until the time `until` on the lease clock. Fails if the client is closed earlier.
async fn rest(services: &Services, until: Instant) -> Result<(), Error> {
    let Services { context, tasks, .. } = services;
    loop {
        if tasks.is_closed() {
            return Err(tasks.closed());
        }
        let now = context.now();
        if now >= until {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = tasks.closing().cancelled() => {}
            () = nap(tasks, until - now) => {}
        }
    }
}

/// The status of the mutex at the key. `None` if the key is free, or is in use for something else.
pub(crate) async fn mutex_at(engine: &Engine, key: &LockKey) -> Result<Option<LockStatus>, Error> {
    match engine.inspect(Query::Key(key.clone())).await {
        Ok(page) => Ok(page.items.into_iter().find(|status| status.kind == Kind::Mutex)),
        Err(Error::Backend(error)) if error.fault() == Fault::UnknownKind => Ok(None),
        Err(error) => Err(error),
    }
}

fn differences(before: &Seen, after: &Seen) -> Vec<Change> {
    let keys: BTreeSet<&LockKey> = before.keys().chain(after.keys()).collect();
    let changes = keys
        .into_iter()
        .filter_map(|key| difference(before.get(key), after.get(key)));
    changes.collect()
}

fn difference(before: Option<&LockStatus>, after: Option<&LockStatus>) -> Option<Change> {
    let status = after.cloned().or_else(|| before.map(vacated))?;
    let held_before = before.is_some_and(|status| !status.holders.is_empty());
    let is_held = !status.holders.is_empty();
    match (held_before, is_held) {
        (false, true) => Some(Change::Held(status)),
        (true, false) => Some(Change::Freed(status)),
        _ if before.map(holders).unwrap_or_default() != holders(&status) => Some(Change::Holders(status)),
        _ if before.map(waiters).unwrap_or_default() != waiters(&status) => Some(Change::Waiters(status)),
        _ => None,
    }
}

/// Makes the status of a key that has lost its last holder and waiter, because stores do not list such keys.
fn vacated(before: &LockStatus) -> LockStatus {
    let waiters = before.waiters.as_ref().map(|_| Vec::new());
    LockStatus::new(before.key.clone(), before.kind, Vec::new(), waiters)
}

/// What a caller is to know of a holder. A store may show the label and the token later than the holder, a downgrade changes
/// the mode, and a leader of another program may proclaim a new value, which is its label.
type Shown<'a> = (&'a HolderId, Mode, Option<&'a str>, bool);

fn holders(status: &LockStatus) -> HashSet<Shown<'_>> {
    let holders = status.holders.iter().map(|holder| {
        let label = holder.label.as_deref();
        (&holder.id, holder.mode, label, holder.token.is_some())
    });
    holders.collect()
}

fn waiters(status: &LockStatus) -> Vec<&HolderId> {
    status.waiters.iter().flatten().map(|waiter| &waiter.id).collect()
}
