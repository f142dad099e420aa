//! What the judge has before him: all logs of a run, who wrote them, and what was done to whom.

use std::io;
use std::path::{Path, PathBuf};

use tenure::backend::Hazard;
use tenure_testkit::Event;

use crate::control::{Deed, Worked};
use crate::line::{Line, Note};

/// All there is to judge by.
#[derive(Debug)]
pub(crate) struct Evidence {
    /// What the workers and the register wrote down.
    pub(crate) events: Vec<Event>,
    pub(crate) notes: Vec<Note>,
    pub(crate) worked: Vec<Worked>,
    pub(crate) deeds: Vec<Deed>,
    /// What the store names among its hazards.
    pub(crate) hazards: &'static [Hazard],
}

impl Evidence {
    pub(crate) fn read(
        register: PathBuf,
        worked: &[Worked],
        deeds: Vec<Deed>,
        hazards: &'static [Hazard],
    ) -> io::Result<Evidence> {
        let (mut events, mut notes) = (Vec::new(), Vec::new());
        let logs = worked.iter().map(|worked| &worked.log);
        for log in logs.chain([&register]) {
            for line in read(log)? {
                match line {
                    Line::Event(event) => events.push(event),
                    Line::Note(note) => notes.push(note),
                }
            }
        }
        Ok(Evidence {
            events,
            notes,
            worked: worked.to_vec(),
            deeds,
            hazards,
        })
    }
}

/// The whole lines of a log. Who was killed while it wrote may have left half a line at the end; anywhere else it would
/// be a log that cannot be trusted.
fn read(log: &Path) -> io::Result<Vec<Line>> {
    let text = std::fs::read_to_string(log)?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let lines = text[..whole].lines().map(str::parse);
    lines
        .collect::<Result<_, String>>()
        .map_err(|error| io::Error::other(format!("{}: {error}", log.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_may_end_in_half_a_line_and_is_refused_if_one_stands_within() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::write(&log, "1000 7 bumping\n1100 7 bum").unwrap();
        assert_eq!(read(&log).unwrap().len(), 1);
        std::fs::write(&log, "1000 7 bum\n1100 7 bumped\n").unwrap();
        assert!(read(&log).unwrap_err().to_string().contains("1000 7 bum"));
    }
}
