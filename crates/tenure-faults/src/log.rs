//! The log of one process: whole lines, appended one by one, so that it can be read whenever its writer dies. An event of
//! a history stands there as its text, a note of this crate's own as JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::Instant;
use tenure::backend::{Clock, SystemClock};

/// How many processes, and tasks of each, an attempt's number has room for.
const TASK: u32 = 32;
const PROCESS: u32 = 40;

/// The number of the first attempt of a task. None is used twice in a run.
pub(crate) fn first_attempt(process: u64, task: u64) -> u64 {
    process << PROCESS | task << TASK | 1
}

/// Which process made the attempt.
pub(crate) fn process_of(attempt: u64) -> u64 {
    attempt >> PROCESS
}

/// Which task of which process made the attempt, as one number.
pub(crate) fn task_of(attempt: u64) -> u64 {
    attempt >> TASK
}

/// The moment, on the one clock of all processes of a run: `CLOCK_BOOTTIME`.
pub(crate) fn now() -> Instant {
    SystemClock.now()
}

/// Something that is worth knowing beside a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    #[serde(with = "nanos")]
    pub(crate) at: Instant,
    /// Any of its own, if it is about the whole process.
    pub(crate) attempt: u64,
    pub(crate) what: Noted,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Noted {
    /// When the holder's belief will end unless a renewal comes, and how long the store keeps the lock.
    Deadline {
        #[serde(with = "nanos")]
        until: Instant,
        lease: Duration,
    },
    /// The unfenced counter is about to be read.
    Bumping,
    /// It was written.
    Bumped,
    /// The fenced register refused a write.
    Refused,
    /// The process stood still since then.
    Stalled {
        #[serde(with = "nanos")]
        since: Instant,
    },
}

/// Moments as nanoseconds.
mod nanos {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use tenure::Instant;

    pub(super) fn serialize<S: Serializer>(at: &Instant, to: S) -> Result<S::Ok, S::Error> {
        at.as_nanos().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Instant, D::Error> {
        u64::deserialize(from).map(Instant::from_nanos)
    }
}
