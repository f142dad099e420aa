//! Mutants of the engine: options, settings, and what runs under a lock.

use super::list::{PLAIN, engine};
use crate::mutants::mutant::{Edit, Mutant};

const CLIENT: &str = "crates/tenure/src/client.rs";
const GUARD: &str = "crates/tenure/src/guard.rs";
const MUTEX: &str = "crates/tenure/src/mutex.rs";
const SETTINGS: &str = "crates/tenure/src/settings.rs";
const WANT: &str = "crates/tenure/src/want.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "max-hold-shorter-than-a-lease-may-be",
        promise: "A longest hold of nothing is refused",
        edits: &[Edit {
            file: WANT,
            find: "(Some(most), _) if *most < MIN_LEASE =>",
            replace: "(Some(most), _) if most.is_zero() =>",
        }],
        tests: engine(&["options_that_contradict_each_other_are_refused"]),
        ..PLAIN
    },
    Mutant {
        name: "at-least-beyond-max-hold",
        promise: "A lock cannot be kept for longer than it may be held",
        edits: &[Edit {
            file: WANT,
            find: "(Some(most), Some(least)) if least > most =>",
            replace: "(Some(most), Some(least)) if least < most =>",
        }],
        tests: engine(&["options_that_contradict_each_other_are_refused"]),
        ..PLAIN
    },
    Mutant {
        name: "at-least-beyond-a-fixed-lease",
        promise: "A lock cannot be kept for longer than its fixed lease",
        edits: &[Edit {
            file: WANT,
            find: "(_, Some(least)) if !renewed && least > lease =>",
            replace: "(_, Some(least)) if *renewed && least > &Duration::MAX =>",
        }],
        tests: engine(&["options_that_contradict_each_other_are_refused"]),
        ..PLAIN
    },
    Mutant {
        name: "call-limit-of-nothing",
        promise: "A call limit of nothing is as short as can be, and still works",
        edits: &[Edit {
            file: SETTINGS,
            find: "self.call_limit.max(MIN_CALL_LIMIT)",
            replace: "self.call_limit.min(Duration::MAX)",
        }],
        tests: engine(&["settings_of_nothing_are_as_short_as_they_can_be_and_still_work"]),
        ..PLAIN
    },
    Mutant {
        name: "offer-window-of-nothing",
        promise: "An offer window of nothing is as short as can be, and still works",
        edits: &[Edit {
            file: SETTINGS,
            find: "MIN_OFFER_WINDOW: Duration = Duration::from_millis(10);",
            replace: "MIN_OFFER_WINDOW: Duration = Duration::from_nanos(1);",
        }],
        tests: engine(&["settings_of_nothing_are_as_short_as_they_can_be_and_still_work"]),
        ..PLAIN
    },
    Mutant {
        name: "with-does-not-unlock",
        promise: "`with` gives the lock back before it returns",
        edits: &[Edit {
            file: MUTEX,
            find: "    if let Err(error) = guard.unlock().await {
        tracing::warn!(%error, \"work was done under a lock that could not be given back in order\");
    }
",
            replace: "    drop(guard);
",
        }],
        tests: engine(&["with_runs_its_work_under_the_lock_and_gives_it_back"]),
        ..PLAIN
    },
    Mutant {
        name: "fallback-on-a-fault",
        promise: "The fallback never runs on a store's fault",
        edits: &[Edit {
            file: MUTEX,
            find: "                Err(Error::Timeout) => None,
                Err(error) => return Err(error),",
            replace: "                Err(_) => None,",
        }],
        tests: engine(&["the_fallback_runs_only_when_the_lock_is_busy"]),
        ..PLAIN
    },
    Mutant {
        name: "fallback-after-a-loss",
        promise: "The fallback never runs once work has begun",
        edits: &[Edit {
            file: MUTEX,
            find: "            Some(guard) => run(guard, work).await,",
            replace: "            Some(guard) => match run(guard, work).await {
                Err(Error::Lost(_)) => Ok(fallback().await),
                other => other,
            },",
        }],
        tests: engine(&["a_lock_that_is_lost_while_the_work_runs_is_an_error_and_not_the_fallback"]),
        ..PLAIN
    },
    Mutant {
        name: "every-guarantee-is-given",
        promise: "A guarantee that the store does not give is refused",
        edits: &[Edit {
            file: CLIENT,
            find: "if profile.offers(guarantee) {",
            replace: "if profile.offers(guarantee) || profile.store.len() > 1 {",
        }],
        tests: engine(&["a_guarantee_that_the_store_does_not_give_can_be_demanded_in_vain"]),
        ..PLAIN
    },
    Mutant {
        name: "verify-looks-beyond-the-lease",
        promise: "A lock that is held is verified, also in a task of its own",
        edits: &[Edit {
            file: GUARD,
            find: "held.check(self.now())?;",
            replace: "held.check(self.now() + held.claim.lease)?;",
        }],
        tests: engine(&["the_futures_of_guards_can_be_spawned"]),
        ..PLAIN
    },
];
