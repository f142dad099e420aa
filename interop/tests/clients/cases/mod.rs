//! The cases of this program, and those that need Redis.

mod permits;

use tenure_interop::Driver;

use crate::shared::cases::{self, Case, case, exclusion, sharing};
use crate::shared::subject::Kind;

/// Every case, in the order of the rows in the table of docs/interop.md.
pub(crate) const CASES: [Case; 15] = [
    cases::EXCLUSION,
    cases::WE_WAKE,
    cases::THEY_WAKE,
    cases::FORMAT,
    cases::THEIR_DEATH,
    Case {
        // Leaves out the kinds whose waiters may sleep beyond the end of the lease. Spring's waiters that listen
        // sleep for their own `expireAfter`. A fair waiter of Redisson before 3.32 sleeps until it is woken, if it
        // polls a moment before the lease ends or sees a renewed lease.
        is_about: |subject, driver| match subject.ours {
            _ if subject.kind == "pubsub" => false,
            Kind::Fair => driver == Driver::Redisson,
            // This case runs `tenure hold` with one key.
            Kind::Multi => false,
            Kind::Mutex | Kind::Leader | Kind::Write | Kind::Permit => true,
        },
        ..cases::OUR_DEATH
    },
    cases::RE_ENTRY,
    cases::RENEWAL,
    Case {
        is_about: |subject, _| subject.ours == Kind::Fair,
        ..cases::ORDER
    },
    cases::COUNT,
    cases::TURNS,
    case!(
        "neither side keeps one of two locks while it waits for the other",
        exclusion::no_side_keeps_one_of_two_locks_while_it_waits,
        |subject, _| subject.ours == Kind::Multi
    ),
    cases::READERS,
    case!(
        "their holder downgrades to reading: a reader of Tenure acquires the lock, within",
        sharing::a_downgrade_of_theirs_lets_readers_in,
        |subject, _| subject.ours == Kind::Write,
        |_| "1,000 ms".to_owned()
    ),
    case!(
        "both sides take permits of one semaphore",
        permits::both_sides_take_permits_of_one_semaphore,
        |subject, _| subject.ours == Kind::Permit
    ),
];
