//! Clocks for tests: moved by hand, simulated over tokio's, and one that jumps at a chosen reading.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_backend::{Clock, Instant};

/// Where the clocks of tests start: so far from the origin that arithmetic never saturates below.
const START: Instant = Instant::from_nanos(1_000_000_000_000_000);

/// A clock that moves only by hand. Clones are one clock.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_backend::Clock;
/// use tenure_testkit::ManualClock;
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(clock.now() - before, Duration::from_secs(3));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock of its own.
    pub fn new() -> Self {
        ManualClock(Arc::new(AtomicU64::new(START.as_nanos())))
    }

    /// Moves it forward.
    pub fn advance(&self, time: Duration) {
        let step = (Instant::ORIGIN + time).as_nanos();
        self.0.fetch_add(step, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// A clock over tokio's time, which tests can pause, plus what they add to it. Clones are one clock.
///
/// [`advance`](SimClock::advance) moves tokio's time and this clock together, as the passing of time does.
/// [`suspend`](SimClock::suspend) moves this clock alone, as a suspended machine does: timers do not count it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// use std::time::Duration;
/// use tenure_backend::Clock;
/// use tenure_testkit::SimClock;
///
/// let clock = SimClock::new();
/// let (began, timers) = (clock.now(), tokio::time::Instant::now());
/// clock.suspend(Duration::from_secs(60));
/// assert_eq!(clock.now() - began, Duration::from_secs(60));
/// assert_eq!(timers.elapsed(), Duration::ZERO, "no timer counts a suspend");
/// clock.advance(Duration::from_secs(1)).await;
/// assert_eq!(clock.now() - began, Duration::from_secs(61));
/// assert_eq!(timers.elapsed(), Duration::from_secs(1));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SimClock {
    origin: tokio::time::Instant,
    suspended: ManualClock,
}

impl SimClock {
    /// A clock that starts at tokio's present time.
    pub fn new() -> Self {
        SimClock {
            origin: tokio::time::Instant::now(),
            suspended: ManualClock::new(),
        }
    }

    /// Lets time pass for timers and for this clock.
    ///
    /// # Cancel safety
    /// Dropped before its first poll, time stands still; after it, time has passed.
    ///
    /// # Panics
    /// Where tokio's time is not paused.
    pub async fn advance(&self, time: Duration) {
        tokio::time::advance(time).await;
    }

    /// Lets time pass for this clock alone.
    pub fn suspend(&self, time: Duration) {
        self.suspended.advance(time);
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        self.suspended.now() + self.origin.elapsed()
    }
}

/// A clock that moves by hand and, once armed, jumps forward at its k-th reading. Clones are one clock.
///
/// With it a test finds out at which of its readings a program may be interrupted for long: a bug such as a
/// `held_from` that is read after the reply shows at one of them.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_backend::Clock;
/// use tenure_testkit::JumpingClock;
///
/// let clock = JumpingClock::new();
/// clock.arm(2, Duration::from_secs(3600));
/// let first = clock.now();
/// assert_eq!(clock.now() - first, Duration::from_secs(3600));
/// ```
#[derive(Clone, Debug, Default)]
pub struct JumpingClock {
    clock: ManualClock,
    trap: Arc<parking_lot::Mutex<Option<Trap>>>,
}

#[derive(Debug)]
struct Trap {
    readings_left: u32,
    jump: Duration,
}

impl JumpingClock {
    /// A clock that does not jump yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the `reading`-th reading from here on (from 1) and all after it come `jump` later.
    pub fn arm(&self, reading: u32, jump: Duration) {
        *self.trap.lock() = Some(Trap {
            readings_left: reading,
            jump,
        });
    }

    /// Takes back a jump that has not happened; whether it had happened.
    pub fn disarm(&self) -> bool {
        self.trap.lock().take().is_none()
    }

    /// The clock beneath, to be moved by hand; reading it sets nothing off.
    pub fn manual(&self) -> &ManualClock {
        &self.clock
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Instant {
        let mut trap = self.trap.lock();
        if let Some(armed) = trap.as_mut() {
            armed.readings_left = armed.readings_left.saturating_sub(1);
            if armed.readings_left == 0 {
                self.clock.advance(armed.jump);
                *trap = None;
            }
        }
        self.clock.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jumping_clock_jumps_once_at_the_armed_reading() {
        let clock = JumpingClock::new();
        let start = clock.now();
        clock.arm(3, Duration::from_secs(5));
        let readings = [clock.now(), clock.now(), clock.now(), clock.now()].map(|at| (at - start).as_secs());
        assert_eq!(readings, [0, 0, 5, 5]);
        clock.arm(2, Duration::from_secs(5));
        assert!(!clock.disarm());
        assert_eq!((clock.now() - start).as_secs(), 5);
    }
}
