//! The model's view of renewals: who is alive in the phase that was asked for, and why the others are gone.

use tenure_backend::{Instant, Loss, Phase as Only, RenewReply, RenewRequest, TokenRange};

use super::ledger::{Fate, Ledger, Place, Verdict, must};
use super::room::{At, Ends, Phase};

impl Ledger {
    /// Judges what became of a renewal.
    pub(super) fn renew(&mut self, renewal: &RenewRequest, at: At, answer: &RenewReply) -> Verdict {
        let place = self.place(&renewal.claim);
        let fits = match place {
            Place::Waiting => renewal.only != Only::Granted,
            Place::Granted(_) => renewal.only != Only::Waiting,
            Place::Absent | Place::Ended => false,
        };
        match answer {
            RenewReply::Unknown(_) => Err("the store is in order".to_owned()),
            RenewReply::Alive { held_from, lease } => {
                must!(fits, "it is {place:?}");
                must!(*held_from <= at.after, "it is not held from the future");
                must!(!lease.is_zero(), "a lease that has ended is none");
                let ends = self.ends(*held_from, at, *lease);
                self.prolong(renewal, ends)
            }
            RenewReply::Gone(loss) => {
                must!(!fits, "it is alive: {place:?}");
                let right = self.explains(renewal, place, at.after, loss);
                must!(right, "it is {place:?}, by {:?}", self.ended.get(&renewal.claim));
                Ok(())
            }
        }
    }

    fn prolong(&mut self, renewal: &RenewRequest, mut ends: Ends) -> Verdict {
        let room = self.room(&renewal.claim.key);
        if let Some(run) = renewal.raise {
            room.has_drawn(run);
        }
        let Some(one) = room.find(renewal.claim.id) else {
            return Ok(());
        };
        if renewal.shorten_only {
            must!(ends.earliest <= one.ends.latest, "its lease was lengthened");
            ends.latest = ends.latest.min(one.ends.latest);
        }
        one.ends = ends;
        match (&mut one.phase, renewal.raise) {
            (_, None) => {}
            (Phase::Waiting, raise) => one.raised = raise,
            (Phase::Granted(run), raise) => *run = raise,
        }
        Ok(())
    }

    /// Whether a loss is one that the store may tell.
    fn explains(&self, renewal: &RenewRequest, place: Place, now: Instant, loss: &Loss) -> bool {
        if !self.profile.remembers_ended && place == Place::Ended {
            return true;
        }
        match self.ended.get(&renewal.claim) {
            None | Some(Fate::Released) => *loss == Loss::Missing,
            Some(Fate::Expired) => matches!(loss, Loss::Expired | Loss::Missing),
            Some(Fate::Evicted { by, until }) => {
                let told = *loss == Loss::Evicted { by: by.clone() };
                told || now >= *until && matches!(loss, Loss::Expired | Loss::Missing)
            }
        }
    }

    /// A run well beyond all tokens of that claim's key, for a renewal that raises.
    pub(super) fn beyond(&mut self, renewal: &RenewRequest) -> Option<TokenRange> {
        let greatest = self.room(&renewal.claim.key).greatest()?;
        let first = tenure_backend::FencingToken::new(greatest.get() + 1_000)?;
        TokenRange::new(first, std::num::NonZeroU32::MIN)
    }
}
