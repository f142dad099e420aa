//! Mutants of the test kit: a checker, a suite or weather that overlooks things makes every other test worthless.

use super::list::{PLAIN, test};
use crate::mutants::mutant::{Edit, Mutant};

const CHECKER: &str = "crates/tenure-testkit/src/checker.rs";
const BELIEF: &str = "crates/tenure-testkit/src/belief.rs";
const CHAOS: &str = "crates/tenure-testkit/src/chaos.rs";
const MODEL_ROOM: &str = "crates/tenure-testkit/src/model/room.rs";

const WALKS: &[&str] = &["each_planted_bug_of_a_claims_state_turns_a_walk_red"];

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "checker-ignores-permits",
        promise: "A grant of one permit too many is found",
        edits: &[Edit {
            file: BELIEF,
            find: "if used + u64::from(wanted.get()) > u64::from(of.get()) {",
            replace: "if used > u64::MAX - u64::from(wanted.get().max(of.get())) {",
        }],
        tests: test("tenure-testkit", "planted", &["one_permit_too_many"]),
        ..PLAIN
    },
    Mutant {
        name: "checker-ends-beliefs-early",
        promise: "Beliefs that overlap are found, be it by one nanosecond",
        edits: &[Edit {
            file: CHECKER,
            find: "if deadline > now {",
            replace: "if deadline > now + std::time::Duration::from_nanos(1) {",
        }],
        tests: test(
            "tenure-testkit",
            "checker",
            &["the_sweep_and_a_brute_force_oracle_never_disagree"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "checker-sees-overlaps-where-beliefs-touch",
        promise: "Beliefs that only touch are no violation",
        edits: &[Edit {
            file: CHECKER,
            find: "if deadline > now {",
            replace: "if deadline >= now {",
        }],
        tests: test(
            "tenure-testkit",
            "checker",
            &["the_sweep_and_a_brute_force_oracle_never_disagree"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "checker-trusts-who-says-held",
        promise: "Who says that it holds after its deadline is found",
        edits: &[Edit {
            file: CHECKER,
            find: "deadline.is_some_and(|deadline| since >= deadline)",
            replace: "deadline.is_some_and(|_| false)",
        }],
        tests: test(
            "tenure-testkit",
            "planted",
            &["a_belief_that_goes_on_beyond_its_deadline"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "checker-lets-a-loss-be-taken-back",
        promise: "A loss that is taken back is found",
        edits: &[Edit {
            file: CHECKER,
            find: "is_some_and(|lost| since >= lost.at)",
            replace: "is_some_and(|lost| since < lost.at)",
        }],
        tests: test("tenure-testkit", "planted", &["a_loss_that_is_taken_back"]),
        ..PLAIN
    },
    Mutant {
        name: "checker-forgets-the-last-token",
        promise: "A token that goes back across an expiry is found",
        edits: &[Edit {
            file: BELIEF,
            find: "until.checked_sub(1)",
            replace: "until.checked_sub(2)",
        }],
        tests: test(
            "tenure-testkit",
            "planted",
            &["a_token_that_goes_back_across_an_expiry"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "checker-accepts-stale-writes",
        promise: "A resource that accepts an older token is found",
        edits: &[Edit {
            file: CHECKER,
            find: "if newest > token =>",
            replace: "if newest > token && newest < token =>",
        }],
        tests: test(
            "tenure-testkit",
            "planted",
            &["a_resource_that_accepts_an_older_token"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "checker-ignores-the-order-of-the-queue",
        promise: "A grant out of the order of the queue is found",
        edits: &[Edit {
            file: CHECKER,
            find: ".range(..(invoked, 0))",
            replace: ".range(..(invoked, 0).min((Instant::ORIGIN, 0)))",
        }],
        tests: test(
            "tenure-testkit",
            "planted",
            &["a_grant_out_of_the_order_of_the_queue"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "checker-overlooks-what-is-left-behind",
        promise: "A waiter that is left behind in the store is found",
        edits: &[Edit {
            file: CHECKER,
            find: "if holders.saturating_add(waiters) > open {",
            replace: "if holders > open {",
        }],
        tests: test("tenure-testkit", "planted", &["a_waiter_that_is_left_behind"]),
        ..PLAIN
    },
    Mutant {
        name: "chaos-never-errs",
        promise: "In rough weather requests fail before their effect",
        edits: &[Edit {
            file: CHAOS,
            find: "if dice.chance(self.weather.fails_before) {",
            replace: "if dice.chance(0) {",
        }],
        tests: test(
            "tenure-testkit",
            "chaos",
            &["an_error_before_the_effect_never_reaches_the_store"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "chaos-loses-no-answer",
        promise: "In rough weather answers are lost after the effect",
        edits: &[Edit {
            file: CHAOS,
            find: "} else if dice.chance(self.weather.fails_after) {",
            replace: "} else if dice.chance(0) {",
        }],
        tests: test(
            "tenure-testkit",
            "chaos",
            &["an_error_after_the_effect_has_reached_the_store"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "chaos-repeats-nothing",
        promise: "In rough weather requests are delivered again, also after the release",
        edits: &[Edit {
            file: CHAOS,
            find: "if fate.dice.chance(self.weather.repeats) {",
            replace: "if fate.dice.chance(0) {",
        }],
        tests: test(
            "tenure-testkit",
            "chaos",
            &["requests_are_delivered_again_also_after_the_release"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "chaos-loses-no-wake-up",
        promise: "In rough weather wake-ups are lost",
        edits: &[Edit {
            file: CHAOS,
            find: "dice.chance(chaos.weather.loses_wake)",
            replace: "dice.chance(0)",
        }],
        tests: test("tenure-testkit", "chaos", &["wakes_are_lost_and_made_up"]),
        ..PLAIN
    },
    Mutant {
        name: "suite-overlooks-belief-from-the-reply",
        promise: "A store whose `held_from` is read after the reply fails the suite",
        edits: &[Edit {
            file: "crates/tenure-testkit/src/suite/lease.rs",
            find: "if clock.manual().now() < believed_until {",
            replace: "if clock.manual().now() > believed_until {",
        }],
        tests: test("tenure-testkit", "broken", &["each_planted_bug_turns_a_case_red"]),
        limit_s: 180,
        survives: Some("the case with a slow door to the store finds such a belief as well"),
    },
    Mutant {
        name: "model-admits-everybody",
        promise: "A random walk finds two grants that Mode::admits refuses",
        edits: &[Edit {
            file: MODEL_ROOM,
            find: "if !claim.mode.admits(held.iter().copied()) {",
            replace: "if held.len() > 99 {",
        }],
        tests: test("tenure-testkit", "broken", WALKS),
        ..PLAIN
    },
    Mutant {
        name: "model-forgets-the-queue",
        promise: "A random walk finds a grant out of the order of the queue",
        edits: &[Edit {
            file: MODEL_ROOM,
            find: "if before > 0 {",
            replace: "if before > 99 {",
        }],
        tests: test("tenure-testkit", "broken", WALKS),
        ..PLAIN
    },
    Mutant {
        name: "model-lets-tokens-fall",
        promise: "A random walk finds a token that is not beyond those before it",
        edits: &[Edit {
            file: "crates/tenure-testkit/src/model/ledger.rs",
            find: "own || Some(run.first()) > floor,",
            replace: "own || floor.is_none_or(|floor| floor.get() > 0),",
        }],
        tests: test("tenure-testkit", "broken", WALKS),
        ..PLAIN
    },
];
