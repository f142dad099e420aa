//! Log format of a worker process: one line per entry, appended with one system call, so that the log stays readable if
//! the worker is killed. Events of the history are written as text, other observations as JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::Instant;
use tenure::backend::{Clock, SystemClock};

/// Positions of the lowest bits of the task number and of the process number in an attempt number.
const TASK: u32 = 32;
const PROCESS: u32 = 40;

/// Number of the first attempt of a task. Attempt numbers are unique within a run.
pub(crate) fn first_attempt(process: u64, task: u64) -> u64 {
    process << PROCESS | task << TASK | 1
}

pub(crate) fn process_of(attempt: u64) -> u64 {
    attempt >> PROCESS
}

/// Task that made the attempt, as a number unique across processes.
pub(crate) fn task_of(attempt: u64) -> u64 {
    attempt >> TASK
}

/// Current time on `CLOCK_BOOTTIME`, which all processes of a run share.
pub(crate) fn now() -> Instant {
    SystemClock.now()
}

/// Entry of a worker's log that is not an event of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Observation {
    #[serde(with = "nanos")]
    pub(crate) at: Instant,
    /// Number of the observed attempt, or of any attempt of the observed process.
    pub(crate) attempt: u64,
    pub(crate) what: ObservationKind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ObservationKind {
    /// Local deadline and lease, as the holder's guard reports them.
    Deadline {
        #[serde(with = "nanos")]
        until: Instant,
        lease: Duration,
    },
    /// The worker is about to read the unfenced counter.
    Bumping,
    /// The worker has written the unfenced counter.
    Bumped,
    /// The fenced register refused a write, because its token was too old.
    Refused,
    /// The process did not run from `since` until it logged this observation.
    Stalled {
        #[serde(with = "nanos")]
        since: Instant,
    },
}

/// Serializes times as nanoseconds.
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
