//! What `doctor` finds about a store.

use std::fmt;

/// One thing about the store that weakens its locks.
///
/// # Examples
/// ```
/// use tenure_backend::Finding;
///
/// let what = "a replica may take over without the last writes";
/// let found = Finding::danger(what, "two can hold the same key after a failover");
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

impl Finding {
    /// A finding that is good to know.
    pub fn note(what: impl Into<String>, consequence: impl Into<String>) -> Self {
        Self::new(Severity::Note, what, consequence)
    }

    /// A promise that holds less often than it might.
    pub fn warning(what: impl Into<String>, consequence: impl Into<String>) -> Self {
        Self::new(Severity::Warning, what, consequence)
    }

    /// A promise that does not hold.
    pub fn danger(what: impl Into<String>, consequence: impl Into<String>) -> Self {
        Self::new(Severity::Danger, what, consequence)
    }

    fn new(severity: Severity, what: impl Into<String>, consequence: impl Into<String>) -> Self {
        Finding {
            severity,
            what: what.into(),
            consequence: consequence.into(),
        }
    }
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
