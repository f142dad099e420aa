//! Checks at connect that the table has the columns of its layout, and that no two keys are one lock.

use super::session::MySqlSession;
use super::statements::{EXACT_ON_MARIADB, EXACT_ON_MYSQL, dialect};
use crate::lease_rows::{Column, Complaint, Cure, Kinds, LONGEST_ID, Layout, Widths, check_table};
use crate::server::Config;
use crate::server::dial::Session;
use crate::server::error::Failure;
use crate::server::values::{Cells, Value};

/// The columns of a table. One is unique if it has a unique index of its own, for whole texts.
const COLUMNS: &str = "SELECT column_name, data_type, COALESCE(character_maximum_length, 0),
        COALESCE(datetime_precision, 0), COALESCE(collation_name, ''),
        data_type = 'varbinary' OR collation_name = ?, LEFT(collation_name, 8) = 'utf8mb4_',
        column_name IN (SELECT MAX(column_name) FROM information_schema.statistics
            WHERE table_schema = ? AND table_name = ? GROUP BY index_name
            HAVING COUNT(*) = 1 AND MAX(non_unique) = 0 AND MAX(sub_part IS NOT NULL) = 0),
        is_nullable = 'YES'
    FROM information_schema.columns WHERE table_schema = ? AND table_name = ?";

/// The number of tables whose rows cannot be locked.
const NOT_INNODB: &str = "SELECT COUNT(*) FROM information_schema.tables
    WHERE table_schema = ? AND table_name = ? AND NOT (engine <=> 'InnoDB')";

/// Counts the days, one in winter and one in summer, on which both Tenure's sessions and those of other programs are in UTC.
const DAYS_IN_UTC: &str = "SELECT COUNT(*)
    FROM (SELECT TIMESTAMP'2001-01-15 00:00:00' AS day UNION ALL SELECT TIMESTAMP'2001-07-15 00:00:00') AS days
    WHERE CONVERT_TZ(day, '+00:00', @@session.time_zone) = day AND CONVERT_TZ(day, '+00:00', @@global.time_zone) = day";

/// Reads the table's columns. Returns how much text they hold.
pub(super) async fn check(session: &mut MySqlSession, config: &Config) -> Result<Widths, Failure> {
    let schema = config.schema.as_deref().or(config.dbname.as_deref());
    let name = [schema.unwrap_or_default(), &config.table].map(Value::Text);
    let exact = match session.is_mariadb {
        true => EXACT_ON_MARIADB,
        false => EXACT_ON_MYSQL,
    };
    let params = [&[Value::Text(exact)], &name[..], &name[..]].concat();
    let found = Column::read(session.run(COLUMNS, &params).await?)?;
    let is_innodb = count(session, NOT_INNODB, &name).await? == Some(0);
    let has_timestamp = found.iter().any(|column| column.kind == "timestamp");
    let is_mixed = has_timestamp && count(session, DAYS_IN_UTC, &[]).await? != Some(2);
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
    let others = (!others.is_empty()).then(|| others.join("; "));
    let mend = |complaints: &[Complaint]| {
        let changes = complaints
            .iter()
            .map(|complaint| change(complaint, config, &found, exact));
        let engine = (!is_innodb).then(|| "ENGINE = InnoDB".to_owned());
        let changes: Vec<String> = changes.chain(engine).collect();
        dialect(config).expand(&format!(
            "This mends it: ALTER TABLE {{table}} {}",
            changes.join(", ")
        ))
    };
    Ok(check_table(config, &kinds, &found, others, mend)?)
}

/// Runs a query whose answer is one number.
async fn count(
    session: &mut MySqlSession,
    query: &str,
    params: &[Value<'_>],
) -> Result<Option<i64>, Failure> {
    let mut rows = session.run(query, params).await?.rows;
    Ok(rows.first_mut().map_or(Ok(None), Cells::number)?)
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
