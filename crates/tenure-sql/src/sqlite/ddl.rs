//! The SQL statements that create the tables of a lock file.

use tenure_backend::{BackendError, Effect, Fault};

use super::origin::Origin;

/// The application id in the header of a lock file: `TENU`. Tools such as `file(1)` show it.
pub(super) const APPLICATION: i64 = 0x5445_4E55;

/// Version of the tables' layout. A file with a higher version is refused.
pub(super) const FORMAT: i64 = 1;

/// Number of token counters. A key's hash selects its counter, so an unused key leaves no row behind.
pub(super) const BUCKETS: u64 = 64;

/// The tables.
///
/// - `store`: one row. Records the clock of all times, and where the last sweep (deletion of old rows) ended. `boot`
///   and `namespace` serve builds that do not have the column `clock` (see `origin.rs`).
/// - `bucket`: a token counter, the greatest token drawn on any key that uses it.
/// - `claim`: one row per claim. The primary key keeps the live rows of a key apart from ended ones (`live = 0`), so
///   that one short range scan reads a key, however many claims it has had. Times are nanoseconds of the lease clock.
///   A row may be swept from the time `forget`. `lease` is how far the latest of `until`, `reserved` and `forget` was
///   ahead of the clock when the row was written: a row whose times are further ahead is of an earlier boot. It is
///   NULL in rows of builds without this column.
const TABLES: &str = "\
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    format INTEGER NOT NULL,
    boot TEXT NOT NULL,
    machine TEXT NOT NULL,
    namespace TEXT NOT NULL,
    swept_key TEXT NOT NULL DEFAULT '',
    swept_live INTEGER NOT NULL DEFAULT 0,
    swept_client BLOB NOT NULL DEFAULT x'',
    swept_number INTEGER NOT NULL DEFAULT 0,
    clock TEXT
);
CREATE TABLE bucket (
    number INTEGER PRIMARY KEY,
    last INTEGER NOT NULL
);
CREATE TABLE claim (
    key TEXT NOT NULL,
    live INTEGER NOT NULL,
    client BLOB NOT NULL,
    number INTEGER NOT NULL,
    phase INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    take INTEGER NOT NULL,
    size INTEGER NOT NULL,
    place INTEGER NOT NULL,
    until INTEGER NOT NULL,
    reserved INTEGER NOT NULL,
    forget INTEGER NOT NULL,
    token INTEGER NOT NULL,
    run INTEGER NOT NULL,
    label TEXT NOT NULL,
    evictor TEXT,
    lease INTEGER,
    PRIMARY KEY (key, live, client, number)
) WITHOUT ROWID;
WITH RECURSIVE numbers(number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 63)
    INSERT INTO bucket SELECT number, 0 FROM numbers;
";

/// Statements that turn an empty file into a lock file of this machine and boot, as input for `sqlite3 FILE`.
///
/// A store runs them itself when it opens an empty file. Use this function to read them or to create the file in
/// advance.
///
/// # Errors
/// [`Fault::Store`]: the boot id, or another file of the system that identifies the clock, cannot be read.
pub fn schema() -> Result<String, BackendError> {
    let here = Origin::here().map_err(|error| {
        let message = "the machine and clock of this process cannot be found out: see the cause below";
        BackendError::because(Fault::Store, Effect::None, message, error)
    })?;
    Ok(format!("BEGIN IMMEDIATE;\n{}COMMIT;\n", statements(&here)))
}

/// The statements, to be run in one transaction, so that a file has all tables or none.
pub(super) fn statements(here: &Origin) -> String {
    let quoted = |text: &str| text.replace('\'', "''");
    let [boot, machine, namespace] = [&here.boot, &here.machine, &here.namespace].map(|text| quoted(text));
    let clock = quoted(&here.clock());
    format!(
        "PRAGMA application_id = {APPLICATION};\n{TABLES}\
         INSERT INTO store (one, format, boot, machine, namespace, clock)\n    \
         VALUES (1, {FORMAT}, '{boot}', '{machine}', '{namespace}', '{clock}');\n"
    )
}

/// Columns that files of older builds lack: table, name, type. Older builds can use a file with these columns, because
/// their statements name the columns that they use.
pub(super) const ADDED_COLUMNS: [(&str, &str, &str); 2] =
    [("store", "clock", "TEXT"), ("claim", "lease", "INTEGER")];
