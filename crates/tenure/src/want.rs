//! What a caller asked for, apart from the key and the time limit.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Claim, Fairness, Mode};

use crate::belief::MIN_LEASE;
use crate::engine::Engine;
use crate::error::Error;
use crate::owner::Owner;
use crate::settings::Settings;

/// How a lock is wanted: an attempt copies a mode and a pointer.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) mode: Mode,
    pub(crate) options: Arc<Options>,
}

/// The options of a face, shared by every attempt of it; those that nobody changed are shared by all faces of a client.
#[derive(Clone, Debug)]
pub(crate) struct Options {
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

impl Options {
    /// What a client's settings say.
    pub(crate) fn new(settings: &Settings) -> Self {
        Options {
            fairness: Fairness::Unfair,
            lease: settings.lease,
            renewed: true,
            max_hold: None,
            at_least: None,
            label: settings.label.clone(),
            owner: None,
            member: false,
        }
    }

    /// Whether a claim of that mode that was made with these may be handed on in memory, and whether a caller with
    /// these may receive one.
    ///
    /// An owner's claim is not: its re-entries are counted on it.
    pub(crate) fn may_pass(&self, mode: Mode) -> bool {
        matches!(mode, Mode::Exclusive | Mode::Write)
            && self.fairness == Fairness::Unfair
            && self.renewed
            && !self.member
            && self.max_hold.is_none()
            && self.at_least.is_none()
            && self.owner.is_none()
    }
}

impl Want {
    /// Refuses what no store could do.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Options {
            lease,
            renewed,
            max_hold,
            at_least,
            ..
        } = &*self.options;
        if let Mode::Permits { take, of } = self.mode
            && take > of
        {
            let message = format!("{take} permits were asked for of a semaphore that has {of}");
            return Err(Error::Invalid(message.into()));
        }
        let message = match (max_hold, at_least) {
            _ if *lease < MIN_LEASE => "a lease is at least 30 ms long: a shorter one would end on the way",
            (Some(most), _) if *most < MIN_LEASE => {
                "max_hold is at least 30 ms: a shorter one would be over before the lock is held"
            }
            (Some(most), Some(least)) if least > most => {
                "at_least is longer than max_hold: the lock cannot be kept for longer than it may be held"
            }
            (_, Some(least)) if !renewed && least > lease => {
                "at_least is longer than the fixed lease: the lock cannot be kept for longer than its lease"
            }
            _ => return Ok(()),
        };
        Err(Error::Invalid(message.into()))
    }

    /// How many grants a claim made for this reserves.
    pub(crate) fn grants(&self, engine: &Engine) -> NonZeroU32 {
        if !self.options.may_pass(self.mode) || !engine.settings.passing {
            return NonZeroU32::MIN;
        }
        let wished = NonZeroU32::new(engine.settings.grants).unwrap_or(NonZeroU32::MIN);
        wished.min(engine.backend.profile().limits.max_grants)
    }

    /// Whether it would reserve so many grants, or more: but a claim with a single one was not made to be handed on.
    fn may_share(&self, grants: NonZeroU32, engine: &Engine) -> bool {
        let ours = self.grants(engine);
        grants <= ours && (grants == NonZeroU32::MIN) == (ours == NonZeroU32::MIN)
    }

    /// Whether a claim that was made for somebody else serves this just as well.
    pub(crate) fn fits(&self, claim: &Claim, engine: &Engine) -> bool {
        let Options {
            fairness,
            lease,
            label,
            owner,
            ..
        } = &*self.options;
        self.mode == claim.mode
            && *fairness == claim.fairness
            && *lease == claim.lease
            && *label == claim.label
            && self.may_share(claim.grants, engine)
            && owner.as_ref().map_or(0, Owner::number) == claim.owner.0
    }
}
