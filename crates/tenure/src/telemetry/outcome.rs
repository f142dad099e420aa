//! The outcomes of an acquisition.

use crate::error::Error;

/// How an acquisition ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Outcome {
    Acquired,
    Busy,
    Timeout,
    Cancelled,
    Failed,
    Refused,
    Closed,
}

impl Outcome {
    /// The outcome of an acquisition that was polled to its end; the `Option` is `None` if the lock was busy.
    pub(crate) fn of<T>(end: &Result<Option<T>, Error>) -> Self {
        match end {
            Ok(Some(_)) => Outcome::Acquired,
            Ok(None) => Outcome::Busy,
            Err(Error::Timeout) => Outcome::Timeout,
            Err(Error::Backend(_) | Error::Lost(_)) => Outcome::Failed,
            Err(Error::Closed(_)) => Outcome::Closed,
            Err(_) => Outcome::Refused,
        }
    }
}
