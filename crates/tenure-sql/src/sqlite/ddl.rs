//! The SQL statements that create the tables of a lock file.

use tenure_backend::{BackendError, Effect, Fault};

use super::origin::Origin;

/// The application id in the header of a lock file: `TENU`. Tools such as `file(1)` show it.
pub(super) const APPLICATION: i64 = 0x5445_4E55;

/// Version of the tables' layout. A file with a higher version is refused.
pub(super) const FORMAT: i64 = 1;

/// Number of token counters. A key's hash selects its counter, so an unused key leaves no row behind.
pub(super) const COUNTERS: u64 = 64;

/// The tables. SQLite keeps the comments, so `.schema` shows them to a person who opens a lock file with `sqlite3`.
///
/// - `store`: one row. Records the machine and the clock of all times, and the row at which the last sweep (deletion of
///   old rows) ended.
/// - `token_counter`: the greatest token drawn on any key that uses this counter.
/// - `claim`: one row per claim. The primary key keeps the other rows of a key apart from those of ended claims, so that
///   one short range scan reads a key, however many claims it has had. They follow the ended ones: a new claim and the
///   claim that ended last are then neighbours, mostly on one page, and a commit writes fewer pages. A row that was written later than now is of an
///   earlier boot, because the clock starts again with the machine.
const TABLES: &str = "\
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    format INTEGER NOT NULL,
    machine TEXT NOT NULL,
    clock_offset INTEGER NOT NULL, -- added to CLOCK_BOOTTIME by the time namespace, ns
    swept_key TEXT NOT NULL DEFAULT '', -- swept_*: the claim at which the last deletion of old rows ended
    swept_live INTEGER NOT NULL DEFAULT 0,
    swept_client BLOB NOT NULL DEFAULT x'',
    swept_number INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE token_counter (
    number INTEGER PRIMARY KEY, -- a hash of the key
    last_token INTEGER NOT NULL
);
CREATE TABLE claim ( -- all times: CLOCK_BOOTTIME, ns
    key TEXT NOT NULL,
    live INTEGER NOT NULL, -- 0 in phase 0, otherwise 1
    client BLOB NOT NULL,
    number INTEGER NOT NULL,
    phase INTEGER NOT NULL, -- 0 ended, 1 evicted, 2 not queued but wants wake-ups, 3 queued, 4 granted
    mode INTEGER NOT NULL, -- 0 mutex, 1 reader, 2 writer, 3 permits of a semaphore
    permits INTEGER NOT NULL,
    semaphore_size INTEGER NOT NULL,
    position INTEGER NOT NULL, -- in the queue; phase 2: the time of the registration
    written_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    reserved_until INTEGER NOT NULL, -- phase 1: the end of the cooldown; phase 2: of the reservation, or 0
    forget_at INTEGER NOT NULL, -- the row may be deleted from then on
    first_token INTEGER NOT NULL,
    tokens INTEGER NOT NULL, -- how many, from first_token on
    label TEXT NOT NULL,
    evictor TEXT,
    PRIMARY KEY (key, live, client, number)
) WITHOUT ROWID;
WITH RECURSIVE numbers(number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 63)
    INSERT INTO token_counter SELECT number, 0 FROM numbers;
";

/// Statements that turn an empty file into a lock file of this machine and clock, as input for `sqlite3 FILE`.
///
/// A store runs them itself when it opens an empty file. Use this function to read them or to create the file in
/// advance.
///
/// # Errors
/// [`Fault::Store`]: a file of the system that identifies the clock cannot be read, or the offsets of this process's time
/// namespace are unknown.
pub fn schema() -> Result<String, BackendError> {
    let here = Origin::here().map_err(|error| {
        let message = "the machine and clock of this process cannot be found out: see the cause below";
        BackendError::because(Fault::Store, Effect::None, message, error)
    })?;
    Ok(format!("BEGIN IMMEDIATE;\n{}COMMIT;\n", statements(&here)))
}

/// The statements, to be run in one transaction, so that a file has all tables or none.
pub(super) fn statements(here: &Origin) -> String {
    let Origin { machine, offset } = here;
    let machine = machine.replace('\'', "''");
    format!(
        "PRAGMA application_id = {APPLICATION};\n{TABLES}\
         INSERT INTO store (id, format, machine, clock_offset) VALUES (1, {FORMAT}, '{machine}', {offset});\n"
    )
}
