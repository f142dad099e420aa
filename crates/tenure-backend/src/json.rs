//! Serialization, behind the feature `serde`: names as text, and listings in the shape of `tenure ls --json`.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::{
    ClaimId, ClientId, Cursor, FencingToken, HolderId, HolderStatus, Kind, LockKey, LockStatus, Mode,
    WaiterStatus,
};

/// Serializes each type as its text, and reads it back from this text.
macro_rules! text {
    ($($name:ident: $as_text:expr, $parse:expr;)+) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let as_text: fn(&$name) -> &dyn Display = $as_text;
                serializer.collect_str(as_text(self))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let parse = $parse;
                parse(String::deserialize(deserializer)?.as_str()).map_err(D::Error::custom)
            }
        }
    )+};
}

text! {
    LockKey: |key| key, str::parse::<LockKey>;
    ClaimId: |id| id, str::parse::<ClaimId>;
    HolderId: |id| id, |text: &str| Ok::<_, &str>(HolderId::parse(text));
    Cursor: |cursor| &cursor.0, |text: &str| Ok::<_, &str>(Cursor::new(text));
}

impl Serialize for ClientId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[derive(Serialize)]
struct LockObject<'a> {
    key: &'a LockKey,
    kind: &'static str,
    holders: &'a [HolderStatus],
    waiters: Option<Vec<QueuedObject<'a>>>,
}

/// The fields that holders and waiters have in common.
#[derive(Serialize)]
struct ClaimObject<'a> {
    claim: &'a HolderId,
    foreign: bool,
    label: Option<&'a str>,
    mode: &'static str,
}

#[derive(Serialize)]
struct HolderObject<'a> {
    #[serde(flatten)]
    claim: ClaimObject<'a>,
    permits: Option<u32>,
    token: Option<FencingToken>,
    remaining_ms: Option<u64>,
}

/// A waiter with its place in the queue, from 0.
#[derive(Serialize)]
struct QueuedObject<'a> {
    #[serde(flatten)]
    claim: ClaimObject<'a>,
    position: usize,
}

impl Serialize for LockStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let queued = |(position, waiter)| {
            let claim = ClaimObject::of_waiter(waiter);
            QueuedObject { claim, position }
        };
        let queue = self.waiters.as_ref();
        let object = LockObject {
            key: &self.key,
            kind: match self.kind {
                Kind::Mutex => "mutex",
                Kind::ReadWrite => "read-write",
                Kind::Semaphore { .. } => "semaphore",
            },
            holders: &self.holders,
            waiters: queue.map(|queue| queue.iter().enumerate().map(queued).collect()),
        };
        object.serialize(serializer)
    }
}

impl Serialize for HolderStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = HolderObject {
            claim: ClaimObject::of(&self.id, self.label.as_ref(), self.mode),
            permits: match self.mode {
                Mode::Permits { take, .. } => Some(take.get()),
                Mode::Exclusive | Mode::Read | Mode::Write => None,
            },
            token: self.token,
            remaining_ms: self.remaining.map(whole_ms),
        };
        object.serialize(serializer)
    }
}

/// Serializes a waiter without its position, which only the queue knows.
impl Serialize for WaiterStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ClaimObject::of_waiter(self).serialize(serializer)
    }
}

impl<'a> ClaimObject<'a> {
    fn of(id: &'a HolderId, label: Option<&'a Arc<str>>, mode: Mode) -> Self {
        ClaimObject {
            claim: id,
            foreign: matches!(id, HolderId::Foreign(_)),
            label: label.map(AsRef::as_ref),
            mode: match mode {
                Mode::Exclusive => "exclusive",
                Mode::Read => "read",
                Mode::Write => "write",
                Mode::Permits { .. } => "permits",
            },
        }
    }

    fn of_waiter(waiter: &'a WaiterStatus) -> Self {
        Self::of(&waiter.id, waiter.label.as_ref(), waiter.mode)
    }
}

/// Converts a duration to whole milliseconds, rounded down.
fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Writes a duration in whole milliseconds.
pub(crate) fn ms<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    whole_ms(*duration).serialize(serializer)
}

/// Writes an optional duration in whole milliseconds.
pub(crate) fn opt_ms<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(whole_ms).serialize(serializer)
}
