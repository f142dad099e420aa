//! The cases: what is tried with each kind of lock, and the kinds that each case is about.

mod death;
mod exclusion;
mod fairness;
mod format;
mod sharing;
mod waking;

use std::pin::Pin;

use tenure_interop::Driver;

use crate::fixture::Setting;
use crate::subject::{Kind, Renewal, Subject};

/// A case, with the kinds of locks that it is about.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What the case shows, for the table in the documentation.
    pub(crate) shows: &'static str,
    pub(crate) is_about: fn(&Subject, Driver) -> bool,
    /// The text of the table's cell for a kind of lock that passes the case.
    pub(crate) cell: fn(&Subject) -> String,
    pub(crate) run: fn(Setting) -> Pin<Box<dyn Future<Output = ()>>>,
}

/// Makes a case, about all kinds of locks unless a condition is given.
macro_rules! case {
    ($shows:literal, $module:ident :: $name:ident) => {
        case!($shows, $module::$name, |_, _| true)
    };
    ($shows:literal, $module:ident :: $name:ident, $is_about:expr) => {
        case!($shows, $module::$name, $is_about, |_| "yes".to_owned())
    };
    ($shows:literal, $module:ident :: $name:ident, $is_about:expr, $cell:expr) => {
        Case {
            name: stringify!($name),
            shows: $shows,
            is_about: $is_about,
            cell: $cell,
            run: |setting| Box::pin($module::$name(setting)),
        }
    };
}

/// Every case, in the order of the rows in the table of docs/interop.md.
pub(crate) const CASES: [Case; 15] = [
    case!(
        "neither side acquires what the other holds",
        exclusion::neither_side_acquires_a_lock_of_the_other
    ),
    case!(
        "a waiter of Tenure acquires the lock after their unlock, within",
        waking::tenure_acquires_after_their_unlock,
        |_, _| true,
        |subject| format!("{} ms", subject.we_wake.as_millis())
    ),
    case!(
        "their waiter acquires the lock after Tenure's unlock, within",
        waking::they_acquire_after_an_unlock_of_tenure,
        |_, _| true,
        |subject| format!("{} ms", subject.they_wake.as_millis())
    ),
    case!(
        "both sides write the same keys, and an unlock of Tenure leaves what theirs leaves",
        format::both_sides_write_the_same_data
    ),
    case!(
        "their process dies: Tenure acquires the lock at the end of its lease",
        death::their_death_frees_the_lock
    ),
    case!(
        "Tenure's process dies: they acquire the lock at the end of its lease",
        death::a_death_of_tenure_frees_the_lock,
        // Leaves out the kinds whose waiters may sleep beyond the end of the lease. Spring's waiters that listen
        // sleep for their own `expireAfter`. A fair waiter of Redisson before 3.32 sleeps until it is woken, if it
        // polls a moment before the lease ends or sees a renewed lease.
        |subject, driver| match subject.ours {
            _ if subject.kind == "pubsub" => false,
            Kind::Fair => driver == Driver::Redisson,
            // This case runs `tenure hold` with one key.
            Kind::Multi => false,
            Kind::Mutex | Kind::Write | Kind::Permit => true,
        }
    ),
    case!(
        "they hold a lock twice until their second unlock",
        exclusion::re_entry_ends_at_their_second_unlock,
        |subject, _| subject.is_reentrant
    ),
    case!(
        "their renewal and Tenure's keep locks beyond the lease",
        death::both_renewals_keep_locks_beyond_the_lease,
        |_, _| true,
        |subject| match subject.renewal {
            Renewal::Watchdog => "by themselves".to_owned(),
            Renewal::ByHand => "by hand".to_owned(),
        }
    ),
    case!(
        "waiters of both sides are served in the order of arrival",
        fairness::waiters_of_both_sides_are_served_in_order,
        |subject, _| subject.ours == Kind::Fair
    ),
    case!(
        "no increment of a counter is lost",
        exclusion::no_increment_is_lost
    ),
    case!(
        "their waiter gets turns next to 64 tasks of Tenure",
        fairness::their_waiter_gets_turns_next_to_64_tasks
    ),
    case!(
        "neither side keeps one of two locks while it waits for the other",
        exclusion::no_side_keeps_one_of_two_locks_while_it_waits,
        |subject, _| subject.ours == Kind::Multi
    ),
    case!(
        "readers of both sides hold together, and keep writers out",
        sharing::readers_of_both_sides_hold_together,
        |subject, _| subject.ours == Kind::Write
    ),
    case!(
        "their holder downgrades to reading: a reader of Tenure acquires the lock, within",
        sharing::a_downgrade_of_theirs_lets_readers_in,
        |subject, _| subject.ours == Kind::Write,
        |_| "1,000 ms".to_owned()
    ),
    case!(
        "both sides take permits of one semaphore",
        sharing::both_sides_take_permits_of_one_semaphore,
        |subject, _| subject.ours == Kind::Permit
    ),
];
