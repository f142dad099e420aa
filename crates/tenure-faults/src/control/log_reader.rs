//! Reads the log of a worker as it grows, for the controller and for the final check.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tenure::{Instant, LockKey, Mode};
use tenure_testkit::{Event, EventKind};

use crate::keys::is_alone;
use crate::log::{Observation, ObservationKind, task_of};

/// Reads the log of a worker, and keeps the state of its attempts.
#[derive(Debug)]
pub(crate) struct LogReader {
    file: File,
    /// Start of a line whose end is not written yet.
    rest: Vec<u8>,
    pub(crate) events: Vec<Event>,
    pub(crate) notes: Vec<Observation>,
    open: HashMap<u64, Open>,
    /// Time of the latest grant, by task number.
    tasks: HashMap<u64, Instant>,
    /// Time of the latest grant of each key. `bumped` has the time of the latest write of each key's counter.
    granted: HashMap<LockKey, Instant>,
    bumped: HashMap<LockKey, Instant>,
}

/// Attempt that has not ended.
#[derive(Debug)]
struct Open {
    key: LockKey,
    mode: Mode,
    holds: bool,
    bumping: bool,
}

impl LogReader {
    pub(crate) fn of(log: &Path) -> io::Result<LogReader> {
        // The worker appends to the same file. Whichever process opens it first creates it.
        let file = File::options().create(true).append(true).read(true).open(log)?;
        Ok(LogReader {
            file,
            rest: Vec::new(),
            events: Vec::new(),
            notes: Vec::new(),
            open: HashMap::new(),
            tasks: HashMap::new(),
            granted: HashMap::new(),
            bumped: HashMap::new(),
        })
    }

    /// Reads the lines that were completed since the last call. Keeps the start of an incomplete line for the next.
    pub(crate) fn read(&mut self) -> io::Result<()> {
        self.file.read_to_end(&mut self.rest)?;
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            if line.starts_with(b"{") {
                self.take_note(serde_json::from_slice(&line)?);
            } else {
                let line = String::from_utf8_lossy(&line[..end]);
                self.take(line.parse().map_err(io::Error::other)?);
            }
        }
        Ok(())
    }

    /// Returns a key that the worker holds, and whose counter it has begun to read but not written yet.
    pub(crate) fn between_reading_and_writing(&self) -> Option<&LockKey> {
        let bumping = self.open.values().find(|open| open.holds && open.bumping);
        bumping.map(|open| &open.key)
    }

    /// Returns a key that the worker holds exclusively.
    pub(crate) fn holds(&self) -> Option<&LockKey> {
        let held = self.open.values().find(|open| open.holds && is_alone(open.mode));
        held.map(|open| &open.key)
    }

    /// Number of the worker's tasks with a grant after `moment`.
    pub(crate) fn tasks_granted_since(&self, moment: Instant) -> u64 {
        self.tasks.values().filter(|at| **at > moment).count() as u64
    }

    pub(crate) fn granted_since(&self, key: &LockKey, moment: Instant) -> bool {
        self.granted.get(key).is_some_and(|at| *at > moment)
    }

    /// Returns whether the worker wrote the counter of `key` after `moment`, in an attempt that had not ended before
    /// the write.
    pub(crate) fn bumped_since(&self, key: &LockKey, moment: Instant) -> bool {
        self.bumped.get(key).is_some_and(|at| *at > moment)
    }

    fn take(&mut self, event: Event) {
        match &event.kind {
            EventKind::Invoked { key, mode, .. } => {
                let open = Open {
                    key: key.clone(),
                    mode: *mode,
                    holds: false,
                    bumping: false,
                };
                self.open.insert(event.attempt, open);
            }
            EventKind::Acquired { .. } => {
                self.tasks.insert(task_of(event.attempt), event.at);
                if let Some(open) = self.open.get_mut(&event.attempt) {
                    open.holds = true;
                    self.granted.insert(open.key.clone(), event.at);
                }
            }
            EventKind::Failed | EventKind::Unknown | EventKind::ReleaseInvoked | EventKind::Lost => {
                self.open.remove(&event.attempt);
            }
            _ => {}
        }
        self.events.push(event);
    }

    fn take_note(&mut self, note: Observation) {
        if let Some(open) = self.open.get_mut(&note.attempt) {
            match note.what {
                ObservationKind::Bumping => open.bumping = true,
                ObservationKind::Bumped => {
                    open.bumping = false;
                    self.bumped.insert(open.key.clone(), note.at);
                }
                _ => {}
            }
        }
        self.notes.push(note);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_growing_log_is_read_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut reader = LogReader::of(&log).unwrap();
        let mut worker = File::options().append(true).open(&log).unwrap();
        for (text, holds, bumps) in [
            (
                "1000 7 invoked owner=7 mode=exclusive key=k\n1100 7 acqui",
                false,
                false,
            ),
            ("red token=3 until=9000\n", true, false),
            ("{\"at\":1200,\"attempt\":7,\"what\":\"bumping\"}\n", true, true),
            ("{\"at\":1300,\"attempt\":7,\"what\":\"bumped\"}\n", true, false),
            ("1400 7 release\n", false, false),
        ] {
            worker.write_all(text.as_bytes()).unwrap();
            reader.read().unwrap();
            let seen = (reader.holds(), reader.between_reading_and_writing());
            assert_eq!(
                (seen.0.is_some(), seen.1.is_some()),
                (holds, bumps),
                "after {text}"
            );
        }
        let (key, at) = (LockKey::new("k").unwrap(), Instant::from_nanos);
        assert!(reader.granted_since(&key, at(1099)) && !reader.granted_since(&key, at(1100)));
        assert!(reader.bumped_since(&key, at(1299)) && !reader.bumped_since(&key, at(1300)));
        assert_eq!(reader.tasks_granted_since(at(1099)), 1);
        assert_eq!(reader.tasks_granted_since(at(1100)), 0);
        assert_eq!((reader.events.len(), reader.notes.len()), (3, 2));
        for line in [
            "1000 7\n",
            "{}\n",
            "{\"at\":1000,\"attempt\":7,\"what\":\"dead\"}\n",
        ] {
            worker.write_all(line.as_bytes()).unwrap();
            assert!(reader.read().is_err(), "a damaged log is not accepted: {line}");
        }
    }
}
