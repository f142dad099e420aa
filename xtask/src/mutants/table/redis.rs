//! Mutants of the Redis store: what its scripts decide about holders and waiters.
//! Not here: what it remembers of claims (`redis_remembered.rs`), and the calls of the scripts, and their connections
//! (`redis_calls.rs`).

use super::list::{PLAIN, test};
use crate::mutants::mutant::{Edit, Mutant, Tests};

const ACQUIRE: &str = "crates/tenure-redis/scripts/redisson_acquire.lua";
const PLACE: &str = "crates/tenure-redis/scripts/redisson_place.lua";
const RELEASE: &str = "crates/tenure-redis/scripts/redisson_release.lua";
const RENEW: &str = "crates/tenure-redis/scripts/redisson_renew.lua";
const DEPARTURES: &str = "crates/tenure-redis/src/release.rs";
const OWNERS: &str = "crates/tenure-redis/scripts/redisson_owners.lua";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "redis-places-after-place-by",
        promise: "No claim is placed after its `place_by`",
        edits: &[Edit {
            file: ACQUIRE,
            find: "    now <= tonumber(ARGV[3])\n    and call(",
            replace: "    call(",
        }],
        tests: conformance(&["a_claim_is_never_placed_after_its_place_by"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-unusual-claim-placed-after-place-by",
        promise: "No claim is placed after its `place_by`, also if anything about it is unusual",
        edits: &[Edit {
            file: PLACE,
            find: "if now > place_by then",
            replace: "if now > place_by and held[2] then",
        }],
        tests: conformance(&["a_claim_is_never_placed_after_its_place_by"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-heir-placed-after-place-by",
        promise: "No heir is placed after its `place_by`",
        edits: &[Edit {
            file: RELEASE,
            find: "not ARGV[12] and now <= tonumber(ARGV[8]) then",
            replace: "not ARGV[12] then",
        }],
        tests: conformance(&["an_heir_that_comes_too_late_is_not_placed"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-usual-case-ignores-the-queue",
        promise: "A live queue bars claims that do not queue",
        edits: &[Edit {
            file: ACQUIRE,
            find: "call('EXISTS', name, KEYS[4], 'redisson_lock_queue:' .. open .. name .. close) == 0",
            replace: "call('EXISTS', name, KEYS[4]) == 0",
        }],
        tests: layout(&["a_newcomer_of_whom_nothing_is_known_waits_behind_a_queue"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-heir-overtakes-the-queue",
        promise: "An unfair heir waits for a queue as any unfair claim does",
        edits: &[Edit {
            file: RELEASE,
            find: "call('EXISTS', name, KEYS[4], 'redisson_lock_queue:' .. open .. name .. close) == 0",
            replace: "call('EXISTS', name, KEYS[4]) == 0",
        }],
        tests: conformance(&["an_unfair_heir_does_not_overtake_a_queue"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-heir-overtakes-those-who-listen",
        promise: "An heir is granted by the release only if nobody else listens",
        edits: &[Edit {
            file: RELEASE,
            find: "        and call('PUBSUB', 'NUMSUB', 'redisson_lock__channel:' .. open .. name .. close)[2] <= own\n",
            replace: "",
        }],
        tests: conformance(&["an_heir_waits_when_another_client_watches"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-release-without-owner-check",
        promise: "A release frees the claim that it names and no other",
        edits: &[Edit {
            file: RELEASE,
            find: "redis.pcall('HDEL', name, owner)",
            replace: "redis.pcall('DEL', name)",
        }],
        tests: conformance(&["a_release_by_anyone_but_the_owner_frees_nothing"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-renewal-re-creates",
        promise: "No renewal creates a claim",
        edits: &[Edit {
            file: RENEW,
            find: "if not known or kind == 'E' then",
            replace: "if not known then
        redis.call('HSET', name, owner, '1')
        redis.call('PEXPIRE', name, lease)
        return 0
    elseif kind == 'E' then",
        }],
        tests: conformance(&["a_claim_that_was_never_placed_is_gone_to_renewal"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-renewal-without-a-lease",
        promise: "A claim that is renewed within its lease lives on",
        edits: &[Edit {
            file: RENEW,
            find: "redis.call('PEXPIRE', name, lease)",
            replace: "",
        }],
        tests: conformance(&["a_renewed_claim_outlives_its_first_lease"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-eviction-without-bar",
        promise: "An eviction bars its key for as long as it says",
        edits: &[Edit {
            file: RELEASE,
            find: "if held and tonumber(ARGV[5] or 0) > 0 then",
            replace: "if held and tonumber(ARGV[5] or 0) < 0 then",
        }],
        tests: layout(&["a_bar_is_a_holder_that_is_nobody"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-a-transaction-is-not-seen",
        promise: "What a transaction of Java's holds can be seen and evicted",
        edits: &[Edit {
            file: OWNERS,
            find: " or string.find(field, OWNER .. ':%x+$')",
            replace: "",
        }],
        tests: java(&["a_lock_of_javas_without_an_end_or_of_a_transaction_can_be_seen_and_evicted"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-head-is-called-at-the-bar-alone",
        promise: "The head of the queue is called again when an eviction's bar is over",
        edits: &[Edit {
            file: DEPARTURES,
            find: "if !departure.bar.is_zero() {",
            replace: "if departure.bar > Duration::from_secs(60) {",
        }],
        tests: java_queue(&["the_head_is_called_again_when_the_bar_of_an_eviction_is_over"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-evicted-waiter-is-not-called",
        promise: "A fair waiter that is evicted is told",
        edits: &[Edit {
            file: RELEASE,
            find: "        call_head(owner)\n",
            replace: "",
        }],
        tests: java_queue(&["a_fair_waiter_that_is_evicted_is_called"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-holder-does-not-keep-the-queue",
        promise: "A waiter of Java's that came after the last look of ours does not end with it",
        edits: &[Edit {
            file: RENEW,
            find: "        lengthen(tag, lease)\n        longest",
            replace: "        longest",
        }],
        tests: java_queue(&[
            "javas_waiter_that_came_after_the_last_look_of_ours_does_not_end_with_it",
            "a_queue_lives_as_long_as_who_holds",
        ]),
        ..PLAIN
    },
    Mutant {
        name: "redis-release-does-not-keep-the-queue",
        promise: "A waiter of Java's that came after the last look of ours outlives it, also after the holder",
        edits: &[Edit {
            file: RELEASE,
            find: "if before then\n    tend()\nend\n",
            replace: "",
        }],
        tests: java_queue(&["javas_waiter_that_came_after_the_last_look_of_ours_does_not_end_with_it"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-believes-a-lease-of-javas",
        promise: "A waiter behind Java looks again within its own lease",
        edits: &[Edit {
            file: PLACE,
            find: "math.min(left + 1, lease)",
            replace: "left + 1",
        }],
        tests: java(&["a_java_holder_is_waited_for_and_shown_as_redisson_names_it"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-slack-stays-when-java-goes",
        promise: "What Java takes off a score when it goes stays off",
        edits: &[Edit {
            file: PLACE,
            find: "waits and slack_of(owner) or slack_at_the_end()",
            replace: "slack_at_the_end()",
        }],
        tests: java_queue(&["what_java_takes_off_a_score_stays_off"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-looks-at-all-before-it",
        promise: "A long queue behind one of Java's costs each poll no more than a short one",
        edits: &[Edit {
            file: PLACE,
            find: "    while other and not redis.call('ZSCORE', waiters, other) do\n        slack",
            replace: "    while other do\n        redis.call('ZSCORE', waiters, other)\n        slack",
        }],
        tests: java_queue(&["a_long_queue_behind_java_costs_each_poll_no_more_than_a_short_one"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-eviction-takes-a-session",
        promise: "An eviction touches mutexes alone, and no hash whose fields are no owners",
        edits: &[Edit {
            file: OWNERS,
            find: "is_owner(fields[i])",
            replace: "string.find(fields[i], ':', 1, true)",
        }],
        tests: layout(&["what_is_no_mutex_is_neither_shown_nor_evicted"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-queue-ends-before-its-hold",
        promise: "A waiter of Java's outlives ours that died before it, at least while the lock is held",
        edits: &[Edit {
            file: PLACE,
            find: "math.max(last, now_ms + redis.call('PTTL', name)) + 1000",
            replace: "last + 1000",
        }],
        tests: java_queue(&["javas_waiter_does_not_end_with_ours_that_died_before_it"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-javas-waiter-ends-with-ours",
        promise: "A waiter of Java's outlives ours that died before it",
        edits: &[Edit {
            file: PLACE,
            find: "last + DAY",
            replace: "last + 1000",
        }],
        tests: java_queue(&["behind_a_holder_of_javas_its_waiter_does_not_end_with_ours"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-eviction-takes-a-read-write-lock",
        promise: "An eviction touches mutexes alone, and no read-write lock of Java's",
        edits: &[Edit {
            file: RELEASE,
            find: "call('HEXISTS', name, 'mode') == 1",
            replace: "call('HEXISTS', name, 'mode') == 2",
        }],
        tests: layout(&["what_is_no_mutex_is_neither_shown_nor_evicted"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-refused-release-taken-for-done",
        promise: "Of a release that the server refuses nobody says that there was nothing to release",
        edits: &[
            Edit {
                file: RELEASE,
                find: "if type(held) == 'table' and",
                replace: "if type(held) == 'string' and",
            },
            Edit {
                file: RELEASE,
                find: "elseif string.sub(call('GET', records .. owner) or '', 1, 1) ~= 'V' then",
                replace: "elseif false then",
            },
        ],
        tests: layout(&["a_release_that_the_server_refuses_is_an_error_and_frees_later"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-release-tells-nobody",
        promise: "A release wakes whoever listens, Java too",
        edits: &[Edit {
            file: RELEASE,
            find: "call('PUBLISH', 'redisson_lock__channel:' .. open .. name .. close, '0')",
            replace: "call('PUBSUB', 'NUMSUB', 'redisson_lock__channel:' .. open .. name .. close)[2]",
        }],
        tests: layout(&["a_release_is_told_with_a_zero_on_redissons_channel"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-head-is-not-called",
        promise: "Whoever becomes the head of a queue is woken",
        edits: &[Edit {
            file: RELEASE,
            find: "    call_head(head)\nelseif held",
            replace: "elseif held",
        }],
        tests: java_queue(&["whoever_becomes_the_head_is_called"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-dead-waiter-not-swept",
        promise: "A dead waiter holds its queue up for its own lease at most",
        edits: &[Edit {
            file: PLACE,
            find: "'-inf', '(' .. now_ms)",
            replace: "'-inf', '(0')",
        }],
        tests: conformance(&["a_dead_waiter_holds_the_queue_up_for_its_own_lease_at_most"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-newcomer-at-the-head",
        promise: "Fair claims are granted in the order in which they were placed",
        edits: &[Edit {
            file: PLACE,
            find: "redis.call('RPUSH', queue, owner)",
            replace: "redis.call('LPUSH', queue, owner)",
        }],
        tests: conformance(&["claims_are_granted_in_the_order_in_which_they_were_placed"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-java-ahead-not-counted",
        promise: "Java's scripts do not take a waiter of ours for dead that stands behind one of theirs",
        edits: &[Edit {
            file: PLACE,
            find: "now_ms + lease + slack",
            replace: "now_ms + lease",
        }],
        tests: java_queue(&["javas_fair_waiter_goes_before_ours_that_came_later"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-dead-queue-stays-for-ever",
        promise: "Keys that are not used again leave nothing behind",
        edits: &[Edit {
            file: PLACE,
            find: "    tend()\n    local soon",
            replace: "    local soon",
        }],
        tests: layout(&["nothing_is_left_behind_per_name_once_all_leases_have_ended"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-tokens-not-counted",
        promise: "Tokens rise also while the server's clock stands still or was set back",
        edits: &[Edit {
            file: ACQUIRE,
            find: "if last > now then",
            replace: "if last < now then",
        }],
        tests: faults(&["a_server_whose_clock_is_set_ends_leases_early_but_never_repeats_a_token"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-queued-tokens-not-counted",
        promise: "Tokens rise also while the server's clock was set back, after a claim that waited in the queue",
        edits: &[Edit {
            file: PLACE,
            find: "if last > now then",
            replace: "if last < now then",
        }],
        tests: faults(&["a_server_whose_clock_is_set_ends_leases_early_but_never_repeats_a_token"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-heirs-tokens-not-counted",
        promise: "Tokens rise also while the server's clock was set back, after an heir",
        edits: &[Edit {
            file: RELEASE,
            find: "if last > now then",
            replace: "if last < now then",
        }],
        tests: faults(&["a_server_whose_clock_is_set_ends_leases_early_but_never_repeats_a_token"]),
        ..PLAIN
    },
];

const fn conformance(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "conformance", names)
}

const fn faults(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "faults", names)
}

const fn java_queue(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "java_queue", names)
}

const fn java(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "java", names)
}

const fn layout(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "layout", names)
}
