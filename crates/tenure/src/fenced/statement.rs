//! A statement with its parameters in order.

use tenure_backend::FencingToken;

use super::dialect::Placeholders;
use super::name::Name;

/// SQL text and its parameters. It contains no values and can be reused.
///
/// # Examples
/// ```
/// use tenure::FencingToken;
/// use tenure::fenced::{Dialect, Fence};
///
/// let update = Fence::new(Dialect::Postgres, "accounts", &["id"])?.update(&["balance"])?;
/// assert_eq!(
///     update.sql(),
///     r#"UPDATE "accounts" SET "balance" = $1, "fence" = $2 WHERE "id" = $3 AND "fence" <= $2"#
/// );
/// let token = FencingToken::new(7).unwrap();
/// assert_eq!(update.params([100], token, [42]), [100_i64, 7, 42]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    sql: String,
    slots: Vec<Slot>,
}

/// The value to bind to one parameter.
///
/// # Examples
/// ```
/// use tenure::fenced::{Dialect, Fence, Slot};
///
/// // For clients that bind one value after the other, each of its own type.
/// let update = Fence::new(Dialect::Postgres, "accounts", &["id"])?.update(&["balance"])?;
/// let [balance, token, id] = update.slots() else { panic!("three parameters") };
/// assert_eq!((balance, token), (&Slot::Column("balance".into()), &Slot::Token));
/// assert_eq!(id, &Slot::Key("id".into()));
/// # Ok::<(), tenure::fenced::InvalidStatement>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Slot {
    /// The new value of this column.
    Column(Box<str>),
    /// The writer's token.
    Token,
    /// The value of this key column, which selects the row.
    Key(Box<str>),
}

impl Statement {
    /// The SQL text.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The values to bind, in order: columns, token, keys, each in the order in which they were given.
    ///
    /// With [`Placeholders::Question`] the token of an update is repeated at the end.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The values of all parameters, in order, for clients that take a list of one type of value.
    ///
    /// # Panics
    /// If there are more or fewer values than the statement has columns or keys.
    pub fn params<V: Clone + From<i64>>(
        &self,
        columns: impl IntoIterator<Item = V>,
        token: FencingToken,
        keys: impl IntoIterator<Item = V>,
    ) -> Vec<V> {
        let (mut columns, mut keys) = (columns.into_iter(), keys.into_iter());
        let mut value = |slot: &Slot| match slot {
            Slot::Column(_) => columns.next(),
            Slot::Token => Some(V::from(token.as_i64())),
            Slot::Key(_) => keys.next(),
        };
        let values = self.slots.iter().map_while(&mut value).collect::<Vec<_>>();
        let complete = values.len() == self.slots.len() && columns.next().is_none() && keys.next().is_none();
        assert!(
            complete,
            "a fenced statement takes one value for each of its columns and keys, in order: {:?}",
            self.slots
        );
        values
    }
}

/// A builder of a statement: of its text, and of the list of values to bind.
pub(crate) struct Writer {
    pub(crate) sql: String,
    style: Placeholders,
    token_name: Name,
    slots: Vec<Slot>,
}

impl Writer {
    pub(crate) fn new(style: Placeholders, token_name: &Name) -> Self {
        Writer {
            sql: String::new(),
            style,
            token_name: token_name.clone(),
            slots: Vec::new(),
        }
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.sql.push_str(text);
    }

    pub(crate) fn column(&mut self, name: &Name) {
        self.slot(Slot::Column(name.as_str().into()), name.as_str());
    }

    pub(crate) fn key(&mut self, name: &Name) {
        self.slot(Slot::Key(name.as_str().into()), name.as_str());
    }

    pub(crate) fn token(&mut self) {
        let name = self.token_name.clone();
        self.slot(Slot::Token, name.as_str());
    }

    fn slot(&mut self, slot: Slot, name: &str) {
        let known = self.slots.iter().position(|known| *known == slot);
        let number = match known {
            Some(at) if self.style != Placeholders::Question => at,
            _ => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        } + 1;
        let placeholder = match self.style {
            Placeholders::Question => "?".to_owned(),
            Placeholders::Dollar => format!("${number}"),
            Placeholders::Colon => format!(":{name}"),
            Placeholders::At => format!("@p{number}"),
        };
        self.sql.push_str(&placeholder);
    }

    pub(crate) fn finish(self) -> Statement {
        Statement {
            sql: self.sql,
            slots: self.slots,
        }
    }
}
