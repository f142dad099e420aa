//! What the lock tables' driver asks of a connection: statements, a check of the table, and the row of a claim. The folder
//! `sql` has the texts of the statements.

use super::session::PgSession;
use crate::lease_rows::layout::Layout;
use crate::lease_rows::reply::{Taken, seen};
use crate::lease_rows::rows::{ROW_WAIT, micros};
use crate::lease_rows::session::LeaseSession;
use crate::lease_rows::statement::{Dialect, Statements, Values};
use crate::lease_rows::table::{Column, Kinds, Widths, check_table};
use crate::server::Config;
use crate::server::dial::Session;
use crate::server::error::{Failure, unexpected_reply};
use crate::server::values::Value;

/// The columns of a table that statements without a schema find, too. The limit of a type is that of a text's length and 4
/// or of a time's decimals; -1 if there is none.
const COLUMNS: &str = "SELECT a.attname::text AS name, a.atttypid::regtype::text AS kind,
        CASE WHEN a.atttypmod < 0 THEN 1000 ELSE greatest(a.atttypmod - 4, 0) END::bigint AS width,
        CASE WHEN a.atttypmod < 0 THEN 6 ELSE a.atttypmod END::bigint AS decimals,
        coalesce(c.collname::text, '') AS collation, coalesce(c.collisdeterministic, true) AS is_exact, true AS is_unicode,
        EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid
            AND i.indimmediate AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum AND i.indpred IS NULL) AS is_unique,
        NOT a.attnotnull AS is_nullable
    FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
    WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped";

impl LeaseSession for PgSession {
    fn dialect(config: &Config) -> Dialect {
        // A name that begins with a sign would be counted westwards, as POSIX does.
        let zone = match config.time_zone.starts_with(['+', '-']) {
            true => format!("interval '{}'", config.time_zone),
            false => format!("'{}'", config.time_zone),
        };
        let placeholder = |number, value: Value<'_>| match value {
            Value::Text(_) => format!("${number}::text"),
            Value::Number(_) => format!("${number}::bigint"),
        };
        let of_each = [
            include_str!("sql/unique.sql"),
            include_str!("sql/version.sql"),
            include_str!("sql/shedlock.sql"),
        ];
        let of_all = include_str!("sql/row.sql");
        let wait = ROW_WAIT.as_millis().to_string();
        let others = [("zone", zone), ("wait", wait)];
        Dialect::new(config, Some(placeholder), of_all, of_each, others)
    }

    async fn check(&mut self, config: &Config) -> Result<Widths, Failure> {
        let answer = self.run(COLUMNS, &[Value::Text(&config.table_name())]).await?;
        let found = Column::read(answer)?;
        let time: &[&str] = match config.layout {
            Layout::ShedLock => &["timestamp without time zone"],
            Layout::Unique | Layout::Version => &["timestamp with time zone"],
        };
        let kinds = Kinds {
            key: &["character varying", "text"],
            holder: &["character varying", "text"],
            time,
            flag: &["boolean"],
            decimals: 3,
            exact: "C",
        };
        let mend = |_: &_| "Compare the table with what `tenure schema` prints".to_owned();
        Ok(check_table(config, &kinds, &found, &[], mend)?)
    }

    async fn take(&mut self, statements: &Statements, values: &Values<'_>) -> Result<Taken, Failure> {
        let take = &statements.take;
        let mut answer = self.run(&take.sql, &take.bind(values)).await?.rows;
        let answer = answer.first_mut().ok_or_else(unexpected_reply)?;
        let (before, now) = seen(answer)?;
        self.learn(now);
        let (granted, last) = (answer.flag()?, answer.number()?);
        Ok(match granted {
            true => Taken::Granted(last),
            false => Taken::refused(before.as_ref(), values.id, now >= values.until - micros(ROW_WAIT)),
        })
    }
}
