//! Last holder of a key: a grant to another worker is a *hand-over*. Only the holder writes it, so it also shows when two
//! workers held the key at once.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Fallible;

/// Held by nobody so far.
const NOBODY: u64 = u64::MAX;

/// One for each key, shared by all who compete for it.
#[derive(Debug)]
pub(crate) enum Baton {
    /// Between tasks of one process.
    Memory(AtomicU64),
    /// Between processes: a number in a file.
    File(File),
}

impl Baton {
    pub(crate) fn in_memory() -> Self {
        Baton::Memory(AtomicU64::new(NOBODY))
    }

    /// Makes the file, which nobody has used yet.
    pub(crate) fn make(path: &Path) -> Fallible<()> {
        Ok(std::fs::write(path, NOBODY.to_le_bytes())?)
    }

    pub(crate) fn open(path: &Path) -> Fallible<Self> {
        Ok(Baton::File(OpenOptions::new().read(true).write(true).open(path)?))
    }

    /// The worker holds the key; says whether another held it before. Only the holder may call this.
    pub(crate) fn take(&self, worker: u64) -> Fallible<bool> {
        let last = self.read()?;
        match self {
            Baton::Memory(holder) => holder.store(worker, Ordering::Relaxed),
            Baton::File(file) => file.write_all_at(&worker.to_le_bytes(), 0)?,
        }
        Ok(last != NOBODY && last != worker)
    }

    /// The worker is about to let go; an error if anybody else has taken the key in the meantime.
    pub(crate) fn give(&self, worker: u64) -> Fallible<()> {
        match self.read()? {
            holder if holder == worker => Ok(()),
            other => Err(format!("worker {other} took the key while worker {worker} held it").into()),
        }
    }

    fn read(&self) -> Fallible<u64> {
        match self {
            // The lock under test orders what is written.
            Baton::Memory(holder) => Ok(holder.load(Ordering::Relaxed)),
            Baton::File(file) => {
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, 0)?;
                Ok(u64::from_le_bytes(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handovers(baton: &Baton, holders: &[u64]) -> usize {
        let turns = holders.iter().map(|worker| {
            let handed_over = baton.take(*worker).unwrap();
            baton.give(*worker).unwrap();
            handed_over
        });
        turns.filter(|handed_over| *handed_over).count()
    }

    #[test]
    fn a_hand_over_is_counted_only_when_the_holder_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("baton");
        for (holders, expected) in [
            (&[][..], 0),
            (&[7], 0),
            (&[0, 0, 0, 0], 0),
            (&[0, 1, 0, 1], 3),
            (&[5, 5, 6, 6, 6, 5], 2),
        ] {
            assert_eq!(handovers(&Baton::in_memory(), holders), expected, "{holders:?}");
            Baton::make(&path).unwrap();
            assert_eq!(
                handovers(&Baton::open(&path).unwrap(), holders),
                expected,
                "{holders:?}"
            );
        }
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
