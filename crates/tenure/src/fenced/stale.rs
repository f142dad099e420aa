//! The refusal of a write, and how to detect it from a row count.

use tenure_backend::FencingToken;

/// The words in every refusal by a [guard](crate::fenced::Fence::guard)'s triggers, or by a
/// [`RedisFence`](crate::fenced::RedisFence)'s scripts, which distinguish it from other errors of the database.
pub const REFUSED: &str = "refused by fence";

/// The error of a refused write: a newer token has written. Stop: another client has acquired the lock since.
///
/// A write to a row that does not exist fails with the same error: see [`applied`].
///
/// # Examples
/// ```
/// use tenure::fenced::{Stale, applied};
///
/// assert_eq!(applied(1), Ok(()));
/// assert_eq!(applied(0), Err(Stale::new(None)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the write was refused: {}",
    match .newest {
        Some(newest) => format!("its fencing token is older than {newest}, which has written since"),
        None => "a newer fencing token has written the row, or there is no such row".to_owned(),
    }
)]
#[non_exhaustive]
pub struct Stale {
    /// The greatest token that has written; `None` if unknown: a row count and a trigger's error do not name it.
    pub newest: Option<FencingToken>,
}

impl Stale {
    /// Creates the error of a write that was refused because `newest` has written; `None` if that token is unknown.
    pub const fn new(newest: Option<FencingToken>) -> Stale {
        Stale { newest }
    }

    /// Reads the text of an error of a database or of Redis. `None` if it is not the refusal of a fenced write.
    ///
    /// # Examples
    /// ```
    /// use tenure::fenced::Stale;
    ///
    /// assert_eq!(Stale::in_error("OOM command not allowed"), None);
    /// let stale = Stale::in_error("refused by fence: a newer token has written this row");
    /// assert_eq!(stale, Some(Stale::new(None)));
    /// ```
    pub fn in_error(text: &str) -> Option<Stale> {
        let (_, rest) = text.split_once(REFUSED)?;
        let newest = rest
            .strip_prefix(": token ")
            .and_then(|rest| rest.split(' ').next());
        Some(Stale {
            newest: newest.and_then(|newest| newest.parse().ok()),
        })
    }
}

/// Interprets the number of rows that a fenced statement has written: zero means that the write was refused.
///
/// A write to a row that does not exist counts as refused too: [`Fence::read`](crate::fenced::Fence::read) shows whether
/// the row exists. MySQL counts only rows that *changed*, unless the client sets `CLIENT_FOUND_ROWS`, as sqlx does.
/// Without it, a repeated write of equal values with an equal token counts as refused, although the row has these values.
///
/// # Errors
/// [`Stale`] if no row was written (or fewer than none).
pub fn applied(rows: impl TryInto<u64>) -> Result<(), Stale> {
    match rows.try_into() {
        Ok(1..) => Ok(()),
        Ok(0) | Err(_) => Err(Stale { newest: None }),
    }
}
