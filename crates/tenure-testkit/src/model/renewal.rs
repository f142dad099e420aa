//! Model of renewals: checks whether the store may report a claim as alive, or as gone for a certain reason.

use std::sync::Arc;

use tenure_backend::{
    BackendError, Effect, Fault, Instant, Kind, Loss, Mode, Order, Phase as Only, RenewReply, RenewRequest,
    TokenRange,
};

use super::key_state::{CallTimes, ExpiryRange, Phase};
use super::state::{ClaimStatus, Ending, ModelState, Verdict, ensure};

impl ModelState {
    /// Checks the reply to a renewal.
    pub(super) fn renew(&mut self, renewal: &RenewRequest, at: CallTimes, answer: &RenewReply) -> Verdict {
        let status = self.status(&renewal.claim);
        let fits = match status {
            ClaimStatus::Waiting => renewal.only != Only::Granted,
            ClaimStatus::Granted(_) => renewal.only != Only::Waiting,
            ClaimStatus::Absent | ClaimStatus::Ended => false,
        };
        match answer {
            RenewReply::Unknown(_) => Err("the call must not fail".to_owned()),
            RenewReply::Alive { held_from, lease } => {
                ensure!(fits, "the claim is {status:?}");
                let refusal = self.refusal(renewal);
                ensure!(refusal.is_none(), "the store must refuse it: {refusal:?}");
                ensure!(*held_from <= at.after, "`held_from` is in the future");
                ensure!(!lease.is_zero(), "the lease has ended already");
                let ends = self.ends(*held_from, at, *lease);
                self.extend(renewal, ends)
            }
            RenewReply::Gone(loss) => {
                ensure!(!fits, "the claim is alive: {status:?}");
                let right = self.explains(renewal, status, at.after, loss);
                ensure!(
                    right,
                    "the claim is {status:?}, because of {:?}",
                    self.ended.get(&renewal.claim)
                );
                Ok(())
            }
        }
    }

    /// Checks a refused renewal: the contract must demand the refusal, with the fault of `error` and without effect.
    /// In a random walk, only a downgrade may be refused: if the store has no read-write locks, if the claim holds
    /// another kind of lock, or if the request could also renew a waiter.
    pub(super) fn renewal_refused(&mut self, renewal: &RenewRequest, error: &BackendError) -> Verdict {
        let expected = self.refusal(renewal);
        ensure!(
            Some(error.fault()) == expected && error.effect() == Effect::None,
            "the expected refusal is {expected:?}"
        );
        Ok(())
    }

    fn refusal(&mut self, renewal: &RenewRequest) -> Option<Fault> {
        if !renewal.downgrade {
            None
        } else if self.profile.read_write == Order::None {
            Some(Fault::Unsupported)
        } else if renewal.only != Only::Granted {
            Some(Fault::Invalid)
        } else {
            let one = self.key_state(&renewal.claim.key).find(renewal.claim.id)?;
            let other_kind = one.holds() && one.claim.mode.kind() != Kind::ReadWrite;
            other_kind.then_some(Fault::Invalid)
        }
    }

    fn extend(&mut self, renewal: &RenewRequest, mut ends: ExpiryRange) -> Verdict {
        let key_state = self.key_state(&renewal.claim.key);
        if let Some(run) = renewal.raise {
            key_state.record_tokens(run);
        }
        let Some(one) = key_state.find(renewal.claim.id) else {
            return Ok(());
        };
        if renewal.shorten_only {
            ensure!(
                ends.earliest <= one.ends.latest,
                "the renewal lengthened the lease"
            );
            ends.latest = ends.latest.min(one.ends.latest);
        }
        one.ends = ends;
        let downgraded = renewal.downgrade && one.claim.mode == Mode::Write;
        if downgraded {
            Arc::make_mut(&mut one.claim).mode = Mode::Read;
        }
        match (&mut one.phase, renewal.raise) {
            (_, None) => {}
            (Phase::Waiting, raise) => one.raised = raise,
            (Phase::Granted(run), raise) => *run = raise,
        }
        if downgraded {
            key_state.raise_floor();
        }
        Ok(())
    }

    /// Returns whether the contract allows the store to report this loss.
    fn explains(&self, renewal: &RenewRequest, status: ClaimStatus, now: Instant, loss: &Loss) -> bool {
        if !self.profile.remembers_ended && status == ClaimStatus::Ended {
            return true;
        }
        match self.ended.get(&renewal.claim) {
            None | Some(Ending::Released) => *loss == Loss::Missing,
            Some(Ending::Expired) => matches!(loss, Loss::Expired | Loss::Missing),
            Some(Ending::Evicted { by, until }) => {
                let reported = *loss == Loss::Evicted { by: by.clone() };
                reported || now >= *until && matches!(loss, Loss::Expired | Loss::Missing)
            }
        }
    }

    /// Token range far above the key's tokens, for a renewal with `raise`. `None` if there is no token yet.
    pub(super) fn range_beyond(&mut self, renewal: &RenewRequest) -> Option<TokenRange> {
        let greatest = self.key_state(&renewal.claim.key).greatest()?;
        let first = tenure_backend::FencingToken::new(greatest.get() + 1_000)?;
        TokenRange::new(first, std::num::NonZeroU32::MIN)
    }
}
