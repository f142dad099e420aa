//! The cases of this program, and the one that needs etcd.

mod eviction;

use crate::shared::cases::{self, Case, case};

/// Every case, in the order of the rows in the table of docs/interop.md.
pub(crate) const CASES: [Case; 11] = [
    cases::EXCLUSION,
    cases::WE_WAKE,
    cases::THEY_WAKE,
    cases::FORMAT,
    cases::THEIR_DEATH,
    cases::OUR_DEATH,
    cases::RENEWAL,
    case!(
        "Tenure evicts a holder of either side: the next waiter acquires the lock",
        eviction::an_eviction_lets_the_next_waiter_in
    ),
    cases::ORDER,
    cases::COUNT,
    cases::TURNS,
];
