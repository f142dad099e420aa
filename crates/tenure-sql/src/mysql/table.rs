//! Checks at connect that the table has the columns of its layout, and that no two keys are one lock.

use tenure_backend::{BackendError, Effect, Fault};

use super::ddl::{self, EXACT, EXACT_ON_MARIADB, EXACT_ON_MYSQL};
use super::session::MySqlSession;
use super::statements;
use crate::lease_rows::{LONGEST_ID, Layout, Widths};
use crate::server::Config;
use crate::server::error::Failure;

/// Longer texts than this are not needed.
const UNLIMITED: u64 = 1000;

const COLUMNS: &str = "SELECT column_name, data_type, column_type, COALESCE(datetime_precision, 0),
        COALESCE(character_maximum_length, 0), COALESCE(collation_name, ''), is_nullable = 'YES'
    FROM information_schema.columns WHERE table_schema = ? AND table_name = ?";

/// The columns that have a unique index of their own, for whole texts.
const UNIQUE: &str = "SELECT MAX(column_name) FROM information_schema.statistics
    WHERE table_schema = ? AND table_name = ?
    GROUP BY index_name HAVING COUNT(*) = 1 AND MAX(non_unique) = 0 AND MAX(sub_part IS NOT NULL) = 0";

const ENGINE: &str =
    "SELECT COALESCE(engine, '') FROM information_schema.tables WHERE table_schema = ? AND table_name = ?";

/// A column as the table has it: its name, its type without and with its length, the precision of times, the greatest number
/// of characters, the collation, and whether it may be NULL.
type Found = (String, String, String, u64, u64, String, bool);

/// Reads the table's columns. Returns how much text they hold.
pub(super) async fn check(session: &mut MySqlSession, config: &Config) -> Result<Widths, Failure> {
    let schema = config.schema.as_deref().or(config.dbname.as_deref());
    let name = || vec![schema.into(), config.table.as_str().into()];
    let found: Vec<Found> = session.ask(COLUMNS, name()).await?;
    let (table, layout) = (config.table_name(), config.layout);
    if found.is_empty() {
        let message = format!(
            "the table `{table}` is not there, or the user may not use it: create it with `tenure schema --apply`, \
             grant what that lists, or name it with `table` and `schema`"
        );
        return Err(refused(message).into());
    }
    let exact = match session.is_mariadb {
        true => EXACT_ON_MARIADB,
        false => EXACT_ON_MYSQL,
    };
    let mut unfit = Unfit::default();
    // Nothing reads the numbers that the table gives to its rows.
    for (name, definition) in ddl::columns(layout).iter().filter(|(name, _)| *name != "id") {
        let found = found.iter().find(|column| column.0 == *name);
        unfit.compare(layout, name, definition, found, exact);
    }
    let (key, holder) = (layout.columns().key, layout.columns().holder);
    let unique: Vec<(String,)> = session.ask(UNIQUE, name()).await?;
    if !unique.iter().any(|(column,)| column == key) {
        let what = format!("`{key}` has no unique index of its own, so one key could have two rows");
        unfit.add(what, format!("ADD UNIQUE ({key})"));
    }
    let engine: Vec<(String,)> = session.ask(ENGINE, name()).await?;
    if engine.iter().any(|(engine,)| engine != "InnoDB") {
        unfit.add(
            "its engine is not InnoDB, so no row can be locked".to_owned(),
            "ENGINE = InnoDB".to_owned(),
        );
    }
    let width = |name| {
        let found = found.iter().find(|column| column.0 == name);
        usize::try_from(found.map_or(UNLIMITED, |column| column.4).min(UNLIMITED)).unwrap_or_default()
    };
    let (key_width, holder_width) = (width(key), width(holder));
    if holder_width < LONGEST_ID {
        let what =
            format!("`{holder}` holds {holder_width} characters, and a claim's ID has up to {LONGEST_ID}");
        let columns = ddl::columns(layout);
        let definition = columns.iter().find(|(name, _)| *name == holder);
        let definition = definition.map_or("VARCHAR(255)", |(_, definition)| *definition);
        unfit.add(what, format!("MODIFY {holder} {definition}"));
    }
    unfit.refuse(config)?;
    Ok(Widths {
        key: key_width,
        holder: holder_width,
    })
}

/// What the table lacks, and the parts of the statement that mends it.
#[derive(Default)]
struct Unfit {
    what: Vec<String>,
    mend: Vec<String>,
}

impl Unfit {
    fn add(&mut self, what: String, mend: String) {
        self.what.push(what);
        self.mend.push(mend);
    }

    /// Compares a column with its definition in the layout.
    fn compare(&mut self, layout: Layout, name: &str, definition: &str, found: Option<&Found>, exact: &str) {
        let collation = format!("CHARACTER SET utf8mb4 COLLATE {exact}");
        let Some(found) = found else {
            let definition = definition.replace(EXACT, &collation);
            self.add(
                format!("`{name}` is not there"),
                format!("ADD {name} {definition}"),
            );
            return;
        };
        let Some(what) = complaint(layout, found, exact) else {
            return;
        };
        // A text keeps its length, and an index stays.
        let definition = match (definition.split_once(EXACT), found) {
            (Some((_, rest)), (_, is, full_type, ..)) if is == "varchar" => {
                format!("{full_type} {EXACT}{rest}")
            }
            _ => definition.to_owned(),
        };
        let definition = definition.replace(EXACT, &collation);
        let definition = definition.replace(" UNIQUE", "").replace(" PRIMARY KEY", "");
        self.add(format!("`{name}` {what}"), format!("MODIFY {name} {definition}"));
    }

    fn refuse(self, config: &Config) -> Result<(), BackendError> {
        if self.what.is_empty() {
            return Ok(());
        }
        Err(refused(format!(
            "the table `{}` does not fit the layout `{}`: {}. This mends it: ALTER TABLE {} {}",
            config.table_name(),
            config.layout.name(),
            self.what.join("; "),
            statements::table(config),
            self.mend.join(", ")
        )))
    }
}

/// Says what is wrong with a column, if anything is.
fn complaint(layout: Layout, found: &Found, exact: &str) -> Option<String> {
    let (name, is, full_type, precision, _, collation, is_nullable) = found;
    let (name, is, columns) = (name.as_str(), is.as_str(), layout.columns());
    let (times, least_precision): (&[&str], _) = match layout {
        Layout::ShedLock => (&["datetime", "timestamp"], 3),
        Layout::Unique | Layout::Version => (&["datetime"], 6),
    };
    let has_right_type = match name {
        "version" => is == "bigint",
        "locked" => is == "tinyint",
        _ if name == columns.key => ["varchar", "varbinary"].contains(&is),
        _ if name == columns.holder => ["varchar", "text"].contains(&is),
        _ => times.contains(&is) && *precision >= least_precision,
    };
    if !has_right_type {
        return Some(format!("has the type `{full_type}`"));
    }
    if name == columns.key && is == "varchar" && collation != exact {
        return Some(format!(
            "has the collation `{collation}`, which takes different keys for equal, such as two that differ in case or \
             in trailing blanks, so they would be one lock"
        ));
    }
    if name == columns.holder && !collation.starts_with("utf8mb4_") {
        return Some(format!(
            "has the collation `{collation}`, which lacks some characters"
        ));
    }
    let is_null_while_free = layout == Layout::Version && [columns.holder, columns.ends].contains(&name);
    (is_null_while_free && !is_nullable).then(|| "may not be NULL, as it is while the key is free".to_owned())
}

fn refused(message: String) -> BackendError {
    BackendError::new(Fault::Store, Effect::None, message)
}
