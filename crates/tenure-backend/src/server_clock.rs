//! A lower bound of the server's clock, learned from the times in its replies.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Instant;

/// A reading that would lower the bound replaces only a reading that is older than this. So the bound follows a
/// server clock that was set back.
const PREFERRED: Duration = Duration::from_secs(1);

/// The bound allows for a server clock that is slower than ours by one part in 1000, more than any clock under NTP.
const DRIFT: u32 = 1000;

/// A lower bound of the server's clock.
///
/// A reply carries the server's time at a moment before its arrival, so at arrival the server's clock shows at least
/// this time. A delayed reply gives a lower bound. A time limit that is sent to the server then ends earlier, never
/// later.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_backend::{Instant, ServerClock};
///
/// // A reply that carried the server's time, 1 s after 1970, has arrived now.
/// let arrived = Instant::from_nanos(5_000_000_000);
/// let clock = ServerClock::new(1_000_000, arrived);
/// // A second later the server shows at least this, even if its clock is slow by one part in 1000.
/// assert_eq!(clock.at(arrived + Duration::from_secs(1)), 1_999_000);
/// ```
#[derive(Debug)]
pub struct ServerClock(Mutex<Reading>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Time on the server's clock, in microseconds since 1970.
    shown: u64,
    /// Arrival of the reply that carried `shown`, on this client's clock.
    arrived: Instant,
}

impl Reading {
    /// The least that the server's clock shows at `moment` on this client's clock.
    fn at(&self, moment: Instant) -> u64 {
        let since = moment - self.arrived;
        let least = since - since / DRIFT;
        let before = self.arrived - moment;
        let most = before + before / DRIFT;
        self.shown
            .saturating_add(micros(least))
            .saturating_sub(micros(most))
    }
}

impl ServerClock {
    /// Learns from a first reply, as [`learn`](ServerClock::learn) does.
    pub fn new(shown: u64, arrived: Instant) -> Self {
        ServerClock(Mutex::new(Reading { shown, arrived }))
    }

    /// Learns from a reply that carried the server's time `shown` and came at `arrived` or earlier.
    pub fn learn(&self, shown: u64, arrived: Instant) {
        let mut reading = self.reading();
        if shown >= reading.at(arrived) || arrived - reading.arrived > PREFERRED {
            *reading = Reading { shown, arrived };
        }
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The least that the server's clock shows at `moment` on this client's clock, in microseconds since 1970.
    pub fn at(&self, moment: Instant) -> u64 {
        self.reading().at(moment)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::ORIGIN + Duration::from_secs(seconds)
    }

    #[test]
    fn a_delayed_reply_never_makes_the_bound_later() {
        let clock = ServerClock::new(1_000_000_000, at(100));
        let before = clock.at(at(101));
        clock.learn(1_000_000_500, at(101));
        assert_eq!(
            clock.at(at(101)),
            before,
            "a reply that took half a second does not lower it"
        );
    }

    #[test]
    fn a_quicker_reply_raises_the_bound() {
        let clock = ServerClock::new(1_000_000_000, at(100));
        clock.learn(1_001_500_000, at(101));
        assert_eq!(clock.at(at(101)), 1_001_500_000);
    }

    #[test]
    fn a_clock_that_was_set_back_is_followed_after_a_second() {
        let clock = ServerClock::new(1_000_000_000, at(100));
        clock.learn(900_000_000, at(100) + SECOND / 2);
        assert!(clock.at(at(101)) > 1_000_000_000);
        clock.learn(900_000_000, at(102));
        assert_eq!(clock.at(at(102)), 900_000_000);
    }

    #[test]
    fn the_bound_saturates_at_the_largest_time() {
        let clock = ServerClock::new(u64::MAX - 1, at(100));
        assert_eq!(clock.at(at(200)), u64::MAX);
    }

    #[test]
    fn the_bound_allows_for_drift_since_the_last_reply() {
        let clock = ServerClock::new(1_000_000_000, at(100));
        assert_eq!(clock.at(at(100) + 1000 * SECOND), 1_000_000_000 + 999_000_000);
        assert_eq!(clock.at(at(90)), 1_000_000_000 - 10_010_000);
    }
}
