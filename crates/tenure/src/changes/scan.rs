//! One scan of the store for all watchers of a client.
//!
//! A watcher registers its prefix. A scan lists each registered prefix once, but skips a prefix that begins with another
//! registered prefix: the listing of the shorter one contains its keys. At most one scan is under way.
//!
//! A watcher whose pause is over joins the scan under way. If there is none, it takes the latest scan, provided that
//! it has not seen that scan and the scan ended less than one pause ago. Otherwise it starts a scan. Its next pause
//! begins at the end of the scan, so watchers with the same pause soon share every scan.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{Instant, LockKey, LockStatus, Query};
use tokio::sync::watch;

use crate::engine::services::Services;
use crate::engine::store::Store;
use crate::engine::tasks::ABANDONED;
use crate::error::Error;

/// Maximum number of keys that one `inspect` call lists.
const PAGE: NonZeroU32 = NonZeroU32::MIN.saturating_add(255);

/// The watched keys with holders or waiters, and their status at one scan.
pub(crate) type Seen = BTreeMap<LockKey, LockStatus>;

/// The scans of one client, and the watchers for which they are made.
#[derive(Debug, Default)]
pub(crate) struct Scans(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    watchers: BTreeMap<u64, Scope>,
    last_watcher: u64,
    latest: Option<Scan>,
    last_scan: u64,
}

#[derive(Clone, Debug)]
struct Scope {
    prefix: Arc<str>,
    limit: usize,
}

#[derive(Clone, Debug)]
struct Scan {
    number: u64,
    /// What the scan found; `None` while it is under way.
    outcome: watch::Receiver<Option<Arc<Outcome>>>,
}

#[derive(Debug)]
struct Outcome {
    ended: Instant,
    /// The result for each watcher, by the watcher's number. A watcher removes its result when it takes it.
    found: Result<Mutex<Found>, Error>,
}

type Found = HashMap<u64, Result<Seen, Error>>;

/// A registered watcher. Dropping it ends the registration.
#[derive(Debug)]
pub(crate) struct Watcher {
    scans: Arc<Scans>,
    number: u64,
    /// The number of the latest scan to skip: the watcher has seen it, or registered after it began.
    last_seen: AtomicU64,
}

impl Watcher {
    pub(crate) fn new(scans: &Arc<Scans>, prefix: Arc<str>, limit: usize) -> Self {
        let mut state = scans.0.lock();
        state.last_watcher += 1;
        let number = state.last_watcher;
        state.watchers.insert(number, Scope { prefix, limit });
        Watcher {
            scans: scans.clone(),
            number,
            last_seen: AtomicU64::new(state.last_scan),
        }
    }

    /// Waits for a scan that this watcher has not seen and that ended less than `interval` ago; starts one if needed.
    /// Returns the keys under the prefix, and when the scan ended.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the next call takes the same scan or a later one.
    ///
    /// # Errors
    /// Those of [`Client::inspect`](crate::Client::inspect); [`Error::Limit`] for more keys than the limit;
    /// [`Error::Closed`] once the client is closed or its runtime has ended.
    pub(crate) async fn look(
        &self,
        services: &Arc<Services>,
        interval: Duration,
    ) -> Result<(Seen, Instant), Error> {
        loop {
            let Scan { number, mut outcome } = self.scans.join(services, self, interval);
            let ended = outcome.wait_for(Option::is_some).await;
            let ended = ended.map_err(|_| ABANDONED)?.clone();
            // A scan that began before this watcher registered may lack the watcher's keys: wait for the next.
            if let Some(outcome) = ended.filter(|_| number > self.last_seen.load(Ordering::Relaxed)) {
                self.last_seen.store(number, Ordering::Relaxed);
                let mut found = outcome.found.as_ref().map_err(Error::clone)?.lock();
                let seen = found.remove(&self.number).unwrap_or_else(|| Ok(Seen::new()));
                return Ok((seen?, outcome.ended));
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut state = self.scans.0.lock();
        state.watchers.remove(&self.number);
        if state.watchers.is_empty() {
            // Free the latest scan's result, which may be large: no watcher is left to take it.
            state.latest = None;
        }
    }
}

impl Scans {
    /// Returns the scan under way, else the latest if `watcher` has not seen it and it ended less than `interval` ago,
    /// else a new one.
    fn join(&self, services: &Arc<Services>, watcher: &Watcher, interval: Duration) -> Scan {
        let mut state = self.0.lock();
        if let Some(latest) = &state.latest {
            let serves = match &*latest.outcome.borrow() {
                Some(outcome) => {
                    latest.number > watcher.last_seen.load(Ordering::Relaxed)
                        && services.context.now() < outcome.ended + interval
                }
                // Is under way if this is `Ok`. An error: the scan's task was dropped with its runtime.
                None => latest.outcome.has_changed().is_ok(),
            };
            if serves {
                return latest.clone();
            }
        }
        state.last_scan += 1;
        let (tell, outcome) = watch::channel(None);
        let scan = Scan {
            number: state.last_scan,
            outcome,
        };
        state.latest = Some(scan.clone());
        let watchers = state.watchers.clone();
        // Unlock before `spawn`: if the runtime has ended, `spawn` drops the task and all that it owns, which must
        // not happen under the lock.
        drop(state);
        let work = services.clone();
        services.tasks.spawn(async move {
            let found = tokio::select! {
                biased;
                // No watcher is left to receive the result.
                () = tell.closed() => return,
                found = scan_until_closed(&work, &watchers) => found,
            };
            tell.send_replace(Some(Arc::new(Outcome {
                ended: work.context.now(),
                found: found.map(Mutex::new),
            })));
        });
        scan
    }
}

async fn scan_until_closed(services: &Services, watchers: &BTreeMap<u64, Scope>) -> Result<Found, Error> {
    let closing = pin!(services.tasks.closing().cancelled());
    if services.tasks.is_closed() {
        return Err(services.tasks.closed());
    }
    tokio::select! {
        biased;
        () = closing => Err(services.tasks.closed()),
        found = scan(&services.context.store, watchers) => found,
    }
}

/// Lists the keys under the prefixes of all watchers.
async fn scan(store: &Store, watchers: &BTreeMap<u64, Scope>) -> Result<Found, Error> {
    let mut found: Found = watchers.keys().map(|number| (*number, Ok(Seen::new()))).collect();
    for prefix in outermost(watchers) {
        let mut after = None;
        loop {
            let query = Query::Prefix {
                prefix: prefix.clone(),
                after,
                limit: PAGE,
            };
            let page = store.inspect(query).await?;
            for status in page.items {
                enter(&status, watchers, &mut found);
            }
            let is_wanted = |(number, scope): (&u64, &Scope)| {
                scope.prefix.starts_with(&*prefix) && matches!(found.get(number), Some(Ok(_)))
            };
            after = page.next.filter(|_| watchers.iter().any(is_wanted));
            if after.is_none() {
                break;
            }
        }
    }
    Ok(found)
}

/// Adds a status to the results of the key's watchers. A watcher with too many keys gets an error.
fn enter(status: &LockStatus, watchers: &BTreeMap<u64, Scope>, found: &mut Found) {
    for (number, Scope { prefix, limit }) in watchers {
        let Some(entry) = found.get_mut(number) else {
            continue;
        };
        if let Ok(seen) = entry
            && status.key.as_str().starts_with(&**prefix)
        {
            seen.insert(status.key.clone(), status.clone());
            if seen.len() > *limit {
                let message = format!("more than {limit} keys are held or waited for: name a longer prefix");
                *entry = Err(Error::Limit(message.into()));
            }
        }
    }
}

/// Returns the prefixes that begin with no other prefix.
fn outermost(watchers: &BTreeMap<u64, Scope>) -> Vec<Arc<str>> {
    let mut prefixes: Vec<Arc<str>> = watchers.values().map(|scope| scope.prefix.clone()).collect();
    prefixes.sort();
    // In sorted order, a prefix comes right before the prefixes that begin with it.
    prefixes.dedup_by(|longer, shorter| longer.starts_with(&**shorter));
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_listed_once_with_those_that_begin_with_it() {
        let cases: [(&[&str], &[&str]); 3] = [
            (&["a:1", "b", "a:", "a:", "a"], &["a", "b"]),
            (&["a:1", "", "b"], &[""]),
            (&["jobs:a", "jobs:b"], &["jobs:a", "jobs:b"]),
        ];
        for (prefixes, listed) in cases {
            let scope = |prefix: &&str| Scope {
                prefix: Arc::from(*prefix),
                limit: 1,
            };
            let watchers = (0..).zip(prefixes.iter().map(scope)).collect();
            let outermost = outermost(&watchers);
            assert!(
                outermost
                    .iter()
                    .map(|prefix| &**prefix)
                    .eq(listed.iter().copied()),
                "{outermost:?}"
            );
        }
    }
}
