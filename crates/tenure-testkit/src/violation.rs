//! What a history can be found guilty of, and how it reads.
//! Finding it is `checker.rs`'s.

use std::fmt;

use crate::history::Event;

/// What a history has shown about a lock, if nothing is wrong with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many attempts were begun.
    pub attempts: u64,
    /// How many were granted.
    pub acquired: u64,
    /// How often a holder asked and was told that it holds.
    pub samples: u64,
}

/// The rules of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// The history contradicts itself: its recording is at fault.
    History,
    /// Two that may not hold together were believed at the same time.
    V1,
    /// "It is held" was said of a lock whose belief had ended, or that another was believed to hold throughout.
    V2,
    /// A token was not greater than one of a conflicting grant that was complete before, or was given out twice.
    V3,
    /// The guarded resource accepted an older token after a newer one.
    V4,
    /// In a first-come, first-served queue a later attempt was granted before a conflicting earlier one.
    L3,
    /// Something was left behind in the store.
    L4,
}

/// One violation, with the events that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule was broken.
    pub rule: Rule,
    /// How, in words.
    pub what: String,
    /// The events concerned.
    pub events: Vec<Event>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)?;
        for event in &self.events {
            write!(f, "\n    {event}")?;
        }
        Ok(())
    }
}
