//! The instruments of `meters.rs` without the feature `metrics`: they record nothing.

use std::time::Duration;

use super::outcome::Outcome;
use crate::error::LostCause;

/// A counter, gauge or histogram that records nothing.
#[derive(Debug)]
pub(crate) struct Nothing;

impl Nothing {
    pub(crate) fn increment<T>(&self, _by: T) {}
    pub(crate) fn decrement<T>(&self, _by: T) {}
    pub(crate) fn record<T>(&self, _value: T) {}
}

#[derive(Debug)]
pub(crate) struct Meters {
    pub(crate) hold: Nothing,
    pub(crate) held: Nothing,
    pub(crate) waiters: Nothing,
    pub(crate) passed: Nothing,
    pub(crate) unreturned: Nothing,
}

#[derive(Debug)]
pub(crate) struct Rounds {
    pub(crate) renewal: Nothing,
    pub(crate) renewed: Nothing,
    pub(crate) failed: Nothing,
    pub(crate) margin: Nothing,
    pub(crate) lateness: Nothing,
}

impl Meters {
    pub(crate) fn new(_store: &'static str, _key: Option<&str>) -> Self {
        Meters {
            hold: Nothing,
            held: Nothing,
            waiters: Nothing,
            passed: Nothing,
            unreturned: Nothing,
        }
    }

    pub(crate) fn acquisition(&self, _outcome: Outcome, _wait: Duration) {}

    pub(crate) fn lost(&self, _cause: &LostCause) {}
}

impl Rounds {
    pub(crate) fn new(_store: &'static str) -> Self {
        Rounds {
            renewal: Nothing,
            renewed: Nothing,
            failed: Nothing,
            margin: Nothing,
            lateness: Nothing,
        }
    }
}
