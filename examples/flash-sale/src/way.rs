//! The ways to sell.
//! Not here: what each of them does, which is in `shop/buy.rs`.

use std::str::FromStr;

/// How a shop keeps two buyers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
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
    const ALL: [Way; 4] = [Way::Unlocked, Way::Locked, Way::Fenced, Way::Striped];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Unlocked => "unlocked",
            Way::Locked => "locked",
            Way::Fenced => "fenced",
            Way::Striped => "striped",
        }
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(name: &str) -> Result<Way, String> {
        let found = Way::ALL.into_iter().find(|way| way.name() == name);
        found.ok_or_else(|| format!("{name:?} is no way to sell"))
    }
}
