//! The statements of each layout for MySQL and MariaDB.
//!
//! Each statement that takes or prolongs reads the clock after it has locked the row. A session never waits for a row: the
//! lock wait of its connection is 0 s on MariaDB and 1 s, the least, on MySQL. Assignments take place from left to right, so a
//! condition is computed once, in the first one.

use crate::lease_rows::{Dialect, Layout, Statements};
use crate::server::Config;

/// Returns the server's time even if there is no row.
const LOOK: &str = "SELECT {row} FROM (SELECT 1) here LEFT JOIN {table} ON {key} = :key";

const LIST: &str = "SELECT {row} FROM {table} WHERE {held} AND SUBSTRING_INDEX({holder}, ' ', 1) <> 'evicted' \
    AND {key} >= :prefix AND LOCATE(:prefix, {key}) = 1 AND {key} > :after ORDER BY {key} LIMIT :limit";

/// Inserts the row, or takes over one that has expired. It is sent only if the row looked free, because a refused INSERT, too,
/// uses up an automatic number.
///
/// The key of a request that comes too late is NULL, which the column refuses. `INSERT … SELECT … WHERE` would say so in a
/// better way, but it locks the table's automatic numbers until it is committed, so that no two keys could be taken at a time.
///
/// The times of a new row are computed before the statement waits for another session that inserts the same key. On MariaDB
/// it does not wait. On MySQL it waits for at most 1 s, and may be placed so much later if the other session gives up.
const ROW_TAKE: &str = "INSERT INTO {table} ({key}, {holder}, {ends}, {changed})
    VALUES ({key_in_time}, :holder, {later}, {now})
    ON DUPLICATE KEY UPDATE
        {changed} = IF(@free := (NOT {held} AND NOT {mine} AND {now_us} < :until), {now}, {changed}),
        {holder} = IF(@free, VALUES({holder}), {holder}),
        {ends} = IF(@free, {later}, {ends})";

const VERSION_TAKE: &str =
    "UPDATE {table} SET version = LAST_INSERT_ID(version + :tokens), {holder} = :holder, locked = 1,
        {changed} = {now}, {ends} = {later}
    WHERE {key} = :key AND NOT {held} AND NOT {mine} AND {now_us} < :until";

/// A new row's version begins at the time in microseconds, so that tokens rise even after the row was deleted.
const VERSION_INSERT: &str = "INSERT INTO {table} ({key}, version, locked, {holder}, {changed}, {ends})
    VALUES ({key_in_time}, GREATEST(:tokens, {now_us}), 1, :holder, {now}, {later})
    ON DUPLICATE KEY UPDATE {key} = VALUES({key})";

const VERSION_CLEAR: &str =
    "UPDATE {table} SET locked = 0, {holder} = NULL, version = version + 1, {changed} = {now}, {ends} = NULL
    WHERE {key} = :key AND locked AND {mine}";

const VERSION_EVICT: &str =
    "UPDATE {table} SET {holder} = NULL, version = version + 1, {changed} = {now}, {ends} = {later}
    WHERE {key} = :key AND {holder} = :target AND version = :seen AND {held}";

/// A textbook client does not know the end of a lease. So the row is freed after the cooldown.
const VERSION_SETTLE: &str = "UPDATE {table} SET locked = 0, version = version + 1, {ends} = NULL
    WHERE {key} = :key AND version = :seen AND locked AND {holder} IS NULL";

const UNIQUE_CLEAR: &str = "DELETE FROM {table} WHERE {key} = :key AND {mine}";

const UNIQUE_SWEEP: &str = "DELETE FROM {table} WHERE {ends} < {now} - INTERVAL :idle MICROSECOND LIMIT 500";

/// Half a millisecond, because MySQL rounds to the next one, and the key would stay held until then.
const SHEDLOCK_RELEASE: &str = "UPDATE {table} SET {ends} = LEAST({ends}, {now} - INTERVAL 500 MICROSECOND)
    WHERE {key} = :key AND {mine} AND {held}";

const ROW_EVICT: &str = "UPDATE {table} SET {holder} = :holder, {changed} = {now}, {ends} = {later}
    WHERE {key} = :key AND {holder} = :target AND {held}";

/// Makes the statements of a layout. `returns`: the server knows `INSERT … RETURNING`.
pub(super) fn statements(config: &Config, returns: bool) -> Statements {
    let dialect = dialect(config);
    let statement = |template: &str| dialect.statement(template);
    let insert = |template: &str| match returns {
        true => statement(&format!("{template} RETURNING {{row}}")),
        false => statement(template),
    };
    let (take, new, raise) = match config.layout {
        Layout::Version => (
            statement(VERSION_TAKE),
            Some(insert(VERSION_INSERT)),
            ", version = GREATEST(version, :raise)",
        ),
        Layout::Unique | Layout::ShedLock => (insert(ROW_TAKE), None, ""),
    };
    let (release, clear, evict) = match config.layout {
        Layout::Version => (
            format!("{VERSION_CLEAR} AND {{held}}"),
            Some(VERSION_CLEAR),
            VERSION_EVICT,
        ),
        Layout::Unique => (
            format!("{UNIQUE_CLEAR} AND {{held}}"),
            Some(UNIQUE_CLEAR),
            ROW_EVICT,
        ),
        Layout::ShedLock => (SHEDLOCK_RELEASE.to_owned(), None, ROW_EVICT),
    };
    Statements {
        take,
        insert: new,
        look: statement(LOOK),
        renew: statement(&format!(
            "UPDATE {{table}} SET {{ends}} = IF(:shorten = 1, LEAST({{ends}}, {{later}}), {{later}}){raise} \
             WHERE {{key}} = :key AND {{mine}} AND {{held}}"
        )),
        release: statement(&release),
        // The release after the lease's end: a textbook client does not take a row whose lease has ended.
        clear: clear.map(statement),
        evict: statement(evict),
        settle: (config.layout == Layout::Version).then(|| statement(VERSION_SETTLE)),
        list: statement(LIST),
        sweep: (config.layout == Layout::Unique).then(|| statement(UNIQUE_SWEEP)),
    }
}

/// The collations that tell all keys apart, also those that differ in case or in trailing blanks.
pub(super) const EXACT_ON_MARIADB: &str = "utf8mb4_nopad_bin";
pub(super) const EXACT_ON_MYSQL: &str = "utf8mb4_0900_bin";

/// The table with its database, quoted because either may be a reserved word, such as `lock`.
fn table(config: &Config) -> String {
    format!("`{}`", config.table_name().replace('.', "`.`"))
}

/// The server's time as the columns have it. NOW() would be the time at which the statement began.
pub(super) fn now(config: &Config) -> String {
    config
        .server_clock
        .clone()
        .unwrap_or_else(|| "SYSDATE(6)".to_owned())
}

/// A time in microseconds since 1970.
pub(super) fn now_us(now: &str) -> String {
    format!("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {now})")
}

/// How MySQL and MariaDB write the expressions of a layout.
pub(crate) fn dialect(config: &Config) -> Dialect {
    let layout = config.layout;
    let (held, token, left) = match layout {
        // A lease that had ended when the row was taken is that of an earlier holder: this one never ends.
        Layout::Version => (
            "(locked AND NOT COALESCE({ends} > {changed} AND {ends} <= {now}, FALSE))",
            "version",
            "IF({ends} > {changed}, TIMESTAMPDIFF(MICROSECOND, {now}, {ends}), NULL)",
        ),
        Layout::Unique | Layout::ShedLock => (
            "({ends} > {now})",
            "NULL",
            "TIMESTAMPDIFF(MICROSECOND, {now}, {ends})",
        ),
    };
    let (later, time, default) = match layout {
        // Its times have milliseconds, and MariaDB cuts off what is between two: the end is rounded up.
        Layout::ShedLock => (
            "({now} + INTERVAL :lease + 999 MICROSECOND)",
            "DATETIME(3)",
            " DEFAULT CURRENT_TIMESTAMP(3)",
        ),
        Layout::Unique | Layout::Version => (
            "({now} + INTERVAL :lease MICROSECOND)",
            "DATETIME(6)",
            " DEFAULT CURRENT_TIMESTAMP(6)",
        ),
    };
    // MariaDB reads the comment that begins with `/*M!`, MySQL that with its version.
    let text =
        format!(" CHARACTER SET utf8mb4 COLLATE /*M! {EXACT_ON_MARIADB} */ /*!80017 {EXACT_ON_MYSQL} */");
    let expressions = [
        ("table", &*table(config)),
        ("now", &now(config)),
        ("now_us", &now_us("{now}")),
        ("later", later),
        ("key_in_time", "IF({now_us} < :until, :key, NULL)"),
        ("mine", "COALESCE(SUBSTRING_INDEX({holder}, ' ', 1) = :id, FALSE)"),
        ("held", held),
        ("token", token),
        ("left", left),
        ("row", "{key}, {holder}, {token}, {held}, {left}, {now_us}"),
        ("user", "user"),
        ("numbered", "NOT NULL AUTO_INCREMENT"),
        ("exact", "{text}"),
        ("text", &text),
        ("time", time),
        ("now_by_default", default),
        ("with", "ENGINE = InnoDB COMMENT = "),
    ];
    Dialect::new(layout, None, &expressions)
}
