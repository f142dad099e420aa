//! `tenure ls` and `tenure show`: prints what the store shows of its locks.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use tenure::backend::Order;
use tenure::inspect::{HolderStatus, LockStatus, Query, WaiterStatus};
use tenure::{Client, HolderId, Kind, Mode};

use super::store::{Intent, connect_if_present, disconnect, key};
use crate::args::{Global, Ls, Show};
use crate::messages::{Failure, note, shortened};
use crate::output::{self, Claimant, Holder, KeyStatus, Waiter};

/// Number of keys that one call to the store lists, at most.
const PAGE: u32 = 256;

pub(super) async fn ls(global: &Global, ls: &Ls) -> Result<u8, Failure> {
    let client = connect_if_present(global, Intent::Inspect).await?;
    let (keys, more) = listing(&client, ls)
        .await
        .map_err(|error| Failure::of("cannot list the locks", &error))?;
    disconnect(&client).await;
    output::print(&if global.json {
        keys.iter().flat_map(output::object).collect()
    } else {
        output::list(&keys).into_bytes()
    })?;
    if more {
        note(
            global.quiet,
            &format!("there are more keys: --limit {} shows no more of them", ls.limit),
        );
    } else if keys.is_empty() && !global.json {
        let of = ls
            .prefix
            .as_ref()
            .map(|prefix| format!(" that begin with {:?}", shortened(prefix)));
        let what = format!("no keys{} are held or have waiters", of.unwrap_or_default());
        note(global.quiet, &what);
    }
    Ok(0)
}

/// Returns at most `--limit` keys, and whether there are more.
async fn listing(client: &Client, ls: &Ls) -> Result<(Vec<KeyStatus>, bool), tenure::Error> {
    let prefix: Arc<str> = ls.prefix.clone().unwrap_or_default().into();
    let (mut keys, mut shown, mut after) = (Vec::new(), HashSet::new(), None);
    loop {
        let left = ls
            .limit
            .saturating_sub(u32::try_from(keys.len()).unwrap_or(u32::MAX));
        let Some(limit) = NonZeroU32::new(left.min(PAGE)) else {
            return Ok((keys, after.is_some()));
        };
        let query = Query::Prefix {
            prefix: prefix.clone(),
            after,
            limit,
        };
        let page = client.inspect(query).await?;
        // While keys change, a store may list the same key on two pages.
        let new = page.items.iter().filter(|item| shown.insert(item.key.clone()));
        keys.extend(new.map(status));
        after = page.next;
        if after.is_none() {
            return Ok((keys, false));
        }
    }
}

/// Prints the holders and waiters of one key, also if it is free.
pub(super) async fn show(global: &Global, show: &Show) -> Result<u8, Failure> {
    let key = key(&show.key)?;
    let client = connect_if_present(global, Intent::Inspect).await?;
    let found = client
        .inspect(Query::Key(key.clone()))
        .await
        .map_err(|error| Failure::of(format!("cannot look at {key:?}"), &error))?;
    let free = || KeyStatus {
        key: key.to_string(),
        kind: None,
        holders: Vec::new(),
        waiters: client.profile().inspection.queue.then(Vec::new),
    };
    let status = found.items.first().map_or_else(free, status);
    // A store that keeps one order for all shows all waiters.
    let only_fair = client.profile().mutex != Order::FifoForBoth;
    disconnect(&client).await;
    output::print_json_or_text(global.json, &status, || output::show(&status, only_fair))?;
    Ok(0)
}

/// Converts a key's state to the JSON object that programs read.
pub(super) fn status(of: &LockStatus) -> KeyStatus {
    KeyStatus {
        key: of.key.to_string(),
        kind: Some(match of.kind {
            Kind::Mutex => "mutex",
            Kind::ReadWrite => "read-write",
            Kind::Semaphore { .. } => "semaphore",
        }),
        holders: of.holders.iter().map(holder).collect(),
        waiters: of
            .waiters
            .as_ref()
            .map(|queue| queue.iter().zip(0..).map(waiter).collect()),
    }
}

fn holder(of: &HolderStatus) -> Holder {
    Holder {
        who: claimant(&of.id, of.label.as_deref(), of.mode),
        permits: match of.mode {
            Mode::Permits { take, .. } => Some(take.get()),
            _ => None,
        },
        token: of.token.map(u64::from),
        remaining_ms: of.remaining.map(output::ms),
    }
}

fn waiter((of, position): (&WaiterStatus, u32)) -> Waiter {
    Waiter {
        who: claimant(&of.id, of.label.as_deref(), of.mode),
        position: Some(position),
    }
}

fn claimant(id: &HolderId, label: Option<&str>, of: Mode) -> Claimant {
    Claimant {
        claim: id.to_string(),
        foreign: matches!(id, HolderId::Foreign(_)),
        label: label.map(str::to_owned),
        mode: mode(of),
    }
}

/// Returns the word for a mode in JSON, such as `exclusive`.
pub(super) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Read => "read",
        Mode::Write => "write",
        Mode::Permits { .. } => "permits",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure::{FencingToken, LockKey};

    use super::*;

    #[test]
    fn the_library_serializes_a_listing_as_the_command_does() {
        let [take, of] = [2, 3].map(|permits| NonZeroU32::new(permits).unwrap());
        let modes = [
            (Kind::Mutex, Mode::Exclusive),
            (Kind::ReadWrite, Mode::Read),
            (Kind::ReadWrite, Mode::Write),
            (Kind::Semaphore { of }, Mode::Permits { take, of }),
        ];
        for (kind, mode) in modes {
            let (token, remaining) = (FencingToken::new(7), Some(Duration::from_micros(1_500)));
            let holder = HolderStatus::new(HolderId::parse("thread-12"), None, mode, token, remaining);
            let waiter = HolderId::parse("07070707-0707-4707-8707-070707070707:3");
            let waiter = WaiterStatus::new(waiter, Some("me".into()), mode);
            let key = LockKey::new("k").unwrap();
            let listed = LockStatus::new(key, kind, vec![holder], Some(vec![waiter]));
            assert_eq!(output::object(&listed), output::object(&status(&listed)));
        }
    }
}
