//! Serves a lock file that this user can read but not write: inspects and examines it, and refuses all other calls.
//!
//! Each request opens the file, reads it and closes it, because the files beside it may come and go meanwhile.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode};
use tenure_backend::{BackendError, Effect, Fault, Finding, LockStatus, Page, Query};

use super::access::{self, Intent};
use super::config::Config;
use super::file::refused;
use super::inspect::list;
use super::mailbox::Mailbox;
use super::names::display_path;
use super::notification::NotificationListener;
use super::origin::Origin;
use super::request::{Pending, Request};
use super::siblings::sibling;
use super::tables::Tables;
use super::{busy, connection, error, examine, validate};

/// A file that was written within this time may be written again without a change of its times, because some systems
/// count them in steps of up to 10 ms.
const CLOCK_STEP: Duration = Duration::from_millis(20);

pub(super) struct Reader<'c> {
    path: &'c Path,
    config: &'c Config,
    /// Why this user cannot write the file: the error of all calls that would.
    denied: BackendError,
}

impl<'c> Reader<'c> {
    /// Checks that the file is an intact lock file of this machine, which this user can read.
    pub(super) fn new(
        path: &'c Path,
        config: &'c Config,
        here: &Origin,
        denied: BackendError,
    ) -> Result<Self, BackendError> {
        let reader = Reader { path, config, denied };
        access::check(path, Intent::Read)?;
        validate::check_application_id(path)?;
        let since = Instant::now();
        reader.read(since, |connection| {
            validate::check_for_reading(path, connection, here)
        })?;
        Ok(reader)
    }

    /// Serves requests until the mailbox is closed and empty. Returns the close requests, which the caller answers.
    pub(super) fn run(self, mailbox: &Arc<Mailbox>) -> Vec<Pending<(), Result<(), BackendError>>> {
        let mut closing = Vec::new();
        let mut listener = NotificationListener::new(self.path);
        while let Some(posted) = mailbox.take(self.config.max_group) {
            for posted in posted {
                match posted.request {
                    Request::Inspect(pending) => {
                        let page = self.inspect(posted.since, &pending.input);
                        pending.answer(page);
                    }
                    Request::Examine(pending) => {
                        let findings = self.examine(posted.since);
                        pending.answer(Ok(findings));
                    }
                    Request::Close(pending) => {
                        mailbox.close();
                        closing.push(pending);
                    }
                    Request::Write(write) => write.fail(&self.denied),
                    Request::Unsubscribe(..) => {}
                }
            }
            mailbox.sleep(&mut listener, false, None);
        }
        closing
    }

    fn inspect(&self, since: Instant, query: &Query) -> Result<Page<LockStatus>, BackendError> {
        self.read(since, |connection| {
            let page = list(&mut Tables::new(connection), &*self.config.clock, query);
            page.map_err(|error| unreadable(self.path, error))
        })
    }

    fn examine(&self, since: Instant) -> Vec<Finding> {
        let mut findings = vec![Finding::warning(
            format!("this user can only read {}", display_path(self.path)),
            format!(
                "it can list locks, but not take, renew or free any: {}",
                self.denied
            ),
        )];
        findings.extend(examine::examine_file(self.path, self.config));
        let inside = self.read(since, |connection| {
            // The journal mode is left out, because SQLite does not show it without the log.
            let mut inside = Vec::new();
            let checked = examine::check_database(connection, &mut inside);
            checked.map_err(|error| unreadable(self.path, error))?;
            Ok(inside)
        });
        findings.extend(inside.unwrap_or_else(|error| examine::unusable(&error)));
        findings
    }

    /// Calls `read` with a connection that shows one consistent state of the file.
    ///
    /// If the file has a log (`-wal`), SQLite reads both, with the locks that it takes as any reader. Without a log, SQLite
    /// would create one. This user cannot, or, in a directory that this user can write, would create a file of its own,
    /// which the owner of the lock file could not write. So this function lets SQLite read the file alone, without
    /// locks (`immutable`). That is safe only while no process writes. A process that writes creates the log first,
    /// and deletes it only after it has copied the log into the file. So the state is consistent if the file had no log
    /// before and after the reading, and the same size and times. Otherwise this function reads again.
    ///
    /// One race is left: a log that is deleted after this function has seen it, and before SQLite opens it, is created
    /// by SQLite, with this user as its owner, if this user can write the directory.
    fn read<T>(
        &self,
        since: Instant,
        mut read: impl FnMut(&Connection) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        busy::set_deadline(since, self.config.busy_limit);
        let mut reads_left = validate::MAX_READS;
        loop {
            let before = State::of(self.path)?;
            let opened = match before {
                State::WithLog => connection::open_for_reading(self.path),
                State::Alone { .. } => connection::open_immutable(self.path),
            };
            let result = opened
                .map_err(|error| unreadable(self.path, error))
                .and_then(|connection| read(&connection));
            let is_stable = before.is_stable(State::of(self.path)?);
            match result {
                Ok(done) if is_stable => return Ok(done),
                Ok(_) if reads_left == 0 => return Err(changes(self.path)),
                // A process that opens or closes the file may have created or deleted the log meanwhile.
                Err(error) if reads_left == 0 => return Err(error),
                _ => {}
            }
            reads_left -= 1;
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What tells whether the file can be read without its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    WithLog,
    Alone {
        inode: (u64, u64),
        size: u64,
        /// Time of the last change, since the Unix epoch.
        changed: Duration,
    },
}

impl State {
    fn of(path: &Path) -> Result<State, BackendError> {
        let unknown = |file: PathBuf| {
            move |error: io::Error| {
                let message = format!("{} cannot be looked up: see the cause below", display_path(&file));
                BackendError::because(Fault::Unavailable, Effect::None, message, error)
            }
        };
        let log = sibling(path, "-wal");
        if log.try_exists().map_err(unknown(log))? {
            return Ok(State::WithLog);
        }
        let found = fs::metadata(path).map_err(unknown(path.to_owned()))?;
        let seconds = u64::try_from(found.ctime()).unwrap_or(0);
        let nanos = u32::try_from(found.ctime_nsec()).unwrap_or(0);
        Ok(State::Alone {
            inode: (found.dev(), found.ino()),
            size: found.size(),
            changed: Duration::new(seconds, nanos),
        })
    }

    /// Returns whether a state that was read between `self` and `after` is consistent.
    fn is_stable(self, after: State) -> bool {
        match self {
            State::WithLog => true,
            State::Alone { changed, .. } => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let age = now.checked_sub(changed);
                // A time in the future comes from a clock that was set back. A write now has another time.
                self == after && age.is_none_or(|age| age >= CLOCK_STEP)
            }
        }
    }
}

fn changes(path: &Path) -> BackendError {
    let message = format!(
        "the lock file {} changes all the time, and has no log (-wal) from which this user could read it: try again",
        display_path(path)
    );
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// Converts an error of a connection that only reads.
fn unreadable(path: &Path, error: rusqlite::Error) -> BackendError {
    let code = error.sqlite_error_code();
    if !matches!(code, Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly)) {
        return error::sqlite(path, error, Effect::None);
    }
    if let Err(error) = access::check(path, Intent::Read) {
        return error;
    }
    let then = "a user who can write it must use it first, such as by `tenure doctor`";
    refused(
        path,
        "has a log (-wal) without an index (-shm), which this user cannot create",
        then,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::tests::create_file;

    /// A file without a log. All its connections are closed.
    fn closed_file() -> (tempfile::TempDir, PathBuf) {
        let (dir, path, connection) = create_file(&Origin::here().expect("/proc can be read"));
        connection::close_refused(connection, false);
        assert!(!sibling(&path, "-wal").exists());
        (dir, path)
    }

    fn set_last(path: &Path, last: i64) {
        let file = Connection::open(path).expect("it opens");
        let set = file.execute(
            "UPDATE token_counter SET last_token = ?1 WHERE number = 0",
            [last],
        );
        set.expect("it can be written");
    }

    fn last(connection: &Connection) -> Result<i64, BackendError> {
        let last = connection.query_row(
            "SELECT last_token FROM token_counter WHERE number = 0",
            [],
            |row| row.get(0),
        );
        last.map_err(|error| unreadable(Path::new("locks.db"), error))
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_read_again() {
        let (_dir, path) = closed_file();
        let config = Config::default();
        let reader = Reader {
            path: &path,
            config: &config,
            denied: BackendError::closed(),
        };
        for keeps_log in [false, true] {
            while !State::of(&path).is_ok_and(|state| state.is_stable(state)) {
                thread::sleep(Duration::from_millis(1));
            }
            let mut first = None;
            let mut user = None;
            let found = reader.read(Instant::now(), |connection| {
                let found = last(connection)?;
                if first.is_none() {
                    first = Some(found);
                    // Another process writes. Unless another one has the file open, SQLite then deletes the log.
                    user = keeps_log.then(|| Connection::open(&path).expect("it opens"));
                    user.iter().for_each(|user| assert!(last(user).is_ok()));
                    set_last(&path, found + 1);
                }
                Ok(found)
            });
            assert_eq!(
                found.ok(),
                first.map(|first| first + 1),
                "keeps the log: {keeps_log}"
            );
            assert_eq!(sibling(&path, "-wal").exists(), keeps_log);
        }
    }

    #[test]
    fn a_state_without_a_log_is_stable_only_if_nothing_changed() {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("the clock is set");
        let state = |size, changed| State::Alone {
            inode: (1, 2),
            size,
            changed,
        };
        let old = now - Duration::from_secs(60);
        let of_old = state(4096, old);
        assert!(of_old.is_stable(of_old));
        for after in [State::WithLog, state(8192, old), state(4096, now)] {
            assert!(!of_old.is_stable(after), "{after:?}");
        }
        let just_changed = state(4096, now + Duration::from_millis(1));
        assert!(just_changed.is_stable(just_changed), "a time in the future");
        let fresh = state(4096, now);
        assert!(!fresh.is_stable(fresh), "it may change again at the same time");
    }
}
