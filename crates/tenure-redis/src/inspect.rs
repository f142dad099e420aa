//! Inspecting: lists holders and waiters of one lock or of many, Java clients included. Changes nothing in Redis.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tenure_backend::{
    BackendError, Cursor, Effect, Fault, HolderStatus, Kind, LockKey, LockStatus, Mode, Page, Query,
    WaiterStatus,
};

use crate::backend::RedisStore;
use crate::claims::names::{PERMITS_SUFFIX, QUEUE_PREFIX, lock_of_queue, semaphore_of_permits};
use crate::claims::refusal::OTHER_FORMAT;
use crate::claims::reply::{integer, list, parse_granted_record, parse_mode, parse_waiting_record, text};
use crate::claims::script::Dialect;
use crate::claims::slot::{has_one_slot, slot};
use crate::connection::wire::Wire;
use crate::error::{invalid, unexpected_reply};
use crate::layout::{Layout, foreign_name};
use crate::release::holder_id;

/// The most `SCAN` calls for one page of a listing, so that a page comes soon even among millions of keys that are no
/// locks.
const MAX_SCANS: usize = 100;

/// A listing logs a warning if the server has more keys than this.
const MANY_KEYS: u64 = 100_000;

/// The most locks in one call of the layout's script for inspection.
const CHUNK: usize = 100;

/// Phases of a listing: `HELD` scans held locks, `PERMITS` the taken permits of semaphores, and `QUEUED` the queues of
/// locks without a holder.
const HELD: u8 = 0;
const QUEUED: u8 = 1;
const PERMITS: u8 = 2;

/// The place where the next page of a listing starts. It contains the names that the last `SCAN` returned but the page
/// did not show, because repeating that `SCAN` may return other names.
struct Position {
    phase: u8,
    /// Cursor of the next `SCAN` call; `None` at the end of the phase.
    cursor: Option<u64>,
    /// Names from the last `SCAN` for which the page had no space.
    names: Vec<String>,
}

impl RedisStore {
    pub(crate) async fn inspect_query(&self, query: Query) -> Result<Page<LockStatus>, BackendError> {
        let session = self.link.session().await?;
        let wire = &session.wire;
        match query {
            Query::Key(key) => {
                let items = inspect_one(wire, self, key.as_str()).await?;
                Ok(Page::new(items, None))
            }
            Query::Prefix { prefix, after, limit } => {
                if prefix.is_empty() && !self.format().profile().inspection.lists {
                    return Err(BackendError::unsupported(
                        "a listing in the layout `plain` needs a prefix, as in `tenure ls order:`: without one, every string of the database looks like a lock",
                    ));
                }
                if prefix.is_empty() && after.is_none() {
                    self.warn_of_many(wire).await;
                }
                list_from(wire, self, &prefix, after.as_ref(), limit).await
            }
        }
    }

    /// Warns once if the server has over `MANY_KEYS` keys: a listing visits each of them, lock or not.
    async fn warn_of_many(&self, wire: &Wire) {
        let keys: u64 = wire.query(&redis::cmd("DBSIZE")).await.unwrap_or(0);
        if keys > MANY_KEYS && !self.warned_of_many.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the server has {keys} keys, and a listing looks at each: ask for single keys where you can"
            );
        }
    }
}

async fn list_from(
    wire: &Wire,
    store: &RedisStore,
    prefix: &str,
    after: Option<&Cursor>,
    limit: NonZeroU32,
) -> Result<Page<LockStatus>, BackendError> {
    let limit = limit.get() as usize;
    let format = store.format();
    let prefix = &*format.key(prefix);
    let mut position = Position::read(after)?;
    let mut items = Vec::new();
    for _ in 0..MAX_SCANS {
        if position.names.is_empty() {
            match (position.cursor, position.phase) {
                (Some(cursor), phase) => {
                    let left = Some(limit - items.len()).filter(|left| *left > 0);
                    let width = left.unwrap_or(limit).clamp(10, 1000);
                    (position.cursor, position.names) =
                        scan(wire, format, prefix, phase, cursor, width).await?;
                }
                (None, HELD) if !format.is_string() => position = Position::start_of(PERMITS),
                (None, PERMITS) => position = Position::start_of(QUEUED),
                (None, _) => return Ok(Page::new(items, None)),
            }
        }
        let names = std::mem::take(&mut position.names);
        let of_phase = |status: &LockStatus| match status.kind {
            _ if status.holders.is_empty() => position.phase == QUEUED,
            Kind::Semaphore { .. } => position.phase == PERMITS,
            _ => position.phase == HELD,
        };
        let mut statuses = inspect_names(wire, store, &names)
            .await?
            .into_iter()
            .filter(of_phase);
        let left = limit - items.len();
        items.extend(statuses.by_ref().take(left));
        // The page is full, and there is another lock: the next page starts with it.
        if let Some(next) = statuses.next() {
            let next = format.key(next.key.as_str());
            let rest = names.into_iter().skip_while(|name| *name != next);
            position.names = rest.collect();
            break;
        }
    }
    Ok(Page::new(items, Some(position.write())))
}

impl Position {
    fn start_of(phase: u8) -> Self {
        Position {
            phase,
            cursor: Some(0),
            names: Vec::new(),
        }
    }

    fn read(cursor: Option<&Cursor>) -> Result<Self, BackendError> {
        let Some(cursor) = cursor else {
            return Ok(Position::start_of(HELD));
        };
        Position::parse(cursor.as_str())
            .ok_or_else(|| invalid("this is not a cursor of this listing: start again without one"))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let (phase, cursor, names) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Position {
            phase: phase
                .parse()
                .ok()
                .filter(|phase| [HELD, QUEUED, PERMITS].contains(phase))?,
            cursor: match cursor {
                "" => None,
                cursor => Some(cursor.parse().ok()?),
            },
            names: names.lines().map(str::to_owned).collect(),
        })
    }

    /// Writes `PHASE:CURSOR:NAMES`. Line breaks separate the names, which contain no control characters.
    fn write(&self) -> Cursor {
        let cursor = self.cursor.map(|cursor| cursor.to_string()).unwrap_or_default();
        Cursor::new(format!("{}:{cursor}:{}", self.phase, self.names.join("\n")))
    }
}

/// Makes one `SCAN` call. Returns the next cursor (`None` at the end) and names of locks that may be held, or have a
/// queue.
async fn scan(
    wire: &Wire,
    format: &Layout,
    prefix: &str,
    phase: u8,
    cursor: u64,
    width: usize,
) -> Result<(Option<u64>, Vec<String>), BackendError> {
    let (pattern, kind) = match phase {
        HELD if format.is_string() => (format!("{}*", escaped(prefix)), "string"),
        HELD => (format!("{}*", escaped(prefix)), "hash"),
        PERMITS => (format!("*{}*{PERMITS_SUFFIX}", escaped(prefix)), "zset"),
        _ => (format!("{QUEUE_PREFIX}*"), "list"),
    };
    let mut command = redis::cmd("SCAN");
    command.arg(cursor).arg("MATCH").arg(pattern);
    command.arg("COUNT").arg(width).arg("TYPE").arg(kind);
    let (next, keys): (u64, Vec<Value>) = wire.query(&command).await?;
    let names: BTreeSet<_> = keys
        .iter()
        .filter_map(text)
        .filter_map(|key| match phase {
            HELD => Some(key),
            PERMITS => semaphore_of_permits(key),
            _ => lock_of_queue(key),
        })
        .filter(|name| name.starts_with(prefix) && !name.contains(char::is_control))
        .collect();
    let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    if wire.dialect != Dialect::Alone {
        names.retain(|name| LockKey::new(name.as_str()).is_ok_and(|key| has_one_slot(&key)));
        names.sort_by_key(|name| slot(name.as_bytes()));
    }
    Ok(((next != 0).then_some(next), names))
}

/// A glob pattern that matches exactly this text.
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

/// Returns the status of those of the named locks that have a holder or a waiter.
async fn inspect_names(
    wire: &Wire,
    store: &RedisStore,
    names: &[String],
) -> Result<Vec<LockStatus>, BackendError> {
    let in_cluster = wire.dialect != Dialect::Alone;
    let together = |a: &String, b: &String| !in_cluster || slot(a.as_bytes()) == slot(b.as_bytes());
    let chunks = names.chunk_by(together).flat_map(|names| names.chunks(CHUNK));
    let mut statuses = Vec::new();
    for locks in join_all(chunks.map(|names| call_script(wire, store, names))).await {
        match locks {
            Ok(locks) => statuses.extend(locks.iter().filter_map(|lock| status(lock, store.format()))),
            // The slot of these names has moved, or is being moved: the listing leaves its locks out.
            Err(error) if in_cluster && error.fault() == Fault::Unsupported => {}
            Err(error) => return Err(error),
        }
    }
    Ok(statuses)
}

/// Returns the status of one lock. Fails if the key exists and is no lock: it is not free, and its holder is unknown.
async fn inspect_one(wire: &Wire, store: &RedisStore, name: &str) -> Result<Vec<LockStatus>, BackendError> {
    let format = store.format();
    let locks = call_script(wire, store, &[format.key(name)]).await?;
    match &locks[..] {
        [Value::Array(fields)] if fields.len() == 1 => {
            let message = match format.is_string() {
                true => OTHER_FORMAT,
                false => {
                    "the key is no lock, so who holds it is not known: another program keeps something there"
                }
            };
            Err(BackendError::new(Fault::UnknownKind, Effect::None, message))
        }
        locks => Ok(locks.iter().filter_map(|lock| status(lock, format)).collect()),
    }
}

/// Calls the layout's script for inspection; `names` are the locks' keys in Redis. Returns a reply for each in use.
async fn call_script(
    wire: &Wire,
    store: &RedisStore,
    names: &[impl AsRef<str>],
) -> Result<Vec<Value>, BackendError> {
    let bytes = names.iter().map(|name| name.as_ref().len()).sum();
    let mut command = store.layout.inspect.command(names.len(), 0, bytes);
    for name in names {
        command.arg(name.as_ref());
    }
    match wire.read(command).await? {
        Value::Array(locks) => Ok(locks),
        _ => Err(unexpected_reply()),
    }
}

/// Decodes a lock's status; `None` if the reply is malformed, or names no valid key of the layout.
fn status(lock: &Value, format: &Layout) -> Option<LockStatus> {
    let [key, holders, waiters @ ..] = list(lock)? else {
        return None;
    };
    let key = LockKey::new(format.name_of(text(key)?)?).ok()?;
    let holders = list(holders)?.iter().filter_map(|entry| {
        let [owner, record, label, mode, left] = list(entry)? else {
            return None;
        };
        let (label, granted) = (text(label), text(record).and_then(parse_granted_record));
        let id = holder_id(&foreign_name(owner)?, label.is_some() || granted.is_some());
        // Before its first renewal a holder has no record. It is then shown with the label in its client's record,
        // which is empty if the client's claims have different ones.
        let label = granted
            .map(|(_, label)| label)
            .or(label.filter(|label| !label.is_empty()))
            .map(Into::into);
        let token = granted.map(|(run, _)| run.first());
        // Redis expires a key after the last millisecond, so 1 ms is added. A lock without expiry has a negative time
        // left, and so no `remaining`.
        let remaining = integer(left).map(|left| Duration::from_millis(left + 1));
        let mode = parse_mode(text(mode)?)?;
        Some(HolderStatus::new(id, label, mode, token, remaining))
    });
    let waiters = waiters.first().and_then(list);
    let waiters = waiters.map(|waiters| {
        waiters.iter().filter_map(|entry| {
            let [owner, record] = list(entry)? else {
                return None;
            };
            let known = parse_waiting_record(text(record)?);
            let id = holder_id(text(owner)?, known.is_some());
            let (mode, label) = known.map_or((Mode::Exclusive, None), |(mode, label)| {
                (mode, Some(label.into()))
            });
            Some(WaiterStatus::new(id, label, mode))
        })
    });
    let (holders, waiters): (Vec<_>, Option<Vec<_>>) = (holders.collect(), waiters.map(Iterator::collect));
    let mut modes = holders
        .iter()
        .map(|holder| holder.mode)
        .chain(waiters.iter().flatten().map(|waiter| waiter.mode));
    let kind = modes.next().map_or(Kind::Mutex, Mode::kind);
    Some(LockStatus::new(key, kind, holders, waiters))
}
