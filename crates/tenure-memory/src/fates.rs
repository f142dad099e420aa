//! Why claims have ended, as far as that is told. Claims that live are in their rooms, never here.

use std::collections::VecDeque;

use tenure_backend::{ClaimId, Instant, Loss, MAX_NOT_AFTER};

/// How many ends are remembered with their cause: the latest ones.
const MAX_FATES: usize = 4096;

/// Why claims have ended: the latest of them.
#[derive(Debug, Default)]
pub(crate) struct Fates(VecDeque<Fate>);

#[derive(Debug)]
struct Fate {
    id: ClaimId,
    loss: Loss,
    until: Instant,
}

impl Fates {
    /// Remembers why the claim has ended, for its holder to learn until `until`.
    pub(crate) fn explain(&mut self, id: ClaimId, loss: Loss, until: Instant) {
        if self.0.len() == MAX_FATES {
            self.0.pop_front();
        }
        self.0.push_back(Fate { id, loss, until });
    }

    /// Why the claim is gone, as far as that is remembered.
    pub(crate) fn loss(&self, id: ClaimId, now: Instant) -> Loss {
        let known = |fate: &&Fate| fate.id == id && now < fate.until;
        let fate = self.0.iter().rev().find(known);
        fate.map_or(Loss::Missing, |fate| fate.loss.clone())
    }

    /// Until when an expired claim's holder may learn that it expired.
    pub(crate) fn explained_until(now: Instant) -> Instant {
        now + MAX_NOT_AFTER.saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_backend::ClientId;

    use super::*;

    const START: Instant = Instant::ORIGIN;

    fn id(client: u8, number: u64) -> ClaimId {
        ClaimId::new(ClientId::from_random([client; 16]), number)
    }

    #[test]
    fn a_cause_is_told_until_it_lapses_and_the_oldest_make_room() {
        let mut fates = Fates::default();
        let evicted = Loss::Evicted { by: None };
        let lapse = START + Duration::from_secs(1);
        fates.explain(id(1, 1), evicted.clone(), lapse);
        assert_eq!(fates.loss(id(1, 1), START), evicted);
        assert_eq!(fates.loss(id(1, 1), lapse), Loss::Missing);
        for number in 0..MAX_FATES as u64 {
            fates.explain(id(2, number), Loss::Expired, lapse);
        }
        assert_eq!(fates.loss(id(1, 1), START), Loss::Missing);
        assert_eq!(fates.0.len(), MAX_FATES);
    }
}
