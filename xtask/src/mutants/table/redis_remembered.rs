//! Mutants of the Redis store: what Redis and its client remember of claims, and for how long.

use super::list::{PLAIN, test, unit};
use crate::mutants::mutant::{Edit, Mutant, Tests};

const ACQUIRE: &str = "crates/tenure-redis/scripts/redisson_acquire.lua";
const RELEASE: &str = "crates/tenure-redis/scripts/redisson_release.lua";
const RENEW: &str = "crates/tenure-redis/scripts/redisson_renew.lua";
const NOTE: &str = "crates/tenure-redis/scripts/redisson_note.lua";
const KNOWN: &str = "crates/tenure-redis/src/known.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "redis-usual-case-ignores-the-end",
        promise: "A claim that was taken back before it arrived is not placed",
        edits: &[Edit {
            file: ACQUIRE,
            find: "call('EXISTS', name, KEYS[4], ",
            replace: "call('EXISTS', name, ",
        }],
        tests: faults(&["a_request_that_was_held_up_until_after_its_release_brings_nothing_back"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-withdrawal-not-remembered",
        promise: "A request that its withdrawal overtook brings nothing back",
        edits: &[Edit {
            file: RELEASE,
            find: "        ending, evicted = 'E', false\n    end\n    finish(owner)",
            replace: "        ending = 'E'\n    end",
        }],
        tests: faults(&["a_request_that_was_held_up_until_after_its_release_brings_nothing_back"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-release-not-remembered",
        promise: "A released claim is never granted again",
        edits: &[Edit {
            file: KNOWN,
            find: "        state.claims.remove(&id);\n        state.ended.insert(id, now);\n    }\n\n    /// The store has done nothing",
            replace: "        state.claims.remove(&id);\n    }\n\n    /// The store has done nothing",
        }],
        tests: conformance(&["a_released_claim_is_never_granted_again"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-record-ends-with-the-lease",
        promise: "An expired claim is remembered until no request can place it any more",
        edits: &[Edit {
            file: KNOWN,
            find: "if let (Some(held), false) = (one.grant, one.is_in_doubt(now)) {",
            replace: "if let (Some(held), true) = (one.grant, false) {",
        }],
        tests: conformance(&["an_ended_claim_is_remembered_until_its_place_by_has_passed"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-doubt-forgotten",
        promise: "What a placement that was never answered may still place is taken back in advance",
        edits: &[Edit {
            file: KNOWN,
            find: "            one.in_doubt = one.in_doubt.max(Some(self.place_by + REMEMBERED));\n",
            replace: "",
        }],
        tests: remembered(&["an_end_is_remembered_in_redis_while_a_placement_is_in_doubt"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-placement-under-way-forgotten",
        promise: "What a placement that is under way may still place is taken back in advance",
        edits: &[Edit {
            file: KNOWN,
            find: "self.under_way > 0 || self.in_doubt",
            replace: "self.in_doubt",
        }],
        tests: remembered(&["an_end_is_remembered_in_redis_while_a_placement_is_in_doubt"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-writes-down-who-does-not-hold",
        promise: "Nothing is left behind of a lock that was lost",
        edits: &[Edit {
            file: NOTE,
            find: "if redis.pcall('HEXISTS', KEYS[i], ARGV[at]) == 1 then",
            replace: "do",
        }],
        tests: remembered(&["nothing_stays_written_down_of_who_does_not_hold"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-what-was-written-down-outlives-an-eviction",
        promise: "Nothing is left behind of a lock whose holder was evicted",
        edits: &[Edit {
            file: RELEASE,
            find: "    call('HDEL', claims_of(one), one)\n",
            replace: "",
        }],
        tests: remembered(&["nothing_stays_written_down_of_who_does_not_hold"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-what-was-written-down-outlives-its-hold",
        promise: "Nothing is left behind of a lock that was released",
        edits: &[Edit {
            file: RELEASE,
            find: "    if ending == 'N' then\n        call('HDEL'",
            replace: "    if ending == 'N' then\n        call('HGET'",
        }],
        tests: remembered(&["what_is_held_for_a_while_is_written_down_and_goes_with_its_hold"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-what-is-held-is-never-written-down",
        promise: "Whoever looks sees token and label of what is held",
        edits: &[Edit {
            file: KNOWN,
            find: "            self.known.young.notify_one();\n",
            replace: "",
        }],
        tests: remembered(&["what_is_held_for_a_while_is_written_down_and_goes_with_its_hold"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-what-is-leaving-is-not-written-down",
        promise: "What is leaving is still held until the server confirms it",
        edits: &[Edit {
            file: KNOWN,
            find: "if since > before && state.claims.contains_key(&id) {",
            replace: "if since > before && state.claims.get(&id).is_some_and(|one| !one.leaves) {",
        }],
        tests: unit("tenure-redis", &["what_was_given_back_is_not_waited_for"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-failed-release-is-not-written-down",
        promise: "What is held is written down also after a release that failed",
        edits: &[Edit {
            file: KNOWN,
            find: "if one.grant.is_some_and(|held| held.due) {",
            replace: "if false {",
        }],
        tests: unit(
            "tenure-redis",
            &["what_is_still_held_after_a_release_that_failed_is_written_down"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "redis-repeated-release-forgets-the-doubt",
        promise: "What a placement that was never answered may still place stays taken back, however often that is said",
        edits: &[Edit {
            file: RELEASE,
            find: "if string.sub(call('GET', records .. one) or '', 1, 1) == 'W' then",
            replace: "do",
        }],
        tests: remembered(&["only_an_end_that_a_request_may_outlive_is_remembered_in_redis"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-loss-takes-the-doubt-away",
        promise: "What a placement that was never answered may still place is taken back also after a loss",
        edits: &[Edit {
            file: KNOWN,
            find: "        if !one.is_in_doubt(now) {\n            state.claims.remove(&id);\n        }\n",
            replace: "        state.claims.remove(&id);\n",
        }],
        tests: unit("tenure-redis", &["a_loss_takes_no_doubt_away"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-usual-case-ignores-that-it-waited",
        promise: "A fair waiter leaves nothing of its wait, whatever Java made of it",
        edits: &[Edit {
            file: ACQUIRE,
            find: "    and (ARGV[6] ~= '1' or call('EXISTS', 'tenure_claim:' .. open .. name .. close .. ':' .. ARGV[1]) == 0)\n",
            replace: "",
        }],
        tests: remembered(&["a_waiter_that_java_took_out_of_the_queue_leaves_nothing_of_its_wait"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-raise-is-not-taken-back",
        promise: "Nothing is left behind of a lock that was released, also if its tokens were raised",
        edits: &[Edit {
            file: KNOWN,
            find: "            held.noted = true;\n",
            replace: "",
        }],
        tests: remembered(&["what_is_held_for_a_while_is_written_down_and_goes_with_its_hold"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-note-without-an-end",
        promise: "Nothing that is known of a client stays for ever",
        edits: &[Edit {
            file: NOTE,
            find: "redis.call('PEXPIRE', claims, math.max(ARGV[1], redis.call('PTTL', claims)))\n",
            replace: "",
        }],
        tests: remembered(&["what_is_known_of_a_client_is_written_anew_where_it_was_lost"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-client-is-not-kept",
        promise: "What is known of a client ends with its longest lease and a minute",
        edits: &[Edit {
            file: ACQUIRE,
            find: "        call('PEXPIRE', claims, math.max(ARGV[7], call('PTTL', claims)))\n",
            replace: "",
        }],
        tests: layout(&["a_mutex_is_one_field_in_a_hash_with_the_lease_as_its_time_to_live"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-renewal-revives-the-evicted",
        promise: "An evicted claim is gone, and learns by whom",
        edits: &[Edit {
            file: RENEW,
            find: "return known\n",
            replace: "return 0\n",
        }],
        tests: conformance(&["an_evicted_claim_is_gone_and_learns_by_whom"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-eviction-forgotten-before-the-lease-ends",
        promise: "An evicted claim can learn by whom for as long as its lease would have lasted",
        edits: &[Edit {
            file: RELEASE,
            find: "REMEMBERED + left",
            replace: "REMEMBERED",
        }],
        tests: remembered(&["an_evicted_claim_is_remembered_for_longer_than_one_that_left"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-late-release-hides-the-eviction",
        promise: "A late release does not change why an evicted claim is gone",
        edits: &[Edit {
            file: RELEASE,
            find: "elseif string.sub(call('GET', records .. owner) or '', 1, 1) ~= 'V' then",
            replace: "else",
        }],
        tests: remembered(&["an_evicted_claim_is_remembered_for_longer_than_one_that_left"]),
        ..PLAIN
    },
];

const fn conformance(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "conformance", names)
}

const fn faults(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "faults", names)
}

const fn layout(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "layout", names)
}

const fn remembered(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "remembered", names)
}
