//! Remembers why claims were lost, so that `renew` can tell their holders.

use std::collections::VecDeque;

use tenure_backend::{ClaimId, Instant, Loss, MAX_NOT_AFTER};

/// Greatest number of losses that are remembered. Each further loss replaces the oldest one.
const MAX_LOSSES: usize = 4096;

/// The latest losses of claims, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Losses(VecDeque<Entry>);

#[derive(Debug)]
struct Entry {
    id: ClaimId,
    loss: Loss,
    until: Instant,
}

impl Losses {
    /// Records why the claim was lost. From the time `until` on, [`loss`](Self::loss) ignores the record.
    pub(crate) fn record(&mut self, id: ClaimId, loss: Loss, until: Instant) {
        if self.0.len() == MAX_LOSSES {
            self.0.pop_front();
        }
        self.0.push_back(Entry { id, loss, until });
    }

    /// Returns why the claim is gone; [`Loss::Missing`] without a record.
    pub(crate) fn loss(&self, id: ClaimId, now: Instant) -> Loss {
        let is_known = |entry: &&Entry| entry.id == id && now < entry.until;
        let entry = self.0.iter().rev().find(is_known);
        entry.map_or(Loss::Missing, |entry| entry.loss.clone())
    }

    /// Time until which the expiry of a claim at `now` is remembered: 20 s later.
    pub(crate) fn expiry_known_until(now: Instant) -> Instant {
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
    fn a_loss_is_known_for_its_time_and_the_oldest_are_dropped() {
        let mut losses = Losses::default();
        let evicted = Loss::Evicted { by: None };
        let until = START + Duration::from_secs(1);
        losses.record(id(1, 1), evicted.clone(), until);
        assert_eq!(losses.loss(id(1, 1), START), evicted);
        assert_eq!(losses.loss(id(1, 1), until), Loss::Missing);
        for number in 0..MAX_LOSSES as u64 {
            losses.record(id(2, number), Loss::Expired, until);
        }
        assert_eq!(losses.loss(id(1, 1), START), Loss::Missing);
        assert_eq!(losses.0.len(), MAX_LOSSES);
    }
}
