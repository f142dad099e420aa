//! Mutants of the engine: handing a claim on in memory.

use super::list::{PLAIN, engine, regressions};
use crate::mutants::mutant::{Edit, Mutant};

const WANT: &str = "crates/tenure/src/want.rs";
const ATTEMPT: &str = "crates/tenure/src/attempt.rs";
const ENTRY: &str = "crates/tenure/src/line/entry.rs";
const HANDOVER: &str = "crates/tenure/src/line/handover.rs";
const HELD: &str = "crates/tenure/src/held.rs";
const QUEUE: &str = "crates/tenure/src/queue.rs";
const WAITER: &str = "crates/tenure/src/waiter.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "passing-without-a-window",
        promise: "A claim is handed on only while the store's confirmation is fresh",
        edits: &[
            Edit {
                file: HANDOVER,
                find: "held.is_believed(now) && now - held.confirmed() < PASS_WINDOW",
                replace: "held.is_believed(now)",
            },
            Edit {
                file: ATTEMPT,
                find: "!passed || now - held.confirmed() < PASS_WINDOW",
                replace: "passed || !passed",
            },
        ],
        tests: engine(&["a_claim_is_handed_on_only_within_the_pass_window"]),
        ..PLAIN
    },
    Mutant {
        name: "passing-without-a-window-at-the-receiver",
        promise: "A receiver that is polled too late does not return what was handed on",
        edits: &[Edit {
            file: ATTEMPT,
            find: "!passed || now - held.confirmed() < PASS_WINDOW",
            replace: "passed || !passed",
        }],
        tests: engine(&["a_receiver_that_is_polled_after_the_window_does_not_return_what_was_handed_on"]),
        ..PLAIN
    },
    Mutant {
        name: "late-grant-goes-to-a-newcomer",
        promise: "Whoever came after a grant was asked for gets it within the pass window only",
        edits: &[Edit {
            file: HANDOVER,
            find: "(fresh || !first.came_after(grant.held_from))",
            replace: "(fresh || true)",
        }],
        tests: engine(&["a_grant_that_was_long_on_the_way_is_not_given_to_whoever_came_meanwhile"]),
        ..PLAIN
    },
    Mutant {
        name: "runs-reserve-all-they-may",
        promise: "A run reserves no more than twice what the last one handed out",
        edits: &[Edit {
            file: QUEUE,
            find: "self.reserve = handed_out.saturating_mul(2).max(LONE_GRANTS.get());",
            replace: "self.reserve = handed_out.saturating_mul(2).max(u32::MAX);",
        }],
        tests: engine(&["a_run_reserves_no_more_than_twice_what_the_last_one_handed_out"]),
        ..PLAIN
    },
    Mutant {
        name: "first-run-forgets-the-others",
        promise: "Where others want the key, each local waiter has one turn from the first run on",
        edits: &[Edit {
            file: ENTRY,
            find: "queue.others |= self.engine.backend.profile().tells_others;",
            replace: "queue.others |= false;",
        }],
        tests: engine(&["a_first_run_after_others_gives_each_local_waiter_one_turn"]),
        ..PLAIN
    },
    Mutant {
        name: "a-network-key-is-never-let-go",
        promise: "A key that one client hands on all the time comes to those whom nobody counts",
        edits: &[Edit {
            file: HANDOVER,
            find: "profile.reach == Reach::Network && now - since >= BREATHES_EVERY",
            replace: "profile.reach == Reach::Network && now - since >= BREATHES_EVERY * 1000",
        }],
        tests: engine(&["on_a_network_a_key_that_is_handed_on_all_the_time_is_let_go_once_a_second"]),
        ..PLAIN
    },
    Mutant {
        name: "a-breath-ends-at-a-wake-up",
        promise: "While a key is let go of, its own release does not bring its client back",
        edits: &[Edit {
            file: "crates/tenure/src/line/driving.rs",
            find: "breath => Pause::Blind(breath),",
            replace: "breath => Pause::ForWakeUp(breath),",
        }],
        tests: engine(&["on_a_network_a_key_that_is_handed_on_all_the_time_is_let_go_once_a_second"]),
        ..PLAIN
    },
    Mutant {
        name: "passing-without-a-bound",
        promise: "A run ends when its grants are used up, each of which has a token of its own",
        edits: &[Edit {
            file: HELD,
            find: "(passed + 1 < limit).then_some(passed + 1)",
            replace: "(passed < u32::MAX - limit).then_some(passed + 1)",
        }],
        tests: engine(&["a_run_ends_when_its_grants_are_used_up"]),
        ..PLAIN
    },
    Mutant {
        name: "passing-after-belief-ended",
        promise: "A claim is not handed on after belief in it has ended",
        edits: &[
            Edit {
                file: HANDOVER,
                find: "held.is_believed(now) && now - held.confirmed() < PASS_WINDOW",
                replace: "now - held.confirmed() < PASS_WINDOW",
            },
            Edit {
                file: ATTEMPT,
                find: "if fresh && held.is_believed(now) {",
                replace: "if fresh {",
            },
        ],
        tests: engine(&["a_claim_is_not_handed_on_after_belief_in_it_has_ended"]),
        ..PLAIN
    },
    Mutant {
        name: "passing-after-belief-ended-at-the-receiver",
        promise: "A receiver never returns a claim that is believed no more",
        edits: &[Edit {
            file: ATTEMPT,
            find: "if fresh && held.is_believed(now) {",
            replace: "if fresh {",
        }],
        tests: engine(&["a_receiver_never_returns_a_claim_that_is_believed_no_more"]),
        ..PLAIN
    },
    Mutant {
        name: "hand-over-into-a-dropped-waiter",
        promise: "A receiver that was dropped passes on",
        edits: &[
            Edit {
                file: WAITER,
                find: "            _ => Offered::No,",
                replace: "            State::Gone => {
                *state = State::Offered(offer, now);
                Offered::Yes(None)
            }
            _ => Offered::No,",
            },
            Edit {
                file: QUEUE,
                find: ".find(|waiter| waiter.is_waiting())",
                replace: ".find(|waiter| waiter.is_waiting() || waiter.is_gone())",
            },
            Edit {
                file: QUEUE,
                find: ".position(|waiter| waiter.is_waiting())",
                replace: ".position(|waiter| waiter.is_waiting() || waiter.is_gone())",
            },
            Edit {
                file: ATTEMPT,
                find: "Leftover::Nothing => line.forget_waiter(&waiter),",
                replace: "Leftover::Nothing => {}",
            },
        ],
        tests: engine(&["passing::", "a_wait_that_times_out_leaves_nothing"]),
        ..PLAIN
    },
    Mutant {
        name: "dropped-receiver-keeps-its-offer",
        promise: "A receiver that was dropped with an offer in its hands gives it back",
        edits: &[Edit {
            file: ATTEMPT,
            find: "line.leave_behind(&offer.held);",
            replace: "drop(offer);",
        }],
        tests: engine(&["the_last_receiver_that_was_dropped_gives_the_claim_back"]),
        ..PLAIN
    },
    Mutant {
        name: "passing-starves-others",
        promise: "While others wait elsewhere, a run gives each local waiter one turn",
        edits: &[Edit {
            file: HANDOVER,
            find: "queue.others = others > 0;",
            replace: "queue.others = others > u32::MAX - 1;",
        }],
        tests: regressions(&["a_client_does_not_keep_a_key_for_itself_while_another_waits"]),
        ..PLAIN
    },
    Mutant {
        name: "eviction-without-bar",
        promise: "An eviction bars the key for the pass window",
        edits: &[Edit {
            file: "crates/tenure/src/client.rs",
            find: "bar: PASS_WINDOW,",
            replace: "bar: PASS_WINDOW * 0,",
        }],
        tests: engine(&["an_eviction_bars_the_key_for_the_pass_window"]),
        ..PLAIN
    },
    Mutant {
        name: "passing-cannot-be-turned-off",
        promise: "With passing turned off, every hand-over is the store's",
        edits: &[
            Edit {
                file: HANDOVER,
                find: "            || !self.engine.settings.passing
",
                replace: "",
            },
            Edit {
                file: WANT,
                find: "if !self.options.may_pass(self.mode) || !engine.settings.passing {",
                replace: "if !self.options.may_pass(self.mode) {",
            },
        ],
        tests: engine(&["turned_off_every_hand_over_is_the_stores"]),
        ..PLAIN
    },
    Mutant {
        name: "passing-to-other-terms",
        promise: "A claim is handed on only to whom it serves just as well",
        edits: &[Edit {
            file: HANDOVER,
            find: "queue.take_first_if(|first| first.want.fits(&held.claim, &self.engine))?",
            replace: "queue.take_first_if(|_| true)?",
        }],
        tests: engine(&["locks_of_other_terms_are_not_handed_on"]),
        ..PLAIN
    },
    Mutant {
        name: "passing-with-one-token",
        promise: "Every grant of a run has a token of its own",
        edits: &[Edit {
            file: HELD,
            find: "self.first_token?.get() + u64::from(nth)",
            replace: "self.first_token?.get() + u64::from(nth.min(0))",
        }],
        tests: engine(&["a_fresh_claim_is_handed_on_without_a_call_and_with_a_greater_token"]),
        ..PLAIN
    },
];
