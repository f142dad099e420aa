//! What was done to whom, and when: written down by who did it, read by the judge.

use std::fmt;

use tenure::Instant;
use tenure::backend::Hazard;

/// Who may lose a place in a queue by what was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    /// The worker on that seat.
    Seat(usize),
    /// Everybody: it was done to the store, or to somebody who may have kept it from all others.
    Everybody,
}

/// Something that was done.
#[derive(Clone, Debug)]
pub(crate) struct Deed {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    pub(crate) whom: Whom,
    /// What a store may name among its hazards, so that two may hold at once.
    pub(crate) hazard: Option<Hazard>,
    pub(crate) what: String,
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.from.as_nanos(), self.to.as_nanos());
        write!(f, "{from} to {to}: {:?}: {}", self.whom, self.what)
    }
}
