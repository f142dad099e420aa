//! Checks at connect that the table has the columns of its layout, and that no two keys are one lock.

use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};

use super::error::failure;
use super::session::PgSession;
use crate::lease_rows::{Column, Kinds, Layout, Widths, check_table};
use crate::server::Config;
use crate::server::error::Failure;

/// The columns of a table that statements without a schema find, too. The limit of a type is that of a text's length and 4
/// or of a time's decimals; -1 if there is none.
const COLUMNS: &str = "SELECT a.attname::text AS name, a.atttypid::regtype::text AS kind,
        CASE WHEN a.atttypmod < 0 THEN 1000 ELSE a.atttypmod - 4 END AS width,
        CASE WHEN a.atttypmod < 0 THEN 6 ELSE a.atttypmod END AS decimals,
        coalesce(c.collname::text, '') AS collation, coalesce(c.collisdeterministic, true) AS is_exact,
        EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid
            AND i.indimmediate AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum AND i.indpred IS NULL) AS is_unique,
        NOT a.attnotnull AS is_nullable
    FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
    WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped";

/// Reads the table's columns. Returns how much text they hold.
pub(super) async fn check(session: &PgSession, config: &Config) -> Result<Widths, Failure> {
    let rows = session
        .ask(COLUMNS, &[(&config.table_name(), Type::TEXT)])
        .await?;
    let found: Result<Vec<Column>, Error> = rows.iter().map(column).collect();
    let found = found.map_err(|error| failure(&error))?;
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
    Ok(check_table(config, &kinds, &found, None, mend)?)
}

fn column(row: &Row) -> Result<Column, Error> {
    let number = |name| Ok(usize::try_from(row.try_get::<_, i32>(name)?).unwrap_or_default());
    Ok(Column {
        name: row.try_get("name")?,
        kind: row.try_get("kind")?,
        width: number("width")?,
        decimals: number("decimals")?,
        collation: row.try_get("collation")?,
        is_exact: row.try_get("is_exact")?,
        is_unicode: true,
        is_unique: row.try_get("is_unique")?,
        is_nullable: row.try_get("is_nullable")?,
    })
}
