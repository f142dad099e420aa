//! Limits concurrent batches by round-trip time: enough to keep the server busy, few enough that batches stay large.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The limit for a round trip below 100 µs: the server runs the second batch while the callers of the first receive
/// their replies.
const MIN_CALLS: usize = 2;

/// Each 100 µs of round trip allows one more batch, because a batch on the network does not occupy the server.
const ROUND_TRIP_PER_CALL: Duration = Duration::from_micros(100);

/// The limit for distant servers, reached at a round trip of 6.2 ms.
const MAX_CALLS: usize = 64;

/// Number of batches that may be in flight at once on a connection.
///
/// The number follows from the shortest round trip seen, because longer ones were delayed. If the first round trips
/// were delayed too, later ones lower the number.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    shortest: AtomicU64,
    /// Replaces the computed limit, for tests.
    fixed: Option<usize>,
}

impl ConcurrencyLimit {
    /// The limit for a server that has answered within `round_trip`; `fixed` replaces it.
    pub(crate) fn new(round_trip: Duration, fixed: Option<usize>) -> Self {
        let shortest = AtomicU64::new(micros(round_trip));
        ConcurrencyLimit { shortest, fixed }
    }

    pub(crate) fn observe(&self, round_trip: Duration) {
        self.shortest.fetch_min(micros(round_trip), Ordering::Relaxed);
    }

    /// The most batches that may be in flight at once.
    pub(crate) fn calls(&self) -> usize {
        self.fixed.map(|fixed| fixed.max(1)).unwrap_or_else(|| {
            let shortest = Duration::from_micros(self.shortest.load(Ordering::Relaxed));
            let extra = shortest.as_micros() / ROUND_TRIP_PER_CALL.as_micros();
            usize::try_from(extra).map_or(MAX_CALLS, |extra| MAX_CALLS.min(MIN_CALLS.saturating_add(extra)))
        })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_at(micros: u64) -> ConcurrencyLimit {
        ConcurrencyLimit::new(Duration::from_micros(micros), None)
    }

    #[test]
    fn the_limit_rises_with_the_round_trip_time() {
        assert_eq!(limit_at(0).calls(), 2);
        assert_eq!(limit_at(99).calls(), 2);
        assert_eq!(limit_at(1000).calls(), 12);
        assert_eq!(limit_at(60_000_000).calls(), MAX_CALLS);
        assert_eq!(ConcurrencyLimit::new(Duration::MAX, None).calls(), MAX_CALLS);
    }

    #[test]
    fn the_shortest_round_trip_sets_the_limit() {
        let limit = limit_at(5000);
        limit.observe(Duration::from_micros(300));
        limit.observe(Duration::from_secs(1));
        assert_eq!(limit.calls(), 5);
    }
}
