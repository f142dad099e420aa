//! What a caller asked for, apart from the key and the time limit.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Claim, Fairness, Mode};

use crate::engine::Engine;
use crate::owner::Owner;

/// How a lock is wanted. Shared by every attempt of one face, so that an attempt copies a pointer.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) mode: Mode,
    pub(crate) fairness: Fairness,
    pub(crate) lease: Duration,
    /// Whether the watchdog renews the lease.
    pub(crate) renewed: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<Duration>,
    pub(crate) label: Arc<str>,
    pub(crate) owner: Option<Owner>,
    /// Whether the claim is one of several that are held together.
    pub(crate) member: bool,
}

impl Want {
    /// Whether a claim made for this may be handed on in memory, and whether this may receive one.
    ///
    /// An owner's claim is not: its re-entries are counted on it.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self.mode, Mode::Exclusive | Mode::Write)
            && self.fairness == Fairness::Unfair
            && self.renewed
            && !self.member
            && self.max_hold.is_none()
            && self.at_least.is_none()
            && self.owner.is_none()
    }

    /// How many grants a claim made for this reserves.
    pub(crate) fn grants(&self, engine: &Engine) -> NonZeroU32 {
        if !self.may_pass() || !engine.settings.passing {
            return NonZeroU32::MIN;
        }
        let wished = NonZeroU32::new(engine.settings.grants).unwrap_or(NonZeroU32::MIN);
        wished.min(engine.backend.profile().limits.max_grants)
    }

    /// Whether a claim that was made for somebody else serves this just as well.
    pub(crate) fn fits(&self, claim: &Claim, engine: &Engine) -> bool {
        self.mode == claim.mode
            && self.fairness == claim.fairness
            && self.lease == claim.lease
            && self.label == claim.label
            && self.grants(engine) == claim.grants
            && self.owner.as_ref().map_or(0, Owner::number) == claim.owner.0
    }
}
