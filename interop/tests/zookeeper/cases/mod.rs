//! The cases of this program, and those that need ZooKeeper.

mod latch;
mod permits;

use tenure_interop::Driver;

use crate::shared::cases::{self, Case, case, sharing};
use crate::shared::subject::{Kind, Subject};

/// Every case, in the order of the rows in the table of docs/interop.md.
pub(crate) const CASES: [Case; 16] = [
    cases::EXCLUSION,
    cases::WE_WAKE,
    cases::THEY_WAKE,
    cases::FORMAT,
    cases::THEIR_DEATH,
    Case {
        // This case runs `tenure hold` with one key.
        is_about: |subject, _| subject.ours != Kind::Multi,
        ..cases::OUR_DEATH
    },
    cases::RE_ENTRY,
    cases::RENEWAL,
    Case {
        is_about: |subject, _| has_queue(subject),
        ..cases::EVICTION
    },
    Case {
        is_about: |subject, _| has_queue(subject) && subject.ours == Kind::Mutex,
        ..cases::ORDER
    },
    cases::COUNT,
    cases::TURNS,
    cases::READERS,
    case!(
        "their holder downgrades to reading: a reader of Tenure acquires the lock",
        sharing::a_downgrade_of_theirs_lets_readers_in,
        |subject, driver| subject.ours == Kind::Write && driver == Driver::Curator
    ),
    case!(
        "both sides take permits of one semaphore",
        permits::both_sides_take_permits_of_one_semaphore,
        |subject, _| subject.kind.starts_with("permits")
    ),
    case!(
        "Tenure waits for the participants of a `LeaderLatch` at the lock's path, and lists them",
        latch::tenure_waits_for_the_participants_of_a_latch,
        |subject, _| subject.kind == "mutex"
    ),
];

/// Whether the waiters of a lock queue, one node for each.
fn has_queue(subject: &Subject) -> bool {
    subject.kind != "node" && matches!(subject.ours, Kind::Mutex | Kind::Write)
}
