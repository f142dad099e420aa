//! The cases of this program, all of them shared.

use crate::shared::cases::{self, Case};

/// Every case, in the order of the rows in the table of docs/interop.md.
pub(crate) const CASES: [Case; 11] = [
    cases::EXCLUSION,
    cases::WE_WAKE,
    cases::THEY_WAKE,
    cases::FORMAT,
    cases::THEIR_DEATH,
    cases::OUR_DEATH,
    cases::RENEWAL,
    cases::EVICTION,
    cases::ORDER,
    cases::COUNT,
    cases::TURNS,
];
