//! What the lock tables' driver asks of a connection: statements, a check of the table, and the row of a claim. The folder
//! `sql` has the texts of the statements.

use mysql_async::Error;

use super::error::{failure, unconfirmed};
use super::session::MySqlSession;
use crate::lease_rows::holder::LONGEST_ID;
use crate::lease_rows::layout::Layout;
use crate::lease_rows::reply::{Seen, Taken, seen};
use crate::lease_rows::session::LeaseSession;
use crate::lease_rows::statement::{Dialect, Statements, Values};
use crate::lease_rows::table::{Column, Complaint, Cure, Kinds, Widths, check_table};
use crate::server::Config;
use crate::server::dial::Session;
use crate::server::error::{Failure, unexpected_reply};
use crate::server::values::Value;

/// The collations that tell all keys apart, also those that differ in case or in trailing blanks.
const EXACT_ON_MARIADB: &str = "utf8mb4_nopad_bin";
const EXACT_ON_MYSQL: &str = "utf8mb4_0900_bin";

/// The columns of a table. One is unique if it has a unique index of its own, for whole texts.
const COLUMNS: &str = "SELECT column_name, data_type, COALESCE(character_maximum_length, 0),
        COALESCE(datetime_precision, 0), COALESCE(collation_name, ''),
        data_type = 'varbinary' OR collation_name = ?, LEFT(collation_name, 8) = 'utf8mb4_',
        column_name IN (SELECT MAX(column_name) FROM information_schema.statistics
            WHERE table_schema = ? AND table_name = ? GROUP BY index_name
            HAVING COUNT(*) = 1 AND MAX(non_unique) = 0 AND MAX(sub_part IS NOT NULL) = 0),
        is_nullable = 'YES'
    FROM information_schema.columns WHERE table_schema = ? AND table_name = ?";

/// The number of tables whose rows cannot be locked; and the number of days, one in winter and one in summer, on which both
/// Tenure's sessions and those of other programs are in UTC.
const ENGINE_AND_ZONES: &str = "SELECT
        (SELECT COUNT(*) FROM information_schema.tables
            WHERE table_schema = ? AND table_name = ? AND NOT (engine <=> 'InnoDB')),
        (SELECT COUNT(*) FROM (SELECT TIMESTAMP'2001-01-15 00:00:00' AS day UNION ALL SELECT TIMESTAMP'2001-07-15 00:00:00') AS days
            WHERE CONVERT_TZ(day, '+00:00', @@session.time_zone) = day
                AND CONVERT_TZ(day, '+00:00', @@global.time_zone) = day)";

/// The error for a column that may not be NULL. The key of a request that comes too late is NULL.
const KEY_IS_NULL: u16 = 1048;

impl LeaseSession for MySqlSession {
    fn dialect(config: &Config) -> Dialect {
        let of_each = [
            include_str!("sql/unique.sql"),
            include_str!("sql/version.sql"),
            include_str!("sql/shedlock.sql"),
        ];
        let others = [
            // Quoted because either name may be a reserved word, such as `lock`.
            ("table", format!("`{}`", config.table_name().replace('.', "`.`"))),
            ("exact_on_mariadb", EXACT_ON_MARIADB.to_owned()),
            ("exact_on_mysql", EXACT_ON_MYSQL.to_owned()),
        ];
        Dialect::new(config, None, include_str!("sql/row.sql"), of_each, others)
    }

    async fn check(&mut self, config: &Config) -> Result<Widths, Failure> {
        let schema = config.schema.as_deref().or(config.dbname.as_deref());
        let name = [schema.unwrap_or_default(), &config.table].map(Value::Text);
        let exact = match self.is_mariadb {
            true => EXACT_ON_MARIADB,
            false => EXACT_ON_MYSQL,
        };
        let params = [&[Value::Text(exact)], &name[..], &name[..]].concat();
        let found = Column::read(self.run(COLUMNS, &params).await?)?;
        let others = self.run(ENGINE_AND_ZONES, &name).await?.rows.pop();
        let mut others = others.ok_or_else(unexpected_reply)?;
        let is_innodb = others.number()? == Some(0);
        let has_timestamp = found.iter().any(|column| column.kind == "timestamp");
        let is_mixed = has_timestamp && others.number()? != Some(2);
        let (time, decimals): (&[&str], _) = match config.layout {
            Layout::ShedLock if !is_mixed => (&["datetime", "timestamp"], 3),
            Layout::ShedLock => (&["datetime"], 3),
            Layout::Unique | Layout::Version => (&["datetime"], 6),
        };
        let kinds = Kinds {
            key: &["varchar", "varbinary"],
            holder: &["varchar", "text"],
            time,
            flag: &["tinyint"],
            decimals,
            exact,
        };
        let engine = (!is_innodb).then_some("its engine is not InnoDB, so no row can be locked");
        let zones = (config.layout == Layout::ShedLock && is_mixed).then_some(
            "each session reads another time from a `timestamp` unless it is in UTC, and the server's default zone or \
             `time_zone` is another, so two could hold one lock",
        );
        let others: Vec<&str> = engine.into_iter().chain(zones).collect();
        let mend = |complaints: &[Complaint]| {
            let changes = complaints
                .iter()
                .map(|complaint| change(complaint, config, &found, exact));
            let engine = (!is_innodb).then(|| "ENGINE = InnoDB".to_owned());
            let changes: Vec<String> = changes.chain(engine).collect();
            Self::dialect(config).expand(&format!(
                "This mends it: ALTER TABLE {{table}} {}",
                changes.join(", ")
            ))
        };
        Ok(check_table(config, &kinds, &found, &others, mend)?)
    }

    async fn take(&mut self, statements: &Statements, values: &Values<'_>) -> Result<Taken, Failure> {
        if statements.insert.is_some() {
            let changed = statements.take.run(self, values).await?.changed;
            let token = self.conn.last_insert_id().and_then(|token| token.try_into().ok());
            // The statement finds the row only if it takes it.
            if changed > 0 && token.is_some() {
                return Ok(Taken::Granted(token));
            }
        }
        let (row, now) = look(self, statements, values).await?;
        let is_free = row
            .as_ref()
            .is_none_or(|row| statements.insert.is_none() && !row.is_held && !row.is_of(values.id));
        if !is_free || now >= values.until {
            return Ok(Taken::refused(row.as_ref(), values.id, now >= values.until));
        }
        let insert = statements.insert.as_ref().unwrap_or(&statements.take);
        // MariaDB returns the row, unless the request comes too late.
        let mut inserted = match self.exec(&insert.sql, &insert.bind(values)).await {
            Err(Error::Server(refusal)) if refusal.code == KEY_IS_NULL => Vec::new(),
            inserted => inserted.map_err(|error| failure(&error))?.rows,
        };
        let (row, now) = match inserted.first_mut() {
            Some(returned) => seen(returned)?,
            None => look(self, statements, values).await.map_err(unconfirmed)?,
        };
        // The row tells who holds it. Never its count: a proxy may count rows that were found and not changed. If it is this
        // claim, the lease began after the row looked free.
        Ok(match row {
            Some(row) if row.is_held && row.is_of(values.id) => Taken::Granted(row.token),
            row => Taken::refused(row.as_ref(), values.id, now >= values.until),
        })
    }
}

/// Reads the row of `values.key`, and the server's time.
async fn look(
    session: &mut MySqlSession,
    statements: &Statements,
    values: &Values<'_>,
) -> Result<Seen, Failure> {
    let seen = statements.look.run(session, values).await?.rows.pop();
    Ok(seen.ok_or_else(unexpected_reply)?)
}

/// The part of an `ALTER TABLE` that mends a column.
fn change((name, cure, _): &Complaint, config: &Config, found: &[Column], exact: &str) -> String {
    let (name, form) = (*name, config.layout.form());
    let definition = form.columns.iter().find(|(column, _)| *column == name);
    let definition = definition.map_or("", |(_, definition)| *definition);
    let text = format!("CHARACTER SET utf8mb4 COLLATE {exact}");
    let definition = definition.replace("{exact}", &text).replace("{text}", &text);
    match cure {
        Cure::AddIndex => format!("ADD UNIQUE ({name})"),
        Cure::AddColumn => format!("ADD {name} {definition}"),
        Cure::ChangeColumn => {
            // An index stays, and a text keeps its length, unless that is too short.
            let definition = definition.replace(" UNIQUE", "").replace(" PRIMARY KEY", "");
            let is_long = |width| name == form.key || width >= LONGEST_ID;
            let found = found
                .iter()
                .find(|column| column.name == name && column.kind == "varchar");
            match (found.map(|column| column.width), definition.split_once(')')) {
                (Some(width), Some((_, rest))) if is_long(width) => {
                    format!("MODIFY {name} varchar({width}){rest}")
                }
                _ => format!("MODIFY {name} {definition}"),
            }
        }
    }
}
