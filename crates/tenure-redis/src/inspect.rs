//! What `inspect` shows: holders and waiters, ours and Java's. Nothing is decided by it.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use tenure_backend::{
    BackendError, Cursor, Effect, Fault, HolderStatus, Kind, LockKey, LockStatus, Mode, Page, Query,
    WaiterStatus,
};

use crate::answer::{granted, integer, list, text, waits};
use crate::backend::RedisStore;
use crate::error::nonsense;
use crate::names::{QUEUES, of_queue};
use crate::release::name;
use crate::script::SHOW;
use crate::wire::Wire;

/// How many steps through the server's keys one page takes: among millions of keys that are no locks it ends early.
const STEPS: usize = 100;

/// From how many keys on a listing of all of them is worth a word.
const MANY: u64 = 100_000;

/// How many names one call looks at.
const CHUNK: usize = 100;

/// Over which keys a listing goes: first the locks that are held, then the queues of those that are not.
const HELD: u8 = 0;
const QUEUED: u8 = 1;

/// Where a listing has come to. `skip` keys that the server's own cursor gives were on the page before.
struct Place {
    part: u8,
    cursor: u64,
    skip: usize,
}

impl RedisStore {
    pub(crate) async fn look(&self, query: Query) -> Result<Page<LockStatus>, BackendError> {
        let wire = self.link.wire().await?;
        match query {
            Query::Key(key) => {
                let items = show(&wire, &[key.as_str().to_owned()]).await?;
                Ok(Page { items, next: None })
            }
            Query::Prefix { prefix, after, limit } => {
                if prefix.is_empty() && after.is_none() {
                    self.warn_of_many(&wire).await;
                }
                list_from(&wire, &prefix, after.as_ref(), limit).await
            }
        }
    }

    /// A listing of everything looks at every key of the server, locks or not. Said once.
    async fn warn_of_many(&self, wire: &Wire) {
        let size = wire.ask(&redis::cmd("DBSIZE")).await;
        let Some(keys) = size.ok().as_ref().and_then(integer).filter(|keys| *keys > MANY) else {
            return;
        };
        if !self.warned_of_many.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the server has {keys} keys, and a listing looks at each: ask for single keys where you can"
            );
        }
    }
}

async fn list_from(
    wire: &Wire,
    prefix: &str,
    after: Option<&Cursor>,
    limit: NonZeroU32,
) -> Result<Page<LockStatus>, BackendError> {
    let mut place = Place::read(after)?;
    let limit = limit.get() as usize;
    let mut items = Vec::new();
    for _ in 0..STEPS {
        let (next, names) = scan(wire, prefix, &place, limit).await?;
        let shown = show(wire, &names).await?;
        let of_part = |status: &LockStatus| status.holders.is_empty() == (place.part == QUEUED);
        let mut shown = shown.into_iter().filter(of_part).skip(place.skip);
        let room = limit - items.len();
        let taken = items.len();
        items.extend(shown.by_ref().take(room));
        if shown.next().is_some() {
            place.skip += items.len() - taken;
            return Ok(Page {
                items,
                next: Some(place.write()),
            });
        }
        place = match (next, place.part) {
            (0, HELD) => Place {
                part: QUEUED,
                cursor: 0,
                skip: 0,
            },
            (0, _) => return Ok(Page { items, next: None }),
            (cursor, part) => Place {
                part,
                cursor,
                skip: 0,
            },
        };
        if items.len() == limit {
            break;
        }
    }
    Ok(Page {
        items,
        next: Some(place.write()),
    })
}

impl Place {
    fn read(cursor: Option<&Cursor>) -> Result<Self, BackendError> {
        let Some(cursor) = cursor else {
            return Ok(Place {
                part: HELD,
                cursor: 0,
                skip: 0,
            });
        };
        let mut parts = cursor.0.split(':').map(str::parse::<u64>);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(Ok(part @ 0..=1)), Some(Ok(cursor)), Some(Ok(skip))) => Ok(Place {
                part: u8::from(part == 1),
                cursor,
                skip: usize::try_from(skip).unwrap_or(usize::MAX),
            }),
            _ => Err(BackendError::new(
                Fault::Invalid,
                Effect::None,
                "this is no place in a listing of ours: begin it anew",
            )),
        }
    }

    fn write(&self) -> Cursor {
        Cursor(format!("{}:{}:{}", self.part, self.cursor, self.skip).into())
    }
}

/// The next names of locks that may be held or queued for, and where the server goes on.
async fn scan(
    wire: &Wire,
    prefix: &str,
    place: &Place,
    count: usize,
) -> Result<(u64, Vec<String>), BackendError> {
    let (pattern, kind) = match place.part {
        HELD => (format!("{}*", escaped(prefix)), "hash"),
        _ => (format!("{QUEUES}*"), "list"),
    };
    let mut command = redis::cmd("SCAN");
    command.arg(place.cursor).arg("MATCH").arg(pattern);
    command
        .arg("COUNT")
        .arg(count.clamp(10, 1000))
        .arg("TYPE")
        .arg(kind);
    let answer = wire.ask(&command).await?;
    let [next, keys] = list(&answer).ok_or_else(nonsense)? else {
        return Err(nonsense());
    };
    let next = text(next)
        .and_then(|next| next.parse().ok())
        .ok_or_else(nonsense)?;
    let keys = list(keys).ok_or_else(nonsense)?.iter().filter_map(text);
    let names = match place.part {
        HELD => keys.map(str::to_owned).collect::<BTreeSet<_>>(),
        _ => keys
            .filter_map(of_queue)
            .filter(|name| name.starts_with(prefix))
            .map(str::to_owned)
            .collect(),
    };
    Ok((next, names.into_iter().collect()))
}

/// A text as a pattern that matches it alone.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// How these names stand; those that nobody holds or waits for are left out.
async fn show(wire: &Wire, names: &[String]) -> Result<Vec<LockStatus>, BackendError> {
    let mut shown = Vec::new();
    for names in names.chunks(CHUNK) {
        let mut command = SHOW.on(names.len(), 0, names.iter().map(String::len).sum());
        for name in names {
            command.text(name);
        }
        let answer = wire.call(&command).await?;
        for one in list(&answer).ok_or_else(nonsense)? {
            shown.extend(status(one));
        }
    }
    Ok(shown)
}

/// One key; `None` if its name is none of a lock's.
fn status(one: &Value) -> Option<LockStatus> {
    let [key, left, holders, waiters] = list(one)? else {
        return None;
    };
    let key = LockKey::new(text(key)?).ok()?;
    let remaining = match left {
        // The server ends a lease when the millisecond is over.
        Value::Int(left) => u64::try_from(*left)
            .ok()
            .map(|left| Duration::from_millis(left + 1)),
        _ => None,
    };
    let holders = list(holders)?.iter().filter_map(|one| {
        let (owner, record) = pair(one)?;
        let known = granted(record);
        Some(HolderStatus {
            id: name(owner, known.is_some()),
            label: known.map(|(_, label)| label.into()),
            mode: Mode::Exclusive,
            token: known.map(|(run, _)| run.first()),
            remaining,
        })
    });
    let waiters = list(waiters)?.iter().filter_map(|one| {
        let (owner, record) = pair(one)?;
        let label = waits(record);
        Some(WaiterStatus {
            id: name(owner, label.is_some()),
            label: label.map(Into::into),
            mode: Mode::Exclusive,
        })
    });
    Some(LockStatus {
        key,
        kind: Kind::Mutex,
        holders: holders.collect(),
        waiters: Some(waiters.collect()),
    })
}

fn pair(value: &Value) -> Option<(&str, &str)> {
    let [owner, record] = list(value)? else {
        return None;
    };
    Some((text(owner)?, text(record)?))
}
