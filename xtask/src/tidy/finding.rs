//! What a rule reports.
//! Not here: the rules.

use std::fmt;
use std::path::PathBuf;

/// A broken rule: where, what, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) file: PathBuf,
    /// Counted from 1; 0 is the file as a whole.
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) instead: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}\n    {}", self.what, self.instead)
    }
}

/// What tests ask of a rule.
#[cfg(test)]
pub(super) mod testing {
    use super::*;

    pub(crate) const NOWHERE: [usize; 0] = [];

    /// The lines at which something was found.
    pub(crate) fn lines(found: Vec<Finding>) -> Vec<usize> {
        found.into_iter().map(|finding| finding.line).collect()
    }
}
