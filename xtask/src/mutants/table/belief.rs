//! Mutants of the engine: what is believed, for how long, and how it is kept alive.

use super::list::{PLAIN, engine, regressions, unit};
use crate::mutants::mutant::{Edit, Mutant};

const CLIENT: &str = "crates/tenure/src/client.rs";
const DRIVING: &str = "crates/tenure/src/line/driving.rs";
const BELIEF: &str = "crates/tenure/src/belief.rs";
const GUARD: &str = "crates/tenure/src/guard.rs";
const HELD: &str = "crates/tenure/src/held.rs";
const RENEWAL: &str = "crates/tenure/src/watchdog/renewal.rs";
const ROUNDS: &str = "crates/tenure/src/watchdog/rounds.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    // Belief and its end.
    Mutant {
        name: "belief-from-the-reply",
        promise: "Belief in a grant counts from when its request was sent, never from its reply",
        edits: &[Edit {
            file: HELD,
            find: "believe_until(grant.held_from, believed, margin)",
            replace: "believe_until(now, believed, margin)",
        }],
        tests: regressions(&["a_late_reply_does_not_lengthen_belief"]),
        ..PLAIN
    },
    Mutant {
        name: "belief-from-the-reply-to-a-renewal",
        promise: "Belief after a renewal counts from when its request was sent",
        edits: &[Edit {
            file: HELD,
            find: "believe_until(held_from, lease, margin)",
            replace: "believe_until(now, lease, margin)",
        }],
        tests: regressions(&["a_late_reply_to_a_renewal_does_not_lengthen_belief"]),
        ..PLAIN
    },
    Mutant {
        name: "belief-without-margin",
        promise: "Belief ends before the lease, by drift and margin",
        edits: &[Edit {
            file: "crates/tenure/src/belief.rs",
            find: ".saturating_sub(own.unwrap_or_else(|| margin(lease)))",
            replace: ".saturating_sub(own.unwrap_or_else(|| margin(lease) * 0))",
        }],
        tests: unit("tenure", &["belief_ends_before_the_lease"]),
        ..PLAIN
    },
    Mutant {
        name: "no-local-deadline",
        promise: "Belief ends at the local deadline even when nobody says that the lock was lost",
        edits: &[Edit {
            file: HELD,
            find: "if now.as_nanos() < deadline {",
            replace: "if now.as_nanos() < u64::MAX {",
        }],
        tests: engine(&["a_suspended_machine_wakes_without_the_lock"]),
        ..PLAIN
    },
    Mutant {
        name: "loss-is-not-sticky",
        promise: "Once lost, a late renewal does not bring the lock back",
        edits: &[Edit {
            file: HELD,
            find: "(deadline != LOST && now.as_nanos() < deadline && (newer || later.as_nanos() > deadline))",
            replace: "(newer || later.as_nanos() > deadline)",
        }],
        tests: engine(&["loss_that_was_seen_once_is_seen_for_ever"]),
        ..PLAIN
    },
    Mutant {
        name: "renewal-read-late-counts",
        promise: "A renewal whose answer is read after the deadline does not move it",
        edits: &[Edit {
            file: HELD,
            find: "deadline != LOST && now.as_nanos() < deadline && (newer",
            replace: "deadline != LOST && (newer",
        }],
        tests: regressions(&["a_renewal_that_is_read_after_the_deadline_does_not_bring_the_lock_back"]),
        ..PLAIN
    },
    Mutant {
        name: "belief-never-shrinks",
        promise: "A store that keeps a claim for less than before is believed for less",
        edits: &[Edit {
            file: HELD,
            find: "let newer = held_from >= self.confirmed();",
            replace: "let newer = false;",
        }],
        tests: engine(&["belief_follows_a_renewal_that_the_store_keeps_for_less"]),
        ..PLAIN
    },
    Mutant {
        name: "renewal-reckons-with-the-first-lease",
        promise: "A claim that is kept for less is renewed the sooner",
        edits: &[Edit {
            file: HELD,
            find: "                .store((Instant::ORIGIN + least).as_nanos(), Ordering::Relaxed);",
            replace: "                .store(self.lease_nanos.load(Ordering::Relaxed).max((Instant::ORIGIN + least).as_nanos()), Ordering::Relaxed);",
        }],
        tests: engine(&["belief_follows_a_renewal_that_the_store_keeps_for_less"]),
        ..PLAIN
    },
    Mutant {
        name: "dead-grant-is-returned",
        promise: "A grant that arrives dead is given back, never returned",
        edits: &[Edit {
            file: HELD,
            find: "if now >= deadline {",
            replace: "if now >= deadline + Duration::from_secs(3600) {",
        }],
        tests: regressions(&["a_grant_that_was_dead_when_its_caller_read_it_is_not_returned"]),
        ..PLAIN
    },
    Mutant {
        name: "timers-trust-suspend",
        promise: "Timers notice within a second that the machine was suspended",
        edits: &[Edit {
            file: "crates/tenure/src/timer.rs",
            find: "RECHECK: Duration = Duration::from_secs(1);",
            replace: "RECHECK: Duration = Duration::from_secs(3600);",
        }],
        tests: engine(&["a_suspend_is_noticed_by_who_waits_for_the_loss_within_a_second"]),
        ..PLAIN
    },
    Mutant {
        name: "while-held-polls-after-the-end",
        promise: "Work is never polled again once belief has ended",
        edits: &[Edit {
            file: "crates/tenure/src/guard.rs",
            find: "check()?;
        if let Poll::Ready(output) = work.as_mut().poll(cx) {",
            replace: "let _ = &check;
        if let Poll::Ready(output) = work.as_mut().poll(cx) {",
        }],
        tests: engine(&["output_of_a_poll_that_began_while_held_is_returned"]),
        ..PLAIN
    },
    // Renewal.
    Mutant {
        name: "renewal-never-retried",
        promise: "A renewal that failed is tried again within the same third of the lease",
        edits: &[Edit {
            file: RENEWAL,
            find: "now + retry_after(held.lease())",
            replace: "now + held.lease()",
        }],
        tests: engine(&["a_failed_renewal_is_tried_again_and_releases_nothing"]),
        ..PLAIN
    },
    Mutant {
        name: "failed-renewal-gives-up",
        promise: "A failed renewal never gives a lock up",
        edits: &[Edit {
            file: RENEWAL,
            find: "\"a renewal failed\");",
            replace: "\"a renewal failed\");
                held.lose(LostCause::Missing);",
        }],
        tests: engine(&["a_failed_renewal_is_tried_again_and_releases_nothing"]),
        ..PLAIN
    },
    Mutant {
        name: "loss-is-not-told",
        promise: "A holder is told when the store says that its claim is gone",
        edits: &[Edit {
            file: RENEWAL,
            find: "held.lose(loss.into());",
            replace: "drop(loss);",
        }],
        tests: engine(&["an_evicted_holder_learns_within_a_third_of_its_lease_who_did_it"]),
        ..PLAIN
    },
    Mutant {
        name: "fixed-lease-is-renewed",
        promise: "A fixed lease is not renewed",
        edits: &[
            Edit {
                file: ROUNDS,
                find: "alive.retain(|held| held.options.renewed);",
                replace: "",
            },
            Edit {
                file: ROUNDS,
                find: "if held.options.renewed {
        renewal.min(held.deadline())
    } else {
        held.deadline()
    }",
                replace: "renewal.min(held.deadline())",
            },
        ],
        tests: engine(&["a_fixed_lease_is_never_renewed"]),
        ..PLAIN
    },
    Mutant {
        name: "verify-prolongs-a-fixed-lease",
        promise: "`verify` does not prolong a fixed lease",
        edits: &[Edit {
            file: RENEWAL,
            find: "held.confirmed() + held.lease() - shared.clock.now()",
            replace: "held.confirmed() + held.lease() * 2 - shared.clock.now()",
        }],
        tests: regressions(&["verify_does_not_prolong_a_fixed_lease_in_the_store"]),
        ..PLAIN
    },
    Mutant {
        name: "max-hold-ignored",
        promise: "The longest hold ends the hold",
        edits: &[Edit {
            file: HELD,
            find: "options.max_hold.map(|d| now + d)",
            replace: "options.max_hold.and(None)",
        }],
        tests: engine(&["a_longest_hold_ends_the_hold_and_gives_the_lock_back"]),
        ..PLAIN
    },
    Mutant {
        name: "at-least-ignored",
        promise: "A lock is kept for at least its time though its guard goes",
        edits: &[Edit {
            file: HELD,
            find: "options.at_least.map(|d| now + d)",
            replace: "options.at_least.and(None)",
        }],
        tests: engine(&["a_lock_is_kept_for_at_least_its_time_though_its_guard_goes"]),
        ..PLAIN
    },
    Mutant {
        name: "renewed-too-late",
        promise: "The watchdog renews at a third of the lease",
        edits: &[Edit {
            file: BELIEF,
            find: "let third = lease / 3;",
            replace: "let third = lease / 2;",
        }],
        tests: engine(&["a_lock_is_held_for_as_long_as_its_guard_lives"]),
        ..PLAIN
    },
    Mutant {
        name: "store-out-of-reach-is-not-named",
        promise: "Renewals that fail until the deadline are named as the cause",
        edits: &[Edit {
            file: HELD,
            find: "        self.strained.store(true, Ordering::Relaxed);",
            replace: "        self.strained.store(false, Ordering::Relaxed);",
        }],
        tests: engine(&["renewals_that_fail_until_the_deadline_are_named_as_the_cause"]),
        ..PLAIN
    },
    Mutant {
        name: "store-out-of-reach-is-named-for-ever",
        promise: "A suspend after a renewal that was answered is no fault of the store's",
        edits: &[Edit {
            file: HELD,
            find: "        self.strained.store(false, Ordering::Relaxed);
",
            replace: "",
        }],
        tests: engine(&["a_suspend_after_a_renewal_that_was_answered_is_no_fault_of_the_stores"]),
        ..PLAIN
    },
    Mutant {
        name: "verify-asks-nobody",
        promise: "`verify` asks the store",
        edits: &[Edit {
            file: RENEWAL,
            find: "let failed = renew(&shared, vec![held]).await;",
            replace: "let failed = held.check(shared.clock.now()).err().map(Error::Lost);",
        }],
        tests: engine(&["verify_asks_the_store"]),
        ..PLAIN
    },
    Mutant {
        name: "verify-shortens-a-fixed-lease",
        promise: "`verify` does not shorten a fixed lease in the store",
        edits: &[Edit {
            file: RENEWAL,
            find: "held.confirmed() + held.lease() - shared.clock.now()",
            replace: "held.deadline() - shared.clock.now()",
        }],
        tests: engine(&["asking_after_a_fixed_lease_does_not_shorten_it_in_the_store"]),
        ..PLAIN
    },
    Mutant {
        name: "own-eviction-is-not-told",
        promise: "A holder that its own client evicts learns at once",
        edits: &[Edit {
            file: CLIENT,
            find: "                self.engine.ask_about(&key);\n",
            replace: "                let _ = &key;\n",
        }],
        tests: engine(&["a_holder_that_its_own_client_evicts_learns_at_once"]),
        ..PLAIN
    },
    Mutant {
        name: "nobody-asks-about-a-fixed-lease",
        promise: "Who waits behind a fixed lease that was evicted has the lock long before its end",
        edits: &[Edit {
            file: DRIVING,
            find: "                if ask_at <= now {",
            replace: "                if ask_at < Instant::ORIGIN {",
        }],
        tests: engine(&["who_waits_behind_a_fixed_lease_that_was_evicted_has_the_lock_long_before_its_end"]),
        ..PLAIN
    },
    Mutant {
        name: "unlock-hides-an-eviction",
        promise: "An unlock after an eviction says that the lock was lost",
        edits: &[Edit {
            file: GUARD,
            find: "Left::WasGone if believed.is_ok() => {",
            replace: "Left::WasGone if believed.is_err() => {",
        }],
        tests: engine(&["an_unlock_after_an_eviction_says_that_the_lock_was_lost"]),
        ..PLAIN
    },
    Mutant {
        name: "unlock-hides-a-known-loss",
        promise: "An unlock of what is known to be lost says so",
        edits: &[Edit {
            file: GUARD,
            find: "Left::Freed | Left::WasGone | Left::Absent => Ok(believed?),",
            replace: "Left::Freed | Left::WasGone | Left::Absent => Ok(()),",
        }],
        tests: engine(&["an_evicted_holder_learns_within_a_third_of_its_lease_who_did_it"]),
        ..PLAIN
    },
    Mutant {
        name: "unlock-forgets-who-evicted",
        promise: "An unlock says that the lock was evicted",
        edits: &[Edit {
            file: GUARD,
            find: "within(engine, limit, engine.watchdog.why_gone(held)).await;",
            replace: "None;",
        }],
        tests: engine(&["an_unlock_says_that_the_lock_was_evicted"]),
        ..PLAIN
    },
    Mutant {
        name: "loss-rings-no-bell",
        promise: "Who waits for the loss is told as soon as it is known",
        edits: &[Edit {
            file: HELD,
            find: "            self.bell().notify_waiters();
",
            replace: "",
        }],
        tests: engine(&["who_waits_for_the_loss_is_told_as_soon_as_it_is_known"]),
        ..PLAIN
    },
    Mutant {
        name: "work-outlives-the-lock",
        promise: "Work that waits is dropped at the deadline",
        edits: &[Edit {
            file: GUARD,
            find: "        lost.as_mut().poll(cx).map(Err)",
            replace: "        let _ = &mut lost;
        Poll::Pending",
        }],
        tests: engine(&["work_that_waits_is_dropped_at_the_deadline"]),
        ..PLAIN
    },
    Mutant {
        name: "guard-says-the-lease-it-wished",
        promise: "A guard says which lease the store gave",
        edits: &[Edit {
            file: HELD,
            find: "given_nanos: (Instant::ORIGIN + grant.lease).as_nanos(),",
            replace: "given_nanos: (Instant::ORIGIN + lease).as_nanos(),",
        }],
        tests: engine(&["a_guard_says_which_lease_the_store_gave"]),
        ..PLAIN
    },
];
