//! What a run can be found guilty of.

use tenure_testkit::{Rule, Violation};

/// The laws of a run: the rules of a history, and what can only be seen while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// A rule of histories.
    History(Rule),
    /// A dead holder is succeeded within the lease and a grace.
    L1,
    /// In calm weather everybody gets a lock.
    L2,
    /// Nothing is left in the store.
    L4,
    /// Workers end when they are told to, and not before.
    Discipline,
}

/// Something that a run is guilty of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which law was broken.
    pub law: Law,
    /// How, in words, with the events that show it.
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
