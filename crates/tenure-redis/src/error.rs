//! What went wrong with Redis, in the contract's words: the fault, its effect, and what to do.

use std::error::Error;
use std::io;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerError};
use tenure_backend::{BackendError, Effect, Fairness, Fault};

use crate::config::Config;

const WRONG_PASSWORD: &str =
    "Redis refused the user or the password: correct them, or see whether the user is enabled (ACL LIST)";

/// What the server refuses, as which fault, and in which words. What waiting can help is `Unavailable`: a release is
/// repeated then, and whoever waits goes on waiting. What stays so until somebody changes something is told at once.
const REFUSALS: &[(&[&str], Fault, &str)] = &[
    // It ends when the data is read.
    (
        &["LOADING"],
        Fault::Unavailable,
        "Redis is still loading its data: try again",
    ),
    // It ends with the script, or when somebody kills it.
    (
        &["BUSY"],
        Fault::Unavailable,
        "Redis runs a script or function of somebody's that does not end: try again, or end it with SCRIPT KILL",
    ),
    // It ends when the replica has taken over, or the name leads to the master.
    (
        &["READONLY", "MASTERDOWN"],
        Fault::Unavailable,
        "this Redis is a replica, which grants no locks: name its master, or wait until it has become one",
    ),
    // It ends when they are back.
    (
        &["NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN"],
        Fault::Unavailable,
        "Redis takes no writes, since replicas or nodes that it needs are away: try again",
    ),
    // It ends with the next snapshot, or write, that succeeds: Redis tries again by itself.
    (
        &["MISCONF"],
        Fault::Unavailable,
        "Redis refuses writes because it cannot save its data: see its log and its disk; until then held locks \
         end with their leases",
    ),
    // It ends when keys do, and all that we keep does within seconds of its lease: a memory that is full is not for long.
    (
        &["OOM"],
        Fault::Unavailable,
        "Redis has reached `maxmemory` and takes no new locks: free memory, or give it more; locks that are held \
         are still renewed",
    ),
    // Our credentials and rights were read once, and no time makes them others.
    (
        &["NOAUTH"],
        Fault::Denied,
        "Redis asks for a password: put it into the URL, as in `redis://:PASSWORD@HOST`, or name a `password_file`",
    ),
    (&["WRONGPASS"], Fault::Denied, WRONG_PASSWORD),
    (
        &["NOPERM"],
        Fault::Denied,
        "this user may not do what locks need: give it EVALSHA, EVAL, SCRIPT LOAD, the commands of the scripts, \
         all keys and all channels (ACL SETUSER)",
    ),
    // Whoever keeps it may keep it for ever.
    (
        &["WRONGTYPE"],
        Fault::Store,
        "the key, or the counter `tenure_tokens`, holds something that is no lock's, so another program uses it: choose \
         another key, or for the counter another database",
    ),
    // A cluster stays one.
    (
        &["CROSSSLOT", "MOVED", "ASK"],
        Fault::Unsupported,
        "this Redis is a node of a cluster, which is not served: name a server that is none",
    ),
];

/// Any other: nobody knows whether it ends.
const OTHER: (Fault, &str) = (Fault::Store, "Redis refused the call: see the cause beneath");

/// What the server refused. Most refusals come before a script's first write; those that may come in its midst (a right
/// that is missing, a key of another kind) leave it unknown what was done.
pub(crate) fn refused(error: &ServerError) -> BackendError {
    refused_as(error.code(), error.details().unwrap_or_default())
}

/// The same, of a refusal's two parts.
pub(crate) fn refused_as(code: &str, details: &str) -> BackendError {
    let code = match code {
        // So the server says of a command within a script.
        "ERR" if details.contains("executing the script can't") => "NOPERM",
        code => code,
    };
    let known = REFUSALS.iter().find(|(codes, ..)| codes.contains(&code));
    let (fault, message) = known.map_or(OTHER, |(_, fault, message)| (*fault, *message));
    // A right that the call itself lacks is looked at before the script begins.
    let in_script = details.contains("script:") || details.contains("executing the script");
    let midst = matches!(code, "WRONGTYPE" | "ERR") || code == "NOPERM" && in_script;
    let effect = if midst { Effect::Unknown } else { Effect::None };
    BackendError::because(fault, effect, message, format!("{code} {details}"))
}

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
        NoConnection::Other(error) => error,
    };
    if error.kind() == ErrorKind::AuthenticationFailed {
        return BackendError::new(Fault::Denied, effect, WRONG_PASSWORD);
    }
    let refusal = match ServerError::try_from(error.clone()) {
        Ok(refusal) => refused(&refusal),
        Err(error) => match (error.code(), error.detail()) {
            (Some("ERR"), Some(why)) if why.contains("out of range") => {
                let message = format!(
                    "this Redis has no database {}: name another in the URL's path, of the 16 that are usual `/0` to `/15`, or \
                     set `databases` in the server's configuration",
                    config.database
                );
                return BackendError::because(Fault::Invalid, effect, message, why.to_owned());
            }
            // What it refused while we introduced ourselves, whose code the client does not keep.
            (Some("ERR"), Some(why)) if why.contains("permission") => refused_as("NOPERM", why),
            (Some(code), Some(why)) => refused_as(code, why),
            _ => {
                let message = format!("Redis at {address} cannot be reached: see whether it runs there");
                return BackendError::because(Fault::Unavailable, effect, message, error.to_string());
            }
        },
    };
    let why = refusal.source().map(ToString::to_string).unwrap_or_default();
    BackendError::because(refusal.fault(), effect, refusal.to_string(), why)
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
