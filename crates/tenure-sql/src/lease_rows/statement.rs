//! Statements with named parameters and columns, from which the text for each kind of database is made.

use super::layout::Layout;

/// A parameter of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Param {
    Key,
    /// A claim's ID, the first word of its text.
    Id,
    /// The text that becomes the row's holder.
    Holder,
    /// The text of the holder that loses the row.
    Target,
    /// Number of tokens of a run.
    Tokens,
    /// Microseconds.
    Lease,
    /// The server's time after which the statement has no effect, in microseconds since 1970.
    Until,
    /// 1 if a renewal must not lengthen the lease.
    Shorten,
    /// The least token that a renewal leaves.
    Raise,
    /// The token that the row had.
    Seen,
    /// Beginning of keys, for a listing.
    Prefix,
    /// The key behind which a listing goes on.
    After,
    Limit,
    /// Microseconds for which a row must have been expired before it is removed.
    Idle,
}

const PARAMS: [(&str, Param); 14] = [
    ("key", Param::Key),
    ("id", Param::Id),
    ("holder", Param::Holder),
    ("target", Param::Target),
    ("tokens", Param::Tokens),
    ("lease", Param::Lease),
    ("until", Param::Until),
    ("shorten", Param::Shorten),
    ("raise", Param::Raise),
    ("seen", Param::Seen),
    ("prefix", Param::Prefix),
    ("after", Param::After),
    ("limit", Param::Limit),
    ("idle", Param::Idle),
];

#[cfg(feature = "postgres")]
impl Param {
    pub(crate) fn is_text(self) -> bool {
        matches!(Values::default().get(self), Value::Text(_))
    }
}

/// A value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Text(&'a str),
    Number(i64),
}

/// The values of a statement's parameters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Values<'a> {
    pub(crate) key: &'a str,
    pub(crate) id: &'a str,
    pub(crate) holder: &'a str,
    pub(crate) target: &'a str,
    pub(crate) tokens: i64,
    pub(crate) lease: i64,
    pub(crate) until: i64,
    pub(crate) shorten: bool,
    pub(crate) raise: i64,
    pub(crate) seen: i64,
    pub(crate) prefix: &'a str,
    pub(crate) after: &'a str,
    pub(crate) limit: i64,
    pub(crate) idle: i64,
}

impl<'a> Values<'a> {
    pub(crate) fn get(&self, param: Param) -> Value<'a> {
        match param {
            Param::Key => Value::Text(self.key),
            Param::Id => Value::Text(self.id),
            Param::Holder => Value::Text(self.holder),
            Param::Target => Value::Text(self.target),
            Param::Prefix => Value::Text(self.prefix),
            Param::After => Value::Text(self.after),
            Param::Tokens => Value::Number(self.tokens),
            Param::Lease => Value::Number(self.lease),
            Param::Until => Value::Number(self.until),
            Param::Shorten => Value::Number(self.shorten.into()),
            Param::Raise => Value::Number(self.raise),
            Param::Seen => Value::Number(self.seen),
            Param::Limit => Value::Number(self.limit),
            Param::Idle => Value::Number(self.idle),
        }
    }
}

/// A statement, ready to be sent.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    /// The parameters in the order in which the text names them.
    pub(crate) params: Vec<Param>,
}

/// How a kind of database writes what the layouts have in common.
pub(crate) trait Dialect {
    /// The name `$1`, or `?`, of the parameter with this index, with its type.
    fn placeholder(&self, index: usize, param: Param) -> String;

    /// Whether a parameter that stands twice in a text is sent once.
    const SHARES_PARAMETERS: bool;

    /// Expressions by their names in templates. An expression may contain others.
    fn expression(&self, name: &str) -> Option<String>;
}

/// All statements of a layout.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) layout: Layout,
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

impl Statement {
    /// Makes a statement from a template: `:name` is a parameter, `{name}` an expression of the dialect.
    pub(crate) fn new<D: Dialect>(dialect: &D, template: &str) -> Statement {
        let text = expand(dialect, template);
        let mut params: Vec<Param> = Vec::new();
        let mut sql = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(':') {
            sql.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            let len = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
            let Some((_, param)) = PARAMS.iter().find(|(name, _)| *name == &rest[..len]) else {
                // The colons of `::type`, and of a time zone.
                sql.push(':');
                continue;
            };
            let known = params
                .iter()
                .position(|one| one == param)
                .filter(|_| D::SHARES_PARAMETERS);
            let index = known.unwrap_or_else(|| {
                params.push(*param);
                params.len() - 1
            });
            sql.push_str(&dialect.placeholder(index, *param));
            rest = &rest[len..];
        }
        sql.push_str(rest);
        Statement {
            sql: sql.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            params,
        }
    }
}

fn expand<D: Dialect>(dialect: &D, template: &str) -> String {
    let mut text = template.to_owned();
    while let Some((start, end)) = text
        .find('{')
        .and_then(|start| Some((start, start + text[start..].find('}')?)))
    {
        let name = &text[start + 1..end];
        let expression = dialect.expression(name).unwrap_or_default();
        debug_assert!(!expression.is_empty(), "a template names `{name}`");
        text.replace_range(start..=end, &expression);
    }
    text
}
