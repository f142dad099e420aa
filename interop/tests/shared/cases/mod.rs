//! A case: what is tried with each kind of lock, and the kinds that the case is about. Here are those of several programs.

pub(crate) mod death;
pub(crate) mod eviction;
pub(crate) mod exclusion;
pub(crate) mod fairness;
pub(crate) mod format;
pub(crate) mod sharing;
pub(crate) mod waking;

use std::pin::Pin;

use tenure_interop::Driver;

use super::fixture::Setting;
use super::subject::{Kind, Renewal, Subject};

/// A case, with the kinds of locks that it is about.
#[derive(Clone, Copy, Debug)]
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
        $crate::shared::cases::Case {
            name: stringify!($name),
            shows: $shows,
            is_about: $is_about,
            cell: $cell,
            run: |setting| Box::pin($module::$name(setting)),
        }
    };
}
pub(crate) use case;

pub(crate) const EXCLUSION: Case = case!(
    "neither side acquires what the other holds",
    exclusion::neither_side_acquires_a_lock_of_the_other
);

pub(crate) const WE_WAKE: Case = case!(
    "a waiter of Tenure acquires the lock after their unlock, within",
    waking::tenure_acquires_after_their_unlock,
    |_, _| true,
    |subject| format!("{} ms", subject.we_wake.as_millis())
);

pub(crate) const THEY_WAKE: Case = case!(
    "their waiter acquires the lock after Tenure's unlock, within",
    waking::they_acquire_after_an_unlock_of_tenure,
    |_, _| true,
    |subject| format!("{} ms", subject.they_wake.as_millis())
);

pub(crate) const FORMAT: Case = case!(
    "both sides write the same keys, and an unlock of Tenure leaves what theirs leaves",
    format::both_sides_write_the_same_data
);

pub(crate) const THEIR_DEATH: Case = case!(
    "their process dies: Tenure acquires the lock at the end of its lease",
    death::their_death_frees_the_lock,
    |subject, _| subject.renewal != Renewal::NoLease
);

pub(crate) const OUR_DEATH: Case = case!(
    "Tenure's process dies: they acquire the lock at the end of its lease",
    death::a_death_of_tenure_frees_the_lock,
    |subject, _| subject.renewal != Renewal::NoLease
);

pub(crate) const RENEWAL: Case = case!(
    "their renewal and Tenure's keep locks beyond the lease",
    death::both_renewals_keep_locks_beyond_the_lease,
    |subject, _| subject.renewal != Renewal::NoLease,
    |subject| match subject.renewal {
        Renewal::Watchdog => "by themselves".to_owned(),
        Renewal::ByHand | Renewal::NoLease => "by hand".to_owned(),
    }
);

pub(crate) const COUNT: Case = case!(
    "no increment of a counter is lost",
    exclusion::no_increment_is_lost
);

pub(crate) const EVICTION: Case = case!(
    "Tenure evicts a holder of either side: the next waiter acquires the lock",
    eviction::an_eviction_lets_the_next_waiter_in
);

pub(crate) const RE_ENTRY: Case = case!(
    "they hold a lock twice until their second unlock",
    exclusion::re_entry_ends_at_their_second_unlock,
    |subject, _| subject.is_reentrant
);

pub(crate) const READERS: Case = case!(
    "readers of both sides hold together, and keep writers out",
    sharing::readers_of_both_sides_hold_together,
    |subject, _| subject.ours == Kind::Write
);

pub(crate) const ORDER: Case = case!(
    "waiters of both sides are served in the order of arrival",
    fairness::waiters_of_both_sides_are_served_in_order
);

pub(crate) const TURNS: Case = case!(
    "their waiter gets turns next to 64 tasks of Tenure",
    fairness::their_waiter_gets_turns_next_to_64_tasks
);
