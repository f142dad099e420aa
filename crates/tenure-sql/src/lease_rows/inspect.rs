//! Listings and examinations, for people and tools.

use std::sync::Arc;

use tenure_backend::{
    BackendError, Cursor, Finding, HolderStatus, Kind, LockKey, LockStatus, Mode, Page, Query,
};

use super::reply::Row;
use super::rows::LeaseRows;
use super::session::LeaseSession;
use super::statement::Values;
use crate::server::error::Failure;
use crate::server::findings::find;

impl<S: LeaseSession> LeaseRows<S> {
    pub(super) async fn list(self: Arc<Self>, query: Query) -> Result<Page<LockStatus>, BackendError> {
        let values = Values::default();
        let (rows, limit) = match &query {
            Query::Key(key) => {
                let values = Values {
                    key: key.as_str(),
                    ..values
                };
                (self.run(&self.statements.look, &values).await?, usize::MAX)
            }
            Query::Prefix { prefix, after, limit } => {
                let after = after.as_ref().map_or("", Cursor::as_str);
                let values = Values {
                    prefix,
                    after,
                    limit: i64::from(limit.get()) + 1,
                    ..values
                };
                let rows = self.run(&self.statements.list, &values).await?;
                (rows, usize::try_from(limit.get()).unwrap_or(usize::MAX))
            }
        };
        let is_full = rows.rows.len() > limit;
        let rows: Vec<Row> = rows.rows().take(limit).collect();
        let next = rows
            .last()
            .filter(|_| is_full)
            .map(|row| Cursor::new(row.key.as_str()));
        let statuses = rows.into_iter().filter_map(|row| self.status(row)).collect();
        Ok(Page::new(statuses, next))
    }

    pub(super) fn status(&self, row: Row) -> Option<LockStatus> {
        let (row, is) = self.held(Some(row))?;
        let first = row
            .token
            .zip(is.tokens)
            .map(|(last, tokens)| last - i64::from(tokens) + 1);
        let token = first.and_then(|first| u64::try_from(first).ok()?.try_into().ok());
        let holder = HolderStatus::new(is.id, is.label, Mode::Exclusive, token, row.left);
        let key = LockKey::new(row.key).ok()?;
        Some(LockStatus::new(key, Kind::Mutex, vec![holder], None))
    }

    pub(super) async fn find_weaknesses(self: Arc<Self>) -> Result<Vec<Finding>, BackendError> {
        let (config, statements) = (&self.pool.config, &self.statements);
        let facts = self
            .pool
            .with(async |session| session.facts(config, statements).await);
        let facts = facts.await.map_err(Failure::into_error)?;
        Ok(find(facts, S::CHECKS, config))
    }
}
