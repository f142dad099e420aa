//! The statements of each layout for MySQL and MariaDB.
//!
//! Each statement that takes or prolongs reads the clock after it has locked the row. A session never waits for a row: the
//! lock wait of its connection is 0 s on MariaDB and 1 s, the least, on MySQL. Assignments take place from left to right, so a
//! condition is computed once, in the first one.

use crate::lease_rows::{Dialect, Layout, Param, Statement, Statements};
use crate::server::Config;

const LOOK: &str = "SELECT {row} FROM {table} WHERE {key} = :key";

const LIST: &str = "SELECT {row} FROM {table} WHERE {held} AND SUBSTRING_INDEX({holder}, ' ', 1) <> 'evicted' \
    AND LEFT({key}, CHAR_LENGTH(:prefix)) = :prefix AND {key} > :after ORDER BY {key} LIMIT :limit";

/// Inserts the row, or takes over one that has expired. A refused INSERT would use up an automatic number, so it is tried only
/// if the row looks free.
const ROW_TAKE: &str = "INSERT INTO {table} ({key}, {holder}, {ends}, {changed})
    SELECT :key, :holder, {later}, {now} FROM DUAL
    WHERE {now_us} < :until AND NOT EXISTS (SELECT 1 FROM {table} h
        WHERE h.{key} = :key AND (h.{ends} > {now} OR SUBSTRING_INDEX(h.{holder}, ' ', 1) = :id))
    ON DUPLICATE KEY UPDATE
        {changed} = IF(@free := (NOT {held} AND NOT {mine} AND {now_us} < :until), {now}, {changed}),
        {holder} = IF(@free, VALUES({holder}), {holder}),
        {ends} = IF(@free, {later}, {ends})";

const VERSION_TAKE: &str = "UPDATE {table} SET version = LAST_INSERT_ID(version + :tokens), {holder} = :holder, locked = 1,
        {changed} = {now}, {ends} = {later}
    WHERE {key} = :key AND NOT {held} AND NOT {mine} AND {now_us} < :until";

/// A new row's version begins at the time in microseconds, so that tokens rise even if somebody has deleted the row.
const VERSION_INSERT: &str = "INSERT INTO {table} ({key}, version, locked, {holder}, {changed}, {ends})
    SELECT :key, GREATEST(:tokens, {now_us}), 1, :holder, {now}, {later} FROM DUAL WHERE {now_us} < :until
    ON DUPLICATE KEY UPDATE {key} = VALUES({key})";

/// Makes the statements of a layout. `returns`: the server knows `INSERT … RETURNING`, as MariaDB does.
pub(super) fn statements(config: &Config, returns: bool) -> Statements {
    let dialect = MySql::new(config);
    let statement = |template: &str| Statement::new(&dialect, template);
    let layout = config.layout;
    let is_version = layout == Layout::Version;
    let row_take = match returns {
        true => format!("{ROW_TAKE} RETURNING {{row}}"),
        false => ROW_TAKE.to_owned(),
    };
    Statements {
        layout,
        take: statement(if is_version { VERSION_TAKE } else { &row_take }),
        insert: is_version.then(|| statement(VERSION_INSERT)),
        look: statement(LOOK),
        renew: statement(match layout {
            Layout::Version => {
                "UPDATE {table} SET {ends} = IF(:shorten = 1, LEAST({ends}, {later}), {later}),
                 version = GREATEST(version, :raise) WHERE {key} = :key AND {mine} AND {held}"
            }
            Layout::Unique | Layout::ShedLock => {
                "UPDATE {table} SET {ends} = IF(:shorten = 1, LEAST({ends}, {later}), {later})
                 WHERE {key} = :key AND {mine} AND {held}"
            }
        }),
        release: statement(match layout {
            Layout::Unique => "DELETE FROM {table} WHERE {key} = :key AND {mine}",
            Layout::ShedLock => "UPDATE {table} SET {ends} = LEAST({ends}, {now}) WHERE {key} = :key AND {mine} AND {held}",
            Layout::Version => {
                "UPDATE {table} SET locked = 0, {holder} = NULL, version = version + 1, {changed} = {now}, {ends} = NULL
                 WHERE {key} = :key AND locked AND {mine}"
            }
        }),
        evict: statement(match layout {
            Layout::Version => {
                "UPDATE {table} SET {holder} = NULL, version = version + 1, {changed} = {now}, {ends} = {later}
                 WHERE {key} = :key AND {holder} = :target AND version = :seen AND {held}"
            }
            Layout::Unique | Layout::ShedLock => {
                "UPDATE {table} SET {holder} = :holder, {changed} = {now}, {ends} = {later}
                 WHERE {key} = :key AND {holder} = :target AND {held}"
            }
        }),
        // A textbook client does not know the end of a lease. So the row is freed after the cooldown.
        settle: is_version.then(|| {
            statement(
                "UPDATE {table} SET locked = 0, version = version + 1, {ends} = NULL
                 WHERE {key} = :key AND version = :seen AND locked AND {holder} IS NULL",
            )
        }),
        list: statement(LIST),
        sweep: (layout == Layout::Unique)
            .then(|| statement("DELETE FROM {table} WHERE {ends} < {now} - INTERVAL :idle MICROSECOND LIMIT 500")),
    }
}

/// How MySQL writes the expressions of a layout.
struct MySql {
    layout: Layout,
    table: String,
    now: String,
}

impl MySql {
    fn new(config: &Config) -> Self {
        let clock = config.server_clock.clone();
        MySql {
            layout: config.layout,
            table: config.table_name(),
            // NOW() would be the time at which the statement began.
            now: clock.unwrap_or_else(|| "SYSDATE(6)".to_owned()),
        }
    }
}

impl Dialect for MySql {
    const SHARES_PARAMETERS: bool = false;

    fn placeholder(&self, _: usize, _: Param) -> String {
        "?".to_owned()
    }

    fn expression(&self, name: &str) -> Option<String> {
        let columns = self.layout.columns();
        Some(match (name, self.layout) {
            ("table", _) => self.table.clone(),
            ("key", _) => columns.key.to_owned(),
            ("holder", _) => columns.holder.to_owned(),
            ("ends", _) => columns.ends.to_owned(),
            ("changed", _) => columns.changed.to_owned(),
            ("now", _) => self.now.clone(),
            ("now_us", _) => "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {now})".to_owned(),
            ("later", _) => "({now} + INTERVAL :lease MICROSECOND)".to_owned(),
            ("mine", _) => "(SUBSTRING_INDEX(COALESCE({holder}, ''), ' ', 1) = :id)".to_owned(),
            ("held", Layout::Version) => {
                "(locked AND NOT COALESCE({ends} > {changed} AND {ends} <= {now}, FALSE))".to_owned()
            }
            ("held", _) => "({ends} > {now})".to_owned(),
            ("token", Layout::Version) => "version".to_owned(),
            ("token", _) => "NULL".to_owned(),
            // A lease that had ended when the row was taken is that of an earlier holder: this one never ends.
            ("left", Layout::Version) => {
                "IF({ends} > {changed}, TIMESTAMPDIFF(MICROSECOND, {now}, {ends}), NULL)".to_owned()
            }
            ("left", _) => "TIMESTAMPDIFF(MICROSECOND, {now}, {ends})".to_owned(),
            ("row", _) => "{key}, {holder}, {token}, {held}, {left}, {now_us}".to_owned(),
            _ => return None,
        })
    }
}
