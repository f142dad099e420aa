//! What statements answer.

use std::time::Duration;

use tenure_backend::BackendError;

use crate::server::error::unexpected_reply;
use crate::server::values::Cells;

/// A lock's row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) holder: Option<String>,
    /// Last token of the run; `None` on a layout without tokens.
    pub(crate) token: Option<i64>,
    /// The lease has not ended, and the row was not released.
    pub(crate) is_held: bool,
    /// What is left of the lease; `None` if it never ends.
    pub(crate) left: Option<Duration>,
}

impl Row {
    /// Returns whether the row is, or was, that of the claim with this ID.
    pub(crate) fn is_of(&self, id: &str) -> bool {
        let holder = self.holder.as_deref().unwrap_or_default();
        holder.split(' ').next() == Some(id)
    }
}

/// A lock's row, unless it is missing, and the server's time in microseconds since 1970.
pub(crate) type Seen = (Option<Row>, i64);

/// Reads the columns that the statements call `row`.
pub(crate) fn seen(cells: &mut Cells) -> Result<Seen, BackendError> {
    let (key, holder, token) = (cells.text(), cells.text(), cells.number()?);
    let (is_held, left) = (cells.flag()?, cells.number::<i64>()?);
    let row = key.map(|key| Row {
        key,
        holder,
        token,
        is_held,
        left: left.map(|left| Duration::from_micros(u64::try_from(left).unwrap_or_default())),
    });
    Ok((row, cells.number()?.ok_or_else(unexpected_reply)?))
}

/// What a statement has done.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Number of rows that were changed.
    pub(crate) changed: u64,
    pub(crate) rows: Vec<Seen>,
}

impl Outcome {
    /// The locks' rows that are there.
    pub(crate) fn rows(self) -> impl Iterator<Item = Row> {
        self.rows.into_iter().filter_map(|(row, _)| row)
    }
}

/// What became of a claim that asked for its row.
#[derive(Debug, PartialEq)]
pub(crate) enum Taken {
    /// The claim holds the row. Last token of its run; `None` on a layout without tokens.
    Granted(Option<i64>),
    /// It already held it, and keeps the same tokens: the reply to an earlier request was lost.
    Own(Option<i64>),
    /// The row was the claim's, and the lease has ended.
    Ended,
    /// Another holds the row. What is left of its lease; `None` if it never ends, or is not known.
    Busy(Option<Duration>),
    /// The request came too late. Nothing was changed.
    Late,
}

impl Taken {
    /// Classifies a row that a statement did not take. `late`: the statement's time limit has passed.
    pub(crate) fn refused(row: Option<&Row>, id: &str, late: bool) -> Taken {
        match row {
            Some(row) if row.is_of(id) && row.is_held => Taken::Own(row.token),
            Some(row) if row.is_of(id) => Taken::Ended,
            Some(row) if row.is_held => Taken::Busy(row.left),
            _ if late => Taken::Late,
            // Another session is at the row, or has just been.
            _ => Taken::Busy(Some(Duration::ZERO)),
        }
    }
}
