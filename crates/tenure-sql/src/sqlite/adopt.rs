//! Makes the times in a lock file comparable with the clock of the process that opens it: converts the times of another
//! time namespace, but only while no other connection has the file open.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};
use tenure_backend::{BackendError, Effect, escape_control};

use super::file::refused;
use super::origin::Origin;
use super::{connection, error};

/// Adds ?1 to all times. For an unfair waiter (phase 2), `position` is a time too. A `reserved_until` of 0 means none, and
/// stays 0. `written_at` may become negative, so that a row of an earlier boot stays later than the clock.
const SHIFT_TIMES: &str = "\
UPDATE claim SET
    written_at = written_at + ?1,
    expires_at = max(expires_at + ?1, 0),
    reserved_until = iif(reserved_until = 0, 0, max(reserved_until + ?1, 1)),
    forget_at = max(forget_at + ?1, 0),
    position = iif(phase = 2, position + ?1, position)";

/// Refuses a file of another machine.
pub(super) fn check_machine(path: &Path, there: &Origin, here: &Origin) -> Result<(), BackendError> {
    if there.machine == here.machine {
        return Ok(());
    }
    let why = format!(
        "was made on another machine ({}, this is {})",
        escape_control(&there.machine),
        escape_control(&here.machine)
    );
    let then =
        "its leases mean nothing here: choose another file, or delete this one if no other machine uses it";
    Err(refused(path, &why, then))
}

/// Refuses a file whose times are counted on another clock.
pub(super) fn check_clock(path: &Path, there: &Origin, here: &Origin) -> Result<(), BackendError> {
    if there.offset == here.offset {
        return Ok(());
    }
    let why = "is used in another time namespace (a container with a clock of its own)";
    let then = "share it only between processes whose boot clocks are the same";
    Err(refused(path, why, then))
}

/// Converts the times in the file to the clock of this process, unless another connection has the file open.
pub(super) fn adopt(path: &Path, here: &Origin) -> Result<(), BackendError> {
    let sql = |error| error::sqlite(path, error, Effect::None);
    match connection::open_exclusive(path).map_err(sql)? {
        Some(mut alone) => convert(&mut alone, here).map_err(sql),
        None => Ok(()),
    }
}

fn convert(alone: &mut Connection, here: &Origin) -> rusqlite::Result<()> {
    alone.pragma_update(None, "synchronous", "FULL")?;
    let transaction = alone.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have converted the times since they were compared.
    let there = origin(&transaction)?;
    transaction.execute(SHIFT_TIMES, [here.offset.saturating_sub(there.offset)])?;
    transaction.execute("UPDATE store SET clock_offset = ?1 WHERE id = 1", [here.offset])?;
    transaction.commit()
}

/// Reads which machine and clock the file records for its times.
pub(super) fn origin(connection: &Connection) -> rusqlite::Result<Origin> {
    let text = "SELECT machine, clock_offset FROM store WHERE id = 1";
    connection.query_row(text, [], |row| {
        Ok(Origin {
            machine: row.get(0)?,
            offset: row.get(1)?,
        })
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;
    use crate::sqlite::config::Config;
    use crate::sqlite::file::Contents;
    use crate::sqlite::tests::create_file;
    use crate::sqlite::validate;

    const SECOND: i64 = 1_000_000_000;

    /// Time at which the rows are written, in seconds.
    const NOW: i64 = 1_000_000;

    /// A lock file that is opened as if by several processes, in several time namespaces.
    struct Fixture {
        _dir: TempDir,
        path: PathBuf,
    }

    /// A process of this machine, in a time namespace with this offset in seconds.
    fn process(offset: i64) -> Origin {
        Origin {
            machine: "this one".to_owned(),
            offset: offset * SECOND,
        }
    }

    impl Fixture {
        /// Creates a lock file, as a process with this clock does.
        fn new(origin: &Origin) -> Self {
            let (dir, path, _) = create_file(origin);
            Fixture { _dir: dir, path }
        }

        fn try_open(&self, here: &Origin) -> Result<Connection, BackendError> {
            validate::open(&self.path, Contents::NonEmpty, &Config::default(), here)
        }

        fn open(&self, here: &Origin) -> Connection {
            self.try_open(here).expect("the file opens")
        }
    }

    /// Inserts a row that was written at this time and ends `left` later, both in seconds.
    fn write(connection: &Connection, number: i64, phase: i64, written_at: i64, left: i64) {
        let insert = "INSERT INTO claim VALUES ('k', ?2 <> 0, zeroblob(16), ?1, ?2, 0, 0, 0, ?3, ?3, ?4, 0, ?4, 0, 0, '', NULL)";
        let end = (written_at + left) * SECOND;
        let inserted = connection.execute(insert, (number, phase, written_at * SECOND, end));
        inserted.expect("the row fits the table");
    }

    #[test]
    fn another_clock_is_refused_while_the_file_is_in_use() {
        let (here, there) = (process(7), process(0));
        let fixture = Fixture::new(&there);
        let user = fixture.open(&there);
        let error = fixture.try_open(&here).expect_err("its times mean nothing here");
        assert!(error.to_string().contains("time namespace"), "{error}");
        fixture.open(&there);
        drop(user);
        let file = fixture.open(&here);
        assert_eq!(origin(&file).expect("it can be read"), here);
    }

    #[test]
    fn times_move_to_the_clock_of_a_sole_process() {
        let (here, there) = (process(-400), process(0));
        let fixture = Fixture::new(&there);
        let before = fixture.open(&there);
        write(&before, 2, 2, NOW, 30);
        write(&before, 4, 4, NOW, 30);
        write(&before, 5, 4, 90, 10);
        let reserved = before.execute(
            "UPDATE claim SET reserved_until = expires_at WHERE number = 2",
            [],
        );
        reserved.expect("it can be written");
        drop(before);
        let after = fixture.open(&here);
        let row = |number: i64| {
            let select = "SELECT position, written_at, expires_at, reserved_until, forget_at FROM claim WHERE number = ?1";
            let read = |row: &rusqlite::Row<'_>| {
                Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?])
            };
            let times: rusqlite::Result<[i64; 5]> = after.query_row(select, [number], read);
            times.map(|times| times.map(|time| time / SECOND))
        };
        let (then, end) = (NOW - 400, NOW + 30 - 400);
        for (what, number, times) in [
            ("a watcher with a reservation", 2, [then, then, end, end, end]),
            ("a holder", 4, [NOW, then, end, 0, end]),
            ("a holder that expired long ago", 5, [90, 90 - 400, 0, 0, 0]),
        ] {
            assert_eq!(row(number), Ok(times), "{what}");
        }
        assert_eq!(origin(&after).expect("it can be read"), here);
    }
}
