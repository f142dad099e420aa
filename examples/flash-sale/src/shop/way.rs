//! The ways to sell, and the shelves of each.

use serde::Deserialize;

/// Name of the single shelf, and key of its lock. The ten shelves are `flash-sale#0` to `flash-sale#9`, as `Striped`
/// names them.
pub(super) const SHELF: &str = "flash-sale";
pub(super) const STRIPES: usize = 10;

/// How a shop locks its stock: `{way}` in the URLs of its routes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    /// Without a lock.
    Unlocked,
    /// With one lock for the single shelf.
    Locked,
    /// Like `Locked`, and the shelf refuses a shop that lost the lock to another.
    Fenced,
    /// Like `Fenced`, with the items on ten shelves, each with its own lock.
    Striped,
}

impl Way {
    pub(super) fn shelves(self) -> Vec<String> {
        match self {
            Way::Striped => (0..STRIPES).map(|n| format!("{SHELF}#{n}")).collect(),
            Way::Unlocked | Way::Locked | Way::Fenced => vec![SHELF.to_owned()],
        }
    }
}
