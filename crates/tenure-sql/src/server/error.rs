//! Errors that the client itself finds, and what a statement's failure means for the locks.

use std::fmt;
use std::time::Duration;

use tenure_backend::{BackendError, Effect, Fault};

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Another session is at the row. The statement had no effect.
    Busy,
    /// The statement had no effect, for a reason that tells nothing of the row: a deadlock, or a table that grows slowly.
    Repeat,
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
        let message = match self {
            Failure::Error(error) => return error,
            Failure::Repeat => {
                "the database has undone this statement several times: see which sessions are at work on that table"
            }
            Failure::Busy => {
                "another session keeps the lock's row locked: see which transaction is open on that table"
            }
        };
        BackendError::new(Fault::Unavailable, Effect::None, message)
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
pub(crate) fn not_connected(address: impl fmt::Display, limit: Duration) -> BackendError {
    let message = format!(
        "the database at {address} did not accept the connection within {limit:?}: see whether it runs there"
    );
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// What a refusal of the server means, and what to do about it.
pub(crate) struct Refusal {
    fault: Fault,
    words: &'static str,
}

impl Refusal {
    pub(crate) const NO_DATABASE: Refusal = Refusal::invalid(
        "the server has no such database: correct the path of the URL, or create the database",
    );
    pub(crate) const NO_PERMISSION: Refusal =
        Refusal::denied("the user lacks a permission: grant what `tenure schema` lists for this layout");
    pub(crate) const NO_TABLE: Refusal = Refusal::store(
        "the table of locks is not there: create it with `tenure schema --apply`, or name it with `table` and `schema`",
    );
    pub(crate) const OTHER_COLUMNS: Refusal = Refusal::store(
        "the table does not have the columns of this layout: compare it with what `tenure schema` prints",
    );
    pub(crate) const TOO_LONG: Refusal = Refusal::new(
        Fault::Limit,
        "the key or the holder's name is longer than the table's column: use a shorter key",
    );
    pub(crate) const DISK_FULL: Refusal =
        Refusal::store("the server's disk is full, or cannot be written: free some space");
    pub(crate) const SESSION_ENDED: Refusal = Refusal::unavailable(
        "the server has ended this connection, or is shutting down: the client connects again",
    );
    pub(crate) const CONNECTION_LOST: Refusal = Refusal::unavailable(
        "the server, or a proxy or pooler before it, refuses or has lost the connection",
    );
    pub(crate) const OTHER: Refusal = Refusal::store("the server refuses the statement");

    const fn new(fault: Fault, words: &'static str) -> Self {
        Refusal { fault, words }
    }

    pub(crate) const fn denied(words: &'static str) -> Self {
        Refusal::new(Fault::Denied, words)
    }

    pub(crate) const fn invalid(words: &'static str) -> Self {
        Refusal::new(Fault::Invalid, words)
    }

    pub(crate) const fn store(words: &'static str) -> Self {
        Refusal::new(Fault::Store, words)
    }

    pub(crate) const fn unavailable(words: &'static str) -> Self {
        Refusal::new(Fault::Unavailable, words)
    }

    /// `cause`: the server's own words.
    pub(crate) fn into_error(self, effect: Effect, cause: String) -> BackendError {
        BackendError::because(self.fault, effect, self.words, cause)
    }
}

/// Error for a statement whose connection broke.
pub(crate) fn connection_broke(cause: String) -> BackendError {
    let message = "the server did not answer: the connection broke";
    BackendError::because(Fault::Unavailable, Effect::Unknown, message, cause)
}

pub(crate) fn unreachable(address: impl fmt::Display, cause: impl fmt::Display) -> BackendError {
    let message = format!("the server at {address} cannot be reached: see whether it runs there");
    BackendError::because(Fault::Unavailable, Effect::None, message, cause.to_string())
}

/// Error for a server without TLS. `cure`: what to do there, or what to write in the URL.
pub(crate) fn offers_no_tls(address: impl fmt::Display, cure: &str, cause: String) -> BackendError {
    let message = format!("the server at {address} does not offer TLS: {cure}");
    BackendError::because(Fault::Store, Effect::None, message, cause)
}

/// Error for a handshake that one of the two ends has refused.
pub(crate) fn no_tls(address: impl fmt::Display, cause: String) -> BackendError {
    let message = format!(
        "no TLS can be spoken with the server at {address}: see which authority signed its certificate (`ca`), for which \
         host, and whether it asks for one of ours (`cert`, `key`)"
    );
    BackendError::because(Fault::Store, Effect::None, message, cause)
}

/// Error for servers that are all read-only. `cause`: why they may be.
pub(crate) fn not_writable(address: &str, cause: &str) -> BackendError {
    let message = format!("no server of {address} accepts writes: {cause}");
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// Error for a reply that no statement of ours gives.
pub(crate) fn unexpected_reply() -> BackendError {
    let message = "the answer is not that of our statement: see whether the table has triggers or rules";
    BackendError::new(Fault::Store, Effect::Unknown, message)
}
