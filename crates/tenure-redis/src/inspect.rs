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

/// Where a listing has come to. A step of the server's cursor cannot be taken again: it would give other names by then.
struct Place {
    part: u8,
    /// Where the server goes on, if there is more.
    cursor: Option<u64>,
    /// What the last step gave and no page has had room for.
    names: Vec<String>,
}

impl RedisStore {
    pub(crate) async fn look(&self, query: Query) -> Result<Page<LockStatus>, BackendError> {
        let wire = self.link.wire().await?;
        match query {
            Query::Key(key) => {
                let items = show_one(&wire, key.as_str()).await?;
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
    let limit = limit.get() as usize;
    let mut place = Place::read(after)?;
    let mut items = Vec::new();
    for _ in 0..STEPS {
        if place.names.is_empty() {
            match (place.cursor, place.part) {
                (Some(cursor), part) => {
                    let room = Some(limit - items.len()).filter(|room| *room > 0);
                    let width = room.unwrap_or(limit).clamp(10, 1000);
                    (place.cursor, place.names) = scan(wire, prefix, part, cursor, width).await?;
                }
                (None, HELD) => place = Place::beginning(QUEUED),
                (None, _) => return Ok(Page { items, next: None }),
            }
        }
        let names = std::mem::take(&mut place.names);
        let of_part = |status: &LockStatus| status.holders.is_empty() == (place.part == QUEUED);
        let mut shown = show(wire, &names).await?.into_iter().filter(of_part);
        let room = limit - items.len();
        items.extend(shown.by_ref().take(room));
        // A page that is full is not the last for that: only another lock says so.
        if let Some(next) = shown.next() {
            let left = names.into_iter().skip_while(|name| name != next.key.as_str());
            place.names = left.collect();
            break;
        }
    }
    Ok(Page {
        items,
        next: Some(place.write()),
    })
}

impl Place {
    fn beginning(part: u8) -> Self {
        Place {
            part,
            cursor: Some(0),
            names: Vec::new(),
        }
    }

    fn read(cursor: Option<&Cursor>) -> Result<Self, BackendError> {
        let Some(cursor) = cursor else {
            return Ok(Place::beginning(HELD));
        };
        Place::parse(&cursor.0).ok_or_else(|| {
            BackendError::new(
                Fault::Invalid,
                Effect::None,
                "this is no place in a listing of ours: begin it anew",
            )
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let (part, cursor, names) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Place {
            part: part.parse().ok().filter(|part| [HELD, QUEUED].contains(part))?,
            cursor: match cursor {
                "" => None,
                cursor => Some(cursor.parse().ok()?),
            },
            names: names.lines().map(str::to_owned).collect(),
        })
    }

    /// What is shown has no line breaks in its name.
    fn write(&self) -> Cursor {
        let cursor = self.cursor.map(|cursor| cursor.to_string()).unwrap_or_default();
        Cursor(format!("{}:{cursor}:{}", self.part, self.names.join("\n")).into())
    }
}

/// The next names of locks that may be held or queued for, and where the server goes on.
async fn scan(
    wire: &Wire,
    prefix: &str,
    part: u8,
    cursor: u64,
    width: usize,
) -> Result<(Option<u64>, Vec<String>), BackendError> {
    let (pattern, kind) = match part {
        HELD => (format!("{}*", escaped(prefix)), "hash"),
        _ => (format!("{QUEUES}*"), "list"),
    };
    let mut command = redis::cmd("SCAN");
    command.arg(cursor).arg("MATCH").arg(pattern);
    command.arg("COUNT").arg(width).arg("TYPE").arg(kind);
    let answer = wire.ask(&command).await?;
    let [next, keys] = list(&answer).ok_or_else(nonsense)? else {
        return Err(nonsense());
    };
    let next = integer(next).ok_or_else(nonsense)?;
    let keys = list(keys).ok_or_else(nonsense)?.iter().filter_map(text);
    let names: BTreeSet<_> = keys
        .filter_map(|key| if part == HELD { Some(key) } else { of_queue(key) })
        .filter(|name| name.starts_with(prefix) && !name.contains(char::is_control))
        .collect();
    let names = names.into_iter().map(str::to_owned).collect();
    Ok(((next != 0).then_some(next), names))
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

/// The same of a single one: what is there and is no mutex is held by nobody we know of, but it is not free.
async fn show_one(wire: &Wire, name: &str) -> Result<Vec<LockStatus>, BackendError> {
    let mut command = SHOW.on(1, 0, name.len());
    let answer = wire.call(command.text(name)).await?;
    match list(&answer).ok_or_else(nonsense)? {
        [Value::Array(one)] if one.len() == 1 => Err(BackendError::new(
            Fault::UnknownKind,
            Effect::None,
            "the key is no mutex, so who holds it is not known: a read-write lock or a semaphore of Java's, or what another \
             program keeps there",
        )),
        shown => Ok(shown.iter().filter_map(status).collect()),
    }
}

/// One key; `None` if its name is none of a lock's.
fn status(one: &Value) -> Option<LockStatus> {
    let [key, left, holders, waiters] = list(one)? else {
        return None;
    };
    let key = LockKey::new(text(key)?).ok()?;
    // The server ends a lease when the millisecond is over. It is below zero for one without an end.
    let remaining = integer(left).map(|left| Duration::from_millis(left + 1));
    let holders = list(holders)?.iter().filter_map(|one| {
        let [owner, record, label] = list(one)? else {
            return None;
        };
        let (label, noted) = (text(label), text(record).and_then(granted));
        Some(HolderStatus {
            id: name(text(owner)?, label.is_some() || noted.is_some()),
            // Before its first renewal the label is its client's, if that has one for all claims.
            label: noted
                .map(|(_, label)| label)
                .or(label.filter(|label| !label.is_empty()))
                .map(Into::into),
            mode: Mode::Exclusive,
            token: noted.map(|(run, _)| run.first()),
            remaining,
        })
    });
    let waiters = list(waiters)?.iter().filter_map(|one| {
        let [owner, record] = list(one)? else {
            return None;
        };
        let label = waits(text(record)?);
        Some(WaiterStatus {
            id: name(text(owner)?, label.is_some()),
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
