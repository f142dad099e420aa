//! Statements with named parameters and columns, from which the text for each kind of database is made.

use std::collections::HashMap;

use super::layout::Layout;
use super::reply::{Outcome, seen};
use crate::server::dial::Session;
use crate::server::error::Failure;
use crate::server::template::fill;
use crate::server::values::{Answer, Value};

/// The values of a statement's parameters. A template calls a parameter by the name of its field.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Values<'a> {
    pub(crate) key: &'a str,
    /// A claim's ID, the first word of its text.
    pub(crate) id: &'a str,
    /// The text that becomes the row's holder.
    pub(crate) holder: &'a str,
    /// The text of the holder that loses the row.
    pub(crate) target: &'a str,
    /// Number of tokens of a run.
    pub(crate) tokens: i64,
    /// Microseconds.
    pub(crate) lease: i64,
    /// The server's time after which the statement has no effect, in microseconds since 1970.
    pub(crate) until: i64,
    /// Whether a renewal must not lengthen the lease.
    pub(crate) shorten: bool,
    /// The least token that a renewal leaves.
    pub(crate) raise: i64,
    /// The token that the row had.
    pub(crate) seen: i64,
    /// Beginning of keys, for a listing.
    pub(crate) prefix: &'a str,
    /// The key behind which a listing goes on.
    pub(crate) after: &'a str,
    pub(crate) limit: i64,
}

impl<'a> Values<'a> {
    /// The value of the parameter with this name, if there is one.
    fn get(&self, name: &str) -> Option<Value<'a>> {
        Some(match name {
            "key" => Value::Text(self.key),
            "id" => Value::Text(self.id),
            "holder" => Value::Text(self.holder),
            "target" => Value::Text(self.target),
            "tokens" => Value::Number(self.tokens),
            "lease" => Value::Number(self.lease),
            "until" => Value::Number(self.until),
            "shorten" => Value::Number(self.shorten.into()),
            "raise" => Value::Number(self.raise),
            "seen" => Value::Number(self.seen),
            "prefix" => Value::Text(self.prefix),
            "after" => Value::Text(self.after),
            "limit" => Value::Number(self.limit),
            _ => return None,
        })
    }
}

/// A statement, ready to be sent.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    /// The names of the parameters, in the order in which the text has them.
    params: Vec<String>,
}

impl Statement {
    /// Runs a statement whose answer are locks' rows, if it has any. Learns the server's time from it.
    pub(crate) async fn run<S: Session>(
        &self,
        session: &mut S,
        values: &Values<'_>,
    ) -> Result<Outcome, Failure> {
        let Answer { mut rows, changed } = session.run(&self.sql, &self.bind(values)).await?;
        let rows = rows.iter_mut().map(seen).collect::<Result<Vec<_>, _>>()?;
        if let Some((_, time)) = rows.last() {
            session.learn(*time);
        }
        Ok(Outcome { changed, rows })
    }

    /// The values in the order in which the text has their parameters.
    pub(crate) fn bind<'a>(&self, values: &Values<'a>) -> Vec<Value<'a>> {
        let params = self.params.iter();
        params.filter_map(|name| values.get(name)).collect()
    }
}

/// How a kind of database writes the table and the statements of a layout.
pub(crate) struct Dialect {
    /// Writes a parameter with its number and type; it is sent once, however often it stands in the text. `None`: each is
    /// a `?` of its own.
    numbered: Option<fn(usize, Value<'_>) -> String>,
    /// Expressions and statements by their names. A text may contain others: `{name}`.
    texts: HashMap<&'static str, String>,
}

impl Dialect {
    /// Adds the columns that all layouts have to the texts. Of two texts with one name, the later one counts.
    pub(crate) fn new<'a>(
        layout: Layout,
        numbered: Option<fn(usize, Value<'_>) -> String>,
        texts: impl IntoIterator<Item = &'a (&'static str, &'a str)>,
    ) -> Dialect {
        let form = layout.form();
        let columns = [
            ("key", form.key),
            ("holder", form.holder),
            ("ends", form.ends),
            ("changed", form.changed),
        ];
        let all = columns.into_iter().chain(texts.into_iter().copied());
        Dialect {
            numbered,
            texts: all.map(|(name, text)| (name, text.to_owned())).collect(),
        }
    }

    /// Makes the statement with this name; `None` if the layout has none. In its text, `:name` is a parameter.
    fn statement(&self, name: &str) -> Option<Statement> {
        let text = self.expand(self.texts.get(name)?);
        let mut params: Vec<String> = Vec::new();
        let mut sql = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once(':') {
            sql.push_str(before);
            let len = after
                .find(|c: char| !c.is_ascii_lowercase())
                .unwrap_or(after.len());
            let (name, behind) = after.split_at(len);
            let Some(value) = Values::default().get(name) else {
                // The colons of `::type`, and of a time zone.
                sql.push(':');
                rest = after;
                continue;
            };
            rest = behind;
            let known = params.iter().position(|param| param == name);
            let index = known.filter(|_| self.numbered.is_some()).unwrap_or(params.len());
            if index == params.len() {
                params.push(name.to_owned());
            }
            let parameter = self.numbered.map(|write| write(index + 1, value));
            sql.push_str(parameter.as_deref().unwrap_or("?"));
        }
        sql.push_str(rest);
        Some(Statement {
            sql: sql.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            params,
        })
    }

    /// Writes the texts out that a text contains.
    pub(crate) fn expand(&self, text: &str) -> String {
        let text_of = |name: &str| {
            let found = self.texts.get(name);
            debug_assert!(found.is_some(), "a text names `{name}`");
            found.map_or("", String::as_str)
        };
        let filled = fill(text, text_of);
        match filled == text {
            true => filled,
            false => self.expand(&filled),
        }
    }
}

/// All statements of a layout.
#[derive(Debug)]
pub(crate) struct Statements {
    /// Takes a row if it is free.
    pub(crate) take: Statement,
    /// Inserts a missing row; only for a database whose `take` does not.
    #[cfg(feature = "mysql")]
    pub(crate) insert: Option<Statement>,
    /// Reads one row.
    pub(crate) look: Statement,
    pub(crate) renew: Statement,
    /// Releases a row whose lease has not ended.
    pub(crate) release: Statement,
    /// Releases a row whose lease has ended, so that nothing is left of it, and for programs that do not know the end of a
    /// lease; `None` if the row stays as it is.
    pub(crate) clear: Option<Statement>,
    /// Takes a row from its holder, and keeps it from being taken for a cooldown.
    pub(crate) evict: Statement,
    /// Frees a row after the cooldown of an eviction; `None` if it frees itself.
    pub(crate) settle: Option<Statement>,
    pub(crate) list: Statement,
    /// Removes rows that have expired; `None` if rows stay.
    pub(crate) sweep: Option<Statement>,
}

impl Statements {
    /// The statements that a dialect has under these names.
    pub(crate) fn new(dialect: &Dialect) -> Self {
        let optional = |name| dialect.statement(name);
        let needed =
            |name| optional(name).unwrap_or_else(|| panic!("each layout has the statement `{name}`"));
        Statements {
            take: needed("take"),
            #[cfg(feature = "mysql")]
            insert: optional("insert"),
            look: needed("look"),
            renew: needed("renew"),
            release: needed("release"),
            clear: optional("clear"),
            evict: needed("evict"),
            settle: optional("settle"),
            list: needed("list"),
            sweep: optional("sweep"),
        }
    }
}

#[cfg(feature = "mysql")]
impl Statements {
    /// All statements that the driver may send.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Statement> {
        let always = [
            &self.take,
            &self.look,
            &self.renew,
            &self.release,
            &self.evict,
            &self.list,
        ];
        let others = [&self.insert, &self.clear, &self.settle, &self.sweep];
        always.into_iter().chain(others.into_iter().flatten())
    }
}
