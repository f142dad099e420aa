//! Makes the times in a lock file comparable with the clock of the process that opens it.
//!
//! A transaction that reads a row of an earlier boot recognizes the row by its column `lease` and deletes it. This
//! module deletes all such rows, and converts times of another time namespace. If the boot id differs, it also deletes
//! the rows of older builds, which have no lease. It does all this only while no other connection has the file open.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};
use tenure_backend::{BackendError, Clock, Effect, escape_control};

use super::connection;
use super::ddl::ADDED_COLUMNS;
use super::error;
use super::file::refused;
use super::origin::Origin;

/// Adds ?1 to all times. For an unfair waiter (phase 2), `place` is a time too. A `reserved` of 0 means none, and
/// stays 0.
const SHIFT_TIMES: &str = "\
UPDATE claim SET
    until = max(until + ?1, 0),
    reserved = iif(reserved = 0, 0, max(reserved + ?1, 1)),
    forget = max(forget + ?1, 0),
    place = iif(phase = 2, place + ?1, place)";

/// Deletes the rows of an earlier boot. ?1 is the current time of the lease clock.
const DELETE_EARLIER_BOOTS: &str = "DELETE FROM claim WHERE max(until, reserved, forget) - ?1 > lease";

/// Refuses a file of another machine. Also refuses a file of this boot and another time namespace, if the offset of
/// the file's clock is unknown: its times cannot be converted.
pub(super) fn check(path: &Path, there: &Origin, here: &Origin) -> Result<(), BackendError> {
    if there.machine != here.machine {
        let why = format!(
            "was made on another machine ({}, this is {})",
            escape_control(&there.machine),
            escape_control(&here.machine)
        );
        let then = "its leases mean nothing here: choose another file, or delete this one if no other machine uses it";
        return Err(refused(path, &why, then));
    }
    if there.boot == here.boot && there.offset.is_none() {
        return check_clock(path, there, here);
    }
    Ok(())
}

/// Refuses a file whose times are counted on another clock.
pub(super) fn check_clock(path: &Path, there: &Origin, here: &Origin) -> Result<(), BackendError> {
    if here.shares_clock_with(there) {
        return Ok(());
    }
    let why = "is used in another time namespace (a container with a clock of its own)";
    let then = "share it only between processes whose boot clocks are the same";
    Err(refused(path, why, then))
}

/// Returns true if the file is of another boot or clock than this process, so that [`adopt`] must convert the file.
pub(super) fn is_foreign(there: &Origin, here: &Origin) -> bool {
    there.boot != here.boot || !here.shares_clock_with(there)
}

/// Changes the file for this boot and clock, unless another connection has it open.
///
/// Deletes rows of an earlier boot and, if the boot id differs, rows without a lease. Converts the times of the other
/// rows to this clock, if the offsets of both clocks are known.
pub(super) fn adopt(path: &Path, here: &Origin, clock: &dyn Clock) -> Result<(), BackendError> {
    let sql = |error| error::sqlite(path, error, Effect::None);
    match connection::open_exclusive(path).map_err(sql)? {
        Some(mut alone) => change(&mut alone, here, clock).map_err(sql),
        None => Ok(()),
    }
}

fn change(alone: &mut Connection, here: &Origin, clock: &dyn Clock) -> rusqlite::Result<()> {
    alone.pragma_update(None, "synchronous", "FULL")?;
    let transaction = alone.transaction_with_behavior(TransactionBehavior::Immediate)?;
    add_columns(&transaction)?;
    let there = origin(&transaction)?;
    if there.boot != here.boot {
        transaction.execute("DELETE FROM claim WHERE lease IS NULL", [])?;
    }
    if let (Some(from), Some(to)) = (there.offset, here.offset)
        && from != to
    {
        transaction.execute(SHIFT_TIMES, [to.saturating_sub(from)])?;
    }
    let now = i64::try_from(clock.now().as_nanos()).unwrap_or(i64::MAX);
    transaction.execute(DELETE_EARLIER_BOOTS, [now])?;
    let set = "UPDATE store SET boot = ?1, namespace = ?2, clock = ?3 WHERE one = 1";
    transaction.execute(set, (&here.boot, &here.namespace, here.clock()))?;
    transaction.commit()
}

/// Reads which machine, boot and clock the file records for its times.
pub(super) fn origin(connection: &Connection) -> rusqlite::Result<Origin> {
    let clock: Option<String> = if lacks_column(connection, "store", "clock")? {
        None
    } else {
        connection.query_row("SELECT clock FROM store WHERE one = 1", [], |row| row.get(0))?
    };
    let text = "SELECT boot, machine, namespace FROM store WHERE one = 1";
    connection.query_row(text, [], |row| {
        Ok(Origin::stored(
            row.get(0)?,
            row.get(1)?,
            row.get(2)?,
            clock.as_deref(),
        ))
    })
}

/// Returns whether an older build created the file, without the [`ADDED_COLUMNS`].
pub(super) fn lacks_columns(connection: &Connection) -> rusqlite::Result<bool> {
    let mut lacks_any = false;
    for (table, column, _) in ADDED_COLUMNS {
        lacks_any |= lacks_column(connection, table, column)?;
    }
    Ok(lacks_any)
}

/// Adds the columns that a file of an older build lacks. The caller holds the write lock.
pub(super) fn add_columns(transaction: &Connection) -> rusqlite::Result<()> {
    for (table, column, kind) in ADDED_COLUMNS {
        if lacks_column(transaction, table, column)? {
            transaction.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {column} {kind}"))?;
        }
    }
    Ok(())
}

fn lacks_column(connection: &Connection, table: &str, column: &str) -> rusqlite::Result<bool> {
    let find = "SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2";
    let has = connection.prepare_cached(find)?.exists((table, column))?;
    Ok(!has)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use tempfile::TempDir;
    use tenure_testkit::ManualClock;

    use super::*;
    use crate::sqlite::config::Config;
    use crate::sqlite::file::Contents;
    use crate::sqlite::tests::create_file;
    use crate::sqlite::validate;

    const SECOND: i64 = 1_000_000_000;

    /// Time of `Fixture::clock`, in seconds.
    const NOW: i64 = 1_000_000;

    /// A lock file that is opened as if by several processes, with other boot ids and time namespaces.
    struct Fixture {
        _dir: TempDir,
        path: PathBuf,
        clock: ManualClock,
    }

    fn process(boot: &str, namespace: &str, offset: Option<i64>) -> Origin {
        Origin {
            boot: boot.to_owned(),
            machine: "this one".to_owned(),
            namespace: namespace.to_owned(),
            offset,
        }
    }

    impl Fixture {
        /// Creates a lock file, as a process with this boot id and clock does.
        fn new(origin: &Origin) -> Self {
            let (dir, path, _) = create_file(origin);
            Fixture {
                _dir: dir,
                path,
                clock: ManualClock::new(),
            }
        }

        fn try_open(&self, here: &Origin) -> Result<Connection, BackendError> {
            let config = Config {
                clock: Arc::new(self.clock.clone()),
                ..Config::default()
            };
            validate::open(&self.path, Contents::NonEmpty, &config, here)
        }

        fn open(&self, here: &Origin) -> Connection {
            self.try_open(here).expect("the file opens")
        }

        /// Checks that a process in the time namespace `here` is refused the file.
        fn assert_refused(&self, here: &Origin) {
            let error = self.try_open(here).expect_err("their times mean nothing here");
            assert!(error.to_string().contains("time namespace"), "{error}");
        }

        /// Inserts a row that ends in `seconds`. `lease` is the value of the row's column `lease`, in seconds.
        fn write(&self, connection: &Connection, number: i64, phase: i64, seconds: i64, lease: Option<i64>) {
            let now = NOW * SECOND;
            assert_eq!(self.clock.now().as_nanos(), now.cast_unsigned());
            let insert = "INSERT INTO claim VALUES ('k', 1, zeroblob(16), ?1, ?2, 0, 0, 0, ?3, ?4, 0, ?4, 0, 0, '', NULL, ?5)";
            let (end, lease) = (now + seconds * SECOND, lease.map(|lease| lease * SECOND));
            let inserted = connection.execute(insert, (number, phase, now, end, lease));
            inserted.expect("the row fits the table");
        }
    }

    fn numbers(connection: &Connection) -> Vec<i64> {
        let select = connection.prepare("SELECT number FROM claim ORDER BY number");
        let mut select = select.expect("the statement fits");
        let rows = select.query_map([], |row| row.get(0));
        let numbers: rusqlite::Result<_> = rows.expect("the table can be read").collect();
        numbers.expect("numbers are numbers")
    }

    #[test]
    fn another_boot_id_ends_only_rows_without_a_lease() {
        let (here, there) = (process("here", "", Some(0)), process("there", "", Some(0)));
        let fixture = Fixture::new(&there);
        let before = fixture.open(&there);
        fixture.write(&before, 1, 4, 30, Some(30));
        fixture.write(&before, 2, 4, 30, None);
        drop(before);
        let after = fixture.open(&here);
        assert_eq!(numbers(&after), [1]);
        let stored = origin(&after).expect("it can be read");
        // The file has the boot id of this process, because older builds compare it with their own.
        assert_eq!((stored.boot, stored.offset), (here.boot, Some(0)));
    }

    #[test]
    fn another_boot_id_changes_nothing_while_the_file_is_in_use() {
        let (here, there) = (process("here", "", Some(0)), process("there", "", Some(0)));
        let fixture = Fixture::new(&there);
        let before = fixture.open(&there);
        fixture.write(&before, 1, 4, 30, Some(30));
        fixture.write(&before, 2, 4, 30, None);
        let after = fixture.open(&here);
        assert_eq!(numbers(&after), [1, 2]);
        assert_eq!(origin(&after).expect("it can be read").boot, "there");
    }

    #[test]
    fn the_first_process_of_a_boot_deletes_older_rows() {
        let (here, there) = (process("here", "", Some(0)), process("there", "", Some(0)));
        let fixture = Fixture::new(&there);
        let before = fixture.open(&there);
        for phase in 0..=4 {
            fixture.write(&before, phase, phase, 30, Some(29));
            fixture.write(&before, phase + 10, phase, 30, Some(30));
        }
        drop(before);
        let after = fixture.open(&here);
        assert_eq!(numbers(&after), [10, 11, 12, 13, 14]);
    }

    #[test]
    fn another_clock_is_refused_while_the_file_is_in_use() {
        let here = process("b", "time:[1]", Some(7));
        let there = process("b", "time:[2]", Some(0));
        let fixture = Fixture::new(&there);
        let user = fixture.open(&there);
        fixture.assert_refused(&here);
        // The namespace has another name but the same offset, so the file opens.
        fixture.open(&process("b", "time:[3]", Some(0)));
        drop(user);
        fixture.open(&here);
    }

    #[test]
    fn times_move_to_the_clock_of_a_sole_process() {
        let here = process("b", "time:[1]", Some(-400 * SECOND));
        let there = process("b", "time:[2]", Some(0));
        let fixture = Fixture::new(&there);
        let before = fixture.open(&there);
        fixture.write(&before, 2, 2, 30, Some(30));
        fixture.write(&before, 4, 4, 30, Some(30));
        fixture.write(&before, 5, 4, 100 - NOW, None);
        let reserved = before.execute("UPDATE claim SET reserved = until WHERE number = 2", []);
        reserved.expect("it can be written");
        drop(before);
        let after = fixture.open(&here);
        let row = |number: i64| {
            let select = "SELECT until, reserved, forget, place FROM claim WHERE number = ?1";
            let read = |row: &rusqlite::Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?]);
            let times: rusqlite::Result<[i64; 4]> = after.query_row(select, [number], read);
            times.map(|times| times.map(|time| time / SECOND))
        };
        let (until, since) = (NOW + 30 - 400, NOW - 400);
        for (what, number, times) in [
            ("a watcher with a reservation", 2, [until, until, until, since]),
            ("a holder", 4, [until, 0, until, NOW]),
            ("a holder that expired long ago", 5, [0, 0, 0, NOW]),
        ] {
            assert_eq!(row(number), Ok(times), "{what}");
        }
        assert_eq!(origin(&after).expect("it can be read"), here);
    }

    #[test]
    fn unknown_offsets_of_this_boot_are_refused() {
        let there = process("b", "time:[2]", Some(0));
        let fixture = Fixture::new(&there);
        let file = fixture.open(&there);
        let unset = file.execute("UPDATE store SET clock = NULL", []);
        unset.expect("it can be written");
        drop(file);
        fixture.assert_refused(&process("b", "time:[1]", Some(0)));
        // A process of the file's namespace has the same clock, so the file opens.
        fixture.open(&there);
        // The boot ids differ, as after a restart, so the file opens although the offset of its clock is unknown.
        fixture.open(&process("c", "time:[1]", Some(0)));
    }
}
