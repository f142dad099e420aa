//! Finds the holder of a lock that was not granted at once, as far as the store shows it.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure::backend::{ClientId, escape_control};
use tenure::inspect::{LockStatus, Query};
use tenure::{ClaimRef, Client, HolderId, Instant, LockKey};

use crate::guardian::now;

/// Shortest time between two queries of the store for the holder of a lock.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit of the last query for the holder, by a verb that is about to exit.
const LAST_LOOK_LIMIT: Duration = Duration::from_millis(500);
/// Number of keys of a multi-lock that one query for the holder covers, at most.
const KEYS_PER_LOOK: usize = 8;

/// A query of the store in progress. Returns the state of the first key that another client holds.
type PendingQuery<'a> = Pin<Box<dyn Future<Output = Option<LockStatus>> + 'a>>;

/// Finds the holder of a lock, to show it to people. A query that fails finds no holder and reports no error.
pub(super) struct HolderSearch<'a> {
    client: &'a Client,
    keys: Vec<LockKey>,
    /// The word for what a holder does: `held`, or `led` for an election.
    does: &'static str,
    /// The claim of this process. Set when the claim begins to wait.
    waiting: Arc<OnceLock<ClaimRef>>,
    /// The query in progress. A call of `look` that is dropped leaves it here.
    query: Option<PendingQuery<'a>>,
    /// Start of the last query.
    began: Option<Instant>,
    found: Option<SeenHolder>,
}

/// A holder as the store showed it in one query or several.
struct SeenHolder {
    key: LockKey,
    id: HolderId,
    label: Option<String>,
    /// Number of other claims that hold the key too, as readers or with permits of a semaphore.
    others: usize,
    remaining: Option<Duration>,
    /// The position of our claim in the queue, from 1, and the length of the queue. `None` if the store does not show
    /// it there.
    place: Option<(usize, usize)>,
    first_seen: Instant,
    last_seen: Instant,
}

impl<'a> HolderSearch<'a> {
    /// Creates a search that has not queried the store yet.
    pub(super) fn new(
        client: &'a Client,
        keys: &[LockKey],
        waiting: Arc<OnceLock<ClaimRef>>,
    ) -> HolderSearch<'a> {
        HolderSearch {
            client,
            keys: keys.to_vec(),
            does: "held",
            waiting,
            query: None,
            began: None,
            found: None,
        }
    }

    /// Creates a search for the leader of an election.
    pub(super) fn of_leader(
        client: &'a Client,
        name: &LockKey,
        waiting: Arc<OnceLock<ClaimRef>>,
    ) -> HolderSearch<'a> {
        HolderSearch {
            does: "led",
            ..Self::new(client, std::slice::from_ref(name), waiting)
        }
    }

    /// Queries the store for the holder once, and records the result.
    ///
    /// # Cancel safety
    /// If this future is dropped, its query is kept, and the next call goes on with it.
    pub(super) async fn look(&mut self) {
        let query = match self.query.take() {
            Some(query) => query,
            None => {
                self.began = Some(now());
                Box::pin(first_held(self.client, self.keys_in_order(), self.own()))
            }
        };
        let status = self.query.insert(query).await;
        self.query = None;
        self.record(status.as_ref(), now());
    }

    /// Describes the holder for a verb that gives up. First queries the store, with a time limit, unless the last
    /// query has ended and began less than a second ago.
    async fn last_words(&mut self) -> Option<String> {
        let is_recent = self.began.is_some_and(|began| now() - began < LOOK_INTERVAL);
        if self.query.is_some() || !is_recent {
            // On a timeout, describe the holder that the previous query found.
            let _ = tokio::time::timeout(LAST_LOOK_LIMIT, self.look()).await;
        }
        let holder = self.found.as_ref()?;
        let subject = match self.keys.as_slice() {
            [_] => String::new(),
            _ => format!("{:?} is ", holder.key),
        };
        Some(format!("{subject}{}", holder.describe(self.does, now())))
    }

    /// Returns the label of the holder that the last query found, if the store shows it.
    pub(super) fn label(&self) -> Option<String> {
        self.found.as_ref()?.label.clone()
    }

    /// Returns the sentence to show while the verb waits for the lock: the key and its holder if a holder was found,
    /// otherwise all keys.
    pub(super) fn sentence(&self) -> String {
        let text = match &self.found {
            Some(holder) => {
                let mut text = format!(
                    "waiting for {:?}: {}",
                    holder.key,
                    holder.describe(self.does, now())
                );
                if let Some((place, of)) = holder.place {
                    text += &format!("; place {place} of {of} in the queue");
                }
                text
            }
            None => {
                let keys: Vec<String> = self.keys.iter().map(|key| format!("{key:?}")).collect();
                format!("waiting for {}", keys.join(", "))
            }
        };
        escape_control(&text).into_owned()
    }

    /// Returns the id of this client, whose own holds are skipped: it may hold other keys of a multi-lock.
    fn own(&self) -> Option<ClientId> {
        self.waiting.get().map(|claim| claim.id.client())
    }

    /// Returns the keys. The key that the claim waits for comes first.
    fn keys_in_order(&self) -> Vec<LockKey> {
        let mut keys = self.keys.clone();
        if let Some(claim) = self.waiting.get() {
            keys.sort_by_key(|key| *key != claim.key);
        }
        keys
    }

    fn record(&mut self, status: Option<&LockStatus>, now: Instant) {
        let seen = status.and_then(|status| SeenHolder::of(status, self.waiting.get(), now));
        self.found = match (seen, self.found.take()) {
            (Some(seen), Some(known)) if (&seen.key, &seen.id) == (&known.key, &known.id) => {
                Some(SeenHolder {
                    first_seen: known.first_seen,
                    ..seen
                })
            }
            (seen, _) => seen,
        };
    }
}

/// Appends the holder, if the store shows it, to the names of keys that were not acquired.
pub(super) async fn with_holder(names: String, search: &mut HolderSearch<'_>) -> String {
    match search.last_words().await {
        Some(holder) => format!("{names}; {holder}"),
        None => names,
    }
}

/// Returns the state of the first key that another client holds.
async fn first_held(client: &Client, keys: Vec<LockKey>, own: Option<ClientId>) -> Option<LockStatus> {
    for key in keys.into_iter().take(KEYS_PER_LOOK) {
        let page = client.inspect(Query::Key(key)).await.ok();
        let status = page.and_then(|page| page.items.into_iter().next());
        if let Some(status) = status
            && status.holders.iter().any(|holder| is_other(&holder.id, own))
        {
            return Some(status);
        }
    }
    None
}

fn is_other(id: &HolderId, own: Option<ClientId>) -> bool {
    !matches!(id, HolderId::Claim(claim) if Some(claim.client()) == own)
}

impl SeenHolder {
    /// Reads the state of a key for which the claim `waiting` waits.
    fn of(status: &LockStatus, waiting: Option<&ClaimRef>, now: Instant) -> Option<SeenHolder> {
        let own = waiting.map(|claim| claim.id.client());
        let queue = status.waiters.as_deref().unwrap_or_default();
        let is_ours =
            |id: &HolderId| matches!(id, HolderId::Claim(id) if waiting.is_some_and(|own| own.id == *id));
        let position = queue.iter().position(|waiter| is_ours(&waiter.id));
        let mut holders = status.holders.iter().filter(|holder| is_other(&holder.id, own));
        let holder = holders.next()?;
        Some(SeenHolder {
            key: status.key.clone(),
            id: holder.id.clone(),
            label: holder.label.as_deref().map(str::to_owned),
            others: holders.count(),
            remaining: holder.remaining,
            place: position.map(|position| (position + 1, queue.len())),
            first_seen: now,
            last_seen: now,
        })
    }

    /// Describes what the store has shown, and nothing else: `held by ann@host:1 for at least 12s, 24s left of its
    /// lease`.
    fn describe(&self, does: &str, now: Instant) -> String {
        let label = self.label.as_deref().map(escape_control);
        let mut words = match (label, self.others) {
            (None, 0) => does.to_owned(),
            (None, others) => format!("{does} by {} clients", others + 1),
            (Some(label), 0) => format!("{does} by {label}"),
            (Some(label), 1) => format!("{does} by {label} and 1 other"),
            (Some(label), others) => format!("{does} by {label} and {others} others"),
        };
        let held = now - self.first_seen;
        if held >= Duration::from_secs(1) {
            words += &format!(" for at least {}", in_words(held));
        }
        if let Some(remaining) = self.remaining {
            let left = remaining.saturating_sub(now - self.last_seen);
            words += &format!(", {} left of its lease", in_words(left));
        }
        words
    }
}

/// Formats a duration in whole seconds, or in whole minutes from an hour on: `12s`, `2m05s`, `1h02m`.
fn in_words(span: Duration) -> String {
    match span.as_secs() {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ ..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(label: Option<&str>, remaining: Option<u64>, others: usize) -> SeenHolder {
        SeenHolder {
            key: LockKey::new("k").expect("it is a key"),
            id: HolderId::parse("thread-12"),
            label: label.map(str::to_owned),
            others,
            remaining: remaining.map(Duration::from_secs),
            place: None,
            first_seen: at(100),
            last_seen: at(160),
        }
    }

    fn at(secs: u64) -> Instant {
        Instant::from_nanos(secs * 1_000_000_000)
    }

    #[test]
    fn a_holder_is_described_by_what_the_store_shows() {
        for (holder, words) in [
            (
                holder(Some("ann@host:1"), Some(30), 0),
                "held by ann@host:1 for at least 1m05s, 25s left of its lease",
            ),
            (
                holder(None, Some(3), 0),
                "held for at least 1m05s, 0s left of its lease",
            ),
            (holder(None, None, 1), "held by 2 clients for at least 1m05s"),
            (
                holder(Some("a\u{1b}[2J\n"), None, 2),
                "held by a\\u{1b}[2J\\n and 2 others for at least 1m05s",
            ),
        ] {
            assert_eq!(holder.describe("held", at(165)), words);
        }
        assert_eq!(
            holder(Some("ann"), None, 0).describe("led", at(100)),
            "led by ann"
        );
    }

    #[test]
    fn a_span_is_shown_in_whole_seconds() {
        for (ms, words) in [
            (999, "0s"),
            (59_999, "59s"),
            (125_000, "2m05s"),
            (3_720_000, "1h02m"),
        ] {
            assert_eq!(in_words(Duration::from_millis(ms)), words);
        }
    }
}
