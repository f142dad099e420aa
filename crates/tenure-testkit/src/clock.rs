//! Clocks for tests: one set by hand, one over tokio's time, and one that jumps at a chosen reading.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_backend::{Clock, Instant};

/// Start time of test clocks, far enough from the origin that subtraction never saturates.
const START: Instant = Instant::from_nanos(1_000_000_000_000_000);

/// Clock that advances only when the test advances it. Clones share one time.
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
    /// Creates an independent clock.
    pub fn new() -> Self {
        ManualClock(Arc::new(AtomicU64::new(START.as_nanos())))
    }

    /// Advances the clock.
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

/// Clock that follows tokio's time, which tests can pause, plus the suspends that tests add. Clones share one time.
///
/// [`advance`](SimClock::advance) moves tokio's time and this clock together, like ordinary time.
/// [`suspend`](SimClock::suspend) moves only this clock, like a suspended machine: timers do not count that time.
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
/// assert_eq!(timers.elapsed(), Duration::ZERO, "timers do not count a suspend");
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
    /// Creates a clock that follows tokio's time from now on.
    pub fn new() -> Self {
        SimClock {
            origin: tokio::time::Instant::now(),
            suspended: ManualClock::new(),
        }
    }

    /// Advances tokio's time and this clock.
    ///
    /// # Cancel safety
    /// If the future is dropped before its first poll, no time passes. If it is dropped later, the whole time has
    /// passed.
    ///
    /// # Panics
    /// Panics if tokio's time is not paused.
    pub async fn advance(&self, time: Duration) {
        tokio::time::advance(time).await;
    }

    /// Advances only this clock, as if the machine had been suspended.
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

/// Clock set by hand that, once armed, jumps forward at its k-th reading. Clones share one time.
///
/// With it, a test simulates a long interruption at each point where the code reads the clock. One of these points
/// shows a bug such as taking the start of belief (`held_from`) after the reply instead of before the request.
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
    /// Creates a clock that is not armed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the clock jump forward by `jump` at its `reading`-th reading from now, counted from 1.
    pub fn arm(&self, reading: u32, jump: Duration) {
        *self.trap.lock() = Some(Trap {
            readings_left: reading,
            jump,
        });
    }

    /// Cancels a jump that has not happened yet. Returns true if there was none to cancel.
    pub fn disarm(&self) -> bool {
        self.trap.lock().take().is_none()
    }

    /// Underlying clock, whose readings do not count towards the jump.
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
