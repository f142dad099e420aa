//! Listings and examinations, for people and tools.

use std::sync::Arc;

use tenure_backend::{
    BackendError, Cursor, Finding, HolderStatus, Kind, LockKey, LockStatus, Mode, Page, Query,
};

use super::reply::Row;
use super::rows::{LeaseRows, token_run};
use super::session::LeaseSession;
use super::statement::Values;
use crate::server::error::Failure;
use crate::server::findings::{find, time_here};
use crate::server::pool::Priority;

impl<S: LeaseSession> LeaseRows<S> {
    pub(super) async fn list(self: Arc<Self>, query: Query) -> Result<Page<LockStatus>, BackendError> {
        let mut values = Values::default();
        let (statement, limit) = match &query {
            Query::Key(key) => {
                values.key = key.as_str();
                (&self.statements.look, usize::MAX)
            }
            Query::Prefix { prefix, after, limit } => {
                values.prefix = prefix;
                values.after = after.as_ref().map_or("", Cursor::as_str);
                values.limit = i64::from(limit.get()) + 1;
                (&self.statements.list, limit.get() as usize)
            }
        };
        let found = self.run_with(Priority::Low, statement, &values).await?;
        let is_full = found.rows.len() > limit;
        let rows: Vec<Row> = found.rows().take(limit).collect();
        let next = rows
            .last()
            .filter(|_| is_full)
            .map(|row| Cursor::new(row.key.as_str()));
        let statuses = rows.into_iter().filter_map(|row| self.status(row)).collect();
        Ok(Page::new(statuses, next))
    }

    pub(super) fn status(&self, row: Row) -> Option<LockStatus> {
        let (row, is) = self.held(Some(row))?;
        let run = token_run(row.token, is.tokens).ok().flatten();
        let token = run.map(|run| run.first());
        let holder = HolderStatus::new(is.id, is.label, Mode::Exclusive, token, row.left);
        let key = LockKey::new(row.key).ok()?;
        Some(LockStatus::new(key, Kind::Mutex, vec![holder], None))
    }

    pub(super) async fn find_weaknesses(self: Arc<Self>) -> Result<Vec<Finding>, BackendError> {
        let (config, begun) = (&self.pool.config, time_here());
        let facts = async |session: &mut S| session.facts(config).await;
        let facts = self.pool.with(Priority::Low, facts).await;
        let facts = facts.map_err(Failure::into_error)?;
        Ok(find(facts, S::CHECKS, config, begun))
    }
}
