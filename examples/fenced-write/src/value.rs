//! The values that both SQLite clients bind to a statement.

/// A value bound to a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A balance or a token.
    Number(i64),
    /// The name of an account.
    Text(&'static str),
}

/// `Statement::params` uses this to convert the token.
impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Number(number)
    }
}
