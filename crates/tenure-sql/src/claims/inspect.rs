//! `inspect`: turns the rows of keys into a page of lock statuses.

use tenure_backend::{Cursor, HolderId, HolderStatus, LockStatus, Page, WaiterStatus};

use super::{Row, View};

/// Builds a page of lock statuses from the views of keys, added in the order of the keys.
#[derive(Debug)]
pub(crate) struct PageBuilder {
    items: Vec<LockStatus>,
    limit: usize,
    more: bool,
}

impl PageBuilder {
    pub(crate) fn new(limit: usize) -> Self {
        PageBuilder {
            items: Vec::new(),
            limit,
            more: false,
        }
    }

    /// Adds a key, which must sort after the keys added before. Returns `false` if the page was already full.
    pub(crate) fn add(&mut self, view: &View) -> bool {
        if let Some(status) = status(view) {
            if self.items.len() == self.limit {
                self.more = true;
                return false;
            }
            self.items.push(status);
        }
        true
    }

    /// Returns the page. If there are more keys, its cursor is its last key.
    pub(crate) fn finish(self) -> Page<LockStatus> {
        let last = self.items.last().filter(|_| self.more);
        let next = last.map(|status| Cursor::new(status.key.as_str()));
        Page::new(self.items, next)
    }
}

/// The status of a key, or `None` if no claim holds it or is queued for it.
fn status(view: &View) -> Option<LockStatus> {
    let kind = view.kind()?;
    let id = |row: &Row| HolderId::Claim(row.id);
    let label = |row: &Row| Some(row.label.clone());
    let holder = |row: &Row| {
        let token = row.tokens.map(|run| run.first());
        let remaining = Some(row.expires_at - view.now());
        HolderStatus::new(id(row), label(row), row.mode, token, remaining)
    };
    let waiter = |row: &Row| WaiterStatus::new(id(row), label(row), row.mode);
    let holders = view.holders().map(holder).collect();
    let waiters = Some(view.queue().map(waiter).collect());
    Some(LockStatus::new(view.key.clone(), kind, holders, waiters))
}
