//! The SQL dialects, and how they write parameters.

use super::name::{Name, Table};

/// The database that a statement is for.
///
/// # Examples
/// ```
/// use tenure::fenced::{Dialect, Fence};
///
/// let update = |dialect| Fence::new(dialect, "accounts", &["id"])?.update(&[]);
/// assert_eq!(
///     update(Dialect::Postgres)?.sql(),
///     r#"UPDATE "accounts" SET "fence" = $1 WHERE "id" = $2 AND "fence" <= $1"#
/// );
/// assert_eq!(
///     update(Dialect::Sqlite)?.sql(),
///     "UPDATE `accounts` SET `fence` = ? WHERE `id` = ? AND `fence` <= ?"
/// );
/// # Ok::<(), tenure::fenced::InvalidStatement>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// SQLite, 3.24 and later.
    Sqlite,
    /// PostgreSQL, 11 and later.
    Postgres,
    /// MySQL 5.7, MariaDB 10.2 and later.
    MySql,
}

/// The syntax of parameters.
///
/// # Examples
/// ```
/// use tenure::fenced::{Dialect, Fence, Placeholders};
///
/// let accounts = Fence::new(Dialect::Sqlite, "accounts", &["id"])?.placeholders(Placeholders::Colon);
/// let update = accounts.update(&["balance"])?;
/// assert!(update.sql().starts_with("UPDATE `accounts` SET `balance` = :balance"));
/// # Ok::<(), tenure::fenced::InvalidStatement>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Placeholders {
    /// `?`, by position; a value that is used twice is bound twice. For most clients of SQLite and MySQL.
    Question,
    /// `$1`, by number. For clients of PostgreSQL.
    Dollar,
    /// `:balance`, by the column's name.
    Colon,
    /// `@p1`, by number.
    At,
}

impl Dialect {
    /// The syntax that the usual clients of the database accept: `$1` on PostgreSQL, else `?`.
    pub(crate) fn placeholders(self) -> Placeholders {
        match self {
            Dialect::Postgres => Placeholders::Dollar,
            Dialect::Sqlite | Dialect::MySql => Placeholders::Question,
        }
    }

    /// Quotes a name as an identifier, so that it may be a reserved word.
    pub(crate) fn quote(self, name: &Name) -> String {
        match self {
            Dialect::Postgres => format!("\"{}\"", name.as_str()),
            // SQLite reads a misspelt column name in double quotes as a string.
            Dialect::Sqlite | Dialect::MySql => format!("`{}`", name.as_str()),
        }
    }

    pub(crate) fn quote_table(self, table: &Table) -> String {
        self.quote_beside(table, &table.name)
    }

    /// Quotes a name and qualifies it with the table's schema, if the table has one.
    pub(crate) fn quote_beside(self, table: &Table, name: &Name) -> String {
        match &table.schema {
            Some(schema) => format!("{}.{}", self.quote(schema), self.quote(name)),
            None => self.quote(name),
        }
    }
}
