//! Mutants of the engine: callers, waiters and offers.

use super::list::{PLAIN, engine};
use crate::mutants::mutant::{Edit, Mutant};

const ATTEMPT: &str = "crates/tenure/src/attempt.rs";
const DRIVE: &str = "crates/tenure/src/drive.rs";
const DRIVING: &str = "crates/tenure/src/line/driving.rs";
const ENGINE: &str = "crates/tenure/src/engine.rs";
const ENTRY: &str = "crates/tenure/src/line/entry.rs";
const LINES: &str = "crates/tenure/src/lines.rs";
const OPTIONS: &str = "crates/tenure/src/options.rs";
const QUEUE: &str = "crates/tenure/src/queue.rs";
const SEEK: &str = "crates/tenure/src/seek.rs";
const STATE: &str = "crates/tenure/src/line/state.rs";
const TIMER: &str = "crates/tenure/src/timer.rs";
const VERDICT: &str = "crates/tenure/src/verdict.rs";
const WAITER: &str = "crates/tenure/src/waiter.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "time-limit-trusts-suspend",
        promise: "A time limit counts the time that the machine was suspended",
        edits: &[Edit {
            file: TIMER,
            find: "nap: Box::pin(nap(&engine.watchdog, time)),",
            replace: "nap: Box::pin(sleep(&engine.watchdog, time)),",
        }],
        tests: engine(&["a_time_limit_counts_the_time_that_the_machine_was_suspended"]),
        ..PLAIN
    },
    Mutant {
        name: "limit-of-nothing-is-no-try",
        promise: "A limit of nothing takes a free lock, however slow the store is",
        edits: &[Edit {
            file: ATTEMPT,
            find: "Patience::Within(Duration::ZERO) => (Patience::Try, true),",
            replace: "Patience::Within(Duration::MAX) => (Patience::Try, true),",
        }],
        tests: engine(&["a_limit_of_nothing_takes_a_free_lock_however_slow_the_store_is"]),
        ..PLAIN
    },
    Mutant {
        name: "late-try-waits",
        promise: "A try that missed its offer tries again and does not wait",
        edits: &[Edit {
            file: ATTEMPT,
            find: "        if self.tries() {
            self.stage = Stage::Start;
        } else if",
            replace: "        if false {
            self.stage = Stage::Start;
        } else if",
        }],
        tests: engine(&["a_try_that_missed_its_offer_tries_again_and_does_not_wait"]),
        ..PLAIN
    },
    Mutant {
        name: "try-asks-what-is-known",
        promise: "A try on a lock that this client holds costs no call",
        edits: &[Edit {
            file: ENTRY,
            find: "return if held { Enter::Busy } else { Enter::Ask };",
            replace: "return if held && self.key.as_str().is_empty() { Enter::Busy } else { Enter::Ask };",
        }],
        tests: engine(&["a_try_on_a_lock_held_by_this_client_costs_no_call"]),
        ..PLAIN
    },
    Mutant {
        name: "try-fails-beside-a-caller",
        promise: "A try beside a call that is under way asks the store",
        edits: &[Edit {
            file: ENTRY,
            find: "let held = !self.admits(&mut state, want.mode);",
            replace: "let held = !self.admits(&mut state, want.mode) || state.callers > 0;",
        }],
        tests: engine(&["concurrent_tries_to_read_all_succeed"]),
        ..PLAIN
    },
    Mutant {
        name: "every-waiter-asks",
        promise: "One waiter of a client talks to the store for all",
        edits: &[Edit {
            file: ENTRY,
            find: "if !held && idle && (state.callers == 0 || shared) {",
            replace: "if (!held || idle) && (state.callers < 100 || shared) {",
        }],
        tests: engine(&["at_most_one_watch_is_armed_for_many_waiters"]),
        ..PLAIN
    },
    Mutant {
        name: "asks-for-what-it-holds",
        promise: "While this client holds the key nobody asks the store for it",
        edits: &[Edit {
            file: DRIVING,
            find: "        if !self.admits(&mut state, claim.mode) {
            return None;
        }",
            replace: "        let _ = self.admits(&mut state, claim.mode);",
        }],
        tests: engine(&["while_this_client_holds_the_key_nobody_asks_the_store_for_it"]),
        ..PLAIN
    },
    Mutant {
        name: "offers-wake-no-driver",
        promise: "A try that overtakes an unpolled waiter stalls the next one at most 200 ms",
        edits: &[Edit {
            file: QUEUE,
            find: "        if std::mem::take(&mut self.sleeps) {
            self.bell.notify_one();
        }",
            replace: "        self.sleeps = false;",
        }],
        tests: engine(&["a_try_that_overtakes_an_unpolled_waiter_stalls_the_next_one_at_most_200_ms"]),
        ..PLAIN
    },
    Mutant {
        name: "fair-offers-are-never-taken-back",
        promise: "An unpolled fair waiter at the head stalls the others for 200 ms at most",
        edits: &[Edit {
            file: DRIVE,
            find: "        if let Some(missed) = waiter.retract(line.engine.clock.now(), window) {",
            replace: "        if let Some(missed) = waiter.retract(line.engine.clock.now(), window * 100) {",
        }],
        tests: engine(&["an_unpolled_fair_waiter_at_the_head_stalls_ten_others"]),
        ..PLAIN
    },
    Mutant {
        name: "missed-offer-is-made-again",
        promise: "Who missed an offer is offered nothing until it is polled",
        edits: &[Edit {
            file: WAITER,
            find: "match std::mem::replace(&mut *state, State::Dormant) {",
            replace: "match std::mem::replace(&mut *state, State::Waiting(None)) {",
        }],
        tests: engine(&["an_unpolled_fair_waiter_at_the_head_stalls_ten_others"]),
        ..PLAIN
    },
    Mutant {
        name: "call-taken-over-wakes-nobody",
        promise: "A call slower than the offer window still wakes its caller",
        edits: &[Edit {
            file: WAITER,
            find: "*state = State::Waiting(waker);
                Some((call, claim))",
            replace: "*state = State::Waiting(waker.filter(|_| false));
                Some((call, claim))",
        }],
        tests: engine(&["a_call_slower_than_the_offer_window_still_wakes_its_caller"]),
        ..PLAIN
    },
    Mutant {
        name: "call-taken-over-is-not-told",
        promise: "Who waits is told also after its call was taken over",
        edits: &[Edit {
            file: ATTEMPT,
            find: "                if waiter.is_waiting() {
                    self.tell_waiting(claim);
                }
",
            replace: "                let _ = claim;
",
        }],
        tests: engine(&["who_waits_is_told_also_after_its_call_was_taken_over"]),
        ..PLAIN
    },
    Mutant {
        name: "who-waits-is-told-another-claim",
        promise: "Who waits is told which claim waits",
        edits: &[Edit {
            file: ATTEMPT,
            find: "                    drive::wait(waiter, claim.clone());
                    self.tell_waiting(&claim);",
            replace: "                    drive::wait(waiter, claim.clone());
                    let other = line.engine.claim(line, &self.want, claim.fairness);
                    self.tell_waiting(&other);",
        }],
        tests: engine(&["who_waits_is_told_once_with_the_claim_that_waits"]),
        ..PLAIN
    },
    Mutant {
        name: "waiter-listens-only-once",
        promise: "A waiter that could not listen tries to again",
        edits: &[Edit {
            file: SEEK,
            find: "                self.rearm_at = self.engine.clock.now() + REARM;",
            replace: "                self.rearm_at = Instant::NEVER;",
        }],
        tests: engine(&["a_waiter_that_could_not_listen_tries_to_again"]),
        ..PLAIN
    },
    Mutant {
        name: "idle-waiter-asks-often",
        promise: "An idle waiter asks seldom",
        edits: &[Edit {
            file: SEEK,
            find: "let most = if self.wakes.is_some() { Duration::MAX } else { POLL };",
            replace: "let most = POLL;",
        }],
        tests: engine(&["an_idle_waiter_asks_seldom"]),
        ..PLAIN
    },
    Mutant {
        name: "slow-answer-puts-off-the-next-poll",
        promise: "The next poll is reckoned from when the last one was asked",
        edits: &[Edit {
            file: SEEK,
            find: "let poll_after = asked + poll_after - self.engine.clock.now();",
            replace: "let _ = asked;",
        }],
        tests: engine(&["an_answer_that_was_long_on_the_way_does_not_put_off_the_next_poll"]),
        ..PLAIN
    },
    Mutant {
        name: "a-late-store-is-asked-without-pause",
        promise: "A store that always answers too late is asked with pauses",
        edits: &[Edit {
            file: DRIVE,
            find: "    sleep(&line.engine.watchdog, backoff(failures + 1, line.engine.dice())).await;
    failures + 1",
            replace: "    tokio::task::yield_now().await;
    let _ = (line, sleep, backoff as fn(u32, u64) -> Duration);
    failures + 1",
        }],
        tests: engine(&["a_store_that_always_answers_too_late_is_asked_with_pauses"]),
        ..PLAIN
    },
    Mutant {
        name: "fair-is-unfair",
        promise: "Fair waiters enter in the order of their arrival",
        edits: &[Edit {
            file: OPTIONS,
            find: "options.fairness = tenure_backend::Fairness::Fifo",
            replace: "options.fairness = tenure_backend::Fairness::Unfair",
        }],
        tests: engine(&["fair_waiters_enter_in_the_order_of_their_arrival"]),
        ..PLAIN
    },
    Mutant {
        name: "fair-try-queues",
        promise: "A fair try does not queue where it need not",
        edits: &[Edit {
            file: ATTEMPT,
            find: "Fairness::Fifo if self.tries() && serves_unfair => Fairness::Unfair,",
            replace: "Fairness::Fifo if self.tries() && !serves_unfair => Fairness::Unfair,",
        }],
        tests: engine(&["a_fair_try_on_a_busy_lock_does_not_queue"]),
        ..PLAIN
    },
    Mutant {
        name: "fair-try-leaves-its-place",
        promise: "Where a store has one order, a try gives its place up",
        edits: &[Edit {
            file: VERDICT,
            find: "                if claim.fairness == Fairness::Fifo {
                    line.withdraw(claim.clone());
                }
",
            replace: "",
        }],
        tests: engine(&["where_a_store_has_one_order_a_try_leaves_no_place_in_its_queue"]),
        ..PLAIN
    },
    Mutant {
        name: "ended-claim-is-used-again",
        promise: "A fair waiter that was evicted is placed again with another claim",
        edits: &[
            Edit {
                file: DRIVE,
                find: "        claim = line.engine.claim(&line, &waiter.want, Fairness::Fifo);",
                replace: "        claim = claim.clone();",
            },
            Edit {
                file: DRIVE,
                find: "                    None => line.withdraw(claim),",
                replace: "                    None => line.withdraw(claim.clone()),",
            },
        ],
        tests: engine(&["an_evicted_fair_waiter_is_placed_again_at_the_tail"]),
        ..PLAIN
    },
    Mutant {
        name: "fair-waiter-is-not-kept-alive",
        promise: "A fair waiter keeps its place for longer than its lease",
        edits: &[Edit {
            file: SEEK,
            find: "self.spread(poll_after.clamp(SOON, most))",
            replace: "self.spread(poll_after.min(most) * 8)",
        }],
        tests: engine(&["a_fair_waiter_keeps_its_place_for_longer_than_its_lease"]),
        ..PLAIN
    },
    Mutant {
        name: "fair-waiter-that-goes-wakes-nobody",
        promise: "A fair waiter that goes leaves the queue at once",
        edits: &[Edit {
            file: WAITER,
            find: "        let was = std::mem::replace(&mut *self.state.lock(), State::Gone);
        self.changed.notify_one();",
            replace: "        let was = std::mem::replace(&mut *self.state.lock(), State::Gone);",
        }],
        tests: engine(&["a_cancelled_fair_waiter_leaves_the_queue"]),
        ..PLAIN
    },
    Mutant {
        name: "two-names-share-a-line",
        promise: "Names that differ in anything are different locks",
        edits: &[
            Edit {
                file: LINES,
                find: "self.hasher.hash_one((key, kind))",
                replace: "self.hasher.hash_one((key.as_str().is_empty(), kind))",
            },
            Edit {
                file: STATE,
                find: "self.key == *key && self.kind == kind",
                replace: "(self.key == *key || !key.as_str().is_empty()) && self.kind == kind",
            },
        ],
        tests: engine(&["names_that_differ_in_anything_are_different_locks"]),
        ..PLAIN
    },
    Mutant {
        name: "places-for-claims-leak",
        promise: "A claim that is given back makes room for another",
        edits: &[Edit {
            file: ENGINE,
            find: "        self.0.live.fetch_sub(1, Ordering::Relaxed);
    }
}",
            replace: "        self.0.live.fetch_sub(0, Ordering::Relaxed);
    }
}",
        }],
        tests: engine(&["more_claims_than_the_limit_are_refused_until_one_is_given_back"]),
        ..PLAIN
    },
];
