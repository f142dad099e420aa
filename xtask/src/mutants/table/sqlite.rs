//! Mutants of the SQLite store: its claim logic, its file, and what passes between processes.

use super::list::{PLAIN, test, unit};
use crate::mutants::mutant::{Edit, Mutant};

const ACQUIRE: &str = "crates/tenure-sql/src/claims/acquire.rs";
const RELEASE: &str = "crates/tenure-sql/src/claims/release.rs";
const RENEW: &str = "crates/tenure-sql/src/claims/renew.rs";
const VIEW: &str = "crates/tenure-sql/src/claims/view.rs";
const SCHEMA: &str = "crates/tenure-sql/src/dialect/sqlite/schema.rs";
const TABLES: &str = "crates/tenure-sql/src/dialect/sqlite/tables.rs";
const WORKER: &str = "crates/tenure-sql/src/dialect/sqlite/worker.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "sqlite-held-from-after-the-lease-began",
        promise: "Belief begins no later than the lease in the store",
        edits: &[Edit {
            file: ACQUIRE,
            find: "held_from: view.now(),",
            replace: "held_from: view.now() + Duration::from_millis(50),",
        }],
        tests: test(
            "tenure-sql",
            "conformance",
            &["what_is_believed_ends_no_later_than_the_lease_in_the_store"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-time-read-before-the-write-lock",
        promise: "Time is read after the write lock was had, so that no process decides on an older moment",
        edits: &[
            Edit {
                file: WORKER,
                find: "let durable = group.iter().any(|(_, write)| write.must_last());",
                replace: "let durable = group.iter().any(|(_, write)| write.must_last());
            let early = moment(&*self.config.clock);",
            },
            Edit {
                file: WORKER,
                find: "return self.transact(",
                replace: "return self.transact(early, ",
            },
            Edit {
                file: WORKER,
                find: "fn transact(&mut self, ",
                replace: "fn transact(&mut self, early: Moment, ",
            },
            Edit {
                file: WORKER,
                find: "match self.decide(&group) {",
                replace: "match self.decide(early, &group) {",
            },
            Edit {
                file: WORKER,
                find: "fn decide(&mut self, ",
                replace: "fn decide(&mut self, early: Moment, ",
            },
            Edit {
                file: WORKER,
                find: "let mut turn = self.turn();",
                replace: "let mut turn = self.turn();
        turn.at = early;",
            },
        ],
        tests: test(
            "tenure",
            "regressions",
            &["a_renewal_that_waited_for_the_file_does_not_bring_an_expired_claim_back"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-release-without-owner-check",
        promise: "A release frees the claim that it names and no other",
        edits: &[Edit {
            file: RELEASE,
            find: "Holder::Claim(claim) => end(view, claim.id, departure, &mut freed),",
            replace: "Holder::Claim(claim) => {
            let holder = view.holders().next().map_or(claim.id, |row| row.id);
            end(view, holder, departure, &mut freed);
        }",
        }],
        tests: test(
            "tenure-sql",
            "conformance",
            &["a_release_by_anyone_but_the_owner_frees_nothing"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-renewal-re-creates",
        promise: "No renewal creates a claim",
        edits: &[Edit {
            file: RENEW,
            find: "None => return Renewed::Gone(Loss::Missing),",
            replace: "None => Row {
            id: renewal.who.id,
            phase: Phase::Granted,
            mode: tenure_backend::Mode::Exclusive,
            place: 0,
            until: now + renewal.lease,
            reserved: tenure_backend::Instant::ORIGIN,
            tokens: None,
            label: \"\".into(),
            evictor: None,
        },",
        }],
        tests: test(
            "tenure-sql",
            "conformance",
            &["a_claim_that_was_never_placed_is_gone_to_renewal"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-renewal-revives-the-expired",
        promise: "An expired claim is never renewed",
        edits: &[Edit {
            file: RENEW,
            find: "Phase::Waiting | Phase::Granted if !row.lasts(now) =>",
            replace: "Phase::Waiting if !row.lasts(now) =>",
        }],
        tests: test(
            "tenure-sql",
            "conformance",
            &["an_expired_claim_is_never_renewed"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-reader-ignores-a-writer",
        promise: "Two claims that `Mode::admits` refuses are never granted together",
        edits: &[Edit {
            file: ACQUIRE,
            find: "if before(view, place).next().is_some() || !mode.admits(held()) {",
            replace: "if before(view, place).next().is_some() || (mode != Mode::Read && !mode.admits(held())) {",
        }],
        tests: test(
            "tenure-sql",
            "conformance",
            &["a_writer_excludes_readers_and_writers"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-places-after-place-by",
        promise: "No claim is placed after its `place_by`",
        edits: &[Edit {
            file: ACQUIRE,
            find: "_ if place_by < now =>",
            replace: "_ if place_by < now && now < place_by =>",
        }],
        tests: test(
            "tenure-sql",
            "conformance",
            &["a_claim_is_never_placed_after_its_place_by"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-fair-queue-does-not-bar-the-unfair",
        promise: "A live queue bars claims that do not queue",
        edits: &[Edit {
            file: ACQUIRE,
            find: "place.is_none_or(|place| row.place < place)",
            replace: "place.is_some_and(|place| row.place < place)",
        }],
        tests: test("tenure-sql", "conformance", &["a_live_queue_bars_unfair_claims"]),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-expired-waiter-not-skipped",
        promise: "A dead waiter holds its queue up for its own lease at most",
        edits: &[Edit {
            file: VIEW,
            find: "Phase::Watching | Phase::Waiting | Phase::Granted => row.lasts(self.now()),",
            replace: "Phase::Waiting => true,
            Phase::Watching | Phase::Granted => row.lasts(self.now()),",
        }],
        tests: test(
            "tenure-sql",
            "conformance",
            &["a_dead_waiter_holds_the_queue_up_for_its_own_lease_at_most"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-token-reset-on-release",
        promise: "Tokens rise over a release",
        edits: &[
            Edit {
                file: VIEW,
                find: "self.stirred = true;",
                replace: "self.stirred = true;
        (self.counter, self.counter_changed) = (0, true);",
            },
            Edit {
                file: VIEW,
                find: "self.counter.saturating_add(1).max(self.at.wall_micros)",
                replace: "self.counter.saturating_add(1)",
            },
        ],
        tests: test("tenure-sql", "conformance", &["tokens_rise_over_release"]),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-tokens-follow-the-wall-clock-alone",
        promise: "Tokens rise also while the wall clock stands still or goes back",
        edits: &[Edit {
            file: VIEW,
            find: "self.counter.saturating_add(1).max(self.at.wall_micros)",
            replace: "self.at.wall_micros.max(1)",
        }],
        tests: test("tenure-sql", "conformance", &["fence::"]),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-tokens-not-durable",
        promise: "A token that was given out survives a power failure",
        edits: &[Edit {
            file: WORKER,
            find: "let level = if durable { \"FULL\" } else { \"NORMAL\" };",
            replace: "let level = if durable { \"OFF\" } else { \"NORMAL\" };",
        }],
        tests: unit("tenure-sql", &["a_commit_that_grants_waits_for_the_disk"]),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-heir-not-durable",
        promise: "A token that a release gave to an heir survives a power failure",
        edits: &[Edit {
            file: "crates/tenure-sql/src/request.rs",
            find: "departure.heir.is_some())",
            replace: "departure.heir.is_none())",
        }],
        tests: unit("tenure-sql", &["a_commit_that_grants_waits_for_the_disk"]),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-eviction-without-bar",
        promise: "An eviction bars its key for as long as it says",
        edits: &[Edit {
            file: RELEASE,
            find: "if held { now + departure.bar } else { now }",
            replace: "now",
        }],
        tests: test(
            "tenure-sql",
            "conformance",
            &["an_eviction_bars_the_key_for_a_moment"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-heir-overtakes-others",
        promise: "An heir is granted by the release only if nobody else is known to wait",
        edits: &[Edit {
            file: RELEASE,
            find: "let manners = if others == 0 {",
            replace: "let manners = if others < u32::MAX {",
        }],
        tests: test(
            "tenure",
            "regressions",
            &["a_fair_heir_is_not_granted_while_another_client_watches"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-nobody-has-a-turn",
        promise: "A freed key is kept for a moment for whoever has watched longest",
        edits: &[Edit {
            file: RELEASE,
            find: "view.put(Row { reserved: end, ..row });",
            replace: "let _ = end;",
        }],
        tests: unit(
            "tenure-sql",
            &["a_freed_key_is_kept_for_the_client_that_watched_longest"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-reads-before-it-may-write",
        promise: "What a transaction has read stays true until its end, between processes too",
        edits: &[Edit {
            file: TABLES,
            find: "prepare(\"BEGIN IMMEDIATE\")",
            replace: "prepare(\"BEGIN\")",
        }],
        tests: test(
            "tenure-sql",
            "processes",
            &["a_counter_that_processes_raise_under_the_lock_is_exact"],
        ),
        limit_s: 120,
        ..PLAIN
    },
    Mutant {
        name: "sqlite-rings-nobody",
        promise: "A release wakes a waiter in another process at once",
        edits: &[Edit {
            file: WORKER,
            find: "self.ring();",
            replace: "",
        }],
        tests: test(
            "tenure-sql",
            "processes",
            &["a_release_wakes_a_waiter_in_another_process"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-inode-not-compared",
        promise: "A replaced or deleted file is a loss that every holder learns of",
        edits: &[Edit {
            file: WORKER,
            find: "== self.identity {",
            replace: "== self.identity || self.lost.is_none() {",
        }],
        tests: test(
            "tenure-sql",
            "files",
            &[
                "a_replaced_file_is_a_loss_that_every_holder_learns_of",
                "a_deleted_file_is_a_loss",
            ],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-another-boots-claims-taken-as-live",
        promise: "Claims of another boot are dead",
        edits: &[Edit {
            file: SCHEMA,
            find: "transaction.execute(\"DELETE FROM claim\", [])?;",
            replace: "",
        }],
        tests: test(
            "tenure-sql",
            "files",
            &["claims_of_another_boot_are_dead_and_their_tokens_stay"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-another-machine-accepted",
        promise: "A file of another machine is refused",
        edits: &[Edit {
            file: SCHEMA,
            find: "if there.machine != here.machine {",
            replace: "if there.machine != here.machine && there.machine.is_empty() {",
        }],
        tests: test(
            "tenure-sql",
            "files",
            &["a_file_of_another_machine_or_time_namespace_is_refused"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-another-time-namespace-accepted",
        promise: "A file in use in another time namespace is refused",
        edits: &[Edit {
            file: SCHEMA,
            find: "there.namespace != here.namespace {",
            replace: "there.namespace != here.namespace && there.namespace.is_empty() {",
        }],
        tests: test(
            "tenure-sql",
            "files",
            &["a_file_of_another_machine_or_time_namespace_is_refused"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-ended-claims-stay-for-ever",
        promise: "Keys that are not used again leave nothing behind",
        edits: &[Edit {
            file: WORKER,
            find: "if self.unswept < *SWEEP.start() {",
            replace: "if self.unswept < u32::MAX {",
        }],
        tests: test(
            "tenure-sql",
            "files",
            &["nothing_is_left_of_keys_that_are_not_used_again"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "sqlite-file-for-everybody",
        promise: "A lock file is for its owner alone",
        edits: &[Edit {
            file: "crates/tenure-sql/src/dialect/sqlite/file.rs",
            find: "set_mode(path, 0o600)",
            replace: "set_mode(path, 0o666)",
        }],
        tests: test("tenure-sql", "files", &["are_for_their_owner_alone"]),
        ..PLAIN
    },
];
