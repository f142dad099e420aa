//! The layouts: how the name of a lock becomes a key and a channel in Redis.

use std::borrow::Cow;
use std::sync::Arc;

use redis::Value;
use tenure_backend::{BackendError, LockKey, Profile};

use crate::claims::names::{MUTEX_CHANNEL, is_reserved, tagged};
use crate::claims::script;
use crate::error::invalid;
use crate::profile::{PLAIN, PROFILE, SPRING};

/// Begins the ID of a holder whose name in Redis is not UTF-8, or begins with `hex:` itself.
const HEX: &str = "hex:";

/// The format of the locks in Redis, which decides with which other clients they are shared.
///
/// # Examples
/// ```
/// use tenure_redis::{Config, Layout, StoreUrl};
///
/// // As `redis://cache.example?layout=spring&registry=orders`.
/// let url = StoreUrl::parse("redis://cache.example")?;
/// let config = Config::from_url(&url)?.layout(Layout::spring("orders")?);
/// assert!(Layout::spring("").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// Redisson's format, for every kind of lock.
    #[default]
    Redisson,
    /// One string for each lock, set by `SET key value NX PX lease`: the format of redis-py, redsync, node-redlock,
    /// redis-semaphore and RedLock.net. Unfair mutexes only.
    Plain,
    /// The format of Spring's `RedisLockRegistry`: as `Plain`, in keys that begin with the name of a registry. Created
    /// by [`Layout::spring`].
    #[non_exhaustive]
    Spring {
        /// The name that Java passes to the constructor of `RedisLockRegistry`.
        registry: Arc<str>,
    },
}

impl Layout {
    /// The layout of Spring's `RedisLockRegistry` with this registry key.
    ///
    /// # Errors
    /// [`Fault::Invalid`](tenure_backend::Fault::Invalid) if the registry key is empty, has control characters, or
    /// begins like the keys in which Tenure and Redisson keep further data.
    pub fn spring(registry: &str) -> Result<Self, BackendError> {
        if registry.is_empty() || registry.contains(char::is_control) || is_reserved(&format!("{registry}:"))
        {
            return Err(invalid(
                "`registry` is the registry key that Java passes to RedisLockRegistry: a text without control characters, which \
                 begins no key of other locks",
            ));
        }
        let registry = registry.into();
        Ok(Layout::Spring { registry })
    }

    /// Returns whether locks are strings, which name one holder each.
    pub(crate) fn is_string(&self) -> bool {
        *self != Layout::Redisson
    }

    pub(crate) fn scripts(&self) -> &'static script::Layout {
        match self {
            Layout::Redisson => &script::REDISSON,
            Layout::Plain | Layout::Spring { .. } => &script::STRING,
        }
    }

    pub(crate) fn profile(&self) -> &'static Profile {
        match self {
            Layout::Redisson => &PROFILE,
            Layout::Plain => &PLAIN,
            Layout::Spring { .. } => &SPRING,
        }
    }

    /// The key in Redis of the lock with this name. For a prefix of names, the prefix of their keys.
    pub(crate) fn key<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match self {
            Layout::Redisson | Layout::Plain => Cow::Borrowed(name),
            Layout::Spring { registry } => Cow::Owned(format!("{registry}:{name}")),
        }
    }

    /// The name of the lock with this key in Redis; `None` if the key is outside the registry.
    pub(crate) fn name_of<'a>(&self, key: &'a str) -> Option<&'a str> {
        match self {
            Layout::Redisson | Layout::Plain => Some(key),
            Layout::Spring { registry } => key.strip_prefix(&**registry)?.strip_prefix(':'),
        }
    }

    /// The channel to which our unfair waiters subscribe. `prefix` begins Redisson's channels for this kind of lock;
    /// the other layouts do not use it.
    pub(crate) fn channel(&self, prefix: &str, key: &LockKey) -> String {
        match self {
            Layout::Redisson => tagged(prefix, key),
            Layout::Plain => tagged("tenure_channel:", key),
            Layout::Spring { registry } => format!("{registry}-channel:{registry}:{key}"),
        }
    }

    /// The channels to which a release of a string is published. Our waiters subscribe to the first, and so do Spring's
    /// waiters since 6.5.3. Those of an older Spring subscribe to the second, which serves the whole registry. `None`
    /// if locks are no strings.
    pub(crate) fn channels(&self, key: &LockKey) -> Option<Vec<String>> {
        match self {
            Layout::Redisson => None,
            Layout::Plain => Some(vec![self.channel(MUTEX_CHANNEL, key)]),
            Layout::Spring { registry } => Some(vec![
                self.channel(MUTEX_CHANNEL, key),
                format!("{registry}-channel"),
            ]),
        }
    }
}

/// The ID of a holder of any kind, from its name in Redis. A name that is not UTF-8, such as rslock's 20 random bytes,
/// or that begins with `hex:`, is shown as `hex:` and hexadecimal digits. `None` if the value is no string.
pub(crate) fn foreign_name(value: &Value) -> Option<Cow<'_, str>> {
    let Value::BulkString(bytes) = value else {
        return None;
    };
    Some(match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with(HEX) => Cow::Borrowed(text),
        _ => bytes
            .iter()
            .fold(String::from(HEX), |text, byte| text + &format!("{byte:02x}"))
            .into(),
    })
}

/// The name of a holder in Redis, from its ID: reverses [`foreign_name`].
pub(crate) fn foreign_value(id: &str) -> Cow<'_, [u8]> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let decode = |digits: &str| digits.as_bytes().chunks(2).map(pair).collect::<Option<Vec<u8>>>();
    match id.strip_prefix(HEX).and_then(decode) {
        Some(bytes) => Cow::Owned(bytes),
        None => Cow::Borrowed(id.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_holders_value_is_found_from_its_id() {
        for value in [
            &b"text"[..],
            b"hex:00ff",
            b"hex:zz",
            b"hex:6162",
            b"",
            b"\xff\x00 not text",
            b"hex:\xff",
        ] {
            let shown = Value::BulkString(value.to_vec());
            let id = foreign_name(&shown).expect("it is a string");
            assert_eq!(*foreign_value(&id), *value, "{id}");
        }
    }
}
