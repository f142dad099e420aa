//! Errors that the client itself finds, rather than Redis: fault, effect, and a message that says what to do.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use redis::RedisError;
use tenure_backend::{BackendError, Batch, Effect, Fairness, Fault};

/// Error for a setting or an argument that is not valid. Nothing was sent.
pub(crate) fn invalid(message: impl fmt::Display) -> BackendError {
    BackendError::new(Fault::Invalid, Effect::None, message.to_string())
}

/// The same error for each of `count` requests of a batch.
pub(crate) fn refused<T>(count: usize, error: &BackendError, reply: fn(BackendError) -> T) -> Batch<T> {
    (0..count).map(|_| reply(error.clone())).collect()
}

/// The text of an error's cause; empty if it has none.
pub(crate) fn cause_of(error: &dyn Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}

/// Error for a call without a reply: the connection broke, or the reply took too long. The cause is flattened to
/// text, because the redis crate's sources repeat its message. The cause follows the message, so the message gives no
/// advice.
pub(crate) fn unanswered(error: &RedisError) -> BackendError {
    BackendError::because(
        Fault::Unavailable,
        Effect::Unknown,
        "Redis did not answer, or not in time",
        error.to_string(),
    )
}

/// Error for a reply that no script of ours sends.
pub(crate) fn unexpected_reply() -> BackendError {
    BackendError::new(
        Fault::Store,
        Effect::Unknown,
        "the answer is not that of our script: is a proxy between us and Redis that changes answers?",
    )
}

/// Error for a token counter that is too high for further tokens: a program has set it, or it is the year 2255, when
/// the time in microseconds, with which the counter keeps up, reaches the highest token. Nothing was granted; but a
/// fair claim may be in the queue, so its effect is `Unknown`.
pub(crate) fn tokens_exhausted(fairness: Fairness) -> BackendError {
    let effect = match fairness {
        Fairness::Unfair => Effect::None,
        Fairness::Fifo => Effect::Unknown,
    };
    let message = "the token counter (`tenure_tokens`, with `fencing=redisson` `redisson_lock_token:{NAME}`) stands too high for any \
                   further token: while no lock is held, delete that key, and tokens go on from the server's time";
    BackendError::new(Fault::Store, effect, message)
}

pub(crate) fn renewal_timed_out(limit: Duration) -> BackendError {
    let message = format!(
        "Redis sent nothing for {limit:?}, a sixth of the lease, or no reply to a renewal for twice as long: the client retries"
    );
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

/// Error for a grant, or a renewal, that too few replicas have acknowledged. The master has it, so the effect is
/// `Unknown`.
pub(crate) fn too_few_replicas(count: u64, wanted: u64, wait: Duration) -> BackendError {
    let message = format!(
        "{count} of {wanted} replicas acknowledged the lock within {wait:?}, so it does not count as held: see whether the \
         replicas run, or lower `replicas`"
    );
    BackendError::new(Fault::Unavailable, Effect::Unknown, message)
}

/// Error for a grant, or a renewal, after which the master did not say how many replicas have it: the connection that
/// asks failed, or the server refused `WAIT`.
pub(crate) fn no_acknowledgement() -> BackendError {
    let message =
        "the server did not say how many replicas have the lock, so it does not count as held: try again";
    BackendError::new(Fault::Unavailable, Effect::Unknown, message)
}

/// Error for a grant, or a renewal, after which the server refused the write that the client sends before each
/// `WAIT`.
pub(crate) fn not_counted(refused: &BackendError) -> BackendError {
    let message = format!(
        "replicas could not be asked whether they have the lock, so it does not count as held: {refused}"
    );
    BackendError::because(refused.fault(), Effect::Unknown, message, cause_of(refused))
}

/// Error for a claim that is not placed, because the node `node` has taken over a slot whose earlier node was moving it.
pub(crate) fn failed_while_open(slot: u16, node: &str, rest: Duration) -> BackendError {
    let message = format!(
        "slot {slot} was being moved when {node} took it over from its master, so its locks may be held by clients \
         that {node} does not know: this client places none there for another {} s",
        rest.as_secs() + 1
    );
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// Error for a call whose reply cannot come, because the runtime has ended.
pub(crate) fn runtime_ended() -> BackendError {
    let message = "the runtime that speaks to Redis has ended: try again";
    BackendError::new(Fault::Unavailable, Effect::Unknown, message)
}
