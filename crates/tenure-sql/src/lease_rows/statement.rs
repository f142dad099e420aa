//! Statements with named parameters and columns, from which the text for each kind of database is made.

use std::collections::HashMap;

use super::layout::Layout;
use super::reply::{Outcome, seen};
use crate::server::Config;
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
    /// The value of the parameter with this name.
    fn get(&self, name: &str) -> Value<'a> {
        match name {
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
            _ => panic!("a statement names the parameter `{name}`"),
        }
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
        self.params.iter().map(|name| values.get(name)).collect()
    }
}

/// How a kind of database writes the table and the statements of a layout.
pub(crate) struct Dialect {
    /// Writes a parameter with its number and type; it is sent once, however often it stands in the text. `None`: each is
    /// a `?` of its own.
    numbered: Option<fn(usize, Value<'_>) -> String>,
    /// Expressions and statements by their names. `{name}` in a text stands for another, `{:name}` for a parameter.
    texts: HashMap<&'static str, String>,
}

impl Dialect {
    /// Collects the texts. `of_all`: a file of texts for all layouts. `of_each`: those of each, as [`Layout::ALL`] is ordered.
    /// `others`: what only this kind of database has. Of two texts with one name, the later one counts.
    pub(crate) fn new<const N: usize>(
        config: &Config,
        numbered: Option<fn(usize, Value<'_>) -> String>,
        of_all: &'static str,
        of_each: [&'static str; Layout::ALL.len()],
        others: [(&'static str, String); N],
    ) -> Dialect {
        let form = config.layout.form();
        let common = [
            ("key", form.key.to_owned()),
            ("holder", form.holder.to_owned()),
            ("ends", form.ends.to_owned()),
            ("changed", form.changed.to_owned()),
            ("table", config.table_name()),
            ("clock", config.server_clock.clone()),
            ("idle", config.sweep_after.as_micros().to_string()),
        ];
        let files = read(of_all).chain(read(of_each[config.layout as usize]));
        Dialect {
            numbered,
            texts: common.into_iter().chain(files).chain(others).collect(),
        }
    }

    /// Makes the statement with this name; `None` if the layout has none.
    pub(crate) fn statement(&self, name: &str) -> Option<Statement> {
        let mut params = Vec::new();
        let sql = self.write(self.texts.get(name)?, &mut params);
        Some(Statement { sql, params })
    }

    /// Writes out a text without parameters.
    pub(crate) fn expand(&self, text: &str) -> String {
        self.write(text, &mut Vec::new())
    }

    /// Writes out the texts and the parameters that a text contains.
    fn write(&self, text: &str, params: &mut Vec<String>) -> String {
        fill(text, |name| match name.strip_prefix(':') {
            Some(name) => self.parameter(name, params),
            None => self.write(&self.texts[name], params),
        })
    }

    fn parameter(&self, name: &str, params: &mut Vec<String>) -> String {
        let known = params.iter().position(|param| param == name);
        let index = known.filter(|_| self.numbered.is_some()).unwrap_or(params.len());
        if index == params.len() {
            params.push(name.to_owned());
        }
        self.numbered.map_or_else(
            || "?".to_owned(),
            |write| write(index + 1, Values::default().get(name)),
        )
    }
}

/// Reads the texts of a file. Each follows a line with its name, `-- name: take`. Other lines with `--` are comments.
fn read(file: &'static str) -> impl Iterator<Item = (&'static str, String)> {
    let parts = file.split("-- name: ").skip(1);
    parts.map(|part| {
        let (name, text) = part.split_once('\n').unwrap_or((part, ""));
        let lines = text.lines().filter(|line| !line.starts_with("--"));
        (name, lines.collect::<Vec<_>>().join("\n").trim().to_owned())
    })
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
            |name| optional(name).unwrap_or_else(|| panic!("no layout lacks the statement `{name}`"));
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
