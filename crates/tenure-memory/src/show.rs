//! What `inspect` shows: live holders and live waiters. Nothing is changed by looking.

use std::num::NonZeroU32;

use tenure_backend::{Cursor, HolderId, HolderStatus, Instant, LockKey, LockStatus, Page, WaiterStatus};

use crate::room::Room;
use crate::store::MemoryStore;
use crate::table::Table;

/// How many keys are looked at while the store is locked.
const CHUNK: usize = 256;

impl Room {
    /// How the key stands; `None` if nobody alive holds it or queues for it.
    fn show(&self, key: &LockKey, now: Instant) -> Option<LockStatus> {
        let holds = || self.holds.iter().filter(|hold| now < hold.ends);
        let queue = || self.queue().filter(|place| now < place.ends);
        let mut claims = holds()
            .map(|hold| &hold.claim)
            .chain(queue().map(|place| &place.claim));
        let kind = claims.next()?.mode.kind();
        let holders = holds().map(|hold| HolderStatus {
            id: HolderId::Claim(hold.claim.at.id),
            label: Some(hold.claim.label.clone()),
            mode: hold.claim.mode,
            token: Some(hold.tokens.first()),
            remaining: Some(hold.ends - now),
        });
        let waiters = queue().map(|place| WaiterStatus {
            id: HolderId::Claim(place.claim.at.id),
            label: Some(place.claim.label.clone()),
            mode: place.claim.mode,
        });
        Some(LockStatus {
            key: key.clone(),
            kind,
            holders: holders.collect(),
            waiters: Some(waiters.collect()),
        })
    }
}

impl Table {
    pub(crate) fn show(&self, key: &LockKey, now: Instant) -> Option<LockStatus> {
        self.rooms.get(key)?.show(key, now)
    }

    /// The keys that begin so and come after `after`, in no order.
    fn keys(&self, prefix: &str, after: Option<&str>) -> Vec<LockKey> {
        let wanted = |key: &&LockKey| {
            key.as_str().starts_with(prefix) && after.is_none_or(|after| key.as_str() > after)
        };
        self.rooms.keys().filter(wanted).cloned().collect()
    }
}

impl MemoryStore {
    /// One key.
    pub(crate) fn show_key(&self, key: &LockKey) -> Page<LockStatus> {
        let items = self.read(|table, now| table.show(key, now));
        Page {
            items: items.into_iter().collect(),
            next: None,
        }
    }

    /// A page of keys in the order of their names. They are sorted while the store is not locked, and looked at a few at a
    /// time: looking at a hundred thousand keys must not hold up those who lock one.
    pub(crate) fn show_prefix(
        &self,
        prefix: &str,
        after: Option<&Cursor>,
        limit: NonZeroU32,
    ) -> Page<LockStatus> {
        let limit = usize::try_from(limit.get()).unwrap_or(usize::MAX - 1);
        let mut keys = self.read(|table, _| table.keys(prefix, after.map(|cursor| &*cursor.0)));
        keys.sort_unstable();
        let mut items = Vec::new();
        for keys in keys.chunks(CHUNK) {
            let shown = self.read(|table, now| {
                let shown = keys.iter().filter_map(|key| table.show(key, now));
                shown.take(limit + 1 - items.len()).collect::<Vec<_>>()
            });
            items.extend(shown);
            if items.len() > limit {
                break;
            }
        }
        let more = items.len() > limit;
        items.truncate(limit);
        let last = items.last().filter(|_| more);
        let next = last.map(|status| Cursor(status.key.as_str().into()));
        Page { items, next }
    }
}
