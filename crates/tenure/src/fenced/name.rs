//! Names of tables and columns: accepts only plain names, so that no name can inject SQL.

use std::fmt;

/// Maximum length of a name: PostgreSQL silently cuts longer names, and MySQL refuses more than 64.
const LONGEST: usize = 63;

/// The error for an invalid name of a table or a column.
///
/// # Examples
/// ```
/// use tenure::fenced::{InvalidName, InvalidStatement, Dialect, Fence};
///
/// let refused = Fence::new(Dialect::Sqlite, "accounts; DROP TABLE accounts", &["id"]).unwrap_err();
/// assert!(matches!(refused, InvalidStatement::Name(InvalidName::Character { found: ';', .. })));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// The name is empty.
    #[error("a name of a table or a column is empty")]
    Empty,
    /// The name has a character that is neither an ASCII letter, a digit nor `_`, or begins with a digit.
    #[error(
        "{name:?} is not a plain name: it may have ASCII letters, digits and _, and does not begin with a digit ({found:?} is in the way)"
    )]
    Character {
        /// The invalid name.
        name: Box<str>,
        /// The first character that is not allowed.
        found: char,
    },
    /// The name is longer than 63 characters.
    #[error("the name {name:?} has more than {LONGEST} characters, which not every database keeps apart")]
    TooLong {
        /// The invalid name.
        name: Box<str>,
    },
    /// A table's name has more than two parts, separated by dots.
    #[error("{name:?} has more than two parts: a table is named `table` or `schema.table`")]
    Parts {
        /// The invalid name.
        name: Box<str>,
    },
}

/// A checked name. It is always quoted, so its case counts: on PostgreSQL, a table that was created as `Accounts`
/// without quotes must be named `accounts`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Name(Box<str>);

impl Name {
    pub(crate) fn new(name: &str) -> Result<Self, InvalidName> {
        let Some(first) = name.chars().next() else {
            return Err(InvalidName::Empty);
        };
        let strange = |c: &char| !c.is_ascii_alphanumeric() && *c != '_';
        let bad = Some(first)
            .filter(char::is_ascii_digit)
            .or_else(|| name.chars().find(strange));
        if let Some(found) = bad {
            return Err(InvalidName::Character {
                name: name.into(),
                found,
            });
        }
        if name.len() > LONGEST {
            return Err(InvalidName::TooLong { name: name.into() });
        }
        Ok(Name(name.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A table, perhaps in a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) schema: Option<Name>,
    pub(crate) name: Name,
}

impl Table {
    pub(crate) fn new(text: &str) -> Result<Self, InvalidName> {
        let (schema, name) = match text.split_once('.') {
            Some((_, name)) if name.contains('.') => return Err(InvalidName::Parts { name: text.into() }),
            Some((schema, name)) => (Some(Name::new(schema)?), Name::new(name)?),
            None => (None, Name::new(text)?),
        };
        Ok(Table { schema, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_nothing_but_a_name() {
        for bad in [
            "", "a b", "a;b", "a\"b", "a`b", "a'b", "a]b", "a-b", "a\0b", "a\nb", "1a", "ä", "a$b", "a.b",
            "--", "*",
        ] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "_", "A1", "order", "SELECT", &"n".repeat(63)] {
            assert_eq!(
                Name::new(good).map(|name| name.as_str().to_owned()),
                Ok(good.to_owned())
            );
        }
        assert!(matches!(
            Name::new(&"n".repeat(64)),
            Err(InvalidName::TooLong { .. })
        ));
    }

    #[test]
    fn a_table_may_be_in_a_schema() {
        let table = Table::new("bank.accounts").expect("two parts are a schema and a table");
        assert_eq!(table.schema, Some(Name("bank".into())));
        assert_eq!(table.name, Name("accounts".into()));
        for bad in ["a.b.c", ".a", "a.", ".", "a..b", "a.b;"] {
            assert!(Table::new(bad).is_err(), "{bad:?}");
        }
    }
}
