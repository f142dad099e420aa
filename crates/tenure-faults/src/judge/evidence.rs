//! What the judge reads: all logs of a run.

use std::io;
use std::path::Path;

use tenure_testkit::Event;

use crate::line::{Line, Note};

/// The events and the notes of these logs.
pub(crate) fn read_all<'a>(logs: impl Iterator<Item = &'a Path>) -> io::Result<(Vec<Event>, Vec<Note>)> {
    let (mut events, mut notes) = (Vec::new(), Vec::new());
    for log in logs {
        for line in read(log)? {
            match line {
                Line::Event(event) => events.push(event),
                Line::Note(note) => notes.push(note),
            }
        }
    }
    Ok((events, notes))
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
        std::fs::write(&log, "1000 7 queued\n1100 7 rele").unwrap();
        assert_eq!(read(&log).unwrap().len(), 1);
        std::fs::write(&log, "1000 7 que\n1100 7 release\n").unwrap();
        assert!(read(&log).unwrap_err().to_string().contains("1000 7 que"));
    }
}
