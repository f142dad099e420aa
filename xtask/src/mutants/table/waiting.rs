//! Mutants of the engine: waiting, giving up, giving back; owners and multi-locks.

use super::list::{PLAIN, engine, regressions};
use crate::mutants::mutant::{Edit, Mutant};

const ENGINE: &str = "crates/tenure/src/engine.rs";
const GUARD: &str = "crates/tenure/src/guard.rs";
const ATTEMPT: &str = "crates/tenure/src/attempt.rs";
const DRIVE: &str = "crates/tenure/src/drive.rs";
const HANDOVER: &str = "crates/tenure/src/line/handover.rs";
const HELD: &str = "crates/tenure/src/held.rs";
const MULTI: &str = "crates/tenure/src/multi.rs";
const OWNER: &str = "crates/tenure/src/owner.rs";
const ROUNDS: &str = "crates/tenure/src/watchdog/rounds.rs";
const SEEK: &str = "crates/tenure/src/seek.rs";
const VERDICT: &str = "crates/tenure/src/verdict.rs";
const WAITER: &str = "crates/tenure/src/waiter.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    // Cancellation and release.
    Mutant {
        name: "withdrawal-does-not-wait-for-its-call",
        promise: "No claim is withdrawn before its own call has ended",
        edits: &[Edit {
            file: ATTEMPT,
            find: ".spawn(drive::finish_and_withdraw(line.clone(), call, claim));",
            replace: ".spawn(async move { drop(call.await) });
        line.withdraw(claim);",
        }],
        tests: engine(&["a_dropped_lock_is_withdrawn_after_its_own_call"]),
        ..PLAIN
    },
    Mutant {
        name: "cancelled-call-leaves-its-claim",
        promise: "Cancelling at any await point of acquire leaves no claim",
        edits: &[Edit {
            file: DRIVE,
            find: "Ok(Standing::Granted(_)) => line.withdraw(claim),",
            replace: "Ok(Standing::Granted(_)) => {}",
        }],
        tests: engine(&["cancel::of_acquire"]),
        ..PLAIN
    },
    Mutant {
        name: "call-of-unknown-outcome-leaves-its-claim",
        promise: "A try whose reply is lost leaves no claim",
        edits: &[Edit {
            file: VERDICT,
            find: "if error.effect() == Effect::Unknown {",
            replace: "if error.effect() == Effect::Unknown && !tries {",
        }],
        tests: engine(&["a_try_whose_reply_is_lost_leaves_no_claim"]),
        ..PLAIN
    },
    Mutant {
        name: "cancelled-fair-waiter-leaves-a-ghost",
        promise: "A cancelled fair waiter leaves the queue",
        edits: &[Edit {
            file: DRIVE,
            find: "Found::Stopped { uncertain } => {
                withdraw_queued(&line, claim, uncertain);",
            replace: "Found::Stopped { .. } => {",
        }],
        tests: engine(&["a_cancelled_fair_waiter_leaves_the_queue"]),
        ..PLAIN
    },
    Mutant {
        name: "unlock-is-not-repeated",
        promise: "An unlock is repeated until the store confirms it",
        edits: &[Edit {
            file: "crates/tenure/src/release/tries.rs",
            find: "if !may_go_through ||",
            replace: "if !may_go_through || self.tries > 0 ||",
        }],
        tests: engine(&["an_unlock_is_repeated_until_the_store_confirms_it"]),
        ..PLAIN
    },
    Mutant {
        name: "close-leaves-claims",
        promise: "`close` gives everything back",
        edits: &[Edit {
            file: HANDOVER,
            find: "self.close().into_iter().filter_map(release).collect()",
            replace: "self.close().into_iter().filter(|_| false).filter_map(release).collect()",
        }],
        tests: engine(&["close_gives_everything_back_and_refuses_from_then_on"]),
        ..PLAIN
    },
    // Waiting.
    Mutant {
        name: "no-poll-behind-wake-ups",
        promise: "A lost wake-up strands nobody: polls back it",
        edits: &[Edit {
            file: SEEK,
            find: "if self.wakes.is_some() { Duration::MAX } else { POLL };",
            replace: "if self.wakes.is_some() { Duration::MAX } else { POLL * 36_000 };",
        }],
        tests: engine(&["a_waiter_without_wake_ups_polls"]),
        ..PLAIN
    },
    Mutant {
        name: "lost-wake-ups-strand-a-waiter",
        promise: "A waiter whose wake-up is lost asks again when the holder's lease could have ended",
        edits: &[Edit {
            file: SEEK,
            find: "self.spread(poll_after.clamp(SOON, most))",
            replace: "self.spread(poll_after.max(most).min(Duration::from_secs(3600)))",
        }],
        tests: regressions(&["a_waiter_whose_wake_ups_are_all_lost_asks"]),
        ..PLAIN
    },
    Mutant {
        name: "listening-is-waited-for",
        promise: "Polls go on while the store does not say whether it will wake",
        edits: &[Edit {
            file: SEEK,
            find: "match within(self.engine, POLL, poll_fn(",
            replace: "match within(self.engine, Duration::MAX, poll_fn(",
        }],
        tests: engine(&["who_could_not_find_out_whether_it_will_be_woken_polls"]),
        ..PLAIN
    },
    Mutant {
        name: "unlock-waits-for-ever",
        promise: "An unlock that is never answered says so",
        edits: &[Edit {
            file: GUARD,
            find: "within(engine, limit * 2, departing.run(limit)).await",
            replace: "Some(departing.run(limit).await)",
        }],
        tests: engine(&["an_unlock_that_is_never_answered_says_so_and_goes_on_behind"]),
        ..PLAIN
    },
    Mutant {
        name: "weather-is-a-busy-lock",
        promise: "A store that does not answer is no busy lock",
        edits: &[Edit {
            file: ENGINE,
            find: "out.then(|| self.weather.lock().clone()).flatten()",
            replace: "out.then(|| self.weather.lock().clone()).and(None)",
        }],
        tests: engine(&["a_store_that_stays_unavailable_is_no_busy_lock_to_who_waits"]),
        ..PLAIN
    },
    Mutant {
        name: "silence-is-a-busy-member",
        promise: "A multi-lock whose store never answers is not busy",
        edits: &[Edit {
            file: MULTI,
            find: "None if met_busy.into_inner() => Error::Timeout,
        None => unanswered(),",
            replace: "None if met_busy.into_inner() => unanswered(),
        None => Error::Timeout,",
        }],
        tests: engine(&["a_multi_lock_whose_store_never_answers_is_not_busy"]),
        ..PLAIN
    },
    Mutant {
        name: "silence-is-a-busy-lock",
        promise: "A store that never answers is no busy lock",
        edits: &[Edit {
            file: ATTEMPT,
            find: "waiter.is_unanswered() || line",
            replace: "!waiter.is_unanswered() || line",
        }],
        tests: engine(&["a_store_that_never_answers_is_no_busy_lock_however_short_the_limit"]),
        ..PLAIN
    },
    Mutant {
        name: "released-claim-is-renewed",
        promise: "Nobody renews what is released",
        edits: &[
            Edit {
                file: HANDOVER,
                find: "drop(state);
        self.engine.watchdog.untrack(held);
        Exit::Release(",
                replace: "drop(state);
        Exit::Release(",
            },
            Edit {
                file: ROUNDS,
                find: "if held.has_departed() {
            continue;
        }",
                replace: "",
            },
        ],
        tests: regressions(&["a_renewal_under_way_does_not_bring_a_released_lock_back"]),
        ..PLAIN
    },
    Mutant {
        name: "weather-is-an-answer",
        promise: "While somebody waits, an unavailable store is asked again",
        edits: &[Edit {
            file: SEEK,
            find: "Err(error) if error.is_weather() => {",
            replace: "Err(error) if error.is_weather() && self.failures > 0 => {",
        }],
        tests: engine(&["while_waiting_an_unavailable_store_is_asked_again"]),
        ..PLAIN
    },
    Mutant {
        name: "failed-head-strands-who-waits-behind",
        promise: "The local queue goes on after the remote acquire of its head has failed",
        edits: &[Edit {
            file: DRIVE,
            find: "line.fail_first(&claim, error.into());
                true",
            replace: "line.fail_first(&claim, error.into());
                return;",
        }],
        tests: engine(&["a_failed_head_does_not_strand_who_waits_behind_it"]),
        ..PLAIN
    },
    Mutant {
        name: "offers-are-never-taken-back",
        promise: "An unpolled waiter at the head stalls the others for 200 ms at most",
        edits: &[Edit {
            file: WAITER,
            find: "State::Offered(_, at) if now - *at >= window => {",
            replace: "State::Offered(_, at) if now - *at >= window * 100 => {",
        }],
        tests: engine(&["an_unpolled_waiter_at_the_head_stalls_ten_others_at_most_200_ms"]),
        ..PLAIN
    },
    Mutant {
        name: "calls-are-never-taken-over",
        promise: "A caller that stops polling its call does not hold up who comes after",
        edits: &[Edit {
            file: ROUNDS,
            find: "    calls.take_over();
    let mut alive",
            replace: "    drop(calls);
    let mut alive",
        }],
        tests: regressions(&["a_call_that_its_caller_stops_polling_strands_nobody"]),
        ..PLAIN
    },
    // Owners and multi-locks.
    Mutant {
        name: "re-entry-leaks-the-claim",
        promise: "The claim of an owner is given back with its last guard",
        edits: &[Edit {
            file: HELD,
            find: "(guards > 0).then_some(guards + 1)",
            replace: "(guards > 0).then_some(guards + 2)",
        }],
        tests: engine(&["an_owner_takes_its_lock_again_without_a_call"]),
        ..PLAIN
    },
    Mutant {
        name: "nested-unlock-frees-the-claim",
        promise: "A nested unlock leaves the claim to the outer guard",
        edits: &[Edit {
            file: HELD,
            find: "(guards > 0).then_some(guards + 1)",
            replace: "(guards > 0).then_some(guards)",
        }],
        tests: engine(&["a_nested_unlock_leaves_the_watchdog_running"]),
        ..PLAIN
    },
    Mutant {
        name: "would-deadlock-is-not-found",
        promise: "An owner that reads and asks to write is told that it would deadlock",
        edits: &[Edit {
            file: OWNER,
            find: "if held.claim.mode == Mode::Read && mode == Mode::Write {",
            replace: "if held.claim.mode == Mode::Write && mode == Mode::Exclusive {",
        }],
        tests: engine(&["an_owner_that_reads_and_asks_to_write_is_told_that_it_would_deadlock"]),
        ..PLAIN
    },
    Mutant {
        name: "multi-holds-while-it-waits",
        promise: "A multi-lock holds nothing while it waits",
        edits: &[
            Edit {
                file: MULTI,
                find: "let mut awaited: Option<usize> = None;",
                replace: "let mut awaited: Option<usize> = None;
    let mut hoard: Vec<Taken> = Vec::new();",
            },
            Edit {
                file: MULTI,
                find: "guards[busy] = Some(Taken(Some(lock.await?)));",
                replace: "guards[busy] = Some(Taken(Some(lock.await?)));
            hoard.clear();",
            },
            Edit {
                file: MULTI,
                find:
                    "let mut returns: FuturesUnordered<_> = taken.into_iter().map(Taken::give_up).collect();
        while returns.next().await.is_some() {}",
                replace: "hoard = taken;",
            },
        ],
        tests: engine(&["while_it_waits_for_one_it_holds_none"]),
        ..PLAIN
    },
];
