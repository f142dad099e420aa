//! Mutants of the engine: what is left when a future, a client or a runtime ends.

use super::list::{PLAIN, engine, unit};
use crate::mutants::mutant::{Edit, Mutant};

const ATTEMPT: &str = "crates/tenure/src/attempt.rs";
const CLIENT: &str = "crates/tenure/src/client.rs";
const DRIVE: &str = "crates/tenure/src/drive.rs";
const ENTRY: &str = "crates/tenure/src/line/entry.rs";
const GUARD: &str = "crates/tenure/src/guard.rs";
const HANDOVER: &str = "crates/tenure/src/line/handover.rs";
const LIFE: &str = "crates/tenure/src/watchdog/life.rs";
const MULTI: &str = "crates/tenure/src/multi.rs";
const IN_PLACE: &str = "crates/tenure/src/release/in_place.rs";
const DEPARTING: &str = "crates/tenure/src/release/departing.rs";
const RELEASE: &str = "crates/tenure/src/release/tries.rs";
const RENEWAL: &str = "crates/tenure/src/watchdog/renewal.rs";
const ROUNDS: &str = "crates/tenure/src/watchdog/rounds.rs";
const CALLS: &str = "crates/tenure/src/watchdog/calls.rs";
const TIMER: &str = "crates/tenure/src/timer.rs";
const VERDICT: &str = "crates/tenure/src/verdict.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "cancelled-fair-call-leaves-its-place",
        promise: "A fair call that is dropped under way leaves no place in the queue",
        edits: &[Edit { file: DRIVE, find: "        Ok(Standing::Waiting { .. }) if claim.fairness == Fairness::Fifo => line.withdraw(claim),
", replace: "", },],
        tests: engine(&["of_a_fair_acquire_that_has_to_wait"]),
        ..PLAIN
    },
    Mutant {
        name: "cancelled-try-leaves-its-claim",
        promise: "A try that is dropped under way leaves no claim",
        edits: &[Edit { file: ATTEMPT, find: "        line.engine
            .watchdog
            .spawn(drive::finish_and_withdraw(line.clone(), call, claim));", replace: "        if !self.tries() {
            line.engine
                .watchdog
                .spawn(drive::finish_and_withdraw(line.clone(), call, claim));
        }", },],
        tests: engine(&["cancel::of_a_try"]),
        ..PLAIN
    },
    Mutant {
        name: "cancelled-call-strands-the-line",
        promise: "A call that is dropped under way leaves its place to the next",
        edits: &[Edit { file: ATTEMPT, find: "        if claim.fairness == Fairness::Unfair && !self.tries() {
            line.stop_asking();
        }
", replace: "", },],
        tests: engine(&["cancel::of_acquire"]),
        ..PLAIN
    },
    Mutant {
        name: "dropped-unlock-leaves-its-claim",
        promise: "An unlock that is dropped is finished by the watchdog",
        edits: &[Edit { file: DEPARTING, find: "            let line = release.line().clone();
            line.engine.watchdog.give_back(Departing(Some(release)));", replace: "            drop(release);", },],
        tests: engine(&["cancel::of_release"]),
        ..PLAIN
    },
    Mutant {
        name: "unlock-depends-on-being-polled",
        promise: "An unlock that is not polled does not strand who waits",
        edits: &[Edit { file: IN_PLACE, find: "polled.is_pending() && !mem::replace(&mut self.tracked, true)", replace: "polled.is_pending() && mem::replace(&mut self.tracked, true)", },],
        tests: engine(&["an_unlock_that_is_not_polled_does_not_strand_who_waits"]),
        ..PLAIN
    },
    Mutant {
        name: "unlock-is-taken-over-at-once",
        promise: "An unlock polls its release itself until the offer window is over",
        edits: &[Edit { file: IN_PLACE, find: ".track_call(&self.shared, engine.settings.offer_window);", replace: ".track_call(&self.shared, Duration::ZERO);", },],
        tests: engine(&["an_unlock_polls_its_release_itself_until_the_offer_window_is_over"]),
        ..PLAIN
    },
    Mutant {
        name: "unlock-that-is-polled-is-not-taken-over",
        promise: "A release that is wanted while it is polled is taken over after that poll",
        edits: &[Edit { file: IN_PLACE, find: "        if wanted {
            self.clone().take_over();
        }
", replace: "        let _ = wanted;
", },],
        tests: engine(&["an_unlock_that_is_taken_over_in_its_last_poll_goes_on_behind"]),
        ..PLAIN
    },
    Mutant {
        name: "unlock-that-was-taken-over-is-not-woken",
        promise: "Whose release was taken over is told how it ended",
        edits: &[Edit { file: IN_PLACE, find: "                wake(waker);
", replace: "                let _: Option<Waker> = waker;
", },Edit { file: IN_PLACE, find: "use crate::waiter::wake;
", replace: "", },],
        tests: engine(&["an_unlock_polls_its_release_itself_until_the_offer_window_is_over"]),
        ..PLAIN
    },
    Mutant {
        name: "unlock-is-not-told-of-the-end",
        promise: "An unlock on another runtime is told when the client's ends",
        edits: &[Edit { file: LIFE, find: "        let calls = std::mem::take(&mut shared.due.lock().calls);
        calls.take_over();
        if let", replace: "        if let", },],
        tests: engine(&["an_unlock_on_another_runtime_is_told_when_the_clients_ends"]),
        ..PLAIN
    },
    Mutant {
        name: "call-that-is-polled-is-not-taken-over",
        promise: "A call that is wanted while it is polled is taken over after that poll",
        edits: &[Edit { file: "crates/tenure/src/waiter.rs", find: "        if let State::Polled { wanted: Some(_busy) } = was {
            self.clone().take_over();
        }
", replace: "        drop(was);
", },Edit { file: "crates/tenure/src/waiter.rs", find: "use crate::watchdog::{Busy, TakeOver};", replace: "use crate::watchdog::Busy;", },],
        tests: engine(&["a_call_that_is_taken_over_in_its_last_poll_goes_on_behind"]),
        ..PLAIN
    },
    Mutant {
        name: "close-leaves-a-call-that-is-polled",
        promise: "Whoever closes a client waits for a call that is polled meanwhile",
        edits: &[Edit { file: "crates/tenure/src/waiter.rs", find: "                let wanted = Some(self.line.engine.watchdog.busy());
", replace: "                let wanted: Option<Busy> = None;
", },],
        tests: engine(&["a_call_that_is_taken_over_in_its_last_poll_goes_on_behind"]),
        ..PLAIN
    },
    Mutant {
        name: "dropped-unlock-strands-its-heir",
        promise: "An unlock that is dropped while it names an heir is finished behind",
        edits: &[Edit { file: IN_PLACE, find: "        self.shared.clone().take_over();
    }", replace: "    }", },],
        tests: engine(&["cancel::of_a_hand_over"]),
        ..PLAIN
    },
    Mutant {
        name: "verify-drops-its-call",
        promise: "A renewal that was asked for goes on when its caller has gone",
        edits: &[Edit { file: RENEWAL, find: "        self.spawn(async move {
            let failed = renew(&shared, vec![held]).await;
            let _ = answer.send(failed);
        });", replace: "        let failed = renew(&shared, vec![held]).await;
        let _ = answer.send(failed);", },],
        tests: engine(&["a_question_about_a_lock_is_answered_though_whoever_asked_has_gone"]),
        ..PLAIN
    },
    Mutant {
        name: "dropped-guard-leaves-its-claim",
        promise: "A dropped guard frees the key",
        edits: &[Edit { file: GUARD, find: "Some(Leaving::Last(held, None)) => held.line.leave_behind(&held),
            Some(Leaving::Shared(_)) | None => {}", replace: "Some(Leaving::Last(_, None)) | Some(Leaving::Shared(_)) | None => {}", },],
        tests: engine(&["a_dropped_guard_frees_the_key"]),
        ..PLAIN
    },
    Mutant {
        name: "drop-needs-a-runtime",
        promise: "A guard can be dropped outside a runtime",
        edits: &[Edit { file: ROUNDS, find: "if self.0.state.load(Ordering::Acquire) >= GONE {
            drop(all);", replace: "if self.0.state.load(Ordering::Acquire) >= GONE || tokio::runtime::Handle::try_current().is_err() {
            drop(all);", },],
        tests: engine(&["a_guard_can_be_dropped_outside_a_runtime"]),
        ..PLAIN
    },
    Mutant {
        name: "release-stops-before-its-limit",
        promise: "A release is tried a last time at its limit",
        edits: &[Edit { file: RELEASE, find: "let pause = backoff(self.tries, self.line.engine.dice()).min(give_up - now);", replace: "let pause = backoff(self.tries, self.line.engine.dice());
            if now + pause >= give_up {
                return Err(error);
            }", },],
        tests: engine(&["a_release_is_tried_a_last_time_at_its_limit"]),
        ..PLAIN
    },
    Mutant {
        name: "release-with-an-heir-stops-at-its-limit",
        promise: "A release with an heir that cannot be confirmed goes on behind",
        edits: &[Edit { file: IN_PLACE, find: "    if failed {
        release.see_through().await;
    }", replace: "    let _ = failed;
    drop(release);", },],
        tests: engine(&["an_unlock_that_cannot_be_confirmed_says_so_and_goes_on_behind"]),
        ..PLAIN
    },
    Mutant {
        name: "unlock-with-an-heir-stops-at-its-limit",
        promise: "A release with an heir that its unlock cannot confirm goes on behind",
        edits: &[Edit { file: IN_PLACE, find: "            if answer.is_err() {
                release.see_through_behind();
            }", replace: "            drop(release);", },],
        tests: engine(&["an_unlock_that_is_refused_goes_on_behind"]),
        ..PLAIN
    },
    Mutant {
        name: "late-call-is-not-expected",
        promise: "Where a store forgets, a claim that was not answered is withdrawn twice",
        edits: &[Edit { file: HANDOVER, find: "        if self.engine.backend.profile().remembers_ended {
            return;", replace: "        if self.engine.backend.profile().remembers_ended || self.key.as_str().len() < 500 {
            return;", },],
        tests: engine(&["where_ended_claims_are_forgotten_one_that_was_not_answered_is_withdrawn_twice"]),
        ..PLAIN
    },
    Mutant {
        name: "refused-poll-leaves-a-ghost",
        promise: "A fair waiter whose poll is refused leaves the queue",
        edits: &[Edit { file: DRIVE, find: "                withdraw_queued(&line, claim, uncertain);
                return waiter.answer(Err(error.into()));", replace: "                if uncertain {
                    line.withdraw_unanswered(claim);
                }
                return waiter.answer(Err(error.into()));", },],
        tests: engine(&["a_fair_waiter_whose_poll_is_refused_leaves_no_ghost"]),
        ..PLAIN
    },
    Mutant {
        name: "ended-wait-leaves-what-was-not-answered",
        promise: "A wait that ends after a lost reply leaves no claim",
        edits: &[Edit { file: VERDICT, find: "if error.effect() == Effect::Unknown {", replace: "if error.effect() == Effect::Unknown && tries {", },],
        tests: engine(&["a_wait_that_ends_after_a_lost_reply_leaves_no_claim"]),
        ..PLAIN
    },
    Mutant {
        name: "waiter-that-went-is-queued",
        promise: "A wait that ends during its own call leaves no driver behind",
        edits: &[Edit { file: ENTRY, find: "        if !waiter.is_gone() {
            waiter.set_place(self.engine.places.first());
            let queue = self.queue(&mut state);", replace: "        {
            waiter.set_place(self.engine.places.first());
            let queue = self.queue(&mut state);", },],
        tests: engine(&["a_wait_that_times_out_during_its_own_call_leaves_no_driver_behind"]),
        ..PLAIN
    },
    Mutant {
        name: "places-are-given-twice",
        promise: "No two waiters of a client have one place",
        edits: &[Edit { file: ENTRY, find: "waiter.set_place(self.engine.places.last());", replace: "waiter.set_place(1 + state.queue.as_ref().map_or(0, |queue| i64::from(queue.len())));", },],
        tests: engine(&["waiters_that_come_back_to_a_queue_that_was_made_anew_leave_nothing_behind"]),
        ..PLAIN
    },
    Mutant {
        name: "first-places-are-given-twice",
        promise: "No two waiters of a client have one place before all others",
        edits: &[Edit { file: ENTRY, find: "waiter.set_place(self.engine.places.first());", replace: "waiter.set_place(-1);", },],
        tests: engine(&["waiters_that_come_back_to_a_queue_that_was_made_anew_leave_nothing_behind"]),
        ..PLAIN
    },
    Mutant {
        name: "second-release-is-a-loss",
        promise: "A release that is repeated after a lost reply is no loss",
        edits: &[Edit { file: RELEASE, find: "() if self.tries == 1 => Left::WasGone,", replace: "() if self.tries > 0 => Left::WasGone,", },],
        tests: engine(&["an_unlock_is_repeated_until_the_store_confirms_it"]),
        ..PLAIN
    },
    Mutant {
        name: "close-exceeds-its-limit",
        promise: "`close` waits no longer than it may",
        edits: &[Edit { file: CLIENT, find: "within(&self.engine, limit, settle)", replace: "within(&self.engine, limit * 2, settle)", },],
        tests: engine(&["close_waits_no_longer_than_it_may"]),
        ..PLAIN
    },
    Mutant {
        name: "close-does-not-wait",
        promise: "`close` confirms what it gave back",
        edits: &[Edit { file: CLIENT, find: "            engine.watchdog.settled().await;
", replace: "", },],
        tests: engine(&["on_a_thread_of_its_own_too_close_confirms_what_it_gave_back", "close_gives_everything_back"]),
        ..PLAIN
    },
    Mutant {
        name: "close-gives-back-one-by-one",
        promise: "A client that closes gives all its locks back in few calls",
        edits: &[Edit { file: CLIENT, find: "            watchdog.give_back(departing);", replace: "            watchdog.spawn(departing.see_through());", },],
        tests: engine(&["a_client_that_closes_gives_all_its_locks_back_in_few_calls"]),
        ..PLAIN
    },
    Mutant {
        name: "a-failed-batch-is-forgotten",
        promise: "What is given back together and fails is given back one by one",
        edits: &[Edit { file: RELEASE, find: "                _ => release.see_through_behind(),", replace: "                _ => drop(release),", },],
        tests: engine(&["a_client_that_closes_gives_all_its_locks_back_in_few_calls"]),
        ..PLAIN
    },
    Mutant {
        name: "dropped-guards-go-one-by-one",
        promise: "Guards that are dropped together are given back together",
        edits: &[Edit { file: HANDOVER, find: "        if let Exit::Release(departing) = self.leave(held) {
            self.engine.watchdog.give_back(departing);", replace: "        if let Exit::Release(departing) = self.leave(held) {
            self.engine.watchdog.spawn(departing.see_through());", },],
        tests: engine(&["guards_that_are_dropped_together_are_given_back_together"]),
        ..PLAIN
    },
    Mutant {
        name: "what-was-left-keeps-its-client-alive",
        promise: "What was left to be given back goes with the runtime",
        edits: &[Edit { file: LIFE, find: "        let departures = std::mem::take(&mut shared.due.lock().departures);
        departures.into_iter().for_each(Departing::forget);
", replace: "", },Edit { file: LIFE, find: "use crate::release::Departing;
", replace: "", },],
        tests: engine(&["a_client_leaves_nothing_when_its_runtime_ends"]),
        ..PLAIN
    },
    Mutant {
        name: "what-comes-too-late-keeps-its-client-alive",
        promise: "What is left after the runtime has ended is left to its lease",
        edits: &[Edit { file: ROUNDS, find: "        if self.0.state.load(Ordering::Acquire) >= GONE {
            drop(all);
            return departing.forget();
        }
", replace: "", },],
        tests: engine(&["a_client_leaves_nothing_when_its_runtime_ends"]),
        ..PLAIN
    },
    Mutant {
        name: "calls-that-have-ended-are-waited-for",
        promise: "A call that has ended wakes nobody",
        edits: &[Edit { file: CALLS, find: "        self.forget_ended(usize::MAX);\n", replace: "" }],
        tests: unit("tenure", &["the_next_look_is_for_one_that_has_not_ended"]),
        ..PLAIN
    },
    Mutant {
        name: "calls-gather-behind-a-slow-one",
        promise: "What gathered behind a slow call goes when that has ended",
        edits: &[Edit { file: CALLS, find: "const FORGOTTEN: usize = 2;", replace: "const FORGOTTEN: usize = 1;" }],
        tests: unit("tenure", &["what_gathered_behind_a_slow_one_goes_by_and_by_when_that_has_ended"]),
        ..PLAIN
    },
    Mutant {
        name: "calls-keep-their-client-alive",
        promise: "A call that has ended keeps nothing alive",
        edits: &[
            Edit { file: CALLS, find: "Calls(VecDeque<(Instant, Weak<dyn TakeOver>)>);", replace: "Calls(VecDeque<(Instant, Arc<dyn TakeOver>)>);" },
            Edit { file: CALLS, find: "due: Instant, call: Weak<dyn TakeOver>) {", replace: "due: Instant, call: Arc<dyn TakeOver>) {" },
            Edit { file: CALLS, find: "for call in self.0.into_iter().filter_map(|(_, call)| call.upgrade()) {", replace: "for (_, call) in self.0 {" },
            Edit { file: CALLS, find: "call.strong_count() == 0", replace: "Arc::strong_count(call) == 0" },
            Edit { file: CALLS, find: "use std::sync::{Arc, Weak};", replace: "use std::sync::Arc;" },
            Edit { file: ROUNDS, find: "let tracked: Weak<dyn TakeOver> = Arc::downgrade(call) as _;", replace: "let tracked: Arc<dyn TakeOver> = call.clone();" },
            Edit { file: ROUNDS, find: "use std::sync::{Arc, Weak};", replace: "use std::sync::Arc;" },
        ],
        tests: engine(&["a_client_that_is_dropped_after_its_calls_is_gone_at_once"]),
        ..PLAIN
    },
    Mutant {
        name: "holders-outlive-their-watchdog",
        promise: "A lock that nobody renews any more is lost",
        edits: &[Edit { file: LIFE, find: "engine.lines.all().iter().for_each(|line| drop(line.close()));", replace: "let _ = engine;", },],
        tests: engine(&["waiters_on_another_runtime_are_told_when_the_watchdogs_ends"]),
        ..PLAIN
    },
    Mutant {
        name: "fair-waiters-outlive-their-watchdog",
        promise: "A waiter is told when the runtime ends on which it was served",
        edits: &[Edit { file: DRIVE, find: "            waiter.answer(Err(waiter.line.engine.watchdog.abandoned()));", replace: "            drop(waiter);", },],
        tests: engine(&["waiters_on_another_runtime_are_told_when_the_watchdogs_ends"]),
        ..PLAIN
    },
    Mutant {
        name: "timer-of-an-ending-runtime-is-asked",
        promise: "A wait with a limit does not panic when the runtime of its client ends",
        edits: &[Edit { file: TIMER, find: "            Some(runtime) => Timer::There {
                task: runtime.spawn(async move { tokio::time::sleep(time).await }),
            },", replace: "            Some(runtime) => {
                let _entered = runtime.enter();
                Timer::Here {
                    sleep: tokio::time::sleep(time),
                }
            }", },],
        tests: engine(&["a_wait_with_a_limit_does_not_panic_when_the_runtime_of_its_client_ends"]),
        ..PLAIN
    },
    Mutant {
        name: "ended-runtime-is-not-named",
        promise: "A client whose runtime has ended says so",
        edits: &[Edit { file: LIFE, find: "Error::Closed(if self.0.state.load(Ordering::Acquire) == GONE {", replace: "Error::Closed(if self.0.state.load(Ordering::Acquire) == NEW {", },],
        tests: engine(&["a_client_whose_runtime_has_ended_says_so"]),
        ..PLAIN
    },
    Mutant {
        name: "own-thread-is-not-its-own",
        promise: "With a thread of its own the watchdog renews while the runtime is blocked",
        edits: &[Edit { file: LIFE, find: "        if self.0.own_thread {", replace: "        if self.0.own_thread && self.0.runtime.get().is_some() {", },],
        tests: engine(&["with_a_thread_of_its_own_the_watchdog_renews_while_the_runtime_is_blocked"]),
        ..PLAIN
    },
    Mutant {
        name: "a-runtime-is-taken-for-granted",
        promise: "Without a runtime a client says what it needs",
        edits: &[Edit { file: LIFE, find: "Handle::try_current().map_err(|_| Error::Closed(NO_RUNTIME))?", replace: "Ok::<_, Error>(Handle::current())?", },],
        tests: engine(&["without_a_runtime_a_client_says_what_it_needs"]),
        ..PLAIN
    },
    Mutant {
        name: "close-needs-timers",
        promise: "A client that was never used closes without any runtime",
        edits: &[Edit { file: TIMER, find: "if !engine.watchdog.has_timers() {", replace: "if false {", },],
        tests: engine(&["with_a_thread_of_its_own_a_client_needs_no_runtime_around_it"]),
        ..PLAIN
    },
    Mutant {
        name: "a-search-has-no-clock-of-its-own",
        promise: "With a thread of its own a search has a time limit without any runtime",
        edits: &[Edit { file: MULTI, find: "    line.engine.watchdog.start(&line.engine)?;
", replace: "", },],
        tests: engine(&["with_a_thread_of_its_own_a_client_needs_no_runtime_around_it"]),
        ..PLAIN
    },
    Mutant {
        name: "locking-loop-starves-others",
        promise: "A task that locks in a loop lets others run",
        edits: &[Edit { file: ATTEMPT, find: "        let progress = ready!(tokio::task::coop::poll_proceed(cx));
", replace: "", },Edit { file: ATTEMPT, find: "        progress.made_progress();
", replace: "", },Edit { file: ATTEMPT, find: "use std::task::{Context, Poll, ready};", replace: "use std::task::{Context, Poll};", },],
        tests: engine(&["a_task_that_locks_in_a_loop_lets_others_run"]),
        ..PLAIN
    },
];
