//! The log of one process: whole lines, appended one by one, so that it can be read whenever its writer dies.
//! What the lines say is `line.rs`'s.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use tenure::Instant;
use tenure::backend::{Clock, SystemClock};
use tenure_testkit::{Event, What};

use crate::line::{Line, Note, Noted};

/// The moment, on the one clock of all processes of a run: `CLOCK_BOOTTIME`.
pub(crate) fn now() -> Instant {
    SystemClock.now()
}

/// The log of one process. Clones write the same one.
#[derive(Clone, Debug)]
pub(crate) struct Journal(Arc<File>);

impl Journal {
    pub(crate) fn open(path: &Path) -> io::Result<Journal> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Journal(Arc::new(file)))
    }

    /// Writes down what happened to an attempt.
    pub(crate) fn event(&self, at: Instant, attempt: u64, what: What) -> io::Result<()> {
        self.write(&Line::Event(Event { at, attempt, what }))
    }

    /// Writes down something else that is worth knowing.
    pub(crate) fn note(&self, at: Instant, attempt: u64, what: Noted) -> io::Result<()> {
        self.write(&Line::Note(Note { at, attempt, what }))
    }

    /// One call to the system for a line: it is there as a whole, or not at all.
    fn write(&self, line: &Line) -> io::Result<()> {
        (&*self.0).write_all(format!("{line}\n").as_bytes())
    }
}
