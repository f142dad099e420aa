//! `inspect`: lists locks. A read transaction shows one consistent state and blocks no writer.

use std::time::Instant;

use tenure_backend::{BackendError, Clock, Cursor, Effect, LockStatus, Page, Query};

use super::busy;
use super::error;
use super::tables::Tables;
use super::worker::{Worker, moment};
use crate::claims::PageBuilder;

impl Worker<'_> {
    /// Reads the status of one key or a page of keys, in one read transaction. Waits for locks until `busy_limit`
    /// after `since`.
    pub(super) fn inspect(
        &mut self,
        since: Instant,
        query: &Query,
    ) -> Result<Page<LockStatus>, BackendError> {
        self.check_identity()?;
        busy::set_deadline(since, self.config.busy_limit);
        let page = list(&mut self.tables, &*self.config.clock, query);
        self.roll_back();
        page.map_err(|error| error::sqlite(self.path, error, Effect::None))
    }
}

/// Begins a read transaction, and reads the status of one key or a page of keys. The caller ends the transaction.
pub(super) fn list(
    tables: &mut Tables<'_>,
    clock: &dyn Clock,
    query: &Query,
) -> rusqlite::Result<Page<LockStatus>> {
    tables.begin_read()?;
    let at = moment(clock);
    match query {
        Query::Key(key) => {
            let mut page = PageBuilder::new(1);
            page.add(&tables.read_view(key, at)?);
            Ok(page.finish())
        }
        Query::Prefix { prefix, after, limit } => {
            let mut page = PageBuilder::new(usize::try_from(limit.get()).unwrap_or(usize::MAX));
            let after = after.as_ref().map_or("", Cursor::as_str);
            tables.list(prefix, after, at, |view| {
                view.key.as_str().starts_with(&**prefix) && page.add(view)
            })?;
            Ok(page.finish())
        }
    }
}
