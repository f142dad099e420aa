//! What `doctor` finds about a store.

use std::fmt;

/// One thing about the store that weakens its locks.
///
/// # Examples
/// ```
/// use tenure_backend::{Finding, Severity};
///
/// let found = Finding {
///     severity: Severity::Danger,
///     what: "a replica may take over without the last writes".into(),
///     consequence: "two can hold the same key after a failover".into(),
/// };
/// let line = format!("{}: {}; so {}", found.severity, found.what, found.consequence);
/// assert!(line.starts_with("danger: a replica may take over without the last writes; so two can hold"));
/// ```
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
///
/// # Examples
/// ```
/// use tenure_backend::Severity;
///
/// let worst = [Severity::Warning, Severity::Danger, Severity::Note].into_iter().max();
/// assert_eq!(worst, Some(Severity::Danger));
/// ```
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
