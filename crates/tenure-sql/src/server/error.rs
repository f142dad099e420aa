//! Errors that the client itself finds, and what a statement's failure means for the locks.

use std::fmt;
use std::time::Duration;

use tenure_backend::{BackendError, Effect, Fault};

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Another session is at the row. The statement had no effect.
    Busy,
    Error(BackendError),
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Failure::Error(error)
    }
}

impl Failure {
    /// The error for a caller that cannot treat a busy row as held.
    pub(crate) fn into_error(self) -> BackendError {
        match self {
            Failure::Busy => BackendError::new(
                Fault::Unavailable,
                Effect::None,
                "another session keeps the lock's row locked: see which transaction is open on that table",
            ),
            Failure::Error(error) => error,
        }
    }
}

/// Error for a setting or an argument that is not valid. Nothing was sent.
pub(crate) fn invalid(message: impl fmt::Display) -> BackendError {
    BackendError::new(Fault::Invalid, Effect::None, message.to_string())
}

/// Error for a statement that was not answered in time. Its connection is closed.
pub(crate) fn unanswered(limit: Duration) -> BackendError {
    let message = format!("the database did not answer within {limit:?}");
    BackendError::new(Fault::Unavailable, Effect::Unknown, message)
}

/// Error for an attempt to connect that took too long.
pub(crate) fn not_connected(address: &str, limit: Duration) -> BackendError {
    let message = format!(
        "the database at {address} did not accept the connection within {limit:?}: see whether it runs there"
    );
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// Error for a call whose reply cannot come, because the runtime has ended.
pub(crate) fn runtime_ended() -> BackendError {
    let message = "the runtime that speaks to the database has ended: connect again";
    BackendError::new(Fault::Unavailable, Effect::Unknown, message)
}

/// Error for a reply that no statement of ours gives.
pub(crate) fn unexpected_reply() -> BackendError {
    let message = "the answer is not that of our statement: see whether the table has triggers or rules";
    BackendError::new(Fault::Store, Effect::Unknown, message)
}
