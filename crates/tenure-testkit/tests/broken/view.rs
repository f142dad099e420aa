//! What a model shows of its table.
//! Nothing here decides who holds.

use std::sync::Arc;

use tenure_backend::{
    Cursor, HolderId, HolderStatus, Instant, LockKey, LockStatus, Mode, Page, Query, WaiterStatus,
};

use crate::bug::Bug;
use crate::table::{Row, Table};

impl Table {
    fn status(&self, key: &LockKey, now: Instant) -> LockStatus {
        let rows = || self.rows.iter().filter(|row| row.at(key));
        let holder = |row: &Row| {
            row.granted.map(|run| HolderStatus {
                id: HolderId::Claim(row.claim.at.id),
                label: Some(row.claim.label.clone()),
                mode: row.claim.mode,
                token: Some(run.first()),
                remaining: Some(row.from + row.lease - now),
            })
        };
        let waiter = |row: &Row| WaiterStatus {
            id: HolderId::Claim(row.claim.at.id),
            label: Some(row.claim.label.clone()),
            mode: row.claim.mode,
        };
        LockStatus {
            key: key.clone(),
            kind: rows().next().map_or(Mode::Exclusive, |row| row.claim.mode).kind(),
            holders: rows().filter_map(holder).collect(),
            waiters: Some(rows().filter(|row| row.granted.is_none()).map(waiter).collect()),
        }
    }

    pub(crate) fn page(&self, query: &Query, now: Instant) -> Page<LockStatus> {
        let fold = self.has(Bug::PrefixesFoldCase);
        let begins = |key: &LockKey, prefix: &str| {
            key.as_str().starts_with(prefix)
                || fold && key.as_str().to_lowercase().starts_with(&prefix.to_lowercase())
        };
        let mut keys: Vec<&LockKey> = self.rows.iter().map(|row| &row.claim.at.key).collect();
        keys.sort();
        keys.dedup();
        match query {
            Query::Key(wanted) => Page {
                items: keys
                    .iter()
                    .filter(|key| **key == wanted)
                    .map(|key| self.status(key, now))
                    .collect(),
                next: None,
            },
            Query::Prefix { prefix, after, limit } => {
                let limit = limit.get() as usize;
                let repeats = self.has(Bug::PagesRepeat) && limit > 1;
                let unseen = |key: &LockKey| match after {
                    Some(Cursor(last)) => key.as_str() > &**last || repeats && key.as_str() == &**last,
                    None => true,
                };
                keys.retain(|key| begins(key, prefix) && unseen(key));
                let full = self.has(Bug::FullPagesAnnounceAnother) && keys.len() == limit;
                let more = keys.len() > limit || full;
                keys.truncate(limit);
                Page {
                    items: keys.iter().map(|key| self.status(key, now)).collect(),
                    next: keys
                        .last()
                        .filter(|_| more)
                        .map(|key| Cursor(Arc::from(key.as_str()))),
                }
            }
        }
    }
}
