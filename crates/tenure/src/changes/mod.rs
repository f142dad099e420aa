//! What changes among a store's locks, seen by looking at it again and again. Not here: a single look, which is
//! [`Client::inspect`].

mod scan;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tenure_backend::{Fault, HolderId, Instant, Kind, LockKey, LockStatus, Query};

pub(crate) use self::scan::Scans;
use self::scan::{Seen, Watcher};
use crate::engine::Engine;
use crate::engine::services::Services;
use crate::engine::timer::nap;
use crate::error::Error;

/// How long it rests between two looks, unless told otherwise.
const INTERVAL: Duration = Duration::from_secs(1);
/// It rests at least so long: without a rest it would never let others go on.
const SHORTEST: Duration = Duration::from_millis(1);
/// How many keys it keeps in mind, unless told otherwise.
const LIMIT: usize = 100_000;

/// A change among the locks of a store. Each status is what the store showed when the change was seen.
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
#[non_exhaustive]
pub enum Change {
    /// Somebody holds a key that nobody held before.
    Held(LockStatus),
    /// Nobody holds the key any more. Somebody may wait for it.
    Freed(LockStatus),
    /// Others hold the key than before.
    Holders(LockStatus),
    /// The same hold the key, or still nobody does, and others wait for it than before.
    Waiters(LockStatus),
    /// The store does not answer. Said once; the watch goes on.
    Unavailable(Error),
    /// The store answers again. What has changed meanwhile follows.
    Available,
}

/// The changes among the locks of a store, one after the other.
///
/// It begins with what stands: every key that is held, and every key that is only waited for. From then on it looks
/// at the store once a second ([`every`](Changes::every)) and tells what is different, in the order of the keys. All watchers of
/// a client share their looks: watchers of one prefix, or of prefixes that begin with it, cost a store as much as one.
/// Unavailability of the store does not end it; the end of its client does, at once.
///
/// # Guarantees
/// - Whoever follows it knows the store as it stood at the last look.
/// - No guarantee that every hand-over is seen: what begins and ends between two looks is not, nor is a claim that is
///   passed on in the memory of one client. Never decide by it who holds a lock.
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
    /// The registration for the client's scans, from the first look on. A single key needs none.
    watcher: Option<Arc<Watcher>>,
    seen: Seen,
    /// Seen and not told yet.
    untold: VecDeque<Change>,
    /// The look that is under way, or rests before it begins.
    look: Option<Look>,
    unavailable: bool,
    ended: bool,
}

/// What was seen, and when.
type Look = Pin<Box<dyn Future<Output = Result<(Seen, Instant), Error>> + Send>>;

/// Which keys are watched.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    /// The mutex at this key, and no other kind of lock.
    Key(LockKey),
    /// The keys under this prefix, found by scans that the client's watchers share.
    Prefix(Arc<str>, Arc<Scans>),
}

/// What one look looks at.
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
            look: None,
            unavailable: false,
            ended: false,
        }
    }

    /// Sets how long it rests between two looks: 1 s by default, which costs a store little; at least 1 ms.
    pub fn every(mut self, interval: Duration) -> Self {
        self.interval = interval.max(SHORTEST);
        self
    }

    /// Sets how many keys it keeps in mind: 100,000 by default, some hundred bytes each. More end it with
    /// [`Error::Limit`].
    pub fn limit(mut self, keys: usize) -> Self {
        self.limit = keys;
        self.watcher = None;
        self
    }

    /// Waits for the next change.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change: the next call gives it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is no key; [`Error::Unsupported`] where the store cannot list keys;
    /// [`Error::Limit`] if there are more keys than [`limit`](Changes::limit): name a longer prefix;
    /// [`Error::Closed`] once the client is closed or the runtime of its watchdog has ended, and outside a tokio runtime
    /// with timers; [`Error::Backend`] for a fault of the store that time does not mend. Called again, it looks again.
    pub async fn next(&mut self) -> Result<Change, Error> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Change, Error>> {
        loop {
            if let Some(change) = self.untold.pop_front() {
                return Poll::Ready(Ok(change));
            }
            let mut look = match self.look.take() {
                Some(look) => look,
                None => self.next_look(Instant::ORIGIN),
            };
            match look.as_mut().poll(context) {
                Poll::Pending => {
                    self.look = Some(look);
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) if !error.is_transient() => return Poll::Ready(Err(error)),
                Poll::Ready(looked) => {
                    let ended = self.take_in(looked);
                    self.look = Some(self.next_look(ended + self.interval));
                }
            }
        }
    }

    /// A look after a rest.
    fn next_look(&mut self, from: Instant) -> Look {
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

    /// Returns when the look ended.
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

/// As [`next`](Changes::next), but that it ends after an error.
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

/// Rests until then on the belief clock, unless the client ends meanwhile.
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

/// The mutex at the key. `None` if the key is free, or if it holds something else.
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

/// The status of a key of which nothing is left: stores do not show such keys.
fn vacated(before: &LockStatus) -> LockStatus {
    LockStatus {
        key: before.key.clone(),
        kind: before.kind,
        holders: Vec::new(),
        waiters: before.waiters.as_ref().map(|_| Vec::new()),
    }
}

fn holders(status: &LockStatus) -> HashSet<&HolderId> {
    status.holders.iter().map(|holder| &holder.id).collect()
}

fn waiters(status: &LockStatus) -> Vec<&HolderId> {
    status.waiters.iter().flatten().map(|waiter| &waiter.id).collect()
}
