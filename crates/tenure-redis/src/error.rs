//! The store's errors: fault, effect, and a message that says what to do.

use std::error::Error;
use std::io;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerError};
use tenure_backend::{BackendError, Effect, Fairness, Fault};
use tenure_endpoint::{Host, PasswordFileError};

use crate::claims::refusal::{Refusal, WRONG_PASSWORD};
use crate::config::Config;
use crate::topology::Acknowledgement;

/// Error for a call without a reply: the connection broke, or the reply took too long. The cause is flattened to
/// text, because the redis crate's sources repeat its message.
pub(crate) fn unanswered(error: &RedisError) -> BackendError {
    BackendError::because(
        Fault::Unavailable,
        Effect::Unknown,
        "Redis did not answer, or not in time: try again",
        error.to_string(),
    )
}

pub(crate) enum ConnectError {
    /// The server was reached, but the TLS handshake failed.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "constructed only with TLS"))]
    Tls(io::Error),
    PasswordFile(PasswordFileError),
    /// An error of the callback that fetches credentials, or one about sentinels.
    Translated(BackendError),
    /// The server's reply to `TIME` is malformed.
    Time,
    Other(RedisError),
}

impl From<RedisError> for ConnectError {
    fn from(error: RedisError) -> Self {
        ConnectError::Other(error)
    }
}

/// Error for a failed connection attempt. Its effect is `None`, because no call was sent.
pub(crate) fn unreachable(config: &Config, error: ConnectError) -> BackendError {
    let (address, effect) = (config.address(), Effect::None);
    let error = match error {
        ConnectError::Tls(error) => {
            let message = format!(
                "Redis at {address} was reached, but no TLS can be spoken with it: see whether that port is its `tls-port`, which \
                 authority signed its certificate (`ca`), and whether it asks for one of ours (`cert`, `key`)"
            );
            return BackendError::because(Fault::Unavailable, effect, message, error.to_string());
        }
        // Transient: a program that rotates the password may be writing the file now.
        ConnectError::PasswordFile(error) => {
            let message = format!("{error}; it is read again at the next try");
            let why = error.source().map(ToString::to_string).unwrap_or_default();
            return BackendError::because(Fault::Unavailable, effect, message, why);
        }
        ConnectError::Translated(error) => return error,
        ConnectError::Time => {
            let message = format!(
                "Redis at {address} answers TIME with something that is no time: is a proxy between us and Redis that changes \
                 answers?"
            );
            return BackendError::new(Fault::Store, effect, message);
        }
        ConnectError::Other(error) => error,
    };
    if error.kind() == ErrorKind::AuthenticationFailed {
        return BackendError::new(Fault::Denied, effect, WRONG_PASSWORD);
    }
    let refusal = match ServerError::try_from(error.clone()) {
        Ok(refusal) => handshake_error(Refusal::of(&refusal).during_handshake(), config),
        Err(error) => match (error.code(), error.detail()) {
            (Some(code), Some(why)) => handshake_error(Refusal::new(code, why).during_handshake(), config),
            _ => {
                // A TLS server closes plain-text connections.
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
    // Redis's error for an unknown command repeats all arguments, which are cut off.
    let why = details.split(", with args").next().unwrap_or(details);
    BackendError::because(fault, Effect::None, message, why.to_owned())
}

/// Error for a reply that no script of ours sends.
pub(crate) fn unexpected_reply() -> BackendError {
    BackendError::new(
        Fault::Store,
        Effect::Unknown,
        "the answer is not that of our script: is a proxy between us and Redis that changes answers?",
    )
}

/// Error for a token counter that is too high for further tokens, in 2255 or because a program has set it. Nothing
/// was granted; but a fair claim may be in the queue, so its effect is `Unknown`.
pub(crate) fn tokens_exhausted(fairness: Fairness) -> BackendError {
    let effect = match fairness {
        Fairness::Unfair => Effect::None,
        Fairness::Fifo => Effect::Unknown,
    };
    let message = "the token counter (`tenure_tokens`, with `fencing=redisson` `redisson_lock_token:{NAME}`) stands too high for any \
                   further token: while no lock is held, delete that key, and tokens go on from the server's time";
    BackendError::new(Fault::Store, effect, message)
}

/// Error for a connection attempt that took too long. Its effect is `None`, because no call was sent.
pub(crate) fn connect_timed_out(config: &Config) -> BackendError {
    let (address, limit) = (config.address(), config.connect_timeout);
    let speaks = match config.tls {
        Some(_) => ", and speaks TLS at that port",
        None => "",
    };
    let message = format!(
        "Redis at {address} did not accept the connection within {limit:?}: see whether it runs there{speaks}"
    );
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

pub(crate) fn renewal_timed_out(limit: Duration) -> BackendError {
    let message =
        format!("Redis did not answer a renewal within {limit:?}, a sixth of the lease: the client retries");
    BackendError::new(Fault::Unavailable, Effect::Unknown, message)
}

pub(crate) fn not_subscribed() -> BackendError {
    let message = "Redis did not confirm a subscription: waiters poll until one can be had";
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// Error for a call in a child made by `fork`, whose parent opened the connection.
pub(crate) fn forked() -> BackendError {
    let message = "this connection to the store belongs to the parent process: connect again after a fork";
    BackendError::new(Fault::Closed, Effect::None, message)
}

/// Error for a server that sentinels name as the master, and that is a replica.
pub(crate) fn not_yet_master(server: &Host) -> BackendError {
    let message = format!(
        "{server}, which the sentinels name as the master, is a replica: a failover may be under way, so try again"
    );
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// Error for a grant, or a renewal, that too few replicas have acknowledged. The master has it, so its effect is unknown.
pub(crate) fn too_few_replicas(count: u64, wanted: Acknowledgement) -> BackendError {
    let Acknowledgement { replicas, wait } = wanted;
    let message = format!(
        "{count} of {replicas} replicas acknowledged the lock within {wait:?}, so it does not count as held: see whether the \
         replicas run, or lower `replicas`"
    );
    BackendError::new(Fault::Unavailable, Effect::Unknown, message)
}

/// Error for a grant, or a renewal, about which the connection to the master failed before replicas acknowledged it.
pub(crate) fn no_acknowledgement() -> BackendError {
    let message =
        "the server did not say how many replicas have the lock, so it does not count as held: try again";
    BackendError::new(Fault::Unavailable, Effect::Unknown, message)
}

/// Error for a grant, or a renewal, after which the server refused the write that replicas were to acknowledge.
pub(crate) fn not_counted(refusal: Refusal<'_>) -> BackendError {
    let refused = refusal.error();
    let why = refused.source().map(ToString::to_string).unwrap_or_default();
    let message = format!(
        "replicas could not be asked whether they have the lock, so it does not count as held: {refused}"
    );
    BackendError::because(refused.fault(), Effect::Unknown, message, why)
}

/// Error if two connections to one address reached two servers, of which only one can be asked about its replicas.
pub(crate) fn two_servers(server: &Host) -> BackendError {
    let message = format!(
        "two connections to {server} reached different servers, or INFO does not show a `run_id`, so no replica can be asked \
         to acknowledge a lock: name one server, or leave `replicas` out"
    );
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// Error for callers that waited for a connection attempt whose runtime has ended.
pub(crate) fn connect_abandoned() -> BackendError {
    let message = "connecting to Redis was given up with the runtime that did it: try again";
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// Error for a call whose reply cannot come, because the runtime has ended.
pub(crate) fn runtime_ended() -> BackendError {
    let message = "the runtime that speaks to Redis has ended: try again";
    BackendError::new(Fault::Unavailable, Effect::Unknown, message)
}
