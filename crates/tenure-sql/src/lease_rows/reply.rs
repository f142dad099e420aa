//! What statements answer.

use std::time::Duration;

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

/// What a statement has done.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Number of rows that were changed.
    pub(crate) changed: u64,
    pub(crate) rows: Vec<Row>,
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
