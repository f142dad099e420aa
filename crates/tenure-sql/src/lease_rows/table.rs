//! The tables of the layouts: how they are created, and what is wrong with one that another program has made.

use tenure_backend::{BackendError, Effect, Fault};

use super::holder::LONGEST_ID;
use super::layout::Layout;
use super::statement::Dialect;
use crate::server::Config;
use crate::server::values::Answer;

/// No key or holder is longer.
const UNLIMITED: usize = 1000;

/// The statements that create the table of a layout, if it is not there.
pub(crate) fn schema(layout: Layout, dialect: &Dialect) -> String {
    let columns = layout.form().columns.iter();
    let columns: Vec<_> = columns
        .map(|(name, definition)| {
            let definition = dialect.expand(definition);
            let words: Vec<_> = definition.split_ascii_whitespace().collect();
            format!("    {name} {}", words.join(" "))
        })
        .collect();
    let delete = match layout {
        Layout::Unique => ", DELETE",
        Layout::Version | Layout::ShedLock => "",
    };
    let (name, version) = (layout.form().name, Layout::VERSION);
    dialect.expand(&format!(
        "-- Layout `{name}`, version {version}. A {{user}} that locks needs: GRANT SELECT, INSERT, UPDATE{delete} ON {{table}} TO {{user}};\n\
         CREATE TABLE IF NOT EXISTS {{table}} (\n{}\n) {{with}} 'Tenure: layout {name}, version {version}';\n",
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

impl Column {
    /// Reads an answer that has these values in this order.
    pub(crate) fn read(answer: Answer) -> Result<Vec<Column>, BackendError> {
        let columns = answer.rows.into_iter().map(|mut cells| {
            Ok(Column {
                name: cells.text().unwrap_or_default(),
                kind: cells.text().unwrap_or_default(),
                width: cells.number()?.unwrap_or_default(),
                decimals: cells.number()?.unwrap_or_default(),
                collation: cells.text().unwrap_or_default(),
                is_exact: cells.flag()?,
                is_unicode: cells.flag()?,
                is_unique: cells.flag()?,
                is_nullable: cells.flag()?,
            })
        });
        columns.collect()
    }
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
    others: &[&str],
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
    let form = config.layout.form();
    // Nothing reads the numbers that the table gives to its rows.
    for &(column, _) in form.columns.iter().filter(|(name, _)| *name != "id") {
        let mut add = |cure, words| complaints.push((column, cure, words));
        let Some(is) = find(column) else {
            add(Cure::AddColumn, "is not there".to_owned());
            continue;
        };
        if let Some(words) = complaint(config.layout, kinds, is) {
            add(Cure::ChangeColumn, words);
        }
        if column == form.key && !is.is_unique {
            let words = "has no unique index of its own, so one key could have two rows";
            add(Cure::AddIndex, words.to_owned());
        }
    }
    let what = complaints
        .iter()
        .map(|(column, _, words)| format!("the column `{column}` of `{table}` {words}"));
    let what: Vec<String> = what.chain(others.iter().map(ToString::to_string)).collect();
    if !what.is_empty() {
        return refused(format!("{}. {}", what.join("; "), mend(&complaints)));
    }
    let width = |name| find(name).map_or(UNLIMITED, |column| column.width.min(UNLIMITED));
    Ok(Widths {
        key: width(form.key),
        holder: width(form.holder),
    })
}

/// Says what is wrong with a column that is there.
fn complaint(layout: Layout, kinds: &Kinds, is: &Column) -> Option<String> {
    let (name, form) = (is.name.as_str(), layout.form());
    let (is_key, is_holder) = (name == form.key, name == form.holder);
    let is_time = [form.ends, form.changed].contains(&name);
    let is_null_while_free = layout == Layout::Version && [form.holder, form.ends].contains(&name);
    let types = match name {
        "version" => &["bigint"],
        "locked" => kinds.flag,
        _ if is_key => kinds.key,
        _ if is_holder => kinds.holder,
        _ => kinds.time,
    };
    let (kind, collation) = (&is.kind, &is.collation);
    Some(if !types.contains(&kind.as_str()) {
        format!("has the type `{kind}`, and not `{}`", types.join("` or `"))
    } else if is_time && is.decimals < kinds.decimals {
        // A time that is rounded to a second may end a lease half a second before its holder expects it.
        match kinds.decimals {
            ..=3 => "has times without milliseconds".to_owned(),
            _ => "has times without microseconds".to_owned(),
        }
    } else if is_key && !is.is_exact {
        format!(
            "has the collation `{collation}`, which takes different keys for equal, such as two that differ in case or in \
             trailing blanks, so two keys would be one lock: `{}` is exact",
            kinds.exact
        )
    } else if is_holder && !is.is_unicode {
        format!("has the collation `{collation}`, which lacks some characters")
    } else if is_holder && is.width < LONGEST_ID {
        let width = is.width;
        format!("holds {width} characters, and a claim's ID has up to {LONGEST_ID}")
    } else if is_null_while_free && !is.is_nullable {
        "may not be NULL, as it is while the key is free".to_owned()
    } else {
        return None;
    })
}
