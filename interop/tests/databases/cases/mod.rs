//! The cases of this program, and those that need a lock table.

mod leases;
mod tokens;

use crate::shared::cases::{self, Case, case};
use crate::shared::subject::Renewal;

/// Every case, in the order of the rows in the table of docs/interop.md.
pub(crate) const CASES: [Case; 13] = [
    cases::EXCLUSION,
    cases::WE_WAKE,
    cases::THEY_WAKE,
    Case {
        shows: "both sides write the same columns, and an unlock of Tenure leaves what theirs leaves",
        ..cases::FORMAT
    },
    case!(
        "an unlock before the end of their `lockAtLeastFor`, or of Tenure's `at_least`, keeps the lock until then",
        leases::both_sides_keep_a_lock_for_its_minimum,
        |subject, _| subject.options.contains("shedlock")
    ),
    cases::THEIR_DEATH,
    case!(
        "their process dies: only an eviction frees the lock",
        leases::only_an_eviction_frees_a_lock_without_a_lease,
        |subject, _| subject.renewal == Renewal::NoLease
    ),
    cases::OUR_DEATH,
    case!(
        "Tenure's process dies: they acquire the lock after another client of Tenure has released it",
        leases::a_death_of_tenure_is_ended_by_tenure,
        |subject, _| subject.renewal == Renewal::NoLease
    ),
    Case {
        shows: "their extension and Tenure's renewal keep locks beyond the lease",
        ..cases::RENEWAL
    },
    case!(
        "their extension and unlock change nothing after the end of the lease",
        leases::a_late_extension_and_unlock_change_nothing,
        |subject, _| subject.renewal != Renewal::NoLease
    ),
    cases::COUNT,
    case!(
        "tokens rise across both sides",
        tokens::tokens_rise_across_both_sides,
        |subject, _| subject.renewal == Renewal::NoLease
    ),
];
