//! The memory of claims that have ended, so that none is placed again by a request that was delayed on the
//! way. Claims that live are in their rooms, never here.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tenure_backend::{ClaimId, Instant, Loss, MAX_PLACE_AHEAD};

/// For how long an end is remembered at least: twice as long as a request may be on the way, since the clock
/// of its `place_by` may run slower than the store's.
const REMEMBERED: Duration = MAX_PLACE_AHEAD.saturating_mul(2);

/// How many ends are remembered with their cause: the latest ones.
const MAX_FATES: usize = 4096;

/// Below so many ranges nothing is ever forgotten.
const MIN_RANGES: usize = 64;

/// The claims that have ended, and of some also why.
///
/// A client counts its claims, so those that have ended form ranges with gaps where claims live: what is kept
/// here grows with the claims alive, not with those that were. A gap that never closes (a number that was
/// never sent) costs its range only until [`REMEMBERED`] has passed.
#[derive(Debug)]
pub(crate) struct Ended {
    /// By the first claim of each range. No two ranges touch.
    ranges: BTreeMap<ClaimId, Range>,
    /// Once there are so many ranges, old ones are forgotten.
    forget_at: usize,
    fates: VecDeque<Fate>,
}

#[derive(Debug)]
struct Range {
    /// The last claim's number.
    last: u64,
    /// Until when some claim of it must be remembered.
    until: Instant,
}

#[derive(Debug)]
struct Fate {
    id: ClaimId,
    loss: Loss,
    until: Instant,
}

impl Default for Ended {
    fn default() -> Self {
        Ended {
            ranges: BTreeMap::new(),
            forget_at: MIN_RANGES,
            fates: VecDeque::new(),
        }
    }
}

impl Ended {
    pub(crate) fn contains(&self, id: ClaimId) -> bool {
        let before = self.ranges.range(..=id).next_back();
        before.is_some_and(|(first, range)| first.client() == id.client() && id.number() <= range.last)
    }

    /// Remembers that the claim has ended.
    pub(crate) fn insert(&mut self, id: ClaimId, now: Instant) {
        let until = now + REMEMBERED;
        let after = id
            .number()
            .checked_add(1)
            .map(|next| ClaimId::new(id.client(), next));
        let joined = after.and_then(|next| self.ranges.remove(&next));
        let last = joined.map_or(id.number(), |range| range.last);
        match self.ranges.range_mut(..=id).next_back() {
            Some((first, range)) if first.client() == id.client() && reaches(range, id) => {
                range.last = range.last.max(last);
                range.until = until;
            }
            _ => {
                self.forget_old(now);
                self.ranges.insert(id, Range { last, until });
            }
        }
    }

    /// Remembers why the claim has ended, for its holder to learn until `until`.
    pub(crate) fn explain(&mut self, id: ClaimId, loss: Loss, until: Instant) {
        if self.fates.len() == MAX_FATES {
            self.fates.pop_front();
        }
        self.fates.push_back(Fate { id, loss, until });
    }

    /// Why the claim is gone, as far as that is remembered.
    pub(crate) fn loss(&self, id: ClaimId, now: Instant) -> Loss {
        let known = |fate: &&Fate| fate.id == id && now < fate.until;
        let fate = self.fates.iter().rev().find(known);
        fate.map_or(Loss::Missing, |fate| fate.loss.clone())
    }

    /// How long an expired claim's holder may learn that it expired.
    pub(crate) fn explained_until(now: Instant) -> Instant {
        now + REMEMBERED
    }

    fn forget_old(&mut self, now: Instant) {
        if self.ranges.len() >= self.forget_at {
            self.ranges.retain(|_, range| now < range.until);
            self.forget_at = MIN_RANGES.max(self.ranges.len() * 2);
        }
    }
}

/// Whether the claim is in the range or the next after it.
fn reaches(range: &Range, id: ClaimId) -> bool {
    id.number() <= range.last.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use tenure_backend::ClientId;

    use super::*;

    const START: Instant = Instant::ORIGIN;

    fn id(client: u8, number: u64) -> ClaimId {
        ClaimId::new(ClientId::from_random([client; 16]), number)
    }

    #[test]
    fn an_ended_claim_is_remembered_and_no_other() {
        let mut ended = Ended::default();
        for number in [5, 7, 1, 6, 6] {
            ended.insert(id(1, number), START);
        }
        ended.insert(id(2, 3), START);
        let of = |client| {
            (0..10)
                .filter(|n| ended.contains(id(client, *n)))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(1), [1, 5, 6, 7]);
        assert_eq!(of(2), [3]);
        assert_eq!(ended.ranges.len(), 3);
    }

    #[test]
    fn the_last_number_of_all_can_end() {
        let mut ended = Ended::default();
        for number in [u64::MAX, u64::MAX - 1, u64::MAX] {
            ended.insert(id(1, number), START);
        }
        assert!(ended.contains(id(1, u64::MAX)) && ended.contains(id(1, u64::MAX - 1)));
        assert!(!ended.contains(id(1, u64::MAX - 2)));
        assert_eq!(ended.ranges.len(), 1);
    }

    #[test]
    fn claims_that_end_one_after_the_other_take_one_range_however_many() {
        let mut ended = Ended::default();
        // Number 1 is held all the time, and pairs end in the order in which they were not made.
        for number in (2..200_000).step_by(2) {
            ended.insert(id(1, number + 1), START);
            ended.insert(id(1, number), START);
        }
        assert_eq!(ended.ranges.len(), 1);
        assert!(!ended.contains(id(1, 1)));
    }

    #[test]
    fn gaps_that_never_close_are_forgotten_but_not_before_their_time() {
        let mut ended = Ended::default();
        let mut now = START;
        for number in 0..100_000 {
            now = START + Duration::from_millis(number);
            ended.insert(id(1, 2 * number), now);
            assert!(
                ended.ranges.len() <= 2 * 20_000 + MIN_RANGES,
                "{}",
                ended.ranges.len()
            );
        }
        let recent = (80_001..100_000).all(|number| ended.contains(id(1, 2 * number)));
        assert!(recent, "what ended within 20 s of {now:?} is remembered");
    }

    #[test]
    fn a_cause_is_told_until_it_lapses_and_the_oldest_make_room() {
        let mut ended = Ended::default();
        let evicted = Loss::Evicted { by: None };
        let lapse = START + Duration::from_secs(1);
        ended.explain(id(1, 1), evicted.clone(), lapse);
        assert_eq!(ended.loss(id(1, 1), START), evicted);
        assert_eq!(ended.loss(id(1, 1), lapse), Loss::Missing);
        for number in 0..MAX_FATES as u64 {
            ended.explain(id(2, number), Loss::Expired, lapse);
        }
        assert_eq!(ended.loss(id(1, 1), START), Loss::Missing);
        assert_eq!(ended.fates.len(), MAX_FATES);
    }
}
