//! The model's view of departures: who is gone by one, why, and what becomes of the heir.

use tenure_backend::{Cause, Departure, Holder, HolderId, Instant, Released};

use super::ledger::{Comes, Fate, Ledger, Verdict, must};
use super::room::{At, Present};

impl Ledger {
    /// Judges what became of a departure.
    pub(super) fn release(&mut self, departure: &Departure, at: At, answer: &Released) -> Verdict {
        let Released::Done { freed, others, heir } = answer else {
            return Err("the store is in order".to_owned());
        };
        let expected = self.departs(departure, at);
        let mut names: Vec<String> = freed.iter().map(HolderId::to_string).collect();
        let mut right: Vec<String> = expected.iter().map(|one| one.claim.at.id.to_string()).collect();
        names.sort();
        right.sort();
        must!(names == right, "it frees {right:?}");
        let client = match &departure.who {
            Holder::Claim(claim) => Some(claim.id.client()),
            Holder::All(_) | Holder::Foreign { .. } => None,
        };
        let elsewhere = self.room(departure.who.key()).queue_elsewhere(client);
        must!(
            others.is_none_or(|others| others as usize >= elsewhere),
            "{elsewhere} queue for other clients"
        );
        match (&departure.heir, heir) {
            (None, None) => Ok(()),
            (Some(heir), Some(standing)) => {
                let comes = Comes::AsHeir(elsewhere);
                self.stands(&heir.claim, heir.place_by, at, standing, comes)
                    .map_err(|why| format!("of the heir: {why}"))
            }
            (asked, _) => Err(format!("an heir was named: {}", asked.is_some())),
        }
    }

    /// Takes out whoever departs, and remembers why.
    fn departs(&mut self, departure: &Departure, at: At) -> Vec<Present> {
        let by = match &departure.cause {
            Cause::Evicted { by } => Some(by.clone()),
            Cause::Unlocked | Cause::Withdrawn => None,
        };
        let passes_on = self.profile.limits.max_grants.get() > 1;
        let goes = |one: &mut Present| match &departure.who {
            Holder::Claim(claim) => one.claim.at == *claim,
            Holder::All(_) => one.holds(),
            Holder::Foreign { .. } => false,
        };
        let room = self.room(departure.who.key());
        let gone: Vec<Present> = room.present.extract_if(.., goes).collect();
        if !gone.is_empty() {
            room.was_left(at.after + departure.bar);
        }
        if by.is_some() && passes_on && gone.iter().any(Present::holds) {
            room.is_barred(at, departure.bar);
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
        if let Holder::Claim(claim) = &departure.who {
            let until = Instant::ORIGIN;
            let fate = by.map_or(Fate::Released, |by| Fate::Evicted { by, until });
            self.ended.entry(claim.clone()).or_insert(fate);
        }
        gone
    }
}
