//! Compares clocks: a server's with the client's, a replica's with its master's, and those of a cluster's nodes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_backend::{BackendError, Clock, Finding};

use crate::connection::wire::Wire;

/// `examine` warns if the server's clock and ours differ by more than this and a round trip.
const MAX_SKEW: Duration = Duration::from_secs(1);

/// `examine` warns if the clocks of two servers differ by more than this and the round trips to both. A client allows
/// for 600 ms of the default lease of 30 s.
const MAX_APART: Duration = Duration::from_millis(500);

/// `examine` reports a round trip or a wake-up above 100 ms: 1 % of the default renewal interval of 10 s.
pub(super) const SLOW: Duration = Duration::from_millis(100);

/// Number of round trips that `examine` measures. The shortest one counts.
const ROUND_TRIPS: u32 = 5;

/// A reading of a server's clock.
pub(crate) struct Reading {
    /// How far the server's clock is ahead of ours, in microseconds; negative if it is behind.
    ahead: i64,
    /// The round trip of the reading, which is as imprecise.
    round_trip: Duration,
}

impl Reading {
    /// Reads the clock of a server, in the shortest of some round trips.
    pub(crate) async fn take(wire: &Wire, clock: &dyn Clock) -> Result<Self, BackendError> {
        let mut best = Reading {
            ahead: 0,
            round_trip: Duration::MAX,
        };
        for _ in 0..ROUND_TRIPS {
            let begun = clock.now();
            let shown = wire.time().await?;
            let round_trip = clock.now() - begun;
            if round_trip < best.round_trip {
                let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let ahead = shown.cast_signed() - i64::try_from(ours.as_micros()).unwrap_or(i64::MAX);
                best = Reading { ahead, round_trip };
            }
        }
        Ok(best)
    }

    /// The difference to another clock, if it is so great that it matters.
    fn apart(&self, other: &Reading) -> Option<Duration> {
        let apart = Duration::from_micros(self.ahead.abs_diff(other.ahead));
        let precise = self.round_trip.saturating_add(other.round_trip);
        (apart > MAX_APART.saturating_add(precise)).then_some(apart)
    }
}

/// Judges the server's clock by ours, and the time that a call takes.
pub(super) fn server(reading: &Reading, findings: &mut Vec<Finding>) {
    let (skew, quickest) = (
        Duration::from_micros(reading.ahead.unsigned_abs()),
        reading.round_trip,
    );
    if skew > MAX_SKEW + quickest {
        findings.push(Finding::warning(
            format!("the server's clock and ours are {} apart", seconds(skew)),
            "leases do not mind, but when a clock is put right in one step, forward on the server, locks end early, and \
             Java's fair waiters, which are judged by their own clocks, lose their places",
        ));
    }
    if quickest > SLOW {
        findings.push(Finding::note(
            format!("a round trip takes {} at best", seconds(quickest)),
            "every lock and unlock takes as long, and a lease of less than twenty times that is lost easily",
        ));
    }
}

/// Judges a replica's clock by its master's.
pub(super) fn replica(replica: &Reading, master: &Reading) -> Option<Finding> {
    let apart = seconds(replica.apart(master)?);
    Some(match replica.ahead > master.ahead {
        true => Finding::warning(
            format!("its clock is {apart} ahead of the master's"),
            "when it takes over, each lease ends that much earlier: a renewed one of 30 s has at least 20 s left, but of a fixed \
             one the holder believes all but 2 % (600 ms of 30 s), so two clients can hold the lock until it ends",
        ),
        false => Finding::warning(
            format!("its clock is {apart} behind the master's"),
            "when it takes over, each lease ends that much later, and if it lacks the latest writes, tokens are drawn again",
        ),
    })
}

/// Compares the clocks of a cluster's nodes: finds the two that are furthest apart.
pub(crate) fn nodes(readings: &[(&str, Reading)]) -> Option<Finding> {
    let (behind, earliest) = readings.iter().min_by_key(|(_, reading)| reading.ahead)?;
    let (ahead, latest) = readings.iter().max_by_key(|(_, reading)| reading.ahead)?;
    let apart = seconds(latest.apart(earliest)?);
    Some(Finding::warning(
        format!("the clock of {ahead} is {apart} ahead of that of {behind}"),
        "when a slot moves to the node that is ahead, fair waiters lose their places if the difference exceeds their leases, and \
         permits of a semaphore are granted too often if it exceeds what is left of a lease (20 s of 30 s if it is renewed, \
         600 ms at the end of a fixed one)",
    ))
}

pub(super) fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{:.1} ms", time.as_secs_f64() * 1e3)
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(ahead_ms: i64, round_trip_ms: u64) -> Reading {
        Reading {
            ahead: ahead_ms * 1000,
            round_trip: Duration::from_millis(round_trip_ms),
        }
    }

    #[test]
    fn a_difference_within_the_round_trips_is_not_reported() {
        let master = reading(-2_000, 300);
        assert_eq!(replica(&reading(-900, 300), &master), None);
        let ahead = replica(&reading(-800, 300), &master).expect("a finding");
        assert!(ahead.what.contains("1.2 s ahead"), "{ahead:?}");
        let behind = replica(&master, &reading(-800, 300)).expect("a finding");
        assert!(behind.what.contains("1.2 s behind"), "{behind:?}");
    }

    #[test]
    fn the_nodes_that_are_furthest_apart_are_named() {
        let readings = [
            ("a", reading(0, 1)),
            ("b", reading(700, 1)),
            ("c", reading(-1, 1)),
        ];
        let found = nodes(&readings).expect("a finding");
        assert!(
            found.what.contains("clock of b is 701.0 ms ahead of that of c"),
            "{found:?}"
        );
        assert_eq!(nodes(&readings[..1]), None);
        assert_eq!(nodes(&[]), None);
    }
}
