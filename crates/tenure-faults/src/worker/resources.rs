//! Resources that tasks write to while they hold a lock. Each key has two files: an unfenced counter, and a register
//! that refuses a token older than its newest.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure::FencingToken;
use tenure_testkit::EventKind;

use super::args::PlantedBug;
use super::attempt_log::Entry;
use crate::log::ObservationKind;

#[derive(Debug)]
pub(crate) struct Resources {
    folder: PathBuf,
    /// Temporary file for the next value of a counter.
    scratch: PathBuf,
    /// Whether the store gives a token with each grant.
    pub(crate) has_tokens: bool,
}

impl Resources {
    /// Uses the resources in `folder`. `first`, the number of the task's first attempt, is a part of the temporary
    /// file's name.
    pub(crate) fn of(folder: &Path, first: u64, has_tokens: bool) -> Resources {
        Resources {
            folder: folder.to_owned(),
            scratch: folder.join(format!("scratch-{first}")),
            has_tokens,
        }
    }

    pub(crate) fn counted(folder: &Path, key: &str) -> io::Result<u64> {
        number(&open(&folder.join(format!("{key}.counter")))?)
    }

    /// Adds one to the counter of a key, with a pause between reading and writing. If two tasks do this at the same
    /// time, one update is lost.
    pub(crate) async fn bump(&self, key: &str, write_delay: Duration, entry: &Entry) -> io::Result<()> {
        entry.note(ObservationKind::Bumping)?;
        let number = Self::counted(&self.folder, key)?;
        tokio::time::sleep(write_delay).await;
        // Replaces the file atomically, so that no reader finds an incomplete number.
        fs::write(&self.scratch, (number + 1).to_string())?;
        fs::rename(&self.scratch, self.folder.join(format!("{key}.counter")))?;
        entry.note(ObservationKind::Bumped)
    }

    /// Writes a token to the register of a key, which refuses a token older than its newest. Logs the result while
    /// the register's file is locked, so that the logs have the order of the writes.
    pub(crate) fn write(&self, key: &str, token: FencingToken, entry: &Entry) -> io::Result<()> {
        let file = open(&self.folder.join(format!("{key}.register")))?;
        file.lock()?;
        if token.get() < number(&file)? && entry.plant != Some(PlantedBug::AcceptOldTokens) {
            return entry.note(ObservationKind::Refused);
        }
        // Padded to the maximum length, so that a shorter number overwrites a longer one.
        file.write_all_at(format!("{token:020}").as_bytes(), 0)?;
        entry.event(EventKind::Accepted { token })
    }
}

/// Opens a file, and creates it empty if it does not exist.
fn open(file: &Path) -> io::Result<File> {
    let mut options = File::options();
    options
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(file)
}

/// Number in a file, or 0 if it is empty.
fn number(file: &File) -> io::Result<u64> {
    match io::read_to_string(file)?.as_str() {
        "" => Ok(0),
        number => number.parse().map_err(io::Error::other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_register_refuses_tokens_older_than_the_newest() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let resources = Resources::of(folder.path(), 1, true);
        // The register accepts a token equal to its newest, but no older one.
        for (attempt, token, key) in [
            (1, 9, "k"),
            (2, 9, "k"),
            (3, 10, "k"),
            (4, 9, "k"),
            (5, 9, "another"),
        ] {
            let entry = Entry::open(&log, attempt, None).unwrap();
            let token = FencingToken::new(token).unwrap();
            resources.write(key, token, &entry).unwrap();
        }
        let log = fs::read_to_string(log).unwrap();
        let accepted: Vec<_> = log.lines().map(|line| line.contains("accepted")).collect();
        assert_eq!(accepted, [true, true, true, false, true]);
    }
}
