//! Records the last holder of a key. A grant to another worker is a *hand-over*. A holder that finds another worker's
//! number at its unlock reports that two held the key at once.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Fallible;

/// The value for no holder, before the first grant.
const NO_WORKER: u64 = u64::MAX;

/// The last holder of one key, shared by all workers that compete for the key.
#[derive(Debug)]
pub(crate) enum LastHolder {
    /// For tasks of one process: the holder's number in memory.
    Memory(AtomicU64),
    /// For several processes: the holder's number in a file.
    File(File),
}

impl LastHolder {
    pub(crate) fn in_memory() -> Self {
        LastHolder::Memory(AtomicU64::new(NO_WORKER))
    }

    /// Creates the file, with the value that means no holder.
    pub(crate) fn make(path: &Path) -> Fallible<()> {
        Ok(std::fs::write(path, NO_WORKER.to_le_bytes())?)
    }

    pub(crate) fn open(path: &Path) -> Fallible<Self> {
        Ok(LastHolder::File(
            OpenOptions::new().read(true).write(true).open(path)?,
        ))
    }

    /// Records that the worker holds the key. Returns whether another worker held it before. Only the holder may call
    /// this.
    pub(crate) fn acquired(&self, worker: u64) -> Fallible<bool> {
        let last = self.read()?;
        match self {
            LastHolder::Memory(holder) => holder.store(worker, Ordering::Relaxed),
            LastHolder::File(file) => file.write_all_at(&worker.to_le_bytes(), 0)?,
        }
        Ok(last != NO_WORKER && last != worker)
    }

    /// Fails if another worker has acquired the key since `acquired`. To be called before the unlock.
    pub(crate) fn releases(&self, worker: u64) -> Fallible<()> {
        match self.read()? {
            holder if holder == worker => Ok(()),
            other => Err(format!("worker {other} took the key while worker {worker} held it").into()),
        }
    }

    fn read(&self) -> Fallible<u64> {
        match self {
            // `Relaxed` is enough: the lock under test orders the accesses.
            LastHolder::Memory(holder) => Ok(holder.load(Ordering::Relaxed)),
            LastHolder::File(file) => {
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

    fn handovers(last_holder: &LastHolder, holders: &[u64]) -> usize {
        let turns = holders.iter().map(|worker| {
            let handed_over = last_holder.acquired(*worker).unwrap();
            last_holder.releases(*worker).unwrap();
            handed_over
        });
        turns.filter(|handed_over| *handed_over).count()
    }

    #[test]
    fn a_hand_over_is_counted_only_when_the_holder_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last_holder");
        for (holders, expected) in [
            (&[][..], 0),
            (&[7], 0),
            (&[0, 0, 0, 0], 0),
            (&[0, 1, 0, 1], 3),
            (&[5, 5, 6, 6, 6, 5], 2),
        ] {
            assert_eq!(
                handovers(&LastHolder::in_memory(), holders),
                expected,
                "{holders:?}"
            );
            LastHolder::make(&path).unwrap();
            assert_eq!(
                handovers(&LastHolder::open(&path).unwrap(), holders),
                expected,
                "{holders:?}"
            );
        }
    }

    #[test]
    fn two_holders_at_once_are_detected() {
        let last_holder = LastHolder::in_memory();
        last_holder.acquired(1).unwrap();
        last_holder.acquired(2).unwrap();
        let found = last_holder.releases(1).unwrap_err().to_string();
        assert_eq!(found, "worker 2 took the key while worker 1 held it");
    }
}
