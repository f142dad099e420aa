//! Errors of attempts to connect. Their effect is `None`, because no call was sent.

use std::fmt;

use redis::{ErrorKind, RedisError};
use tenure_backend::{BackendError, Effect, Fault};
use tenure_endpoint::Host;

use crate::claims::refusal::{Refusal, WRONG_PASSWORD};
use crate::config::Config;
use crate::error::cause_of;

pub(crate) enum ConnectError {
    Redis(RedisError),
    Translated(BackendError),
}

impl From<RedisError> for ConnectError {
    fn from(error: RedisError) -> Self {
        ConnectError::Redis(error)
    }
}

impl From<BackendError> for ConnectError {
    fn from(error: BackendError) -> Self {
        ConnectError::Translated(error)
    }
}

impl ConnectError {
    /// Translates the error of an attempt to connect; `config` provides details for the message.
    pub(crate) fn translate(self, config: &Config) -> BackendError {
        let error = match self {
            ConnectError::Translated(error) => return error,
            ConnectError::Redis(error) => error,
        };
        if error.kind() == ErrorKind::AuthenticationFailed {
            return BackendError::new(Fault::Denied, Effect::None, WRONG_PASSWORD);
        }
        let Some(refusal) = Refusal::of(&error) else {
            return unreachable(&error, config);
        };
        let refused = handshake_error(refusal.during_handshake(), config);
        BackendError::because(
            refused.fault(),
            Effect::None,
            refused.to_string(),
            cause_of(&refused),
        )
    }
}

fn unreachable(error: &RedisError, config: &Config) -> BackendError {
    let address = config.address();
    // A server that expects TLS closes a plain-text connection, so the message suggests TLS.
    let speaks = match config.tls {
        None if error.is_connection_dropped() => ", and whether that port speaks TLS (`rediss://`)",
        _ => "",
    };
    unavailable_because(
        format!("Redis at {address} cannot be reached: see whether it runs there{speaks}"),
        error,
    )
}

/// Error for a refusal during login, or while the scripts were loaded.
fn handshake_error(refusal: Refusal<'_>, config: &Config) -> BackendError {
    let Refusal { code, details } = refusal;
    let (fault, message) = if code == "ERR" && details.contains("out of range") {
        let message = format!(
            "this Redis has no database {}: name another in the URL's path, of the 16 that are usual `/0` to `/15`, or set \
             `databases` in the server's configuration",
            config.database
        );
        (Fault::Invalid, message)
    } else if code == "ERR" && details.contains("unknown command") {
        let message = "this server does not know what locks need: a sentinel (write `redis+sentinel://HOST/MASTER`, \
                       or name the Redis server itself), or a Redis without scripts";
        (Fault::Unsupported, message.to_owned())
    } else {
        return refusal.error();
    };
    // Cuts off the command's arguments, which Redis repeats in its error for an unknown command.
    let why = details.split(", with args").next().unwrap_or(details);
    BackendError::because(fault, Effect::None, message, why.to_owned())
}

/// Error for an attempt that took too long.
pub(crate) fn timed_out(config: &Config) -> BackendError {
    let (address, limit) = (config.address(), config.connect_timeout);
    let speaks = match config.tls {
        Some(_) => ", and speaks TLS at that port",
        None => "",
    };
    unavailable(format!(
        "Redis at {address} did not accept the connection within {limit:?}: see whether it runs there{speaks}"
    ))
}

/// Error for an attempt that took too long because a sentinel promotes a replica.
pub(crate) fn promoting(config: &Config) -> BackendError {
    let (address, limit) = (config.address(), config.connect_timeout);
    unavailable(format!(
        "a replica is being promoted to the master {address}, and that has taken longer than {limit:?}: try again"
    ))
}

/// Error if the server was reached, but the TLS handshake failed.
#[cfg(feature = "tls")]
pub(crate) fn no_tls(server: &Host, error: impl fmt::Display) -> BackendError {
    let message = format!(
        "Redis at {server} was reached, but no TLS can be spoken with it: see whether that port is its `tls-port`, which \
         authority signed its certificate (`ca`), and whether it asks for one of ours (`cert`, `key`)"
    );
    unavailable_because(message, error)
}

/// Error for a malformed reply to `TIME`.
pub(crate) fn no_time(server: &Host) -> BackendError {
    let message = format!(
        "Redis at {server} answers TIME with something that is no time: is a proxy between us and Redis that changes answers?"
    );
    BackendError::new(Fault::Store, Effect::None, message)
}

/// Error for a server that the sentinels named as the master, but that is a replica, or that they replaced during the
/// attempt.
pub(crate) fn not_yet_master(server: &Host) -> BackendError {
    unavailable(format!(
        "{server} is not the master now, though the sentinels named it: a failover may be under way, so try again"
    ))
}

/// Error if two connections to one address reached two servers, or `INFO` shows no `run_id` to compare: replicas of the
/// wrong server might acknowledge.
pub(crate) fn two_servers(server: &Host) -> BackendError {
    unavailable(format!(
        "two connections to {server} reached different servers, or INFO does not show a `run_id`, so no replica can be asked \
         to acknowledge a lock: name one server, or leave `replicas` out"
    ))
}

/// Error for callers that waited for an attempt to connect, whose task ended with its runtime.
pub(crate) fn abandoned() -> BackendError {
    unavailable("connecting to Redis was given up with the runtime that did it: try again")
}

fn unavailable(message: impl Into<Box<str>>) -> BackendError {
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

fn unavailable_because(message: String, why: impl fmt::Display) -> BackendError {
    BackendError::because(Fault::Unavailable, Effect::None, message, why.to_string())
}
