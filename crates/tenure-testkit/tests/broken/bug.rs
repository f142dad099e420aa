//! Bugs that can be planted in a store, one at a time. `connection.rs` implements them.

/// Defines the enum `Bug`, and tables that name the case which finds each bug.
macro_rules! bugs {
    ($($(#[$doc:meta])* $table:ident { $($bug:ident: $case:ident,)+ })+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Bug {
            $($($bug,)+)+
        }

        $(
            $(#[$doc])*
            pub(crate) const $table: &[(Bug, &str)] = &[$((Bug::$bug, stringify!($case)),)+];
        )+
    };
}

bugs! {
    /// Bugs in the state of claims, each with the case that fails because of it. Random walks find them too.
    OF_STATE {
        AnyoneReleases: a_release_by_another_client_frees_nothing,
        RenewalRecreates: renewing_an_unplaced_claim_reports_it_gone,
        RenewalRevivesExpired: an_expired_claim_is_never_renewed,
        RenewalIgnoresItsPhase: a_renewal_for_another_phase_has_no_effect,
        TokensNeverRise: tokens_rise_over_release,
        RepetitionDrawsAnotherToken: polling_a_granted_claim_returns_the_same_tokens,
        ReaderIgnoresWriter: a_writer_excludes_readers_and_writers,
        OnePermitTooMany: permits_are_granted_up_to_the_semaphores_size,
        KindsMix: a_kind_other_than_the_holders_is_a_mismatch,
        PlacesTooLate: a_claim_is_never_placed_after_its_not_after,
        ForgetsEnded: a_released_claim_is_never_granted_again,
        LastComeFirstServed: claims_are_granted_in_the_order_of_placement,
        UnfairOvertakesTheQueue: a_live_queue_blocks_unfair_claims,
        SmallOvertakesLarge: a_small_claim_does_not_overtake_a_large_one,
        DeadWaitersStay: a_dead_waiter_blocks_the_queue_for_its_own_lease,
        WithdrawnWaiterStays: a_withdrawn_waiter_leaves_the_queue,
        SuccessorOvertakes: a_successor_waits_when_another_client_queues,
        SuccessorIsForgotten: a_release_grants_its_successor_if_no_other_waits,
        LeaseNeverEnds: a_lease_that_is_not_renewed_ends,
        RenewalNeverLengthens: a_renewed_claim_outlives_its_first_lease,
        NoCooldownAfterEviction: an_eviction_starts_a_cooldown,
        EvictionIsNotReported: an_evicted_claim_is_gone_and_learns_the_evictor,
        RaiseIsIgnored: a_raise_lifts_the_counter_and_the_claims_tokens,
        ShowsTheExpired: inspect_does_not_show_a_free_key,
        ForgetsEndedSoon: an_ended_claim_is_remembered_until_its_not_after,
        LatePollIsRefused: a_holder_may_be_polled_after_its_not_after,
        RenewalHidesItsRounding: a_short_renewal_is_rounded_up_and_reported,
        ShortenOnlyIsIgnored: a_shorten_only_renewal_never_lengthens,
        DowngradeIsIgnored: a_downgraded_writer_holds_together_with_readers,
    }
    /// Other bugs: clocks within a call, wake-ups, key names, listings, batches, closing and failures of the store.
    /// Random walks do not find them.
    OTHERS {
        LeaseStartsAtTheReply: an_interrupted_client_never_outlives_its_lease,
        NotAfterIsCheckedWhenSending: a_late_request_is_not_placed,
        WakesNoWaiter: a_release_lets_a_watching_waiter_proceed,
        CountsOwnWaiters: a_release_reports_waiters_of_other_clients,
        KeysFoldCase: similar_keys_do_not_exclude_each_other,
        PrefixesFoldCase: a_listing_shows_each_matching_key_once,
        PagesRepeat: a_listing_shows_each_matching_key_once,
        FullPagesAnnounceAnother: a_page_never_announces_an_empty_page,
        ClosingDoesNotClose: a_closed_client_refuses_calls_and_keeps_its_claims,
        BatchEndsAtTheFirstFailure: each_element_of_a_batch_has_its_own_reply,
        LongBatchesAreShuffled: a_batch_of_maximum_length_is_answered_in_order,
        FailureSpreadsInItsBatch: a_failed_batch_element_does_not_affect_others,
        FailureLooksTransient: a_failing_store_reports_it_and_loses_no_claim,
        FailureLooksLikeLoss: a_failing_store_reports_it_and_loses_no_claim,
    }
}
