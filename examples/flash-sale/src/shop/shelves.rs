//! Where the stock lies: a shelf is named as the lock that stands for it.
//! Not here: what is on it (`stock`).

use crate::way::Way;

/// The one shelf, and its lock's key; of ten shelves, `flash-sale#0` to `flash-sale#9`, as a `Striped` names them.
pub(super) const SHELF: &str = "flash-sale";
pub(super) const STRIPES: usize = 10;

/// The shelves that a way sells from.
pub(super) fn shelves_of(way: Way) -> Vec<String> {
    match way {
        Way::Striped => (0..STRIPES).map(|n| format!("{SHELF}#{n}")).collect(),
        Way::Unlocked | Way::Locked | Way::Fenced => vec![SHELF.to_owned()],
    }
}

/// The shelves of all ways.
pub(super) fn all_shelves() -> Vec<String> {
    let ways = [Way::Locked, Way::Striped];
    ways.into_iter().flat_map(shelves_of).collect()
}
