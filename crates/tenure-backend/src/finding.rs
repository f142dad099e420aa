//! Findings of `tenure doctor` about a store.

use std::fmt;

/// One property of a store that weakens its locks.
///
/// # Examples
/// ```
/// use tenure_backend::Finding;
///
/// let what = "a replica may take over without the last writes";
/// let finding = Finding::danger(what, "two can hold the same key after a failover");
/// let line = format!("{}: {}; so {}", finding.severity, finding.what, finding.consequence);
/// assert!(line.starts_with("danger: a replica may take over without the last writes; so two can hold"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Finding {
    /// How serious the finding is.
    pub severity: Severity,
    /// The property, in one sentence.
    pub what: String,
    /// Its consequence for the locks, in one sentence.
    pub consequence: String,
}

impl Finding {
    /// Creates a finding of severity [`Severity::Note`].
    pub fn note(what: impl Into<String>, consequence: impl Into<String>) -> Self {
        Self::new(Severity::Note, what, consequence)
    }

    /// Creates a finding of severity [`Severity::Warning`].
    pub fn warning(what: impl Into<String>, consequence: impl Into<String>) -> Self {
        Self::new(Severity::Warning, what, consequence)
    }

    /// Creates a finding of severity [`Severity::Danger`].
    pub fn danger(what: impl Into<String>, consequence: impl Into<String>) -> Self {
        Self::new(Severity::Danger, what, consequence)
    }

    /// Creates a finding of the given severity.
    pub fn new(severity: Severity, what: impl Into<String>, consequence: impl Into<String>) -> Self {
        Finding {
            severity,
            what: what.into(),
            consequence: consequence.into(),
        }
    }
}

/// How serious a finding is.
///
/// # Examples
/// ```
/// use tenure_backend::Severity;
///
/// let worst = [Severity::Warning, Severity::Danger, Severity::Note].into_iter().max();
/// assert_eq!(worst, Some(Severity::Danger));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "lowercase")
)]
#[non_exhaustive]
pub enum Severity {
    /// Worth knowing, such as a limit of all stores of this kind.
    Note,
    /// A promise holds less reliably than in other setups.
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
