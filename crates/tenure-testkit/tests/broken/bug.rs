//! What can be wrong with a model, one thing at a time.
//! Where each takes effect is in `table.rs` and `model.rs`.

/// Writes each bug once, for the type and for the list of all.
macro_rules! bugs {
    ($($bug:ident,)+) => {
        /// What can be wrong with a model.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Bug {
            $($bug,)+
        }

        /// What can be wrong, all of it.
        pub(crate) const BUGS: &[Bug] = &[$(Bug::$bug,)+];
    };
}

bugs! {
    AnyoneReleases,
    RenewalRecreates,
    RenewalRevivesExpired,
    RenewalIgnoresItsPhase,
    TokensRestartOnRelease,
    RepetitionDrawsAnotherToken,
    ReaderIgnoresWriter,
    OnePermitTooMany,
    KindsMix,
    PlacesTooLate,
    ForgetsEnded,
    LastComeFirstServed,
    UnfairOvertakesTheQueue,
    SmallOvertakesLarge,
    DeadWaitersStay,
    GhostOfAWithdrawnWaiter,
    HeirOvertakes,
    HeirIsForgotten,
    BeliefStartsAtTheReply,
    PlaceByIsReadAtSending,
    LeaseNeverEnds,
    RenewalDoesNothing,
    NoBarAfterEviction,
    EvictionIsNotTold,
    RaiseIsIgnored,
    WakesNobody,
    CountsOwnWaiters,
    ShowsTheExpired,
    KeysFoldCase,
    PrefixesFoldCase,
    PagesRepeat,
    FullPagesAnnounceAnother,
    ClosingDoesNotClose,
    BatchEndsAtTheFirstFailure,
    ForgetsEndedSoon,
    PlacedComesTooLate,
    RaiseOfAWaiterIsIgnored,
    RenewalTooShortIsKept,
    RenewalHidesItsRounding,
    ShortenOnlyIsIgnored,
    LateReleaseOverwritesTheCause,
    LongBatchesAreShuffled,
    FailureCloudsItsBatch,
    AilmentLooksLikeWeather,
    AilmentLooksLikeLoss,
}
