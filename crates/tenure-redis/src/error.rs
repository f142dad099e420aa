//! What went wrong with Redis, in the contract's words: the fault, its effect, and what to do.

use std::error::Error;
use std::io;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerError};
use tenure_backend::{BackendError, Effect, Fairness, Fault};
use tenure_endpoint::PasswordFileError;

use crate::config::Config;
use crate::refusal::{Refusal, WRONG_PASSWORD};

/// A call whose answer never came: the connection broke, or it took too long. The cause is its words alone: beneath an error
/// of the client's stands what it repeats.
pub(crate) fn unanswered(error: &RedisError) -> BackendError {
    BackendError::because(
        Fault::Unavailable,
        Effect::Unknown,
        "Redis did not answer, or not in time: try again",
        error.to_string(),
    )
}

/// Why there is no connection.
pub(crate) enum NoConnection {
    /// The server was reached, and no TLS could be spoken with it.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nobody speaks it"))]
    Tls(io::Error),
    /// The password file gave no password.
    PasswordFile(PasswordFileError),
    /// The server's answer to `TIME` is no time.
    Time,
    Other(RedisError),
}

impl From<RedisError> for NoConnection {
    fn from(error: RedisError) -> Self {
        NoConnection::Other(error)
    }
}

/// Why no connection could be had. Nothing was asked.
pub(crate) fn unreachable(config: &Config, error: NoConnection) -> BackendError {
    let (address, effect) = (config.address(), Effect::None);
    let error = match error {
        NoConnection::Tls(error) => {
            let message = format!(
                "Redis at {address} was reached, but no TLS can be spoken with it: see whether that port is its `tls-port`, who \
                 vouches for its certificate (`ca`), and whether it asks for one of ours (`cert`, `key`)"
            );
            return BackendError::because(Fault::Unavailable, effect, message, error.to_string());
        }
        // Whoever rotates the password may be writing the file just now.
        NoConnection::PasswordFile(error) => {
            let message = format!("{error}; it is read again at the next try");
            let why = error.source().map(ToString::to_string).unwrap_or_default();
            return BackendError::because(Fault::Unavailable, effect, message, why);
        }
        NoConnection::Time => {
            let message = format!(
                "Redis at {address} answers TIME with something that is no time: is a proxy between us and Redis that changes \
                 answers?"
            );
            return BackendError::new(Fault::Store, effect, message);
        }
        NoConnection::Other(error) => error,
    };
    if error.kind() == ErrorKind::AuthenticationFailed {
        return BackendError::new(Fault::Denied, effect, WRONG_PASSWORD);
    }
    let refusal = match ServerError::try_from(error.clone()) {
        Ok(refusal) => met(Refusal::of(&refusal).of_a_greeting(), config),
        Err(error) => match (error.code(), error.detail()) {
            (Some(code), Some(why)) => met(Refusal::new(code, why).of_a_greeting(), config),
            _ => {
                // Whoever speaks TLS hangs up on who does not.
                let speaks = match config.tls {
                    None if error.is_connection_dropped() => {
                        ", and whether that port speaks TLS (`rediss://`)"
                    }
                    _ => "",
                };
                let message =
                    format!("Redis at {address} cannot be reached: see whether it runs there{speaks}");
                return BackendError::because(Fault::Unavailable, effect, message, error.to_string());
            }
        },
    };
    let why = refusal.source().map(ToString::to_string).unwrap_or_default();
    BackendError::because(refusal.fault(), effect, refusal.to_string(), why)
}

/// What was refused while we introduced ourselves, and taught the scripts.
fn met(refusal: Refusal<'_>, config: &Config) -> BackendError {
    let Refusal { code, details } = refusal;
    let (fault, message) = if code == "ERR" && details.contains("out of range") {
        let message = format!(
            "this Redis has no database {}: name another in the URL's path, of the 16 that are usual `/0` to `/15`, or set \
             `databases` in the server's configuration",
            config.database
        );
        (Fault::Invalid, message)
    } else if code == "ERR" && details.contains("unknown command") {
        let message = "this server does not know what locks need: a sentinel, which is not served (name the Redis server itself), \
                       or a Redis without scripts";
        (Fault::Unsupported, message.to_owned())
    } else {
        return refusal.error();
    };
    // What it says of a command that it does not know repeats the whole of it.
    let why = details.split(", with args").next().unwrap_or(details);
    BackendError::because(fault, Effect::None, message, why.to_owned())
}

/// An answer that no script of ours gives.
pub(crate) fn nonsense() -> BackendError {
    BackendError::new(
        Fault::Store,
        Effect::Unknown,
        "the answer is not that of our script: is a proxy between us and Redis that changes answers?",
    )
}

/// The counter of the tokens stands too high, which it reaches by itself in the year 2255. A claim that queues may be in
/// the store.
pub(crate) fn used_up(fairness: Fairness) -> BackendError {
    let effect = match fairness {
        Fairness::Unfair => Effect::None,
        Fairness::Fifo => Effect::Unknown,
    };
    let message = "the token counter `tenure_tokens` stands too high for any further token: while nobody holds a lock, delete \
                   that key, and tokens go on from the server's time";
    BackendError::new(Fault::Store, effect, message)
}

/// Why no connection could be had in time. Nothing was asked.
pub(crate) fn too_slow(config: &Config) -> BackendError {
    let (address, limit) = (config.address(), config.connect_timeout);
    let speaks = match config.tls {
        Some(_) => ", and speaks TLS at that port",
        None => "",
    };
    let message =
        format!("Redis at {address} let us wait for {limit:?} to connect: see whether it runs there{speaks}");
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// A renewal that was given up while it was on its way.
pub(crate) fn slow_renewal(limit: Duration) -> BackendError {
    let message =
        format!("Redis did not answer a renewal within {limit:?}, a sixth of the lease: it is asked again");
    BackendError::new(Fault::Unavailable, Effect::Unknown, message)
}

/// No wake-ups can be had.
pub(crate) fn deaf() -> BackendError {
    let message = "Redis did not confirm a subscription: waiters poll until one can be had";
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// The caller is a child of the process that connected.
pub(crate) fn forked() -> BackendError {
    let message = "this connection to the store belongs to the parent process: connect again after a fork";
    BackendError::new(Fault::Closed, Effect::None, message)
}

/// The runtime on which another connection was being made has ended.
pub(crate) fn abandoned() -> BackendError {
    let message = "connecting to Redis was given up with the runtime that did it: try again";
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// The runtime on which a call was under way has ended.
pub(crate) fn orphaned() -> BackendError {
    let message = "the runtime that speaks to Redis has ended: try again";
    BackendError::new(Fault::Unavailable, Effect::Unknown, message)
}
