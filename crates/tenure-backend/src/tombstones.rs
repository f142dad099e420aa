//! A memory of ended claims, for stores and clients that must keep one themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{ClaimId, Instant, MAX_NOT_AFTER};

/// The least time for which an ended claim is remembered. It is twice `MAX_NOT_AFTER`, because the client's clock, which
/// `not_after` is read on, may run slower than the store's.
const REMEMBERED: Duration = MAX_NOT_AFTER.saturating_mul(2);

/// The set forgets no range while it has fewer ranges than this.
const MIN_RANGES: usize = 64;

/// A set of ended claims, so that no delayed request is granted one of them again (B5).
///
/// The set remembers each claim for at least 20 s, twice as long as `not_after` may lie ahead ([`MAX_NOT_AFTER`]).
///
/// A client numbers its claims from 1, so ended claims form ranges of numbers, with gaps where claims are alive. The
/// set keeps the ranges: its size grows with the number of live claims, not with the number of ended ones. A number
/// that was never sent leaves a gap that never closes. The set may forget a range 20 s after its last claim ended.
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
    /// Ranges by their first claim. No two ranges are adjacent.
    ranges: BTreeMap<ClaimId, Range>,
    /// Once the set has this many ranges, it forgets old ones before it adds the next range.
    forget_at: usize,
}

#[derive(Debug)]
struct Range {
    /// Number of the last claim of the range.
    last: u64,
    /// Time before which the set must not forget the range.
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
    /// Returns whether the claim is known to have ended.
    pub fn contains(&self, id: ClaimId) -> bool {
        let before = self.ranges.range(..=id).next_back();
        before.is_some_and(|(first, range)| first.client() == id.client() && id.number() <= range.last)
    }

    /// Records that the claim has ended.
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

/// Returns whether `id` is in the range or directly after it. `id` must not be before the range.
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
    fn exactly_the_ended_claims_are_remembered() {
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
    fn the_claim_with_the_greatest_number_can_end() {
        let mut ended = Tombstones::default();
        for number in [u64::MAX, u64::MAX - 1, u64::MAX] {
            ended.insert(id(1, number), START);
        }
        assert!(ended.contains(id(1, u64::MAX)) && ended.contains(id(1, u64::MAX - 1)));
        assert!(!ended.contains(id(1, u64::MAX - 2)));
        assert_eq!(ended.ranges.len(), 1);
    }

    #[test]
    fn consecutive_ended_claims_take_one_range() {
        let mut ended = Tombstones::default();
        // Claim 1 never ends. The others end in pairs, the later one of each pair first.
        for number in (2..200_000).step_by(2) {
            ended.insert(id(1, number + 1), START);
            ended.insert(id(1, number), START);
        }
        assert_eq!(ended.ranges.len(), 1);
        assert!(!ended.contains(id(1, 1)));
    }

    #[test]
    fn ranges_between_permanent_gaps_are_forgotten_after_20_s() {
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
        assert!(
            recent,
            "claims that ended within 20 s before {now:?} are remembered"
        );
    }
}
