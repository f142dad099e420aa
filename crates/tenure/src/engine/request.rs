//! What a caller asks for: the mode and the options of a lock, without its key and time limit.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Claim, ClaimRef, Fairness, HANDOVER_WINDOW, LockKey, Mode, OwnerId};

use super::context::Context;
use super::deadline::MIN_LEASE;
use super::hold::HoldTerms;
use super::owner::Owner;
use crate::error::Error;
use crate::settings::Settings;

/// The longest valid `linger`: after it, a claim may not be handed over in memory.
const MAX_LINGER: Duration = HANDOVER_WINDOW;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockRequest {
    pub(crate) mode: Mode,
    pub(crate) options: Arc<Options>,
}

/// The options of a lock handle, shared by its attempts. Handles with default options share those of their client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) fairness: Fairness,
    pub(crate) lease: Duration,
    pub(crate) terms: HoldTerms,
    pub(crate) label: Arc<str>,
    pub(crate) owner: Option<Owner>,
    /// Whether the claim is a member of a multi-lock.
    pub(crate) member: bool,
    /// Whether the claim is a candidate's in an election.
    pub(crate) is_candidate: bool,
    /// How long the client keeps the claim after an unlock if no local task waits for it.
    pub(crate) linger: Duration,
    /// How long a lock method without a limit waits; `None`: for as long as it takes.
    pub(crate) limit: Option<Duration>,
}

impl Options {
    pub(crate) fn new(settings: &Settings) -> Self {
        Options {
            fairness: Fairness::Unfair,
            lease: settings.lease,
            terms: HoldTerms::RENEWED,
            label: settings.label.clone(),
            owner: None,
            member: false,
            is_candidate: false,
            linger: settings.linger,
            limit: settings.lock_limit,
        }
    }

    /// Returns whether a claim with these options may be handed over in memory, to a request with the same options.
    ///
    /// Not if the claim is fair, has a fixed lease, `max_hold` or `at_least`, or belongs to a multi-lock. Not if the
    /// claim has an owner, because it counts the guards of that owner.
    pub(crate) fn may_hand_over(&self) -> bool {
        self.fairness == Fairness::Unfair
            && self.terms == HoldTerms::RENEWED
            && self.owner.is_none()
            && !self.member
    }

    /// How long the client keeps a claim of this mode after an unlock; `None` if not at all. Only mutexes and write
    /// locks linger: a key has at most one claim of these modes.
    pub(crate) fn linger(&self, mode: Mode) -> Option<Duration> {
        let lingers = !self.linger.is_zero() && !is_shared(mode) && self.may_hand_over();
        lingers.then_some(self.linger)
    }
}

/// Whether several claims of this mode can be held at once.
fn is_shared(mode: Mode) -> bool {
    matches!(mode, Mode::Read | Mode::Permits { .. })
}

impl LockRequest {
    /// Whether several claims of this mode can be held at once.
    pub(crate) fn is_shared(&self) -> bool {
        is_shared(self.mode)
    }

    /// Makes a new claim that reserves up to `reserve` tokens.
    pub(crate) fn claim(
        &self,
        context: &Context,
        key: &LockKey,
        fairness: Fairness,
        reserve: u32,
    ) -> Arc<Claim> {
        let most = if self.options.may_hand_over() && context.settings.local_handover {
            context
                .settings
                .grants
                .min(context.store.profile().limits.max_grants.get())
        } else {
            1
        };
        let options = &self.options;
        Arc::new(Claim {
            at: ClaimRef {
                key: key.clone(),
                id: context.next_claim(),
            },
            owner: OwnerId::new(options.owner.as_ref().map_or(0, Owner::number)),
            label: options.label.clone(),
            mode: self.mode,
            fairness,
            lease: options.lease,
            grants: NonZeroU32::new(reserve.min(most)).unwrap_or(NonZeroU32::MIN),
            is_candidate: options.is_candidate,
        })
    }

    /// Rejects options that no store supports.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        let HoldTerms {
            renewed,
            max_hold,
            at_least,
        } = self.options.terms;
        let lease = self.options.lease;
        if let Mode::Permits { take, of } = self.mode
            && take > of
        {
            let message = format!("{take} permits were asked for of a semaphore that has {of}");
            return Err(Error::Invalid(message.into()));
        }
        let message = match (max_hold, at_least) {
            _ if self.options.linger > MAX_LINGER => {
                "linger is at most 10 ms: others wait for that much longer"
            }
            _ if lease < MIN_LEASE => "a lease is at least 30 ms long: a shorter one would end on the way",
            (Some(most), _) if most < MIN_LEASE => {
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
}
