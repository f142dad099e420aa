//! What can be seen of a worker from outside while it works: its log, read as it grows, and kept for the judge.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tenure::{Instant, LockKey, Mode};
use tenure_testkit::{Event, What};

use crate::attempts;
use crate::keys::is_alone;
use crate::line::{Line, Note, Noted};

/// A growing log, and what its last lines mean.
#[derive(Debug)]
pub(crate) struct Sight {
    file: File,
    /// The beginning of a line whose end is not there yet.
    rest: Vec<u8>,
    /// All that was read.
    pub(crate) events: Vec<Event>,
    pub(crate) notes: Vec<Note>,
    open: HashMap<u64, Open>,
    /// When each task was granted a lock last.
    granted: HashMap<u64, Instant>,
    /// When each key was granted last, and when its counter was written last.
    keys: HashMap<LockKey, Lately>,
}

/// An attempt that has not ended.
#[derive(Debug)]
struct Open {
    key: LockKey,
    mode: Mode,
    holds: bool,
    bumping: bool,
}

#[derive(Clone, Copy, Debug)]
struct Lately {
    granted: Instant,
    bumped: Instant,
}

impl Default for Lately {
    fn default() -> Self {
        Lately {
            granted: Instant::ORIGIN,
            bumped: Instant::ORIGIN,
        }
    }
}

impl Sight {
    /// The log of a process that is about to begin.
    pub(crate) fn of(log: &Path) -> io::Result<Sight> {
        // The worker appends; who comes first makes the file.
        let file = File::options().create(true).append(true).read(true).open(log)?;
        Ok(Sight {
            file,
            rest: Vec::new(),
            events: Vec::new(),
            notes: Vec::new(),
            open: HashMap::new(),
            granted: HashMap::new(),
            keys: HashMap::new(),
        })
    }

    /// Reads the whole lines that were written since the last look. A worker that was killed may have left half a line.
    pub(crate) fn look(&mut self) -> io::Result<()> {
        self.file.read_to_end(&mut self.rest)?;
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]).parse();
            match line.map_err(io::Error::other)? {
                Line::Event(event) => {
                    self.take(&event);
                    self.events.push(event);
                }
                Line::Note(note) => {
                    self.take_note(&note);
                    self.notes.push(note);
                }
            }
        }
        Ok(())
    }

    /// A key whose counter was read and not written yet, by an attempt that holds it.
    pub(crate) fn between_reading_and_writing(&self) -> Option<&LockKey> {
        let bumping = self.open.values().find(|open| open.holds && open.bumping);
        bumping.map(|open| &open.key)
    }

    /// A key that it holds alone.
    pub(crate) fn holds(&self) -> Option<&LockKey> {
        let held = self.open.values().find(|open| open.holds && is_alone(open.mode));
        held.map(|open| &open.key)
    }

    /// How many tasks were granted a lock since that moment.
    pub(crate) fn tasks_granted_since(&self, moment: Instant) -> u64 {
        self.granted.values().filter(|at| **at > moment).count() as u64
    }

    /// When it was granted that key last.
    pub(crate) fn granted(&self, key: &LockKey) -> Instant {
        self.keys.get(key).copied().unwrap_or_default().granted
    }

    /// When it wrote the counter of that key last.
    pub(crate) fn bumped(&self, key: &LockKey) -> Instant {
        self.keys.get(key).copied().unwrap_or_default().bumped
    }

    fn take(&mut self, event: &Event) {
        match &event.what {
            What::Invoked { key, mode, .. } => {
                let open = Open {
                    key: key.clone(),
                    mode: *mode,
                    holds: false,
                    bumping: false,
                };
                self.open.insert(event.attempt, open);
            }
            What::Acquired { .. } => {
                if let Some(open) = self.open.get_mut(&event.attempt) {
                    open.holds = true;
                }
                self.granted.insert(attempts::task_of(event.attempt), event.at);
                self.at_key(event.attempt, |lately| lately.granted = event.at);
            }
            What::Failed | What::Unknown | What::ReleaseInvoked | What::Lost => {
                self.open.remove(&event.attempt);
            }
            _ => {}
        }
    }

    fn take_note(&mut self, note: &Note) {
        match note.what {
            Noted::Bumping => self.bumping(note.attempt, true),
            Noted::Bumped => {
                self.bumping(note.attempt, false);
                self.at_key(note.attempt, |lately| lately.bumped = note.at);
            }
            _ => {}
        }
    }

    fn bumping(&mut self, attempt: u64, bumping: bool) {
        if let Some(open) = self.open.get_mut(&attempt) {
            open.bumping = bumping;
        }
    }

    fn at_key(&mut self, attempt: u64, change: impl FnOnce(&mut Lately)) {
        if let Some(open) = self.open.get(&attempt) {
            change(self.keys.entry(open.key.clone()).or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_log_is_seen_as_it_grows_and_a_line_once_it_has_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut sight = Sight::of(&log).unwrap();
        let mut worker = File::options().append(true).open(&log).unwrap();
        let mut wrote = |text: &str| {
            worker.write_all(text.as_bytes()).unwrap();
            sight.look().unwrap();
            let key = |key: Option<&LockKey>| key.map(ToString::to_string);
            let (holds, between) = (sight.holds(), sight.between_reading_and_writing());
            (key(holds), key(between))
        };
        let (nothing, k) = (None, Some("k".to_owned()));
        assert_eq!(
            wrote("1000 7 invoked owner=7 mode=exclusive key=k\n1100 7 acqui"),
            (nothing.clone(), nothing.clone())
        );
        assert_eq!(wrote("red token=3 until=9000\n"), (k.clone(), nothing.clone()));
        assert_eq!(
            wrote("{\"at\":1200,\"attempt\":7,\"what\":\"bumping\"}\n"),
            (k.clone(), k.clone())
        );
        assert_eq!(
            wrote("{\"at\":1300,\"attempt\":7,\"what\":\"bumped\"}\n"),
            (k, nothing.clone())
        );
        assert_eq!(wrote("1400 7 release\n"), (nothing.clone(), nothing));
        let key = LockKey::new("k").unwrap();
        assert_eq!(sight.granted(&key), Instant::from_nanos(1100));
        assert_eq!(sight.bumped(&key), Instant::from_nanos(1300));
        assert_eq!(sight.tasks_granted_since(Instant::from_nanos(1099)), 1);
        assert_eq!(sight.tasks_granted_since(Instant::from_nanos(1100)), 0);
        assert_eq!((sight.events.len(), sight.notes.len()), (3, 2));
    }
}
