//! What tasks write to while they hold a lock, for each key a file of each kind: a counter that nothing fences, and a
//! register that is fenced by tokens.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure::FencingToken;
use tenure_testkit::EventKind;

use super::args::Plant;
use super::entry::Entry;
use crate::log::Noted;

/// The resources of a run, as one of its tasks sees them.
#[derive(Debug)]
pub(crate) struct Resources {
    folder: PathBuf,
    /// A file of this task's own.
    scratch: PathBuf,
}

impl Resources {
    /// Those of the run in that folder, for the task whose first attempt has that number.
    pub(crate) fn of(folder: &Path, first: u64) -> Resources {
        Resources {
            folder: folder.to_owned(),
            scratch: folder.join(format!("scratch-{first}")),
        }
    }

    /// What the counter of a key says.
    pub(crate) fn counted(folder: &Path, key: &str) -> io::Result<u64> {
        number(&open(&folder.join(format!("{key}.counter")))?)
    }

    /// Adds one to the counter of a key, with a while between reading and writing. Updates are lost whenever two believe
    /// that they are alone.
    pub(crate) async fn bump(&self, key: &str, meanwhile: Duration, entry: &Entry) -> io::Result<()> {
        entry.note(Noted::Bumping)?;
        let number = Self::counted(&self.folder, key)?;
        tokio::time::sleep(meanwhile).await;
        // It takes the counter's place as a whole, so that no reader finds half a number.
        fs::write(&self.scratch, (number + 1).to_string())?;
        fs::rename(&self.scratch, self.folder.join(format!("{key}.counter")))?;
        entry.note(Noted::Bumped)
    }

    /// Writes to the register of a key, which refuses a token that is older than the newest it has seen. What it did is
    /// logged before another may write, so that the logs have the register's order.
    pub(crate) fn write(&self, key: &str, token: FencingToken, entry: &Entry) -> io::Result<()> {
        let file = open(&self.folder.join(format!("{key}.register")))?;
        file.lock()?;
        if token.get() < number(&file)? && entry.plant != Some(Plant::Forget) {
            return entry.note(Noted::Refused);
        }
        // As many digits as there can be: a shorter number replaces a longer one.
        file.write_all_at(format!("{token:020}").as_bytes(), 0)?;
        entry.event(EventKind::Accepted { token })
    }
}

/// A file that is empty if it was not there.
fn open(file: &Path) -> io::Result<File> {
    let mut options = File::options();
    options
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(file)
}

/// The number in a file; 0 if it is empty.
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
        let resources = Resources::of(folder.path(), 1);
        // A token that its holder has shown before is accepted again.
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
