//! The macros that turn the suite into named tests, and the list of its cases.

/// One test for each case of the conformance suite, in a module for each group.
///
/// Takes the name of an `async fn() -> impl Subject` in scope, which makes a fresh store for each case; and, if
/// not all of them, the groups to run: `mutual`, `claim`, `lease`, `fifo`, `fence`, `watch`, `taker`, `refuse`.
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

/// The same tests as [`conformance!`], in a module `under_chaos`: each case passes in several weathers.
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

/// A test in a module `random_walks`: in random walks of claims through the store every answer is one that the contract
/// allows.
///
/// Takes the name of an `async fn() -> impl Subject` in scope, which makes a fresh store for each walk, and how many
/// walks there are, if not 100. What a walk is, and what a failure tells, is said at [`model`](crate::model). A store
/// whose time passes by sleeping takes some seconds for a walk: a few walks are enough there.
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
            fn every_answer_of_a_random_walk_is_one_that_the_contract_allows() {
                $crate::model::walks($subject, 1..=$walks);
            }
        }
    };
}

/// One group's module of tests.
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

/// Adds one group's cases to a list.
#[doc(hidden)]
#[macro_export]
macro_rules! __list {
    ($group:ident [$($case:ident)+] $cases:ident) => {
        $cases.extend([$(
            Case {
                group: stringify!($group),
                name: stringify!($case),
                check: |trial| Box::pin($crate::suite::$group::$case(trial)),
            },
        )+]);
    };
}

/// Calls the macro `then` with each of the groups, or with each of all groups if none is named, with the group's cases
/// and with what else was given.
#[doc(hidden)]
#[macro_export]
macro_rules! __groups {
    ([] $($then:tt)+) => {
        $crate::__groups! { [mutual claim lease fifo fence watch taker refuse] $($then)+ }
    };
    ([$($group:ident)+] $then:ident $with:tt) => {
        $($crate::__cases! { $group $then $with })+
    };
}

/// The list of cases.
#[doc(hidden)]
#[macro_export]
macro_rules! __cases {
    (mutual $then:ident $with:tt) => {
        $crate::$then! { mutual [
            two_exclusive_claims_are_never_granted_together
            two_claims_of_one_owner_exclude_each_other
            readers_hold_together_and_exclude_a_writer
            a_writer_excludes_readers_and_writers
            permits_are_given_out_up_to_the_size_and_no_further
            clients_that_compete_at_full_speed_never_overlap
            keys_that_differ_at_all_do_not_exclude_each_other
        ] $with }
    };
    (claim $then:ident $with:tt) => {
        $crate::$then! { claim [
            a_granted_claim_that_asks_again_has_the_same_tokens_and_counts_once
            a_release_may_be_repeated_and_frees_nobody_else
            a_release_by_anyone_but_the_owner_frees_nothing
            a_released_claim_is_never_granted_again
            an_ended_claim_is_remembered_until_its_not_after_has_passed
            a_claim_withdrawn_before_it_was_placed_is_never_granted
            a_claim_is_never_placed_after_its_not_after
            a_holder_may_be_polled_after_its_not_after
            a_released_claim_is_gone_to_renewal
            a_claim_that_was_never_placed_is_gone_to_renewal
            an_unfair_claim_that_waits_leaves_nothing
            a_claim_given_up_while_it_waited_is_never_granted
            a_batch_is_judged_one_by_one
            a_batch_may_be_as_long_as_the_limit_and_is_answered_in_order
            an_element_that_fails_clouds_no_other
            a_dropped_call_harms_nothing
            hostile_names_are_keys_like_any
            a_thousand_names_leave_nothing_behind
            an_evicted_claim_is_gone_and_learns_by_whom
            an_evicted_claim_learns_why_for_as_long_as_its_lease
            a_late_release_does_not_change_why_an_evicted_claim_is_gone
            an_eviction_takes_the_named_claim_alone
            everybody_who_holds_a_key_can_be_evicted_at_once
            waiters_stay_when_everybody_who_holds_is_evicted
            a_waiter_can_be_evicted_from_the_queue
            an_eviction_bars_the_key_for_a_moment
            a_foreign_holder_that_is_not_there_is_evicted_without_effect
            a_holder_is_shown_as_it_is
            all_who_hold_together_are_shown
            waiters_are_shown_in_their_order
            a_key_that_nobody_holds_is_not_shown
            a_listing_shows_each_key_once_and_no_other
            a_page_announces_no_empty_one
        ] $with }
    };
    (lease $then:ident $with:tt) => {
        $crate::$then! { lease [
            a_lease_that_is_not_renewed_ends
            a_renewed_claim_outlives_its_first_lease
            a_granted_claim_that_asks_again_restarts_its_lease
            a_renewal_gives_the_lease_that_it_asks_for
            a_claim_outlives_a_restart_where_the_profile_says_so
            an_expired_claim_is_never_renewed
            an_expired_claim_is_never_granted_again
            a_late_release_of_an_expired_claim_frees_nobody
            a_renewal_of_another_phase_has_no_effect
            one_readers_renewal_and_release_leave_the_others_lease_alone
            a_dead_reader_does_not_stay_for_the_others_sake
            permits_of_dead_holders_are_given_out_again
            a_lease_too_short_is_rounded_up_and_says_so
            a_renewal_too_short_is_rounded_up_and_says_so
            a_renewal_that_only_shortens_never_lengthens
            a_waiter_polls_no_later_than_the_holders_lease_ends
            what_is_believed_ends_no_later_than_the_lease_in_the_store
            no_interruption_makes_belief_outlive_the_lease
            a_late_reply_does_not_lengthen_belief
            a_late_request_is_not_placed
        ] $with }
    };
    (fifo $then:ident $with:tt) => {
        $crate::$then! { fifo [
            claims_are_granted_in_the_order_in_which_they_were_placed
            a_waiter_that_asks_again_keeps_its_place
            a_waiter_lives_as_long_as_it_asks_or_is_renewed
            a_waiter_may_be_polled_after_its_not_after
            a_waiter_is_told_to_ask_again_well_within_its_lease
            a_waiter_is_not_renewed_as_a_holder
            a_dead_waiter_holds_the_queue_up_for_its_own_lease_at_most
            dead_waiters_do_not_hold_the_queue_up_one_after_the_other
            a_withdrawn_waiter_leaves_no_ghost
            a_live_queue_bars_unfair_claims
            a_dead_queue_bars_nobody
            readers_at_the_head_go_together_and_wait_behind_a_writer
            a_reader_does_not_overtake_a_writer_that_waits
            few_permits_do_not_overtake_many
            a_withdrawn_head_lets_those_behind_it_go
            a_queue_moves_on_when_the_holder_dies
        ] $with }
    };
    (fence $then:ident $with:tt) => {
        $crate::$then! { fence [
            every_grant_has_tokens_as_the_profile_says
            tokens_rise_over_release
            tokens_rise_over_expiry
            tokens_rise_over_eviction
            tokens_rise_over_a_restart
            tokens_rise_from_readers_to_writers_and_back
            a_grant_reserves_the_run_that_it_asked_for
            a_raise_lifts_the_counter_and_becomes_the_claims_run
            a_raise_of_a_waiter_lifts_the_counter
            a_raise_never_lowers_the_counter
            a_raise_of_a_claim_that_is_gone_has_no_effect
        ] $with }
    };
    (watch $then:ident $with:tt) => {
        $crate::$then! { watch [
            a_release_brings_a_watching_waiter_on
            an_eviction_brings_a_watching_waiter_on
            a_watch_is_armed_until_it_is_dropped
            a_waiter_that_hears_nothing_gets_on_by_polling
            a_watch_changes_nothing_about_the_claim
            a_withdrawn_head_brings_the_next_in_the_queue_on
            a_release_tells_of_those_who_queue_elsewhere
            a_release_tells_how_many_wait_elsewhere
            the_clients_own_waiters_do_not_count_as_others
        ] $with }
    };
    (taker $then:ident $with:tt) => {
        $crate::$then! { taker [
            a_successor_is_granted_by_the_release_when_nobody_else_waits
            a_hand_over_may_be_repeated
            a_successor_waits_when_another_client_queues
            an_unfair_successor_does_not_overtake_a_queue
            a_successor_waits_when_another_client_watches
            the_clients_own_watchers_do_not_stand_in_its_heirs_way
            a_successor_that_comes_too_late_is_not_placed
            a_successor_that_has_ended_is_not_granted
            a_successor_that_is_not_admitted_waits
            a_successor_of_an_absent_claim_is_placed_all_the_same
            a_successor_of_a_waiter_does_not_hold_beside_the_holder
            a_chain_of_hand_overs_holds_the_key_throughout
        ] $with }
    };
    (refuse $then:ident $with:tt) => {
        $crate::$then! { refuse [
            what_the_profile_does_not_list_is_refused_without_effect
            another_kind_than_the_holders_is_a_mismatch
            another_kind_than_the_queues_is_a_mismatch
            more_permits_than_there_are_is_refused_without_effect
            a_lease_beyond_the_longest_is_refused_without_effect
            a_closed_client_refuses_and_leaves_its_claims_to_their_leases
            closing_may_be_repeated
            the_store_can_be_examined
            a_store_that_is_unwell_says_so_and_loses_nothing
        ] $with }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_case_that_is_written_is_listed() {
        let written = [
            include_str!("suite/mutual.rs"),
            include_str!("suite/claim/life.rs"),
            include_str!("suite/claim/batch.rs"),
            include_str!("suite/claim/evict.rs"),
            include_str!("suite/claim/inspect.rs"),
            include_str!("suite/lease.rs"),
            include_str!("suite/late.rs"),
            include_str!("suite/fifo.rs"),
            include_str!("suite/fence.rs"),
            include_str!("suite/watch.rs"),
            include_str!("suite/taker.rs"),
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
