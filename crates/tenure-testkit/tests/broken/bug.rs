//! The bugs that can be planted in a store, one at a time. `planted.rs` shows what each one does.

/// Writes each bug once, for the type and for the list of all.
macro_rules! bugs {
    ($($bug:ident,)+) => {
        /// A bug of a store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Bug {
            $($bug,)+
        }

        /// Every bug.
        pub(crate) const BUGS: &[Bug] = &[$(Bug::$bug,)+];
    };
}

bugs! {
    AnyoneReleases,
    RenewalRecreates,
    RenewalRevivesExpired,
    RenewalIgnoresItsPhase,
    TokensNeverRise,
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
    RenewalNeverLengthens,
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
    RenewalHidesItsRounding,
    ShortenOnlyIsIgnored,
    LongBatchesAreShuffled,
    FailureCloudsItsBatch,
    AilmentLooksLikeWeather,
    AilmentLooksLikeLoss,
}
