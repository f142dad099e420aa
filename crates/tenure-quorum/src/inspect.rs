//! `inspect`: shows the holders that a majority of the members shows.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use tenure_backend::{Backend, BackendError, Cursor, Effect, HolderStatus, LockKey, LockStatus, Page, Query};

use crate::backend::Quorum;
use crate::votes::too_few;

/// Number of keys to read from a member in one page.
const MEMBER_PAGE: NonZeroU32 = NonZeroU32::new(1_000).expect("not zero");

impl Quorum {
    /// Reads the same keys from every member, and keeps the holders that a majority shows. For each page of a listing
    /// it reads all keys with the prefix from all members, because members list their keys in different orders.
    pub(crate) async fn inspect_majority(
        self: &Arc<Self>,
        query: Query,
    ) -> Result<Page<LockStatus>, BackendError> {
        let (members, majority) = (self.members.list.len(), self.members.majority());
        let mut replies = self
            .members
            .ask_all(|member| read_all(member.store.clone(), query.clone()));
        let (mut listings, mut errors) = (Vec::new(), Vec::new());
        while let Some((_, reply)) = replies.next().await {
            match reply {
                Ok(statuses) => listings.push(statuses),
                Err(error) => errors.push(error),
            }
        }
        if listings.len() < majority {
            return Err(too_few(members, majority, errors, Effect::None));
        }
        let held = merge(listings.into_iter().flatten(), majority);
        Ok(match query {
            Query::Key(_) => Page::new(held, None),
            Query::Prefix { after, limit, .. } => page(held, after.as_ref(), limit),
        })
    }
}

/// Reads the keys of a query from one member: the single key, or all pages of the prefix.
async fn read_all(member: Arc<dyn Backend>, query: Query) -> Result<Vec<LockStatus>, BackendError> {
    let Query::Prefix { prefix, .. } = query else {
        return Ok(member.inspect(query).await?.items);
    };
    let mut statuses = Vec::new();
    let mut after = None;
    loop {
        let query = Query::Prefix {
            prefix: prefix.clone(),
            after,
            limit: MEMBER_PAGE,
        };
        let page = member.clone().inspect(query).await?;
        statuses.extend(page.items);
        after = match page.next {
            Some(next) => Some(next),
            None => return Ok(statuses),
        };
    }
}

/// Keeps the holders that at least `majority` members show. Returns them ordered by key.
fn merge(statuses: impl Iterator<Item = LockStatus>, majority: usize) -> Vec<LockStatus> {
    let mut keys: BTreeMap<LockKey, (LockStatus, Vec<Vec<HolderStatus>>)> = BTreeMap::new();
    for mut status in statuses {
        let holders = std::mem::take(&mut status.holders);
        status.waiters = None;
        let entry = keys.entry(status.key.clone());
        let (_, views) = entry.or_insert_with(|| (status, Vec::new()));
        for holder in holders {
            match views.iter_mut().find(|of_one| of_one[0].id == holder.id) {
                Some(of_one) => of_one.push(holder),
                None => views.push(vec![holder]),
            }
        }
    }
    let held = keys.into_values().filter_map(|(mut status, views)| {
        let by_majority = views.into_iter().filter(|views| views.len() >= majority);
        status.holders = by_majority.map(|views| one_view(views, majority)).collect();
        (!status.holders.is_empty()).then_some(status)
    });
    held.collect()
}

/// Merges the members' views of one holder. The token is the one that most members show: a member that granted the
/// claim only after a majority had granted it shows a token of its own. The time left ends when fewer members than a
/// majority show the holder: a slow member may not have the last renewal yet.
fn one_view(views: Vec<HolderStatus>, majority: usize) -> HolderStatus {
    let token = |holder: &&HolderStatus| {
        let same = views.iter().filter(|other| other.token == holder.token);
        (same.count(), holder.token)
    };
    let mut merged = views
        .iter()
        .max_by_key(token)
        .cloned()
        .expect("a majority is at least one member");
    let mut remaining: Vec<_> = views.iter().filter_map(|holder| holder.remaining).collect();
    remaining.sort_unstable();
    merged.remaining = remaining.into_iter().nth_back(majority - 1);
    merged.label = merged
        .label
        .or_else(|| views.iter().find_map(|holder| holder.label.clone()));
    merged
}

/// Returns the page of `held` after the cursor, which is the last key of the page before. `held` is ordered by key.
fn page(held: Vec<LockStatus>, after: Option<&Cursor>, limit: NonZeroU32) -> Page<LockStatus> {
    let limit = limit.get() as usize;
    let mut items: Vec<LockStatus> = held
        .into_iter()
        .filter(|status| after.is_none_or(|after| status.key.as_str() > after.as_str()))
        .collect();
    let more = items.len() > limit;
    items.truncate(limit);
    let last = items.last().filter(|_| more);
    let next = last.map(|status| Cursor::new(status.key.as_str()));
    Page::new(items, next)
}
