//! Macros that turn the suite into named tests, and the list of its cases.

/// Defines one test for each case of the conformance suite, in one module per group.
///
/// Takes the name of an `async fn() -> impl Subject`, which makes a fresh store for each case. By default all groups
/// run; `groups:` selects some of `mutual`, `claim`, `lease`, `fifo`, `fence`, `watch`, `turn`, `successor`, `refuse`.
///
/// # Examples
/// ```no_run
/// # use std::{future::Future, pin::Pin, sync::Arc, time::Duration};
/// # use tenure_backend::{Backend, Call, Clock};
/// use tenure_testkit::Subject;
///
/// struct MyStore;
/// # impl MyStore { fn new() -> Self { MyStore } }
/// impl Subject for MyStore {
///     // ...
/// #   fn client(&self) -> Call<Arc<dyn Backend>> { unimplemented!() }
/// #   fn pass(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> { unimplemented!() }
/// #   fn client_on(&self, _: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> { unimplemented!() }
/// }
///
/// async fn subject() -> impl Subject {
///     MyStore::new()
/// }
///
/// tenure_testkit::conformance!(subject, groups: [mutual, claim, lease]);
/// tenure_testkit::conformance_under_chaos!(subject, groups: [mutual, claim, lease]);
/// tenure_testkit::agrees_with_the_model!(subject, walks: 20);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! conformance {
    ($subject:path $(, groups: [$($group:ident),+ $(,)?])? $(,)?) => {
        $crate::__groups! { [$($($group)+)?] __tests (run, $subject) }
    };
}

/// Defines each test of [`conformance!`] once more, in a module `under_chaos`. There, each case runs with one seed
/// of random faults, or with as many as the environment variable `TENURE_CHAOS_SEEDS` says.
#[macro_export]
macro_rules! conformance_under_chaos {
    ($subject:path $(, groups: [$($group:ident),+ $(,)?])? $(,)?) => {
        mod under_chaos {
            #[allow(unused_imports)]
            use super::*;
            $crate::__groups! { [$($($group)+)?] __tests (run_under_chaos, $subject) }
        }
    };
}

/// Defines a test, in a module `random_walks`, that sends random requests to the store and compares every reply with a
/// model of the contract.
///
/// Takes the name of an `async fn() -> impl Subject`, which makes a fresh store for each walk, and the number of walks
/// (100 by default). [`model`](crate::model) describes walks and their failures. If the subject must
/// sleep to let time pass, a walk takes some seconds, so ask for fewer walks.
///
/// # Examples
/// See [`conformance!`].
#[macro_export]
macro_rules! agrees_with_the_model {
    ($subject:path $(,)?) => {
        $crate::agrees_with_the_model!($subject, walks: 100);
    };
    ($subject:path, walks: $walks:expr $(,)?) => {
        mod random_walks {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn random_walks_get_only_replies_the_contract_allows() {
                $crate::model::walks($subject, 1..=$walks);
            }
        }
    };
}

/// Defines the module of one group's tests.
#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ($group:ident [$($case:ident)+] ($run:ident, $subject:path)) => {
        mod $group {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[test]
                fn $case() {
                    $crate::suite::$run($subject, $crate::suite::$group::$case);
                }
            )+
        }
    };
}

/// Adds the cases of one group to the list `cases`.
#[doc(hidden)]
#[macro_export]
macro_rules! __list {
    ($group:ident [$($case:ident)+] $cases:ident) => {
        $cases.extend([$(
            Case {
                group: stringify!($group),
                name: stringify!($case),
                check: |fixture| Box::pin($crate::suite::$group::$case(fixture)),
            },
        )+]);
    };
}

/// Calls the macro `then` once for each named group, or for every group if none is named. Passes on the group's cases
/// and the remaining arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! __groups {
    ([] $($then:tt)+) => {
        $crate::__groups! { [mutual claim lease fifo fence watch turn successor refuse] $($then)+ }
    };
    ([$($group:ident)+] $then:ident $with:tt) => {
        $($crate::__cases! { $group $then $with })+
    };
}

/// Passes the cases of one group to the macro `then`.
#[doc(hidden)]
#[macro_export]
macro_rules! __cases {
    (mutual $then:ident $with:tt) => {
        $crate::$then! { mutual [
            two_exclusive_claims_are_never_granted_together
            two_claims_of_one_owner_exclude_each_other
            readers_hold_together_and_exclude_a_writer
            a_writer_excludes_readers_and_writers
            a_downgraded_writer_holds_together_with_readers
            a_downgrade_lets_no_waiting_writer_hold_the_key
            permits_are_granted_up_to_the_semaphores_size
            competing_clients_never_hold_at_the_same_time
            similar_keys_do_not_exclude_each_other
        ] $with }
    };
    (claim $then:ident $with:tt) => {
        $crate::$then! { claim [
            polling_a_granted_claim_returns_the_same_tokens
            a_repeated_release_frees_no_other_claim
            a_release_by_another_client_frees_nothing
            a_released_claim_is_never_granted_again
            an_ended_claim_is_remembered_until_its_not_after
            a_claim_withdrawn_before_it_was_placed_is_never_granted
            a_claim_is_never_placed_after_its_not_after
            a_holder_may_be_polled_after_its_not_after
            renewing_a_released_claim_reports_it_gone
            a_downgrade_brings_no_ended_claim_back
            renewing_an_unplaced_claim_reports_it_gone
            a_refused_unfair_claim_leaves_nothing_behind
            a_claim_withdrawn_while_waiting_is_never_granted
            each_element_of_a_batch_has_its_own_reply
            a_batch_of_maximum_length_is_answered_in_order
            a_failed_batch_element_does_not_affect_others
            a_dropped_call_leaves_a_withdrawable_claim
            unusual_key_names_work_like_any_other
            a_thousand_released_keys_leave_nothing_behind
            an_evicted_claim_is_gone_and_learns_the_evictor
            an_eviction_is_remembered_for_the_claims_lease
            a_late_release_does_not_hide_an_eviction
            an_eviction_ends_only_the_named_claim
            all_holders_of_a_key_can_be_evicted_at_once
            waiters_stay_when_all_holders_are_evicted
            a_waiter_can_be_evicted_from_the_queue
            an_eviction_starts_a_cooldown
            an_eviction_is_reported_to_its_client
            evicting_a_waiter_starts_no_cooldown
            evicting_an_absent_holder_has_no_effect
            inspect_shows_a_holder_with_its_details
            inspect_shows_all_holders_of_a_shared_key
            inspect_shows_waiters_in_queue_order
            inspect_does_not_show_a_free_key
            a_listing_shows_each_matching_key_once
            a_page_never_announces_an_empty_page
        ] $with }
    };
    (lease $then:ident $with:tt) => {
        $crate::$then! { lease [
            a_lease_that_is_not_renewed_ends
            a_renewed_claim_outlives_its_first_lease
            polling_a_granted_claim_restarts_its_lease
            a_renewal_grants_the_requested_lease
            a_claim_survives_a_restart_if_the_profile_says_so
            an_expired_claim_is_never_renewed
            an_expired_claim_is_never_granted_again
            releasing_an_expired_claim_frees_no_other_claim
            a_renewal_for_another_phase_has_no_effect
            one_reader_does_not_affect_anothers_lease
            a_dead_reader_expires_while_others_renew
            permits_of_dead_holders_become_free
            a_short_lease_is_rounded_up_and_reported
            a_short_renewal_is_rounded_up_and_reported
            a_shorten_only_renewal_never_lengthens
            a_waiter_polls_by_the_end_of_the_holders_lease
            a_waiter_that_sleeps_learns_of_a_shortened_lease
            the_local_deadline_is_within_the_stores_lease
            an_interrupted_client_never_outlives_its_lease
            a_late_reply_does_not_extend_the_local_deadline
            a_late_request_is_not_placed
        ] $with }
    };
    (fifo $then:ident $with:tt) => {
        $crate::$then! { fifo [
            claims_are_granted_in_the_order_of_placement
            a_waiter_that_polls_keeps_its_place
            a_waiter_lives_while_it_polls_or_is_renewed
            a_waiter_may_be_polled_after_its_not_after
            poll_after_is_well_within_a_waiters_lease
            renewing_a_waiter_as_a_holder_has_no_effect
            a_dead_waiter_blocks_the_queue_for_its_own_lease
            a_dead_waiter_blocks_a_sleeping_claim_for_its_own_lease
            a_dead_writer_blocks_a_sleeping_reader_for_its_own_lease
            several_dead_waiters_expire_together
            a_withdrawn_waiter_leaves_the_queue
            a_live_queue_blocks_unfair_claims
            a_dead_queue_blocks_no_claim
            readers_at_the_head_are_granted_together
            a_reader_does_not_overtake_a_waiting_writer
            a_small_claim_does_not_overtake_a_large_one
            withdrawing_the_head_lets_later_waiters_proceed
            a_queue_moves_on_when_the_holder_dies
        ] $with }
    };
    (fence $then:ident $with:tt) => {
        $crate::$then! { fence [
            grants_have_tokens_if_the_profile_says_so
            tokens_rise_over_release
            tokens_rise_over_expiry
            tokens_rise_over_eviction
            tokens_rise_over_a_restart
            tokens_rise_from_readers_to_writers_and_back
            a_grant_reserves_the_requested_token_range
            a_raise_lifts_the_counter_and_the_claims_tokens
            a_raise_of_a_waiter_lifts_the_counter
            a_raise_never_lowers_the_counter
            a_raise_of_an_ended_claim_has_no_effect
        ] $with }
    };
    (watch $then:ident $with:tt) => {
        $crate::$then! { watch [
            a_release_lets_a_watching_waiter_proceed
            an_eviction_lets_a_watching_waiter_proceed
            a_watch_stays_armed_until_dropped
            a_waiter_without_wake_ups_proceeds_by_polling
            watching_does_not_change_the_claim
            withdrawing_the_head_lets_the_next_waiter_proceed
            a_downgrade_lets_watching_readers_proceed
            a_release_reports_waiters_of_other_clients
            a_release_counts_watchers_of_other_clients
            a_release_does_not_count_the_clients_own_waiters
        ] $with }
    };
    (turn $then:ident $with:tt) => {
        $crate::$then! { turn [
            a_freed_key_is_reserved_for_the_longest_watcher
            a_turn_that_is_not_taken_ends
            a_fair_claim_ignores_turns
            a_poll_ends_only_the_turn_of_its_own_claim
            a_releasing_clients_waiters_get_no_turn
            a_watcher_that_missed_its_turn_counts_after_a_poll
            a_waiter_behind_a_dead_one_proceeds_after_a_turn
            a_fair_successor_goes_before_watchers
            an_unfair_successor_goes_after_watchers
            a_yielding_successor_polls_after_a_turn
            a_successor_of_another_kind_polls_after_a_turn
        ] $with }
    };
    (successor $then:ident $with:tt) => {
        $crate::$then! { successor [
            a_release_grants_its_successor_if_no_other_waits
            a_repeated_hand_over_gives_the_same_answer
            a_successor_waits_when_another_client_queues
            an_unfair_successor_does_not_overtake_a_queue
            a_successor_waits_when_another_client_watches
            the_clients_own_watchers_do_not_block_its_successor
            a_late_successor_is_not_placed
            an_ended_successor_is_not_granted
            a_successor_that_is_not_admitted_waits
            the_successor_of_an_absent_claim_is_placed
            a_waiters_successor_does_not_bypass_the_holder
            a_chain_of_hand_overs_keeps_the_key_held
        ] $with }
    };
    (refuse $then:ident $with:tt) => {
        $crate::$then! { refuse [
            unlisted_modes_are_refused_without_effect
            a_kind_other_than_the_holders_is_a_mismatch
            a_downgrade_of_another_kind_is_refused_without_effect
            a_kind_other_than_the_queues_is_a_mismatch
            too_many_permits_are_refused_without_effect
            a_lease_above_the_maximum_is_refused_without_effect
            a_closed_client_refuses_calls_and_keeps_its_claims
            a_release_names_another_claim_on_the_lock_as_its_successor
            closing_may_be_repeated
            the_store_can_be_examined
            a_failing_store_reports_it_and_loses_no_claim
        ] $with }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_case_in_the_source_is_listed() {
        let written = [
            include_str!("suite/mutual.rs"),
            include_str!("suite/claim/life.rs"),
            include_str!("suite/claim/batch.rs"),
            include_str!("suite/claim/evict.rs"),
            include_str!("suite/claim/inspect.rs"),
            include_str!("suite/lease/expiry.rs"),
            include_str!("suite/lease/deadline.rs"),
            include_str!("suite/fifo.rs"),
            include_str!("suite/fence.rs"),
            include_str!("suite/watch.rs"),
            include_str!("suite/turn.rs"),
            include_str!("suite/successor.rs"),
            include_str!("suite/refuse.rs"),
        ];
        let lines = written.iter().flat_map(|file| file.lines());
        let written: BTreeSet<&str> = lines
            .filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next())
            .collect();
        let listed: BTreeSet<&str> = crate::suite::all().iter().map(|case| case.name).collect();
        assert_eq!(written, listed);
    }
}
