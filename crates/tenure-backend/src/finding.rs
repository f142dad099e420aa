//! What `doctor` finds about a store.

use std::fmt;

/// One thing about the store that weakens its locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was found, in one sentence.
    pub what: String,
    /// What follows for the locks, in one sentence.
    pub consequence: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Good to know.
    Note,
    /// A promise holds less often than it might.
    Warning,
    /// A promise does not hold.
    Danger,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Danger => "danger",
        })
    }
}
