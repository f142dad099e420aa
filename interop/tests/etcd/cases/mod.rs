//! The cases of this program, and the one that needs etcd.

mod election;

use crate::shared::cases::{self, Case, case};
use crate::shared::subject::Kind;

/// Every case, in the order of the rows in the table of docs/interop.md.
pub(crate) const CASES: [Case; 12] = [
    cases::EXCLUSION,
    cases::WE_WAKE,
    cases::THEY_WAKE,
    cases::FORMAT,
    cases::THEIR_DEATH,
    cases::OUR_DEATH,
    cases::RENEWAL,
    cases::EVICTION,
    case!(
        "each side reads the value of the other's leader, and what a leader of theirs proclaims",
        election::each_side_reads_the_value_of_the_others_leader,
        |subject, _| subject.ours == Kind::Leader
    ),
    cases::ORDER,
    cases::COUNT,
    cases::TURNS,
];
