//! The values that both SQLite clients bind to a statement.

/// A value of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A balance or a token.
    Number(i64),
    /// The account.
    Text(&'static str),
}

/// `Statement::params` converts the token into a value with this.
impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Number(number)
    }
}
