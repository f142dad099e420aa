//! The model's view of departures: who is gone by one, why, and what becomes of the successor.

use tenure_backend::{Cause, HolderId, Instant, ReleaseReply, ReleaseRequest, ReleaseTarget};

use super::ledger::{Comes, Fate, Ledger, Verdict, must};
use super::room::{At, Present};

impl Ledger {
    /// Judges what became of a departure.
    pub(super) fn release(&mut self, departure: &ReleaseRequest, at: At, answer: &ReleaseReply) -> Verdict {
        let ReleaseReply::Done {
            freed,
            others,
            successor,
        } = answer
        else {
            return Err("the store is in order".to_owned());
        };
        let expected = self.departs(departure, at);
        let mut names: Vec<String> = freed.iter().map(HolderId::to_string).collect();
        let mut right: Vec<String> = expected.iter().map(|one| one.claim.at.id.to_string()).collect();
        names.sort();
        right.sort();
        must!(names == right, "it frees {right:?}");
        let client = match &departure.target {
            ReleaseTarget::Claim(claim) => Some(claim.id.client()),
            ReleaseTarget::All(_) | ReleaseTarget::Foreign { .. } => None,
        };
        let elsewhere = self.room(departure.target.key()).queue_elsewhere(client);
        must!(
            others.is_none_or(|others| others as usize >= elsewhere),
            "{elsewhere} queue for other clients"
        );
        match (&departure.successor, successor) {
            (None, None) => Ok(()),
            (Some(successor), Some(standing)) => {
                let comes = Comes::AsHeir(elsewhere);
                self.stands(&successor.claim, successor.not_after, at, standing, comes)
                    .map_err(|why| format!("of the successor: {why}"))
            }
            (asked, _) => Err(format!("a successor was named: {}", asked.is_some())),
        }
    }

    /// Takes out whoever departs, and remembers why.
    fn departs(&mut self, departure: &ReleaseRequest, at: At) -> Vec<Present> {
        let by = match &departure.cause {
            Cause::Evicted { by } => Some(by.clone()),
            Cause::Unlocked | Cause::Withdrawn => None,
        };
        let passes_on = self.profile.limits.max_grants.get() > 1;
        let goes = |one: &mut Present| match &departure.target {
            ReleaseTarget::Claim(claim) => one.claim.at == *claim,
            ReleaseTarget::All(_) => one.holds(),
            ReleaseTarget::Foreign { .. } => false,
        };
        let room = self.room(departure.target.key());
        let gone: Vec<Present> = room.present.extract_if(.., goes).collect();
        if !gone.is_empty() {
            room.was_left(at.after + departure.cooldown);
        }
        if by.is_some() && passes_on && gone.iter().any(Present::holds) {
            room.is_barred(at, departure.cooldown);
        }
        for one in &gone {
            // Whether an evicted waiter is told by whom is the store's to say: it asks, and finds that it has ended.
            let until = if one.holds() {
                one.ends.earliest
            } else {
                Instant::ORIGIN
            };
            let fate = by
                .clone()
                .map_or(Fate::Released, |by| Fate::Evicted { by, until });
            self.ended.insert(one.claim.at.clone(), fate);
        }
        if let ReleaseTarget::Claim(claim) = &departure.target {
            let until = Instant::ORIGIN;
            let fate = by.map_or(Fate::Released, |by| Fate::Evicted { by, until });
            self.ended.entry(claim.clone()).or_insert(fate);
        }
        gone
    }
}
