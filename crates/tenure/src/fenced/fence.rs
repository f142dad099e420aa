//! The statements of a fenced table.

use super::dialect::{Dialect, Placeholders};
use super::name::{InvalidName, Name, Table};
use super::statement::{Statement, Writer};

/// A table whose rows remember the greatest fencing token that has written them.
///
/// Makes the text of statements that write a row only if the writer's token is not older. Names are checked and
/// quoted, so that they cannot contain SQL, and values are always parameters.
///
/// # Examples
/// ```
/// use tenure::fenced::{Dialect, Fence};
///
/// let accounts = Fence::new(Dialect::MySql, "bank.accounts", &["branch", "id"])?.column("written_by")?;
/// assert_eq!(
///     accounts.update(&["balance"])?.sql(),
///     "UPDATE `bank`.`accounts` SET `balance` = ?, `written_by` = ? \
///      WHERE `branch` = ? AND `id` = ? AND `written_by` <= ?"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fence {
    pub(crate) dialect: Dialect,
    placeholders: Placeholders,
    pub(crate) table: Table,
    pub(crate) keys: Vec<Name>,
    pub(crate) fence: Name,
}

/// The reason why a fence or a statement cannot be built.
///
/// # Examples
/// ```
/// use tenure::fenced::{InvalidStatement, Dialect, Fence};
///
/// let fence = |keys: &[&str]| Fence::new(Dialect::Sqlite, "accounts", keys);
/// assert_eq!(fence(&[]).unwrap_err(), InvalidStatement::NoKey);
/// assert_eq!(fence(&["id"])?.update(&["id"]), Err(InvalidStatement::Twice("id".into())));
/// # Ok::<(), InvalidStatement>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidStatement {
    /// A name is not valid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A column is named twice: as a key, as a written column, or as the fence.
    #[error("the column {0:?} is named twice: a column is a key, is written, or is the fence")]
    Twice(Box<str>),
    /// No key column is named: a statement would write every row of the table.
    #[error("a fenced table has at least one key column: without it a statement would write every row")]
    NoKey,
    /// An upsert on MySQL, whose row count does not show whether the upsert was refused.
    #[error(
        "on MySQL the number of rows does not tell a refused upsert from one that wrote: use `insert`, and `update` if that wrote no row"
    )]
    Upsert,
}

impl Fence {
    /// A fence on `table` (or `schema.table`), whose rows are found by the columns `keys`. The column that remembers
    /// the token is called `fence`.
    ///
    /// That column must be an integer of 64 bits and NOT NULL, as [`column_ddl`](Fence::column_ddl) makes it. If it is
    /// NULL, every write of the row is refused, as if a newer token had written it. If it is a text, `'10'` is less than
    /// `'9'`, so an older token may write.
    ///
    /// # Errors
    /// [`InvalidStatement`] if a name is not plain (ASCII letters, digits, `_`), a column is named twice, or no key is named.
    pub fn new(dialect: Dialect, table: &str, keys: &[&str]) -> Result<Self, InvalidStatement> {
        let fence = Fence {
            dialect,
            placeholders: dialect.placeholders(),
            table: Table::new(table)?,
            keys: names(keys)?,
            fence: Name::new("fence")?,
        };
        if fence.keys.is_empty() {
            return Err(InvalidStatement::NoKey);
        }
        fence.check_twice(&[])?;
        Ok(fence)
    }

    /// Sets another name for the column that remembers the token.
    ///
    /// # Errors
    /// [`InvalidStatement`] if the name is not plain, or is the name of a key.
    pub fn column(mut self, name: &str) -> Result<Self, InvalidStatement> {
        self.fence = Name::new(name)?;
        self.check_twice(&[])?;
        Ok(self)
    }

    /// Sets the syntax of parameters, for a client that does not accept the usual one of its database.
    #[must_use]
    pub fn placeholders(mut self, placeholders: Placeholders) -> Self {
        self.placeholders = placeholders;
        self
    }

    /// `UPDATE … SET columns, fence WHERE keys AND fence <= token`. Pass the row count to
    /// [`applied`](crate::fenced::applied).
    ///
    /// Without columns the statement only fences the row: holders with an older token can no longer write it.
    ///
    /// # Errors
    /// [`InvalidStatement`] if a name is not plain or named twice.
    pub fn update(&self, columns: &[&str]) -> Result<Statement, InvalidStatement> {
        let columns = self.written(columns)?;
        let mut out = self.writer();
        out.text(&format!("UPDATE {} SET ", self.dialect.quote_table(&self.table)));
        for column in &columns {
            out.text(&format!("{} = ", self.dialect.quote(column)));
            out.column(column);
            out.text(", ");
        }
        let fence = self.dialect.quote(&self.fence);
        out.text(&format!("{fence} = "));
        out.token();
        self.where_keys(&mut out);
        out.text(&format!(" AND {fence} <= "));
        out.token();
        Ok(out.finish())
    }

    /// Inserts a row. If a row with these keys exists, writes nothing and counts no row: then [`update`](Fence::update)
    /// that row. The keys must be unique together.
    ///
    /// On MySQL it is `INSERT IGNORE`: a row with other keys but an equal value in another unique index also prevents the
    /// insert, and values that do not fit are truncated or changed, with a warning instead of an error.
    ///
    /// # Errors
    /// [`InvalidStatement`] if a name is not plain or named twice.
    pub fn insert(&self, columns: &[&str]) -> Result<Statement, InvalidStatement> {
        let columns = self.written(columns)?;
        let mut out = self.writer();
        let ignore = if self.dialect == Dialect::MySql {
            "IGNORE "
        } else {
            ""
        };
        self.insert_row(&mut out, ignore, &columns);
        if self.dialect != Dialect::MySql {
            out.text(&format!(" ON CONFLICT ({}) DO NOTHING", self.list(&self.keys)));
        }
        Ok(out.finish())
    }

    /// Inserts the row, or updates it unless its token is newer. Pass the row count to [`applied`](crate::fenced::applied).
    /// The keys must be unique together.
    ///
    /// # Errors
    /// [`InvalidStatement::Upsert`] on MySQL, whose row count does not show a refusal; else as [`update`](Fence::update).
    pub fn upsert(&self, columns: &[&str]) -> Result<Statement, InvalidStatement> {
        if self.dialect == Dialect::MySql {
            return Err(InvalidStatement::Upsert);
        }
        let columns = self.written(columns)?;
        let mut out = self.writer();
        self.insert_row(&mut out, "", &columns);
        let sets: Vec<_> = columns
            .iter()
            .chain([&self.fence])
            .map(|column| self.dialect.quote(column))
            .map(|column| format!("{column} = excluded.{column}"))
            .collect();
        let (table, fence) = (
            self.dialect.quote(&self.table.name),
            self.dialect.quote(&self.fence),
        );
        out.text(&format!(
            " ON CONFLICT ({}) DO UPDATE SET {} WHERE {table}.{fence} <= excluded.{fence}",
            self.list(&self.keys),
            sets.join(", ")
        ));
        Ok(out.finish())
    }

    /// `SELECT fence … WHERE keys`: shows after a refusal whether a newer token has written the row, or no row exists.
    pub fn read(&self) -> Statement {
        let mut out = self.writer();
        out.text(&format!(
            "SELECT {} FROM {}",
            self.dialect.quote(&self.fence),
            self.dialect.quote_table(&self.table)
        ));
        self.where_keys(&mut out);
        out.finish()
    }

    /// The statement that adds the fence's column to an existing table. Existing rows get 0, which is older than every
    /// token.
    pub fn column_ddl(&self) -> String {
        format!(
            "ALTER TABLE {} ADD COLUMN {} BIGINT NOT NULL DEFAULT 0",
            self.dialect.quote_table(&self.table),
            self.dialect.quote(&self.fence)
        )
    }

    fn writer(&self) -> Writer {
        Writer::new(self.placeholders, &self.fence)
    }

    fn where_keys(&self, out: &mut Writer) {
        for (at, key) in self.keys.iter().enumerate() {
            let before = if at == 0 { " WHERE" } else { " AND" };
            out.text(&format!("{before} {} = ", self.dialect.quote(key)));
            out.key(key);
        }
    }

    /// Writes `INSERT` with the values in the order that every fenced statement has: columns, token, keys.
    fn insert_row(&self, out: &mut Writer, ignore: &str, columns: &[Name]) {
        let all: Vec<_> = columns
            .iter()
            .chain([&self.fence])
            .chain(&self.keys)
            .cloned()
            .collect();
        let table = self.dialect.quote_table(&self.table);
        out.text(&format!(
            "INSERT {ignore}INTO {table} ({}) VALUES (",
            self.list(&all)
        ));
        for column in columns {
            out.column(column);
            out.text(", ");
        }
        out.token();
        for key in &self.keys {
            out.text(", ");
            out.key(key);
        }
        out.text(")");
    }

    fn list(&self, names: &[Name]) -> String {
        let quoted: Vec<_> = names.iter().map(|name| self.dialect.quote(name)).collect();
        quoted.join(", ")
    }

    fn written(&self, columns: &[&str]) -> Result<Vec<Name>, InvalidStatement> {
        let columns = names(columns)?;
        self.check_twice(&columns)?;
        Ok(columns)
    }

    /// Refuses a column that is named twice, in upper or lower case: databases fold the case, some also of quoted
    /// names.
    fn check_twice(&self, columns: &[Name]) -> Result<(), InvalidStatement> {
        let mut seen: Vec<&str> = Vec::new();
        for name in columns
            .iter()
            .chain(&self.keys)
            .chain([&self.fence])
            .map(Name::as_str)
        {
            if seen.iter().any(|other| other.eq_ignore_ascii_case(name)) {
                return Err(InvalidStatement::Twice(name.into()));
            }
            seen.push(name);
        }
        Ok(())
    }
}

fn names(names: &[&str]) -> Result<Vec<Name>, InvalidName> {
    names.iter().map(|name| Name::new(name)).collect()
}
