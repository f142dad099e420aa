//! Departures that cases ask for, and what became of them.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Cause, Claim, Departure, Holder, HolderId, Standing};

/// What became of a departure that went through.
///
/// # Examples
/// See [`Trial`](super::Trial), whose example releases a claim.
#[derive(Debug)]
pub struct Departed {
    /// Who was freed by it.
    pub freed: Vec<HolderId>,
    /// How many wait elsewhere.
    pub others: Option<u32>,
    /// Where the heir stands.
    pub heir: Option<Standing>,
    /// Whether an earlier try may have taken effect: then nobody may be left to be freed.
    pub repeated: bool,
}

impl Departed {
    /// Asserts that it freed that claim, and nobody else.
    pub fn freed_it(&self, claim: &Claim) {
        if !(self.repeated && self.freed.is_empty()) {
            assert_eq!(
                self.freed,
                [HolderId::Claim(claim.at.id)],
                "who was freed by releasing {:?}",
                claim.at
            );
        }
    }

    /// Asserts that it freed nobody.
    pub fn freed_nobody(&self) {
        assert_eq!(self.freed, [], "a release of somebody who is absent frees nobody");
    }
}

/// A departure of that claim, without an heir or a bar.
pub(crate) fn departure(claim: &Claim, cause: Cause) -> Departure {
    Departure {
        who: Holder::Claim(claim.at.clone()),
        cause,
        heir: None,
        bar: Duration::ZERO,
    }
}

/// An eviction by alice, with that bar.
pub(crate) fn eviction(who: Holder, bar: Duration) -> Departure {
    let by = Some(Arc::from("alice"));
    Departure {
        who,
        cause: Cause::Evicted { by },
        heir: None,
        bar,
    }
}
