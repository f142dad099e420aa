//! Checks at connect that the table has the columns of its layout, and that no two keys are one lock.

use tenure_backend::{BackendError, Effect, Fault};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::session::PgSession;
use crate::lease_rows::{LONGEST_ID, Layout, Widths};
use crate::server::Config;
use crate::server::error::Failure;

/// Longer texts than this are not needed in a column without a limit.
const UNLIMITED: usize = 1000;

/// The columns of a table that statements without a schema find, too.
const COLUMNS: &str =
    "SELECT a.attname::text AS name, a.atttypid::regtype::text AS type, a.atttypmod AS modifier,
        coalesce(c.collisdeterministic, true) AS is_exact,
        EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid
            AND i.indimmediate AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum AND i.indpred IS NULL) AS is_unique
    FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
    WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped";

/// Reads the table's columns. Returns how much text they hold.
pub(super) async fn check(session: &mut PgSession, config: &Config) -> Result<Widths, Failure> {
    let table = config.table_name();
    let rows = session.ask(COLUMNS, &[(&table, Type::TEXT)]).await?;
    if rows.is_empty() {
        let message = format!(
            "the table `{table}` is not there, or the role may not use its schema: create it with `tenure schema --apply`, or \
             name it with `table` and `schema`"
        );
        return Err(refused(message).into());
    }
    let columns = config.layout.columns();
    let find = |name: &str| {
        rows.iter()
            .find(|row| row.try_get::<_, &str>("name").ok() == Some(name))
    };
    let time = match config.layout {
        Layout::ShedLock => "timestamp without time zone",
        Layout::Unique | Layout::Version => "timestamp with time zone",
    };
    let text = ["character varying", "text"];
    let mut wanted: Vec<(&str, &[&str])> = vec![
        (columns.key, &text),
        (columns.holder, &text),
        (columns.ends, std::slice::from_ref(&time)),
        (columns.changed, std::slice::from_ref(&time)),
    ];
    if config.layout == Layout::Version {
        wanted.extend([("version", &["bigint"][..]), ("locked", &["boolean"][..])]);
    }
    for (name, types) in wanted {
        let Some(row) = find(name) else {
            return Err(unfit(&table, name, "is not there").into());
        };
        let is: &str = row.try_get("type").unwrap_or_default();
        if !types.contains(&is) {
            let what = format!("has the type `{is}`, and not `{}`", types.join("` or `"));
            return Err(unfit(&table, name, &what).into());
        }
    }
    // A time that is rounded to a second may end a lease half a second before its holder expects it.
    for name in [columns.ends, columns.changed] {
        if find(name).is_some_and(|row| (0..3).contains(&modifier(row))) {
            return Err(unfit(&table, name, "has times without milliseconds").into());
        }
    }
    let key = find(columns.key).ok_or_else(|| unfit(&table, columns.key, "is not there"))?;
    if !key.try_get::<_, bool>("is_exact").unwrap_or_default() {
        let what = "has a collation that takes different keys for equal, so two keys would be one lock: `COLLATE \"C\"` is exact";
        return Err(unfit(&table, columns.key, what).into());
    }
    if !key.try_get::<_, bool>("is_unique").unwrap_or_default() {
        let what = "has no unique index of its own, so one key could have two rows";
        return Err(unfit(&table, columns.key, what).into());
    }
    let holder = find(columns.holder).map_or(UNLIMITED, width);
    if holder < LONGEST_ID {
        let what = format!("holds {holder} characters, and a claim's ID has up to {LONGEST_ID}");
        return Err(unfit(&table, columns.holder, &what).into());
    }
    Ok(Widths {
        key: width(key),
        holder,
    })
}

/// The limit of a column's type: of a text its length and 4, of a time the number of decimals; -1 if there is none.
fn modifier(row: &Row) -> i32 {
    row.try_get("modifier").unwrap_or(-1)
}

/// The number of characters that a column holds.
fn width(row: &Row) -> usize {
    usize::try_from(modifier(row) - 4).map_or(UNLIMITED, |width| width.min(UNLIMITED))
}

fn unfit(table: &str, column: &str, what: &str) -> BackendError {
    refused(format!(
        "the column `{column}` of `{table}` {what}: compare the table with what `tenure schema` prints"
    ))
}

fn refused(message: String) -> BackendError {
    BackendError::new(Fault::Store, Effect::None, message)
}
