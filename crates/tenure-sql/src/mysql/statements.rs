//! The statements of each layout for MySQL and MariaDB.
//!
//! Each statement that takes or prolongs reads the clock after it has locked the row. A session never waits for a row: the
//! lock wait of its connection is 0 s on MariaDB and 1 s, the least, on MySQL. Assignments take place from left to right, so a
//! condition is computed once, in the first one.

use crate::lease_rows::{Dialect, Layout};
use crate::server::Config;

/// Returns the server's time even if there is no row.
const LOOK: &str = "SELECT {row} FROM (SELECT 1) here LEFT JOIN {table} ON {key} = {:key}";

const LIST: &str = "SELECT {row} FROM {table} WHERE {held} AND SUBSTRING_INDEX({holder}, ' ', 1) <> 'evicted' \
    AND {key} >= {:prefix} AND LOCATE({:prefix}, {key}) = 1 AND {key} > {:after} ORDER BY {key} LIMIT {:limit}";

/// Inserts the row, or takes over one that has expired. It is sent only if the row looked free, because a refused INSERT, too,
/// uses up an automatic number.
///
/// The key of a request that comes too late is NULL, which the column refuses. `INSERT … SELECT … WHERE` would say so in a
/// better way, but it locks the table's automatic numbers until it is committed, so that no two keys could be taken at a time.
///
/// The times of a new row are computed before the statement waits for another session that inserts the same key. On MariaDB
/// it does not wait. On MySQL it waits for at most 1 s, and may be placed so much later if the other session gives up.
const ROW_TAKE: &str = "INSERT INTO {table} ({key}, {holder}, {ends}, {changed})
    VALUES ({key_in_time}, {:holder}, {later}, {now})
    ON DUPLICATE KEY UPDATE
        {changed} = IF(@free := (NOT {held} AND NOT {mine} AND {now_us} < {:until}), {now}, {changed}),
        {holder} = IF(@free, VALUES({holder}), {holder}),
        {ends} = IF(@free, {later}, {ends}) {returning}";

const VERSION_TAKE: &str =
    "UPDATE {table} SET version = LAST_INSERT_ID(version + {:tokens}), {holder} = {:holder}, locked = 1,
        {changed} = {now}, {ends} = {later}
    WHERE {key} = {:key} AND NOT {held} AND NOT {mine} AND {now_us} < {:until}";

/// A new row's version begins at the time in microseconds, so that tokens rise even after the row was deleted.
const VERSION_INSERT: &str = "INSERT INTO {table} ({key}, version, locked, {holder}, {changed}, {ends})
    VALUES ({key_in_time}, GREATEST({:tokens}, {now_us}), 1, {:holder}, {now}, {later})
    ON DUPLICATE KEY UPDATE {key} = VALUES({key}) {returning}";

const VERSION_CLEAR: &str =
    "UPDATE {table} SET locked = 0, {holder} = NULL, version = version + 1, {changed} = {now}, {ends} = NULL
    WHERE {key} = {:key} AND locked AND {mine}";

const VERSION_EVICT: &str =
    "UPDATE {table} SET {holder} = NULL, version = version + 1, {changed} = {now}, {ends} = {later}
    WHERE {key} = {:key} AND {holder} = {:target} AND version = {:seen} AND {held}";

/// A textbook client does not know the end of a lease. So the row is freed after the cooldown.
const VERSION_SETTLE: &str = "UPDATE {table} SET locked = 0, version = version + 1, {ends} = NULL
    WHERE {key} = {:key} AND version = {:seen} AND locked AND {holder} IS NULL";

const UNIQUE_CLEAR: &str = "DELETE FROM {table} WHERE {key} = {:key} AND {mine}";

const UNIQUE_SWEEP: &str = "DELETE FROM {table} WHERE {ends} < {now} - INTERVAL {idle} MICROSECOND LIMIT 500";

/// Half a millisecond, because MySQL rounds to the next one, and the key would stay held until then.
const SHEDLOCK_RELEASE: &str = "UPDATE {table} SET {ends} = LEAST({ends}, {now} - INTERVAL 500 MICROSECOND)
    WHERE {key} = {:key} AND {mine} AND {held}";

const ROW_EVICT: &str = "UPDATE {table} SET {holder} = {:holder}, {changed} = {now}, {ends} = {later}
    WHERE {key} = {:key} AND {holder} = {:target} AND {held}";

const RENEW: &str = "UPDATE {table} SET {ends} = IF({:shorten} = 1, LEAST({ends}, {later}), {later}){raise}
    WHERE {key} = {:key} AND {mine} AND {held}";

/// The collations that tell all keys apart, also those that differ in case or in trailing blanks.
pub(super) const EXACT_ON_MARIADB: &str = "utf8mb4_nopad_bin";
pub(super) const EXACT_ON_MYSQL: &str = "utf8mb4_0900_bin";

/// The texts of `unique`, of which the other layouts replace some.
const ROW: [(&str, &str); 28] = [
    ("take", ROW_TAKE),
    ("look", LOOK),
    ("list", LIST),
    ("renew", RENEW),
    ("evict", ROW_EVICT),
    // MariaDB reads the comment, and MySQL knows no such clause.
    ("returning", "/*M!100500 RETURNING {row} */"),
    ("key_in_time", "IF({now_us} < {:until}, {:key}, NULL)"),
    // NOW() would be the time at which the statement began.
    ("now", "{clock}"),
    ("now_us", "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {now})"),
    ("later", "({now} + INTERVAL {:lease} MICROSECOND)"),
    (
        "mine",
        "COALESCE(SUBSTRING_INDEX({holder}, ' ', 1) = {:id}, FALSE)",
    ),
    ("held", "({ends} > {now})"),
    ("token", "NULL"),
    ("left", "{until_end}"),
    ("until_end", "TIMESTAMPDIFF(MICROSECOND, {now}, {ends})"),
    ("row", "{key}, {holder}, {token}, {held}, {left}, {now_us}"),
    ("raise", ""),
    ("user", "user"),
    ("numbered", "NOT NULL AUTO_INCREMENT"),
    ("exact", "{text}"),
    // MariaDB reads the comment that begins with `/*M!`, MySQL that with its version.
    (
        "text",
        " CHARACTER SET utf8mb4 COLLATE /*M! {exact_on_mariadb} */ /*!80017 {exact_on_mysql} */",
    ),
    ("exact_on_mariadb", EXACT_ON_MARIADB),
    ("exact_on_mysql", EXACT_ON_MYSQL),
    ("time", "DATETIME({decimals})"),
    ("decimals", "6"),
    ("now_by_default", " DEFAULT CURRENT_TIMESTAMP({decimals})"),
    ("with", "ENGINE = InnoDB COMMENT = "),
    ("one_at_a_time", ""),
];

const UNIQUE: &[(&str, &str)] = &[
    ("release", "{clear} AND {held}"),
    ("clear", UNIQUE_CLEAR),
    ("sweep", UNIQUE_SWEEP),
];

const VERSION: &[(&str, &str)] = &[
    ("take", VERSION_TAKE),
    ("insert", VERSION_INSERT),
    ("release", "{clear} AND {held}"),
    // The release after the lease's end: a textbook client does not take a row whose lease has ended.
    ("clear", VERSION_CLEAR),
    ("evict", VERSION_EVICT),
    ("settle", VERSION_SETTLE),
    ("raise", ", version = GREATEST(version, {:raise})"),
    // A lease that had ended when the row was taken is that of an earlier holder: this one never ends.
    (
        "held",
        "(locked AND NOT COALESCE({ends} > {changed} AND {ends} <= {now}, FALSE))",
    ),
    ("token", "version"),
    ("left", "IF({ends} > {changed}, {until_end}, NULL)"),
];

/// Its times have milliseconds, and MariaDB cuts off what is between two: the end is rounded up.
const SHEDLOCK: &[(&str, &str)] = &[
    ("release", SHEDLOCK_RELEASE),
    ("later", "({now} + INTERVAL {:lease} + 999 MICROSECOND)"),
    ("decimals", "3"),
];

/// How MySQL and MariaDB write the table and the statements of a layout.
pub(super) fn dialect(config: &Config) -> Dialect {
    let of_layout = match config.layout {
        Layout::Unique => UNIQUE,
        Layout::Version => VERSION,
        Layout::ShedLock => SHEDLOCK,
    };
    // Quoted because either name may be a reserved word, such as `lock`.
    let table = format!("`{}`", config.table_name().replace('.', "`.`"));
    let of_config = [
        ("table", &*table),
        ("clock", &config.server_clock),
        ("zone", &config.time_zone),
        ("idle", &config.sweep_after.as_micros().to_string()),
    ];
    Dialect::new(config.layout, None, ROW.iter().chain(of_layout).chain(&of_config))
}
