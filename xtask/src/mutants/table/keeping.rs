//! Mutants of the engine: locks that are kept beyond their guards, several held together, and owners.

use super::list::{PLAIN, engine, unit};
use crate::mutants::mutant::{Edit, Mutant};

const GUARD: &str = "crates/tenure/src/guard.rs";
const HANDOVER: &str = "crates/tenure/src/line/handover.rs";
const MULTI: &str = "crates/tenure/src/multi.rs";
const OWNER: &str = "crates/tenure/src/owner.rs";
const RENEWAL: &str = "crates/tenure/src/watchdog/renewal.rs";
const WANT: &str = "crates/tenure/src/want.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "closing-frees-what-is-to-be-kept",
        promise: "A lock that is to be kept for at least its time outlives its client",
        edits: &[Edit { file: HANDOVER, find: ".filter(|until| *until > now && held.is_believed(now))", replace: ".filter(|until| *until < now && held.is_believed(now))", },],
        tests: engine(&["at_least_outlives_the_guard_and_the_client"]),
        ..PLAIN
    },
    Mutant {
        name: "a-drop-frees-what-is-to-be-kept",
        promise: "A lock that is to be kept for at least its time outlives its guard",
        edits: &[Edit { file: GUARD, find: "Some(Leaving::Last(held, Some(until))) => {
                held.line.keep(&held, until, tokio::sync::oneshot::channel().0);
            }", replace: "Some(Leaving::Last(held, Some(_))) => held.line.leave_behind(&held),", },],
        tests: engine(&["at_least_outlives_the_guard_and_the_client"]),
        ..PLAIN
    },
    Mutant {
        name: "what-was-kept-is-left-to-its-lease",
        promise: "Who waits for a key that is kept has it as soon as the time is over",
        edits: &[Edit { file: HANDOVER, find: "            if over {
", replace: "            if over && false {
", },],
        tests: engine(&["who_waits_for_a_key_that_is_kept_has_it_as_soon_as_the_time_is_over"]),
        ..PLAIN
    },
    Mutant {
        name: "what-is-kept-is-renewed-once",
        promise: "A key is kept for longer than the longest lease while its client lives",
        edits: &[Edit { file: RENEWAL, find: "                    if now + lease < until {
                        lease / 3", replace: "                    if now + lease < until {
                        until - now", },],
        tests: engine(&["a_key_is_kept_for_longer_than_the_longest_lease_while_its_client_lives"]),
        ..PLAIN
    },
    Mutant {
        name: "what-is-kept-outlasts-a-closed-client",
        promise: "What is kept is left to its lease when its client closes",
        edits: &[Edit { file: RENEWAL, find: "if kept && self.is_closed() {", replace: "if !kept && self.is_closed() {", },Edit { file: RENEWAL, find: "() = closing, if kept => return false,", replace: "() = closing, if !kept => return false,", },],
        tests: engine(&["a_key_is_kept_for_longer_than_the_longest_lease_while_its_client_lives"]),
        ..PLAIN
    },
    Mutant {
        name: "closing-in-bad-weather-keeps-nothing",
        promise: "A client that closes waits until the store keeps what is to be kept",
        edits: &[Edit { file: RENEWAL, find: "if kept && self.is_closed() {", replace: "if self.is_closed() {", },],
        tests: engine(&["a_client_that_closes_in_bad_weather_does_not_forget_what_is_to_be_kept"]),
        ..PLAIN
    },
    Mutant {
        name: "closing-stops-what-is-not-kept-yet",
        promise: "A client that closes goes on asking the store to keep what is to be kept",
        edits: &[Edit { file: RENEWAL, find: "() = closing, if kept => return false,", replace: "() = closing => return false,", },],
        tests: engine(&["a_client_that_closes_in_bad_weather_does_not_forget_what_is_to_be_kept"]),
        ..PLAIN
    },
    Mutant {
        name: "an-unlock-waits-for-a-silent-store",
        promise: "An unlock of what is kept waits no longer than its limit",
        edits: &[Edit { file: GUARD, find: "match within(&engine, engine.settings.unlock_limit, told).await {", replace: "match within(&engine, Duration::MAX, told).await {", },],
        tests: engine(&["an_unlock_says_whether_the_store_keeps_what_it_was_to_keep"]),
        ..PLAIN
    },
    Mutant {
        name: "an-unlock-of-what-is-gone-is-fine",
        promise: "An unlock of what is to be kept says that it was evicted",
        edits: &[Edit { file: RENEWAL, find: "tell(Err(Lost { cause }.into()));", replace: "tell(Ok(()));", },],
        tests: engine(&["an_unlock_says_whether_the_store_keeps_what_it_was_to_keep"]),
        ..PLAIN
    },
    Mutant {
        name: "an-unlock-that-is-refused-is-fine",
        promise: "An unlock of what is to be kept says that the store refused",
        edits: &[Edit { file: RENEWAL, find: "                    tell(Err(error.into()));", replace: "                    tell(Ok(()).inspect(|()| drop(error)));", },],
        tests: engine(&["an_unlock_says_whether_the_store_keeps_what_it_was_to_keep"]),
        ..PLAIN
    },
    Mutant {
        name: "what-is-kept-is-given-up-in-bad-weather",
        promise: "The watchdog goes on asking the store to keep a lock",
        edits: &[Edit { file: RENEWAL, find: "Some(Renewed::Unknown(error)) if error.is_weather() => {
                    failures += 1;", replace: "Some(Renewed::Unknown(error)) if error.is_weather() && failures < 9 => {
                    failures += 1;", },],
        tests: engine(&["an_unlock_says_whether_the_store_keeps_what_it_was_to_keep"]),
        ..PLAIN
    },
    Mutant {
        name: "a-search-that-ends-keeps-its-members",
        promise: "A search that fails or is dropped keeps no member",
        edits: &[Edit { file: MULTI, find: "            guard.abandon();", replace: "            drop(guard);", },],
        tests: engine(&["a_search_that_fails_keeps_no_member", "a_search_that_is_dropped_keeps_no_member"]),
        ..PLAIN
    },
    Mutant {
        name: "a-search-that-waits-keeps-its-members",
        promise: "A search that waits keeps no member, however long it was to be held",
        edits: &[Edit { file: MULTI, find: "let _ = guard.give_up().await;", replace: "let _ = guard.unlock().await;", },],
        tests: engine(&["a_search_that_waits_keeps_no_member"]),
        ..PLAIN
    },
    Mutant {
        name: "a-search-that-is-dropped-leaks",
        promise: "A search that is dropped leaves no claim",
        edits: &[Edit { file: MULTI, find: "            guard.abandon();", replace: "            std::mem::forget(guard);", },],
        tests: engine(&["cancel::of_multi", "cancel::of_a_multi_that_has_to_wait"]),
        ..PLAIN
    },
    Mutant {
        name: "a-try-of-several-takes-some",
        promise: "A try of several locks takes all or nothing",
        edits: &[Edit { file: MULTI, find: "met_busy.store(true, Ordering::Relaxed);
                return Ok(Some(at));", replace: "met_busy.store(true, Ordering::Relaxed);", },],
        tests: engine(&["a_try_takes_all_or_nothing"]),
        ..PLAIN
    },
    Mutant {
        name: "who-keeps-is-not-asked",
        promise: "A client that evicts what it keeps may have it at once",
        edits: &[Edit { file: RENEWAL, find: "                () = asked_about => {}
", replace: "", },],
        tests: engine(&["who_evicts_what_is_kept_for_its_own_client_may_have_it_at_once"]),
        ..PLAIN
    },
    Mutant {
        name: "a-search-returns-what-was-lost",
        promise: "A search returns nothing that was lost while it went on",
        edits: &[Edit { file: MULTI, find: "if taken.iter().all(Taken::is_held) {", replace: "if taken.iter().any(Taken::is_held) {", },],
        tests: engine(&["what_was_lost_while_the_others_were_taken_is_taken_anew"]),
        ..PLAIN
    },
    Mutant {
        name: "one-of-several-is-enough",
        promise: "Several locks are held only while all of them are",
        edits: &[Edit { file: MULTI, find: "self.guards.iter().all(Guard::is_held)", replace: "self.guards.iter().any(Guard::is_held)", },],
        tests: engine(&["a_member_that_is_lost_is_the_loss_of_all"]),
        ..PLAIN
    },
    Mutant {
        name: "the-loss-of-the-first-alone-is-told",
        promise: "The loss of any of several locks is the loss of all",
        edits: &[Edit { file: MULTI, find: "let mut members: FuturesUnordered<_> = self.guards.iter().map(Guard::lost).collect();", replace: "let mut members: FuturesUnordered<_> = self.guards.iter().take(1).map(Guard::lost).collect();", },],
        tests: engine(&["a_member_that_is_lost_is_the_loss_of_all"]),
        ..PLAIN
    },
    Mutant {
        name: "an-unlock-of-several-hides-a-loss",
        promise: "An unlock of several locks says that one was lost",
        edits: &[Edit { file: MULTI, find: "            first = first.and(result);", replace: "            first = first.or(result);", },],
        tests: engine(&["a_member_that_is_lost_is_the_loss_of_all"]),
        ..PLAIN
    },
    Mutant {
        name: "a-member-may-be-named-twice",
        promise: "A member that is named twice is refused, and does not wait for itself",
        edits: &[Edit { file: MULTI, find: "if !names.insert((line.engine.id, line.key.clone())) {", replace: "if !names.insert((line.engine.id, line.key.clone())) && names.is_empty() {", },],
        tests: engine(&["members_may_be_of_every_kind_and_are_named_once", "bad_keys_and_senseless_wishes_are_refused"]),
        ..PLAIN
    },
    Mutant {
        name: "several-may-be-none",
        promise: "A multi-lock of no members is refused",
        edits: &[Edit { file: MULTI, find: "if members.is_empty() {", replace: "if members.len() > 1_000_000 {", },],
        tests: engine(&["members_may_be_of_every_kind_and_are_named_once"]),
        ..PLAIN
    },
    Mutant {
        name: "searches-chase-each-other",
        promise: "Two searches in opposite order do not chase each other for ever",
        edits: &[Edit { file: MULTI, find: "        if round > 0 {
            pause(", replace: "        if round > 1_000_000 {
            pause(", },],
        tests: engine(&["multi_locks_in_opposite_order_all_get_their_turn"]),
        limit_s: 15,
        ..PLAIN
    },
    Mutant {
        name: "a-search-exceeds-its-limit",
        promise: "A search never takes longer than its limit",
        edits: &[Edit { file: MULTI, find: "Patience::Within(limit) => Box::pin(search_within(limit, members, hunt.patience, told)),", replace: "Patience::Within(limit) => Box::pin(search_within(limit * 2, members, hunt.patience, told)),", },],
        tests: engine(&["a_multi_lock_never_takes_longer_than_its_limit"]),
        ..PLAIN
    },
    Mutant {
        name: "a-search-gives-up-in-bad-weather",
        promise: "While a search goes on, an unavailable store is asked again",
        edits: &[Edit { file: MULTI, find: "Err(error) if error.is_weather() && !matches!(patience, Patience::Try) => return Ok(Some(at)),
", replace: "", },],
        tests: engine(&["while_waiting_an_unavailable_store_is_asked_again"]),
        ..PLAIN
    },
    Mutant {
        name: "a-member-is-handed-on",
        promise: "A claim that is one of several held together is not handed on",
        edits: &[Edit { file: WANT, find: "            && !self.member
", replace: "", },],
        tests: engine(&["a_member_of_a_multi_lock_is_not_handed_on"]),
        ..PLAIN
    },
    Mutant {
        name: "an-owner-enters-what-it-has-lost",
        promise: "An owner whose lock was lost takes it anew",
        edits: &[Edit { file: OWNER, find: "if !held.is_believed(now) || held.has_departed() {", replace: "if held.has_departed() {", },],
        tests: engine(&["an_owner_whose_lock_was_lost_takes_it_anew"]),
        ..PLAIN
    },
    Mutant {
        name: "an-owners-attempts-are-not-woken",
        promise: "Two attempts of one owner at once share the claim",
        edits: &[Edit { file: OWNER, find: "        waiting.into_values().for_each(Waker::wake);", replace: "        drop(waiting);", },],
        tests: engine(&["two_attempts_of_one_owner_at_once_share_the_claim"]),
        ..PLAIN
    },
    Mutant {
        name: "an-owners-seats-are-used-twice",
        promise: "Every waiting attempt of an owner is woken when it has the key",
        edits: &[Edit { file: OWNER, find: "number: self.0.seats.fetch_add(1, Ordering::Relaxed),", replace: "number: hold.waiting.len() as u64,", },],
        tests: engine(&["every_waiting_attempt_of_an_owner_is_woken_when_it_has_the_key"]),
        ..PLAIN
    },
    Mutant {
        name: "owner-keeps-every-name",
        promise: "An owner keeps nothing about a name of which nothing is left",
        edits: &[Edit { file: OWNER, find: "        if hold.is_empty() {", replace: "        if hold.is_empty() && self.0.name.is_empty() {", },],
        tests: unit("tenure", &["an_owner_keeps_nothing_about_a_name_when_all_is_over"]),
        ..PLAIN
    },
    Mutant {
        name: "an-owner-serves-two-clients",
        promise: "An owner of another client is refused",
        edits: &[Edit { file: OWNER, find: "if line.engine.id != self.0.client {", replace: "if line.engine.id != self.0.client && self.0.name.is_empty() {", },],
        tests: engine(&["an_owner_of_another_client_is_refused"]),
        ..PLAIN
    },
];
