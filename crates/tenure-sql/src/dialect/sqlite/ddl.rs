//! The statements that make an empty file a lock file.

use super::origin::Origin;

/// `TENU`: marks a SQLite file as ours, where `file(1)` and others see it.
pub(super) const APPLICATION: i64 = 0x5445_4E55;

/// The format of the tables.
pub(super) const FORMAT: i64 = 1;

/// How many token counters there are. Keys share them by their hash, so that no key leaves anything behind.
pub(super) const BUCKETS: u64 = 64;

/// The tables.
///
/// - `store`: one row; on which clock the claims are counted, and how far the sweep of dead rows has come. `boot` and
///   `namespace` are for builds that know no `clock` (see `origin.rs`).
/// - `bucket`: the greatest token drawn on any key of that bucket.
/// - `claim`: all claims of a key lie side by side, those that have ended (`live = 0`) apart from those that count,
///   so that a key is read by one short range scan, however many claims it has seen. `forget` says from when on
///   a row may be swept away, so an ended claim, a dead process or a key that is not used again leaves nothing.
///   Times are nanoseconds of the lease clock. `lease` is how far the latest of `until`, `reserved` and `forget` lay
///   ahead when the row was written: a row whose times lie further ahead is of an earlier boot. Rows of builds that
///   know no `lease` have none.
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

/// The statements that make an empty file a lock file of this machine and this boot, as `sqlite3 FILE` takes them.
///
/// A store does this by itself when it opens an empty file: they are for those who want to see them, or to make the
/// file beforehand.
pub fn schema() -> String {
    format!("BEGIN IMMEDIATE;\n{}COMMIT;\n", statements(&Origin::here()))
}

/// The statements, to be run in one transaction: a file has all of the tables or none.
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

/// Columns that files of older builds lack. Those builds go on using the file: they name the columns that they write.
pub(super) const ADDED_COLUMNS: [(&str, &str, &str); 2] =
    [("store", "clock", "TEXT"), ("claim", "lease", "INTEGER")];
