//! Mutants of the Redis store: claims that travel together, and what a client makes of answers, clocks and connections.
//! Not here: what the scripts decide of one claim (`redis.rs`).

use super::list::{PLAIN, test, unit};
use crate::mutants::mutant::{Edit, Mutant, Tests};

const TOGETHER: &str = "crates/tenure-redis/scripts/redisson_together.lua";
const LINK: &str = "crates/tenure-redis/src/link.rs";
const REFUSAL: &str = "crates/tenure-redis/src/refusal.rs";
const AWAKE: &str = "crates/tenure-redis/src/awake.rs";
const WIRE: &str = "crates/tenure-redis/src/wire.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "redis-group-placed-after-place-by",
        promise: "No claim is placed after its `place_by`, also among others",
        edits: &[Edit {
            file: TOGETHER,
            find: "local late = now > tonumber(ARGV[4])",
            replace: "local late = false",
        }],
        tests: together(&["a_claim_that_comes_too_late_among_others_is_not_placed_and_they_are"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-together-one-lease-for-all",
        promise: "A claim that travels with others keeps its own lease",
        edits: &[Edit {
            file: TOGETHER,
            find: "lease = ARGV[7 + all + 2 * (i - departing)]",
            replace: "lease = ARGV[9 + all]",
        }],
        tests: together(&["claims_that_travel_together_keep_a_lease_a_run_and_a_queue_of_their_own"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-together-one-token-for-each",
        promise: "A claim that travels with others keeps its own run of tokens",
        edits: &[Edit {
            file: TOGETHER,
            find: "(grants or ARGV[8 + all + 2 * (i - departing)])",
            replace: "1",
        }],
        tests: together(&["claims_that_travel_together_keep_a_lease_a_run_and_a_queue_of_their_own"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-group-overtakes-a-queue",
        promise: "A group leaves claims to themselves about which anything is unusual: a queue",
        edits: &[Edit {
            file: TOGETHER,
            find: "call('EXISTS', name, 'redisson_lock_queue:' .. open .. name .. close) > 0",
            replace: "call('EXISTS', name) > 0",
        }],
        tests: together(&["what_is_unusual_about_one_claim_is_no_trouble_of_those_beside_it"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-group-waits-for-what-is-no-lock",
        promise: "A group leaves claims to themselves about which anything is unusual: a key of another program",
        edits: &[Edit {
            file: TOGETHER,
            find: "if not (seen or held.err or held[1]",
            replace: "if not (seen or held[1]",
        }],
        tests: together(&["what_is_unusual_about_one_claim_is_no_trouble_of_those_beside_it"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-group-grants-the-ended",
        promise: "A released claim is never granted again, also among others",
        edits: &[Edit {
            file: TOGETHER,
            find: "local doubts = wanted > 0 and call('EXISTS', KEYS[3]) == 1",
            replace: "local doubts = false",
        }],
        tests: together(&["what_is_unusual_about_one_claim_is_no_trouble_of_those_beside_it"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-group-frees-without-owner-check",
        promise: "A release frees the claim that it names and no other, also among others",
        edits: &[Edit {
            file: TOGETHER,
            find: "try('HDEL', name, owner) == 1",
            replace: "try('DEL', name) == 1",
        }],
        tests: together(&["a_holder_that_leaves_among_others_calls_the_head_of_its_queue"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-group-tells-nobody",
        promise: "A release among others wakes whoever listens",
        edits: &[Edit {
            file: TOGETHER,
            find: "call('PUBLISH', 'redisson_lock__channel:' .. open .. name .. close, '0')",
            replace: "call('PUBSUB', 'NUMSUB', 'redisson_lock__channel:' .. open .. name .. close)[2]",
        }],
        tests: together(&["a_holder_that_leaves_among_others_calls_the_head_of_its_queue"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-group-draws-one-token-too-few",
        promise: "Every token that is given out is counted",
        edits: &[Edit {
            file: TOGETHER,
            find: "first - 1 + wanted",
            replace: "first - 2 + wanted",
        }],
        tests: together(&["many_claims_at_once_travel_in_few_calls_and_each_has_tokens_of_its_own"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-group-draws-by-the-clock-alone",
        promise: "Tokens rise also while the server's clock was set back, also among others",
        edits: &[Edit {
            file: TOGETHER,
            find: "first = math.max(now, (tonumber(drawn) or 0) + 1)",
            replace: "first = now",
        }],
        tests: faults(&["a_server_whose_clock_is_set_ends_leases_early_but_never_repeats_a_token"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-group-is-not-answered",
        promise: "A connection that breaks answers all who were gathered for it",
        edits: &[Edit {
            file: "crates/tenure-redis/src/together.rs",
            find: "Err(failure) => Err(failure.clone()),",
            replace: "Err(_) => {
                    std::mem::forget(tell);
                    continue;
                }",
        }],
        tests: together(&["a_connection_that_is_cut_answers_all_who_were_gathered"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-belief-begins-with-the-answer",
        promise: "Belief begins before the request is sent, however long the answer takes",
        edits: &[Edit {
            file: "crates/tenure-redis/src/acquire.rs",
            find: "placed => Ok(standing(placed, claim, asked)),",
            replace: "placed => Ok(standing(placed, claim, asked.max(self.now()))),",
        }],
        tests: conformance(&["a_late_reply_does_not_lengthen_belief"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-belief-of-a-group-begins-with-the-answer",
        promise: "Belief begins before the request is sent, also among others",
        edits: &[Edit {
            file: "crates/tenure-redis/src/acquire.rs",
            find: "Ok(Some(standing(placed, claim, asked)))",
            replace: "Ok(Some(standing(placed, claim, asked.max(self.now()))))",
        }],
        tests: conformance(&["a_late_reply_does_not_lengthen_belief"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-renewed-belief-begins-with-the-answer",
        promise: "A renewal prolongs belief from before its request was sent",
        edits: &[Edit {
            file: "crates/tenure-redis/src/renew.rs",
            find: "let judged = ",
            replace: "let held_from = held_from.max(self.now());
        let judged = ",
        }],
        tests: conformance(&["a_late_reply_does_not_lengthen_belief"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-heirs-belief-begins-with-the-answer",
        promise: "An heir believes from before the release was sent",
        edits: &[Edit {
            file: "crates/tenure-redis/src/release.rs",
            find: "Some(standing(placed, &heir.claim, asked))",
            replace: "Some(standing(placed, &heir.claim, asked.max(self.now())))",
        }],
        tests: conformance(&["a_late_reply_does_not_lengthen_belief"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-own-listener-counts-as-another",
        promise: "A client's own waiters do not stand in its heir's way",
        edits: &[Edit {
            file: "crates/tenure-redis/src/release.rs",
            find: "client.as_ref().is_some_and(|_| self.ear.listens(key))",
            replace: "client.is_none() && self.ear.listens(key)",
        }],
        tests: conformance(&["the_clients_own_watchers_do_not_stand_in_its_heirs_way"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-servers-clock-bounded-from-above",
        promise: "A client assumes no more of its server's clock than it shows at least",
        edits: &[Edit {
            file: "crates/tenure-redis/src/clock.rs",
            find: "let least = since - since / DRIFT;",
            replace: "let least = since + since / DRIFT;",
        }],
        tests: unit(
            "tenure-redis",
            &["the_longer_nothing_was_heard_the_less_is_assumed"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "redis-broken-connection-not-replaced",
        promise: "A connection that was cut is replaced by another",
        edits: &[Edit {
            file: LINK,
            find: ".filter(|wire| !wire.is_broken()) {",
            replace: " {",
        }],
        tests: faults(&["a_connection_that_was_cut_is_replaced_and_the_claim_is_still_there"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-unanswered-call-said-to-be-without-effect",
        promise: "Of a call whose answer never came nobody says that it did nothing",
        edits: &[Edit {
            file: "crates/tenure-redis/src/error.rs",
            find: "Effect::Unknown,
        \"Redis did not answer, ",
            replace: "Effect::None,
        \"Redis did not answer, ",
        }],
        tests: faults(&["a_server_that_is_silent_is_given_up_in_time_and_found_again"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-scripts-not-taught-again",
        promise: "A server that forgot its scripts is taught them again",
        edits: &[Edit {
            file: WIRE,
            find: "refusal.code() == \"NOSCRIPT\"",
            replace: "refusal.code() == \"SCRIPT\"",
        }],
        tests: faults(&["scripts_that_the_server_forgot_are_taught_again"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-nobody-is-woken-after-another-subscription",
        promise: "Nobody is left asleep by a message that was lost with its connection",
        edits: &[Edit {
            file: "crates/tenure-redis/src/watch.rs",
            find: "bells.extend(channel.bells.iter().cloned());",
            replace: "bells.extend(None);",
        }],
        tests: faults(&["a_subscription_that_was_cut_is_made_again_and_everybody_is_woken"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-ear-stays-behind",
        promise: "Wake-ups follow the connection for calls to where the name leads",
        edits: &[Edit {
            file: LINK,
            find: "            state.moved.send_replace(());\n",
            replace: "",
        }],
        tests: faults(&["wake_ups_follow_the_connection_for_calls_to_where_the_name_leads"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-failed-save-is-for-good",
        promise: "A server that cannot save its data is weather",
        edits: &[Edit {
            file: REFUSAL,
            find: "&[\"MISCONF\"],\n        Fault::Unavailable",
            replace: "&[\"MISCONF\"],\n        Fault::Store",
        }],
        tests: faults(&["a_server_that_cannot_save_its_data_is_weather_without_effect"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-tokens-that-no-script-can-count",
        promise: "No token is granted that could come again",
        edits: &[Edit {
            file: "crates/tenure-redis/scripts/redisson_acquire.lua",
            find: "if last >= 2 ^ 53 then",
            replace: "if last >= 2 ^ 80 then",
        }],
        tests: examine(&["a_token_counter_that_was_set_too_high_is_told_and_nothing_is_granted"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-heirs-tokens-that-no-script-can-count",
        promise: "No token is granted that could come again",
        edits: &[Edit {
            file: "crates/tenure-redis/scripts/redisson_release.lua",
            find: "if last < 2 ^ 53 then",
            replace: "if last < 2 ^ 80 then",
        }],
        tests: examine(&["a_token_counter_that_was_set_too_high_is_told_and_nothing_is_granted"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-queues-tokens-that-no-script-can-count",
        promise: "No token is granted that could come again",
        edits: &[Edit {
            file: "crates/tenure-redis/scripts/redisson_place.lua",
            find: "if last >= 2 ^ 53 then",
            replace: "if last >= 2 ^ 80 then",
        }],
        tests: examine(&["a_token_counter_that_was_set_too_high_is_told_and_nothing_is_granted"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-groups-tokens-that-no-script-can-count",
        promise: "No token is granted that could come again",
        edits: &[Edit {
            file: "crates/tenure-redis/scripts/redisson_together.lua",
            find: "if last >= 2 ^ 53 or try",
            replace: "if last >= 2 ^ 80 or try",
        }],
        tests: examine(&["a_token_counter_that_was_set_too_high_is_told_and_nothing_is_granted"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-groups-last-token-rounded",
        promise: "No token is granted that could come again",
        edits: &[Edit {
            file: "crates/tenure-redis/scripts/redisson_together.lua",
            find: "local last = first - 1 + wanted",
            replace: "local last = first + wanted - 1",
        }],
        tests: examine(&["a_single_claim_in_a_call_for_many_has_no_token_beyond_the_last"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-far-servers-answer-is-waited-for",
        promise: "A far server is asked for the next claims before it has answered for the last",
        edits: &[Edit {
            file: "crates/tenure-redis/src/distance.rs",
            find: "MOST.min(NEXT_DOOR.saturating_add(besides))",
            replace: "MOST.min(NEXT_DOOR.saturating_add(besides)).min(NEXT_DOOR)",
        }],
        tests: test(
            "tenure-redis",
            "crowd",
            &["what_is_asked_of_a_far_server_is_on_its_way_before_the_first_answer_comes"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "redis-looks-while-others-call",
        promise: "No thread is kept awake while several callers wait",
        edits: &[Edit {
            file: AWAKE,
            find: "self.under_way.load(Ordering::Relaxed) == 1",
            replace: "self.under_way.load(Ordering::Relaxed) >= 1",
        }],
        tests: unit(
            "tenure-redis",
            &["nobody_looks_for_the_first_answer_nor_while_others_call_nor_after_a_rest"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "redis-looks-after-a-rest",
        promise: "No thread is kept awake for who does not come again at once",
        edits: &[Edit {
            file: AWAKE,
            find: "now < answered + self.patience.at_once",
            replace: "now >= answered",
        }],
        tests: unit(
            "tenure-redis",
            &["nobody_looks_for_the_first_answer_nor_while_others_call_nor_after_a_rest"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "redis-looks-in-vain",
        promise: "A server that does not answer at once is left alone",
        edits: &[Edit {
            file: AWAKE,
            find: "self.passing = self.pass;",
            replace: "self.passing = 0;",
        }],
        tests: unit(
            "tenure-redis",
            &["a_server_that_does_not_answer_at_once_is_left_alone"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "redis-look-keeps-the-next-waiting",
        promise: "No thread is kept awake while several callers wait",
        edits: &[Edit {
            file: AWAKE,
            find: "while self.is_lone() {",
            replace: "loop {",
        }],
        tests: unit("tenure-redis", &["a_look_ends_when_another_calls"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-never-looks",
        promise: "A lone caller who comes again at once waits for no wake-up",
        edits: &[Edit {
            file: AWAKE,
            find: "            self.look();\n",
            replace: "",
        }],
        tests: unit(
            "tenure-redis",
            &["the_flush_of_who_comes_again_ends_when_the_answer_has_come"],
        ),
        ..PLAIN
    },
];

const fn conformance(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "conformance", names)
}

const fn examine(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "examine", names)
}

const fn faults(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "faults", names)
}

const fn together(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "together", names)
}
