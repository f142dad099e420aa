//! Who held a key last, and how many turns it has had: what makes a grant a *hand-over*.
//! It is written only by whoever holds the key, and so also tells when two held it at once.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Fallible;

/// Held by nobody so far.
const NOBODY: u64 = u64::MAX;

/// One for each key, shared by all who compete for it.
#[derive(Debug)]
pub(crate) enum Baton {
    /// Between tasks of one process.
    Memory { holder: AtomicU64, turns: AtomicU64 },
    /// Between processes: two numbers in a file.
    File(File),
}

/// What a grant was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The first turn of a key is 1.
    pub(crate) number: u64,
    /// Somebody else held the key before.
    pub(crate) handed_over: bool,
}

impl Baton {
    pub(crate) fn in_memory() -> Self {
        Baton::Memory {
            holder: AtomicU64::new(NOBODY),
            turns: AtomicU64::new(0),
        }
    }

    /// Makes the file, which nobody has used yet.
    pub(crate) fn make(path: &Path) -> Fallible<()> {
        let baton = Baton::File(
            OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(path)?,
        );
        baton.write(NOBODY, 0)
    }

    pub(crate) fn open(path: &Path) -> Fallible<Self> {
        Ok(Baton::File(OpenOptions::new().read(true).write(true).open(path)?))
    }

    /// How many turns the key has had.
    pub(crate) fn turns(&self) -> Fallible<u64> {
        Ok(self.read()?.1)
    }

    /// The worker holds the key. Only who holds it may call this.
    pub(crate) fn take(&self, worker: u64) -> Fallible<Turn> {
        let (last, turns) = self.read()?;
        self.write(worker, turns + 1)?;
        Ok(Turn {
            number: turns + 1,
            handed_over: last != NOBODY && last != worker,
        })
    }

    /// The worker is about to let go; an error if anybody else has taken the key in the meantime.
    pub(crate) fn give(&self, worker: u64) -> Fallible<()> {
        match self.read()?.0 {
            holder if holder == worker => Ok(()),
            other => Err(format!("worker {other} took the key while worker {worker} held it").into()),
        }
    }

    fn read(&self) -> Fallible<(u64, u64)> {
        match self {
            // The lock under test orders what is written.
            Baton::Memory { holder, turns } => {
                Ok((holder.load(Ordering::Relaxed), turns.load(Ordering::Relaxed)))
            }
            Baton::File(file) => {
                let mut bytes = [[0; 8]; 2];
                read_at_start(file, bytes.as_flattened_mut())?;
                Ok((u64::from_le_bytes(bytes[0]), u64::from_le_bytes(bytes[1])))
            }
        }
    }

    fn write(&self, worker: u64, turn: u64) -> Fallible<()> {
        match self {
            Baton::Memory { holder, turns } => {
                holder.store(worker, Ordering::Relaxed);
                turns.store(turn, Ordering::Relaxed);
                Ok(())
            }
            Baton::File(file) => {
                let bytes = [worker.to_le_bytes(), turn.to_le_bytes()];
                Ok(write_at_start(file, bytes.as_flattened())?)
            }
        }
    }
}

#[cfg(unix)]
fn read_at_start(file: &File, bytes: &mut [u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, 0)
}

#[cfg(unix)]
fn write_at_start(file: &File, bytes: &[u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, 0)
}

#[cfg(not(unix))]
fn read_at_start(mut file: &File, bytes: &mut [u8]) -> std::io::Result<()> {
    use std::io::{Read, Seek};
    file.rewind()?;
    file.read_exact(bytes)
}

#[cfg(not(unix))]
fn write_at_start(mut file: &File, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::{Seek, Write};
    file.rewind()?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handovers(baton: &Baton, holders: &[u64]) -> usize {
        let turns = holders.iter().map(|worker| {
            let turn = baton.take(*worker).unwrap();
            baton.give(*worker).unwrap();
            turn
        });
        turns.filter(|turn| turn.handed_over).count()
    }

    fn in_file() -> (tempfile::TempDir, Baton) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("baton");
        Baton::make(&path).unwrap();
        let baton = Baton::open(&path).unwrap();
        (dir, baton)
    }

    #[test]
    fn a_hand_over_is_counted_only_when_the_holder_changes() {
        for (holders, expected) in [
            (&[][..], 0),
            (&[7], 0),
            (&[0, 0, 0, 0], 0),
            (&[0, 1, 0, 1], 3),
            (&[5, 5, 6, 6, 6, 5], 2),
        ] {
            assert_eq!(handovers(&Baton::in_memory(), holders), expected, "{holders:?}");
            assert_eq!(handovers(&in_file().1, holders), expected, "{holders:?}");
        }
    }

    #[test]
    fn turns_are_counted_from_one_and_seen_by_all_who_share_the_file() {
        let (dir, first) = in_file();
        let second = Baton::open(&dir.path().join("baton")).unwrap();
        assert_eq!(first.turns().unwrap(), 0);
        assert_eq!(first.take(1).unwrap().number, 1);
        let turn = second.take(2).unwrap();
        assert_eq!((turn.number, turn.handed_over), (2, true));
        assert_eq!(first.turns().unwrap(), 2);
    }

    #[test]
    fn two_who_hold_at_once_are_found_out() {
        let baton = Baton::in_memory();
        baton.take(1).unwrap();
        baton.take(2).unwrap();
        let found = baton.give(1).unwrap_err().to_string();
        assert_eq!(found, "worker 2 took the key while worker 1 held it");
    }
}
