//! Remembering which claims have ended, for stores and clients that have to do it themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{ClaimId, Instant, MAX_NOT_AFTER};

/// For how long an end is remembered at least: twice as long as a request may be on the way, since the clock
/// of its `not_after` may run slower than the store's.
const REMEMBERED: Duration = MAX_NOT_AFTER.saturating_mul(2);

/// Below so many ranges nothing is ever forgotten.
const MIN_RANGES: usize = 64;

/// The claims that have ended, so that none is placed again by a request that was delayed on its way. BatchCall is remembered for
/// 20 s at least, twice as long as its `not_after` may lie ahead ([`MAX_NOT_AFTER`]).
///
/// A client counts its claims, so those that have ended form ranges with gaps where claims live: what is kept
/// here grows with the claims alive, not with those that were. A gap that never closes (a number that was
/// never sent) costs its range only until its time has passed.
///
/// # Examples
/// ```
/// use tenure_backend::{ClaimId, ClientId, Tombstones, Instant};
///
/// let client = ClientId::from_random([7; 16]);
/// let mut ended = Tombstones::default();
/// ended.insert(ClaimId::new(client, 1), Instant::ORIGIN);
/// assert!(ended.contains(ClaimId::new(client, 1)) && !ended.contains(ClaimId::new(client, 2)));
/// ```
#[derive(Debug)]
pub struct Tombstones {
    /// By the first claim of each range. No two ranges touch.
    ranges: BTreeMap<ClaimId, Range>,
    /// Once there are so many ranges, old ones are forgotten.
    forget_at: usize,
}

#[derive(Debug)]
struct Range {
    /// The last claim's number.
    last: u64,
    /// Until when some claim of it must be remembered.
    until: Instant,
}

impl Default for Tombstones {
    fn default() -> Self {
        Tombstones {
            ranges: BTreeMap::new(),
            forget_at: MIN_RANGES,
        }
    }
}

impl Tombstones {
    /// Whether the claim is known to have ended.
    pub fn contains(&self, id: ClaimId) -> bool {
        let before = self.ranges.range(..=id).next_back();
        before.is_some_and(|(first, range)| first.client() == id.client() && id.number() <= range.last)
    }

    /// Remembers that the claim has ended.
    pub fn insert(&mut self, id: ClaimId, now: Instant) {
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
    use super::*;
    use crate::ClientId;

    const START: Instant = Instant::ORIGIN;

    fn id(client: u8, number: u64) -> ClaimId {
        ClaimId::new(ClientId::from_random([client; 16]), number)
    }

    #[test]
    fn an_ended_claim_is_remembered_and_no_other() {
        let mut ended = Tombstones::default();
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
        let mut ended = Tombstones::default();
        for number in [u64::MAX, u64::MAX - 1, u64::MAX] {
            ended.insert(id(1, number), START);
        }
        assert!(ended.contains(id(1, u64::MAX)) && ended.contains(id(1, u64::MAX - 1)));
        assert!(!ended.contains(id(1, u64::MAX - 2)));
        assert_eq!(ended.ranges.len(), 1);
    }

    #[test]
    fn claims_that_end_one_after_the_other_take_one_range_however_many() {
        let mut ended = Tombstones::default();
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
        let mut ended = Tombstones::default();
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
}
