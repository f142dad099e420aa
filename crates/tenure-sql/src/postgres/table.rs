//! Checks at connect that the table has the columns of its layout, and that no two keys are one lock.

use super::session::PgSession;
use crate::lease_rows::{Column, Kinds, Layout, Widths, check_table};
use crate::server::Config;
use crate::server::dial::Session;
use crate::server::error::Failure;
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

/// Reads the table's columns. Returns how much text they hold.
pub(super) async fn check(session: &mut PgSession, config: &Config) -> Result<Widths, Failure> {
    let answer = session.run(COLUMNS, &[Value::Text(&config.table_name())]).await?;
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
    Ok(check_table(config, &kinds, &found, None, mend)?)
}
