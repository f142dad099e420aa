//! The bugs that can be planted in a store, one at a time. `planted.rs` shows what each one does.

/// Writes each bug once, for the type and for the tables.
macro_rules! bugs {
    ($($(#[$doc:meta])* $table:ident { $($bug:ident: $case:ident,)+ })+) => {
        /// A bug of a store.
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
    /// Bugs of a claim's state, each with the case that it turns red. Random walks find them too.
    OF_STATE {
        AnyoneReleases: a_release_by_anyone_but_the_owner_frees_nothing,
        RenewalRecreates: a_claim_that_was_never_placed_is_gone_to_renewal,
        RenewalRevivesExpired: an_expired_claim_is_never_renewed,
        RenewalIgnoresItsPhase: a_renewal_of_another_phase_has_no_effect,
        TokensNeverRise: tokens_rise_over_release,
        RepetitionDrawsAnotherToken: a_granted_claim_that_asks_again_has_the_same_tokens_and_counts_once,
        ReaderIgnoresWriter: a_writer_excludes_readers_and_writers,
        OnePermitTooMany: permits_are_given_out_up_to_the_size_and_no_further,
        KindsMix: another_kind_than_the_holders_is_a_mismatch,
        PlacesTooLate: a_claim_is_never_placed_after_its_not_after,
        ForgetsEnded: a_released_claim_is_never_granted_again,
        LastComeFirstServed: claims_are_granted_in_the_order_in_which_they_were_placed,
        UnfairOvertakesTheQueue: a_live_queue_bars_unfair_claims,
        SmallOvertakesLarge: few_permits_do_not_overtake_many,
        DeadWaitersStay: a_dead_waiter_holds_the_queue_up_for_its_own_lease_at_most,
        GhostOfAWithdrawnWaiter: a_withdrawn_waiter_leaves_no_ghost,
        HeirOvertakes: a_successor_waits_when_another_client_queues,
        HeirIsForgotten: a_successor_is_granted_by_the_release_when_nobody_else_waits,
        LeaseNeverEnds: a_lease_that_is_not_renewed_ends,
        RenewalNeverLengthens: a_renewed_claim_outlives_its_first_lease,
        NoBarAfterEviction: an_eviction_bars_the_key_for_a_moment,
        EvictionIsNotTold: an_evicted_claim_is_gone_and_learns_by_whom,
        RaiseIsIgnored: a_raise_lifts_the_counter_and_becomes_the_claims_run,
        ShowsTheExpired: a_key_that_nobody_holds_is_not_shown,
        ForgetsEndedSoon: an_ended_claim_is_remembered_until_its_not_after_has_passed,
        PlacedComesTooLate: a_holder_may_be_polled_after_its_not_after,
        RenewalHidesItsRounding: a_renewal_too_short_is_rounded_up_and_says_so,
        ShortenOnlyIsIgnored: a_renewal_that_only_shortens_never_lengthens,
    }
    /// Other bugs: of clocks that move within a call, wake-ups, names and listings, batches, closing and ailments.
    /// Random walks do not find them.
    OTHERS {
        BeliefStartsAtTheReply: no_interruption_makes_belief_outlive_the_lease,
        PlaceByIsReadAtSending: a_late_request_is_not_placed,
        WakesNobody: a_release_brings_a_watching_waiter_on,
        CountsOwnWaiters: a_release_tells_of_those_who_queue_elsewhere,
        KeysFoldCase: keys_that_differ_at_all_do_not_exclude_each_other,
        PrefixesFoldCase: a_listing_shows_each_key_once_and_no_other,
        PagesRepeat: a_listing_shows_each_key_once_and_no_other,
        FullPagesAnnounceAnother: a_page_announces_no_empty_one,
        ClosingDoesNotClose: a_closed_client_refuses_and_leaves_its_claims_to_their_leases,
        BatchEndsAtTheFirstFailure: a_batch_is_judged_one_by_one,
        LongBatchesAreShuffled: a_batch_may_be_as_long_as_the_limit_and_is_answered_in_order,
        FailureCloudsItsBatch: an_element_that_fails_clouds_no_other,
        AilmentLooksLikeWeather: a_store_that_is_unwell_says_so_and_loses_nothing,
        AilmentLooksLikeLoss: a_store_that_is_unwell_says_so_and_loses_nothing,
    }
}
