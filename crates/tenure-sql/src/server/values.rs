//! What goes to a server and comes back, in the same form for each kind of database.

use std::str::FromStr;
use std::vec;

use tenure_backend::BackendError;

use super::error::unexpected_reply;

/// A value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Text(&'a str),
    Number(i64),
}

/// What a statement has answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) rows: Vec<Cells>,
    /// Number of rows that were changed.
    pub(crate) changed: u64,
}

/// The values of a row, as texts, that were not read yet. Truth is a number.
#[derive(Debug)]
pub(crate) struct Cells(pub(crate) vec::IntoIter<Option<String>>);

impl Cells {
    pub(crate) fn text(&mut self) -> Option<String> {
        self.0.next().flatten()
    }

    pub(crate) fn number<T: FromStr>(&mut self) -> Result<Option<T>, BackendError> {
        let number = self.text().map(|text| text.parse());
        number.transpose().map_err(|_| unexpected_reply())
    }

    pub(crate) fn flag(&mut self) -> Result<bool, BackendError> {
        Ok(self.number::<i64>()?.is_some_and(|number| number != 0))
    }
}
