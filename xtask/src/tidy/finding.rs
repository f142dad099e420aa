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
