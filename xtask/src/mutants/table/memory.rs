//! Mutants of the memory store, and so of the rules that every store keeps.

use super::list::{PLAIN, test, unit};
use crate::mutants::mutant::{Edit, Mutant};

const ROOM: &str = "crates/tenure-memory/src/room.rs";
const TURN: &str = "crates/tenure-memory/src/turn.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "memory-held-from-after-the-reply",
        promise: "Belief counts from the moment the request was sent, on the clock of the client that sent it",
        edits: &[Edit {
            file: ROOM,
            find: "held_from: visit.at.asked,",
            replace: "held_from: visit.at.now,",
        }],
        tests: test(
            "tenure-memory",
            "clients",
            &["a_client_is_answered_on_its_own_clock"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-held-from-of-a-renewal-after-the-reply",
        promise: "A renewal counts from the moment its request was sent",
        edits: &[Edit {
            file: ROOM,
            find: "let held_from = visit.at.asked;",
            replace: "let held_from = visit.at.now;",
        }],
        tests: test(
            "tenure-memory",
            "clients",
            &["a_client_is_answered_on_its_own_clock"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-release-without-owner-check",
        promise: "A release frees the claim that it names and no other",
        edits: &[Edit {
            file: ROOM,
            find: "self.holds.iter().position(|hold| hold.claim.at.id == id)",
            replace: "self.holds.iter().position(|_| true)",
        }],
        tests: test(
            "tenure-memory",
            "conformance",
            &["a_release_by_anyone_but_the_owner_frees_nothing"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-renewal-re-creates",
        promise: "No renewal creates a claim",
        edits: &[Edit {
            file: ROOM,
            find: "return Renewed::Gone(visit.fates.loss(who.id, visit.at.now));",
            replace: "let one = std::num::NonZeroU32::MIN;
            let claim = Arc::new(Claim {
                at: who.clone(),
                owner: tenure_backend::OwnerId(0),
                label: Arc::from(\"\"),
                mode: tenure_backend::Mode::Exclusive,
                fairness: Fairness::Unfair,
                lease,
                grants: one,
            });
            let tokens = visit.tokens.draw(visit.at.now, one);
            self.holds.push(Hold { claim, tokens, ends });",
        }],
        tests: test(
            "tenure-memory",
            "conformance",
            &[
                "an_expired_claim_is_never_renewed",
                "a_released_claim_is_gone_to_renewal",
            ],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-reader-ignores-a-writer",
        promise: "Two claims that `Mode::admits` refuses are never granted together",
        edits: &[Edit {
            file: TURN,
            find: "claim.mode.admits(held.chain(kept))",
            replace: "(claim.mode == Mode::Read || claim.mode.admits(held.chain(kept)))",
        }],
        tests: test(
            "tenure-memory",
            "conformance",
            &["a_writer_excludes_readers_and_writers"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-token-reset-on-release",
        promise: "Tokens rise over a release",
        edits: &[Edit {
            file: ROOM,
            find: "let others = self.waiting_besides(client);",
            replace: "let others = self.waiting_besides(client);
        *visit.tokens = crate::tokens::Tokens::new(visit.at.now, Duration::ZERO);",
        }],
        tests: test("tenure-memory", "conformance", &["tokens_rise_over_release"]),
        ..PLAIN
    },
    Mutant {
        name: "memory-tokens-repeat",
        promise: "No token is given out twice",
        edits: &[Edit {
            file: "crates/tenure-memory/src/tokens.rs",
            find: "(self.last + 1).max(wall)",
            replace: "self.last.max(wall)",
        }],
        tests: unit("tenure-memory", &["tokens_rise_while_the_clock_stands_still"]),
        ..PLAIN
    },
    Mutant {
        name: "memory-raise-ignored",
        promise: "A raise lifts the counter, so that the tokens after it are greater",
        edits: &[Edit {
            file: ROOM,
            find: "visit.tokens.raise(*run);",
            replace: "let _ = run;",
        }],
        tests: test("tenure-memory", "conformance", &["a_raise_lifts_the_counter"]),
        ..PLAIN
    },
    Mutant {
        name: "memory-poll-does-not-restart-the-lease",
        promise: "Asking again for a granted claim restarts its lease in the same step",
        edits: &[Edit {
            file: ROOM,
            find: "hold.ends = now + LIMITS.lease(hold.claim.lease);",
            replace: "",
        }],
        tests: test(
            "tenure-memory",
            "conformance",
            &["a_granted_claim_that_asks_again_restarts_its_lease"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-ended-claims-are-forgotten",
        promise: "A claim that has ended is never placed again, however late its request comes",
        edits: &[Edit {
            file: ROOM,
            find: "if visit.ended.contains(claim.at.id) {",
            replace: "if false {",
        }],
        tests: test(
            "tenure-memory",
            "conformance",
            &[
                "a_released_claim_is_never_granted_again",
                "a_claim_withdrawn_before_it_was_placed_is_never_granted",
            ],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-places-after-place-by",
        promise: "No claim is placed after its `place_by`",
        edits: &[Edit {
            file: ROOM,
            find: "if place_by < visit.at.asked {",
            replace: "if false {",
        }],
        tests: test(
            "tenure-memory",
            "conformance",
            &["a_claim_is_never_placed_after_its_place_by"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-mixes-kinds",
        promise: "A key is of one kind at a time",
        edits: &[Edit {
            file: ROOM,
            find: "self.kind().filter(|held| *held != asked)?",
            replace: "self.kind().filter(|_| false)?",
        }],
        tests: test(
            "tenure-memory",
            "conformance",
            &["another_kind_than_the_holders_is_a_mismatch"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-expired-waiter-not-skipped",
        promise: "A dead waiter holds its queue up for its own lease at most",
        edits: &[Edit {
            file: ROOM,
            find: "crowd.queue.retain(|place| lives(&place.claim, place.ends));",
            replace: "let _ = crowd;",
        }],
        tests: test(
            "tenure-memory",
            "conformance",
            &["a_dead_waiter_holds_the_queue_up_for_its_own_lease_at_most"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-fair-queue-does-not-bar-the-unfair",
        promise: "A live queue bars claims that do not queue",
        edits: &[Edit {
            file: TURN,
            find: "before == 0 && !self.is_barred(now)",
            replace: "(before == 0 || claim.fairness == Fairness::Unfair) && !self.is_barred(now)",
        }],
        tests: test(
            "tenure-memory",
            "conformance",
            &["a_live_queue_bars_unfair_claims"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-eviction-without-bar",
        promise: "An eviction bars its key for as long as it says",
        edits: &[Edit {
            file: ROOM,
            find: "self.crowd().bar = Some(now + bar);",
            replace: "",
        }],
        tests: test(
            "tenure-memory",
            "conformance",
            &["an_eviction_bars_the_key_for_a_moment"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-heir-overtakes-others",
        promise: "An heir is granted by the release only if nobody else is known to wait",
        edits: &[Edit {
            file: ROOM,
            find: "others > 0, visit",
            replace: "false, visit",
        }],
        tests: unit(
            "tenure-memory",
            &["an_heir_waits_if_a_claim_of_another_client_waits"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-head-of-the-queue-is-not-woken",
        promise: "Whoever may go after a release is woken",
        edits: &[Edit {
            file: TURN,
            find: "crowd.watchers.ring(head.claim.at.id, visit.bells);",
            replace: "",
        }],
        tests: unit("tenure-memory", &["no_client_sleeps_beside_a_free_key"]),
        ..PLAIN
    },
    Mutant {
        name: "memory-key-kept-for-ever",
        promise: "A key is kept for whoever was woken for 10 ms and no longer",
        edits: &[Edit {
            file: TURN,
            find: "now < kept.until",
            replace: "true",
        }],
        tests: unit(
            "tenure-memory",
            &["a_client_that_is_woken_and_never_asks_holds_up_nobody_for_long"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-the-dead-stay",
        promise: "Keys of clients that died leave nothing behind",
        edits: &[Edit {
            file: "crates/tenure-memory/src/table.rs",
            find: "if self.rooms.len() >= self.sweep_at {",
            replace: "if false {",
        }],
        tests: unit(
            "tenure-memory",
            &["rooms_of_the_dead_are_cleared_out_without_being_asked_for"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-placed-claims-come-too-late",
        promise: "A claim that is placed already may be polled later than its place_by",
        edits: &[Edit {
            file: ROOM,
            find: "if let Some(hold) = self.hold_mut(claim.at.id) {
            hold.ends = now + LIMITS.lease(hold.claim.lease);",
            replace: "if place_by < visit.at.asked && !visit.ended.contains(claim.at.id) {
            return Ok(Standing::TooLate);
        }
        if let Some(hold) = self.hold_mut(claim.at.id) {
            hold.ends = now + LIMITS.lease(hold.claim.lease);",
        }],
        tests: test(
            "tenure-memory",
            "conformance",
            &[
                "a_holder_may_be_polled_after_its_place_by",
                "a_waiter_may_be_polled_after_its_place_by",
            ],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-raise-of-a-waiter-ignored",
        promise: "A renewal that raises lifts the counter, whatever phase its claim is in",
        edits: &[Edit {
            file: ROOM,
            find: "if let Some(run) = raise {",
            replace: "if let (Some(run), Phase::Granted) = (raise, only) {",
        }],
        tests: test(
            "tenure-memory",
            "conformance",
            &["a_raise_of_a_waiter_lifts_the_counter"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-short-renewal-not-rounded",
        promise: "A lease below the shortest is rounded up, and the answer says so",
        edits: &[Edit {
            file: ROOM,
            find: "let lease = LIMITS.lease(renewal.lease);",
            replace: "let lease = renewal.lease;",
        }],
        tests: test(
            "tenure-memory",
            "conformance",
            &["a_renewal_too_short_is_rounded_up_and_says_so"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-late-release-overwrites-the-cause",
        promise: "An evicted claim learns of its eviction, also after a late release of its own",
        edits: &[Edit {
            file: ROOM,
            find: "let ends = ends?;",
            replace: "let Some(ends) = ends else {
            visit.fates.explain(id, Loss::Missing, visit.at.now + KEEP * 1000);
            return None;
        };",
        }],
        tests: test(
            "tenure-memory",
            "conformance",
            &["a_late_release_does_not_change_why_an_evicted_claim_is_gone"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "memory-poll-takes-another-place",
        promise: "No answer of a random walk differs from what the contract allows",
        edits: &[Edit {
            file: ROOM,
            find: "Some(at) => self.crowd().queue[at].ends = ends,",
            replace: "Some(at) => {
                self.crowd().queue.remove(at);
                self.crowd().queue.push_back(Place { claim, ends });
            }",
        }],
        tests: test("tenure-memory", "conformance", &["random_walks"]),
        ..PLAIN
    },
];
