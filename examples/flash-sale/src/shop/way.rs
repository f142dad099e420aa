//! The ways to sell, and from where.

use serde::Deserialize;

/// The one shelf, and the key of its lock; of ten shelves, `flash-sale#0` to `flash-sale#9`, as a `Striped` names them.
pub(super) const SHELF: &str = "flash-sale";
pub(super) const STRIPES: usize = 10;

/// How a shop keeps two buyers apart: a word of the path.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    /// Not at all.
    Unlocked,
    /// One lock for the one shelf.
    Locked,
    /// The same, and the shelf refuses a holder that was overtaken.
    Fenced,
    /// As fenced, with the stock on ten shelves, each with a lock of its own.
    Striped,
}

impl Way {
    /// The shelves that it sells from.
    pub(super) fn shelves(self) -> Vec<String> {
        match self {
            Way::Striped => (0..STRIPES).map(|n| format!("{SHELF}#{n}")).collect(),
            Way::Unlocked | Way::Locked | Way::Fenced => vec![SHELF.to_owned()],
        }
    }
}
