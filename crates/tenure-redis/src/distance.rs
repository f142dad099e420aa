//! How far a server is, and so how many calls that carry many claims are under way to it at once: enough to keep it busy,
//! and no more, since of what waits for its turn the more travels together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many it is for a server next door: it has the next while the last one's callers are told.
const NEXT_DOOR: usize = 2;

/// How long the way there and back is for each one more: what is on its way keeps no server busy.
const FOR_ONE_MORE: Duration = Duration::from_micros(100);

/// How many it is at the most, however far the server is: from 6.2 ms on.
const MOST: usize = 64;

/// The shortest time that a call on a connection was seen to take, in microseconds: any other was held up. What was held up
/// at first is mended by those that come after it.
#[derive(Debug)]
pub(crate) struct Distance {
    shortest: AtomicU64,
    /// How many calls side by side it is in any case.
    always: Option<usize>,
}

impl Distance {
    /// Of a server that has answered after so long, or for which it is said.
    pub(crate) fn new(round_trip: Duration, always: Option<usize>) -> Self {
        let shortest = AtomicU64::new(micros(round_trip));
        Distance { shortest, always }
    }

    /// A call was answered after so long.
    pub(crate) fn learn(&self, round_trip: Duration) {
        self.shortest.fetch_min(micros(round_trip), Ordering::Relaxed);
    }

    /// How many calls are under way at once.
    pub(crate) fn side_by_side(&self) -> usize {
        self.always.map(|always| always.max(1)).unwrap_or_else(|| {
            let shortest = Duration::from_micros(self.shortest.load(Ordering::Relaxed));
            let besides = shortest.as_micros() / FOR_ONE_MORE.as_micros();
            usize::try_from(besides).map_or(MOST, |besides| MOST.min(NEXT_DOOR.saturating_add(besides)))
        })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(micros: u64) -> Distance {
        Distance::new(Duration::from_micros(micros), None)
    }

    #[test]
    fn two_calls_keep_a_server_next_door_busy_and_a_far_one_takes_more() {
        assert_eq!(far(0).side_by_side(), 2);
        assert_eq!(far(99).side_by_side(), 2);
        assert_eq!(far(1000).side_by_side(), 12);
        assert_eq!(far(60_000_000).side_by_side(), MOST);
        assert_eq!(Distance::new(Duration::MAX, None).side_by_side(), MOST);
    }

    #[test]
    fn the_shortest_way_that_was_seen_counts() {
        let distance = far(5000);
        distance.learn(Duration::from_micros(300));
        distance.learn(Duration::from_secs(1));
        assert_eq!(distance.side_by_side(), 5);
    }
}
