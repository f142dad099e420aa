//! Findings of a run: violations of its laws.

use tenure_testkit::{Rule, Violation};

/// Law that a run must keep: a rule of its history, or a property that is checked during the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// A rule of the history.
    History(Rule),
    /// After the death of a holder, another task is granted the lock within the longest lease and a grace period.
    L1,
    /// Without faults, every task gets a lock.
    L2,
    /// The workers leave nothing in the store except token counters.
    L4,
    /// Workers end when they receive SIGTERM, and not before.
    WorkerExit,
}

/// Violation of a law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Law that was violated.
    pub law: Law,
    /// Description, with the events that show the violation.
    pub what: String,
}

impl From<Violation> for Finding {
    fn from(violation: Violation) -> Self {
        Finding {
            law: Law::History(violation.rule),
            what: violation.to_string(),
        }
    }
}
