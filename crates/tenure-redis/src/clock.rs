//! What a client knows of its server's clock: never more than it shows.

use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::Instant;

/// For how long a better reading is preferred to a newer one: a clock that was set back is believed soon.
const PREFERRED: Duration = Duration::from_secs(1);

/// How much slower than ours the server's clock may run, as a fraction: more than any that is disciplined.
const DRIFT: u32 = 1000;

/// A bound on the server's clock, from below. A reply names the server's time at a moment before it arrived, so by then
/// that clock shows at least as much: delays make the bound lower, and what is sent by it stricter.
#[derive(Debug)]
pub(crate) struct ServerClock(Mutex<Reading>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    /// What the server's clock showed, in microseconds since 1970.
    shown: u64,
    /// When the reply that said so had arrived.
    arrived: Instant,
}

impl Reading {
    /// What the server's clock shows at least at a moment on ours.
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
    pub(crate) fn new(shown: u64, arrived: Instant) -> Self {
        ServerClock(Mutex::new(Reading { shown, arrived }))
    }

    /// A reply that arrived just before `arrived` says what the server's clock showed.
    pub(crate) fn learn(&self, shown: u64, arrived: Instant) {
        let mut reading = self.0.lock();
        if shown >= reading.at(arrived) || arrived - reading.arrived > PREFERRED {
            *reading = Reading { shown, arrived };
        }
    }

    /// What the server's clock shows at least, at a moment on ours.
    pub(crate) fn at(&self, moment: Instant) -> u64 {
        self.0.lock().at(moment)
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
            "a reply that was half a second on its way says less"
        );
    }

    #[test]
    fn a_quicker_reply_makes_the_bound_better() {
        let clock = ServerClock::new(1_000_000_000, at(100));
        clock.learn(1_001_500_000, at(101));
        assert_eq!(clock.at(at(101)), 1_001_500_000);
    }

    #[test]
    fn a_server_whose_clock_was_set_back_is_believed_after_a_moment() {
        let clock = ServerClock::new(1_000_000_000, at(100));
        clock.learn(900_000_000, at(100) + SECOND / 2);
        assert!(clock.at(at(101)) > 1_000_000_000);
        clock.learn(900_000_000, at(102));
        assert_eq!(clock.at(at(102)), 900_000_000);
    }

    #[test]
    fn a_clock_at_the_end_of_time_stays_there() {
        let clock = ServerClock::new(u64::MAX - 1, at(100));
        assert_eq!(clock.at(at(200)), u64::MAX);
    }

    #[test]
    fn the_longer_nothing_was_heard_the_less_is_assumed() {
        let clock = ServerClock::new(1_000_000_000, at(100));
        assert_eq!(clock.at(at(100) + 1000 * SECOND), 1_000_000_000 + 999_000_000);
        assert_eq!(clock.at(at(90)), 1_000_000_000 - 10_010_000);
    }
}
