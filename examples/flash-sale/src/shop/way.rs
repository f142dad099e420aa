//! The ways to sell, with their shelves.

use serde::Deserialize;

/// The single shelf, and the key of its lock. Ten shelves are named `flash-sale#0` to `flash-sale#9`, as `Striped` does.
pub(super) const SHELF: &str = "flash-sale";
pub(super) const STRIPES: usize = 10;

/// How a shop keeps two buyers apart. A segment of the path.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    /// Not at all.
    Unlocked,
    /// One lock for the single shelf.
    Locked,
    /// Like `Locked`, and the shelf refuses a holder that was overtaken.
    Fenced,
    /// Like `Fenced`, with the stock on ten shelves that have a lock each.
    Striped,
}

impl Way {
    /// The shelves of this way.
    pub(super) fn shelves(self) -> Vec<String> {
        match self {
            Way::Striped => (0..STRIPES).map(|n| format!("{SHELF}#{n}")).collect(),
            Way::Unlocked | Way::Locked | Way::Fenced => vec![SHELF.to_owned()],
        }
    }
}
