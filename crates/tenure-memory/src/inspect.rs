//! `inspect`: shows, for each key, the holders and waiters whose leases have not ended. Changes nothing.

use std::num::NonZeroU32;

use tenure_backend::{
    Claim, Cursor, HolderId, HolderStatus, Instant, LockKey, LockStatus, Page, WaiterStatus,
};

use crate::key_state::KeyState;
use crate::store::MemoryStore;
use crate::table::Table;

/// Number of keys that a listing reads before it unlocks the store for other calls.
const CHUNK: usize = 256;

impl KeyState {
    /// The holders and waiters whose leases have not ended; `None` if there are none.
    fn status(&self, key: &LockKey, now: Instant) -> Option<LockStatus> {
        let holds = || self.holds.iter().filter(|hold| now < hold.ends);
        let queue = || self.queue().filter(|entry| now < entry.ends);
        let mut claims = holds()
            .map(|hold| &hold.claim)
            .chain(queue().map(|entry| &entry.claim));
        let kind = claims.next()?.mode.kind();
        let id = |claim: &Claim| HolderId::Claim(claim.at.id);
        let label = |claim: &Claim| Some(claim.label.clone());
        let holders = holds().map(|hold| {
            let (claim, token) = (&hold.claim, Some(hold.tokens.first()));
            HolderStatus::new(id(claim), label(claim), claim.mode, token, Some(hold.ends - now))
        });
        let waiters = queue().map(|entry| {
            let claim = &entry.claim;
            WaiterStatus::new(id(claim), label(claim), claim.mode)
        });
        let (holders, waiters) = (holders.collect(), Some(waiters.collect()));
        Some(LockStatus::new(key.clone(), kind, holders, waiters))
    }
}

impl Table {
    pub(crate) fn status(&self, key: &LockKey, now: Instant) -> Option<LockStatus> {
        self.keys.get(key)?.status(key, now)
    }

    fn keys_with_prefix(&self, prefix: &str, after: Option<&str>) -> Vec<LockKey> {
        let wanted = |key: &&LockKey| {
            key.as_str().starts_with(prefix) && after.is_none_or(|after| key.as_str() > after)
        };
        self.keys.keys().filter(wanted).cloned().collect()
    }
}

impl MemoryStore {
    pub(crate) fn inspect_key(&self, key: &LockKey) -> Page<LockStatus> {
        let items = self.read(|table, now| table.status(key, now));
        Page::new(items.into_iter().collect(), None)
    }

    /// A page of keys, in the order of their names.
    ///
    /// The names are copied in one step and sorted while the store is unlocked. The keys are then read 256 at a time,
    /// so that a listing of a hundred thousand keys does not hold up other calls for long.
    pub(crate) fn inspect_prefix(
        &self,
        prefix: &str,
        after: Option<&Cursor>,
        limit: NonZeroU32,
    ) -> Page<LockStatus> {
        let limit = usize::try_from(limit.get()).unwrap_or(usize::MAX - 1);
        let mut keys = self.read(|table, _| table.keys_with_prefix(prefix, after.map(Cursor::as_str)));
        keys.sort_unstable();
        let mut items = Vec::new();
        for keys in keys.chunks(CHUNK) {
            let found = self.read(|table, now| {
                let found = keys.iter().filter_map(|key| table.status(key, now));
                found.take(limit + 1 - items.len()).collect::<Vec<_>>()
            });
            items.extend(found);
            if items.len() > limit {
                break;
            }
        }
        let more = items.len() > limit;
        items.truncate(limit);
        let last = items.last().filter(|_| more);
        let next = last.map(|status| Cursor::new(status.key.as_str()));
        Page::new(items, next)
    }
}
