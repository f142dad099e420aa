//! The tables of the layouts: how they are created, and what is wrong with one that another program has made.

use tenure_backend::{BackendError, Effect, Fault};

use super::holder::LONGEST_ID;
use super::layout::Layout;
use super::statement::Dialect;
use crate::server::Config;

/// No key or holder is longer.
const UNLIMITED: usize = 1000;

/// The columns of a layout's table, with their definitions. The dialect knows the expressions.
pub(crate) fn definitions(layout: Layout) -> Vec<(&'static str, &'static str)> {
    let columns = layout.columns();
    match layout {
        Layout::Unique => vec![
            ("id", "bigint {numbered} PRIMARY KEY"),
            (columns.key, "varchar(200){exact} NOT NULL UNIQUE"),
            (columns.holder, "varchar(255){text} NOT NULL"),
            (columns.ends, "{time} NOT NULL"),
            (columns.changed, "{time} NOT NULL{now_by_default}"),
        ],
        Layout::Version => vec![
            ("id", "bigint {numbered} PRIMARY KEY"),
            (columns.key, "varchar(200){exact} NOT NULL UNIQUE"),
            ("version", "bigint NOT NULL DEFAULT 0"),
            ("locked", "boolean NOT NULL DEFAULT false"),
            (columns.holder, "varchar(255){text}"),
            (columns.changed, "{time} NOT NULL{now_by_default}"),
            (columns.ends, "{time}"),
        ],
        // As ShedLock's documentation has it, but on MySQL with an exact collation, and with times that have no zone.
        Layout::ShedLock => vec![
            (columns.key, "varchar(64){text} NOT NULL PRIMARY KEY"),
            (columns.ends, "{time} NOT NULL"),
            (columns.changed, "{time} NOT NULL{now_by_default}"),
            (columns.holder, "varchar(255){text} NOT NULL"),
        ],
    }
}

/// The statements that create the table of a layout, if it is not there.
pub(crate) fn schema(layout: Layout, dialect: &Dialect) -> String {
    let definitions = definitions(layout).into_iter();
    let columns: Vec<_> = definitions
        .map(|(name, definition)| format!("    {name} {definition}"))
        .collect();
    let delete = match layout {
        Layout::Unique => ", DELETE",
        Layout::Version | Layout::ShedLock => "",
    };
    let (name, version) = (layout.name(), layout.version());
    dialect.expand(&format!(
        "-- Layout `{name}`, version {version}. A {{user}} that locks needs: GRANT SELECT, INSERT, UPDATE{delete} ON {{table}} TO {{user}};\n\
         CREATE TABLE IF NOT EXISTS {{table}} (\n{}\n) {{with}}'Tenure: layout {name}, version {version}';\n",
        columns.join(",\n"),
    ))
}

/// How much text the columns hold, in characters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Widths {
    pub(crate) key: usize,
    pub(crate) holder: usize,
}

/// A column that the table has.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// The number of characters that a text may have.
    pub(crate) width: usize,
    /// The number of decimals that the seconds of a time have.
    pub(crate) decimals: usize,
    pub(crate) collation: String,
    /// Tells all texts apart.
    pub(crate) is_exact: bool,
    /// Takes all characters.
    pub(crate) is_unicode: bool,
    /// Has a unique index of its own.
    pub(crate) is_unique: bool,
    pub(crate) is_nullable: bool,
}

/// The types that the columns of a layout may have on one kind of database.
pub(crate) struct Kinds {
    pub(crate) key: &'static [&'static str],
    pub(crate) holder: &'static [&'static str],
    pub(crate) time: &'static [&'static str],
    pub(crate) flag: &'static [&'static str],
    /// The least number of decimals that a time must have.
    pub(crate) decimals: usize,
    /// An exact collation.
    pub(crate) exact: &'static str,
}

/// A column, what a statement that mends the table does about it, and what is wrong with it.
pub(crate) type Complaint = (&'static str, Cure, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cure {
    AddColumn,
    ChangeColumn,
    AddIndex,
}

/// Compares a table with its layout. Returns how much text its columns hold. `others`: what else is wrong with the table.
/// `mend`: what to do about all that, in words.
pub(crate) fn check_table(
    config: &Config,
    kinds: &Kinds,
    found: &[Column],
    others: Option<String>,
    mend: impl FnOnce(&[Complaint]) -> String,
) -> Result<Widths, BackendError> {
    let table = config.table_name();
    let refused = |message| Err(BackendError::new(Fault::Store, Effect::None, message));
    if found.is_empty() {
        return refused(format!(
            "the table `{table}` is not there, or the user may not use it: create it with `tenure schema --apply`, grant \
             what that lists, or name it with `table` and `schema`"
        ));
    }
    let find = |name: &str| found.iter().find(|column| column.name == name);
    let mut complaints: Vec<Complaint> = Vec::new();
    // Nothing reads the numbers that the table gives to its rows.
    for (column, _) in definitions(config.layout)
        .into_iter()
        .filter(|(name, _)| *name != "id")
    {
        let mut add = |cure, words| complaints.push((column, cure, words));
        let Some(is) = find(column) else {
            add(Cure::AddColumn, "is not there".to_owned());
            continue;
        };
        if let Some(words) = complaint(config.layout, kinds, is) {
            add(Cure::ChangeColumn, words);
        }
        if column == config.layout.columns().key && !is.is_unique {
            let words = "has no unique index of its own, so one key could have two rows";
            add(Cure::AddIndex, words.to_owned());
        }
    }
    let what = complaints
        .iter()
        .map(|(column, _, words)| format!("the column `{column}` of `{table}` {words}"));
    let what: Vec<String> = what.chain(others).collect();
    if !what.is_empty() {
        return refused(format!("{}. {}", what.join("; "), mend(&complaints)));
    }
    let width = |name| find(name).map_or(UNLIMITED, |column| column.width.min(UNLIMITED));
    let columns = config.layout.columns();
    Ok(Widths {
        key: width(columns.key),
        holder: width(columns.holder),
    })
}

/// Says what is wrong with a column that is there.
fn complaint(layout: Layout, kinds: &Kinds, is: &Column) -> Option<String> {
    let (name, columns) = (is.name.as_str(), layout.columns());
    let (is_key, is_holder) = (name == columns.key, name == columns.holder);
    let is_time = [columns.ends, columns.changed].contains(&name);
    let is_null_while_free = layout == Layout::Version && [columns.holder, columns.ends].contains(&name);
    let types = match name {
        "version" => &["bigint"],
        "locked" => kinds.flag,
        _ if is_key => kinds.key,
        _ if is_holder => kinds.holder,
        _ => kinds.time,
    };
    if !types.contains(&is.kind.as_str()) {
        return Some(format!(
            "has the type `{}`, and not `{}`",
            is.kind,
            types.join("` or `")
        ));
    }
    if is_time && is.decimals < kinds.decimals {
        // A time that is rounded to a second may end a lease half a second before its holder expects it.
        let unit = if kinds.decimals > 3 {
            "microseconds"
        } else {
            "milliseconds"
        };
        return Some(format!("has times without {unit}"));
    }
    if is_key && !is.is_exact {
        return Some(format!(
            "has the collation `{}`, which takes different keys for equal, such as two that differ in case or in trailing \
             blanks, so two keys would be one lock: `{}` is exact",
            is.collation, kinds.exact
        ));
    }
    if is_holder && !is.is_unicode {
        return Some(format!(
            "has the collation `{}`, which lacks some characters",
            is.collation
        ));
    }
    if is_holder && is.width < LONGEST_ID {
        return Some(format!(
            "holds {} characters, and a claim's ID has up to {LONGEST_ID}",
            is.width
        ));
    }
    (is_null_while_free && !is.is_nullable)
        .then(|| "may not be NULL, as it is while the key is free".to_owned())
}
