//! Mutants of the Redis store: what the server refuses, and what is no lock's.
//! Not here: calls that are answered (`redis_calls.rs`).

use super::list::{PLAIN, test, unit};
use crate::mutants::mutant::{Edit, Mutant, Tests};

const RENEW: &str = "crates/tenure-redis/src/renew.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "redis-renewals-stay-with-a-replica",
        promise: "Who only holds follows the name to where it leads after a switch",
        edits: &[Edit {
            file: RENEW,
            find: "|refusal| refusal.is_of_a_replica()",
            replace: "|_| false",
        }],
        tests: faults(&["a_server_that_became_a_replica_is_left_by_renewals_too"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-renewal-denied-to-all-of-a-batch",
        promise: "One claim's trouble is no other's",
        edits: &[Edit {
            file: RENEW,
            find: "if is_for_a_key(&error) && ",
            replace: "if false && is_for_a_key(&error) && ",
        }],
        tests: faults(&["a_renewal_without_a_right_to_its_key_is_no_trouble_of_its_neighbours"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-grant-denied-to-all-of-a-batch",
        promise: "One claim's trouble is no other's",
        edits: &[Edit {
            file: "crates/tenure-redis/src/together.rs",
            find: "Err(failure) if is_for_a_key(failure) => Ok(0),",
            replace: "Err(failure) if is_for_a_key(failure) => Err(failure.clone()),",
        }],
        tests: together(&["a_key_without_a_right_to_it_is_no_trouble_of_those_beside_it"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-lease-of-java-believed-among-others",
        promise: "Java may shorten a lease: nobody sleeps for longer than its own",
        edits: &[Edit {
            file: "crates/tenure-redis/src/acquire.rs",
            find: "busy.abs_diff(BUSY).min(lease_ms(claim.lease))",
            replace: "busy.abs_diff(BUSY)",
        }],
        tests: together(&["who_waits_for_java_polls_within_its_own_lease_also_among_others"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-eviction-of-nobody-evicts-all",
        promise: "An eviction frees whom it names",
        edits: &[Edit {
            file: "crates/tenure-redis/src/release.rs",
            find: "Holder::Foreign { id, .. } if id.is_empty()",
            replace: "Holder::Foreign { id, .. } if id.is_empty() && false",
        }],
        tests: layout(&["an_eviction_of_a_holder_without_a_name_frees_nobody"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-hash-of-a-program-waited-for",
        promise: "Nobody waits for what no lock's end will free",
        edits: &[Edit {
            file: "crates/tenure-redis/scripts/redisson_place.lua",
            find: "if left == -1 and not known then",
            replace: "if left == -1 and not known and false then",
        }],
        tests: layout(&["a_hash_of_another_program_is_refused_as_such"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-other-data-said-to-be-free",
        promise: "What is there and is no mutex is not said to be free",
        edits: &[Edit {
            file: "crates/tenure-redis/scripts/redisson_show.lua",
            find: "elseif #KEYS == 1 and ",
            replace: "elseif #KEYS == 0 and ",
        }],
        tests: layout(&["what_is_no_mutex_is_neither_shown_nor_evicted"]),
        ..PLAIN
    },
    Mutant {
        name: "redis-waiter-forgotten-after-a-refused-poll",
        promise: "A waiter whose requests were all answered leaves nothing behind",
        edits: &[Edit {
            file: "crates/tenure-redis/src/known.rs",
            find: "error.effect() == Effect::None => self.refused(None)",
            replace: "error.effect() == Effect::None => self.refused(Some(false))",
        }],
        tests: unit(
            "tenure-redis",
            &["known::tests::a_poll_that_was_refused_leaves_a_waiter_as_it_stood"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "redis-refusals-code-lost-with-a-database",
        promise: "What is refused is told in words, whichever database is named",
        edits: &[Edit {
            file: "crates/tenure-redis/src/refusal.rs",
            find: "(\"Authentication required\", \"NOAUTH\")",
            replace: "(\"Authentication required\", \"ERR\")",
        }],
        tests: test(
            "tenure-redis",
            "access",
            &["what_is_refused_on_the_way_to_a_database_is_told_as_without_one"],
        ),
        ..PLAIN
    },
];

const fn faults(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "faults", names)
}

const fn together(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "together", names)
}

const fn layout(names: &'static [&'static str]) -> Tests {
    test("tenure-redis", "layout", names)
}
