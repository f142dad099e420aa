//! The lease clock: instants on which leases are counted, and the clocks that they are read from.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A reading of a [`Clock`], in nanoseconds since an origin that the clock chose.
///
/// Instants of one clock are ordered, and their difference is a [`Duration`]. Instants of different clocks cannot be
/// compared. Arithmetic saturates at both ends and never panics.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_backend::Instant;
///
/// let sent = Instant::from_nanos(1_000);
/// assert_eq!(sent + Duration::from_nanos(500), Instant::from_nanos(1_500));
/// assert_eq!(sent - (sent + Duration::from_secs(1)), Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The clock's origin, earlier than every reading.
    pub const ORIGIN: Instant = Instant(0);
    /// An instant that no clock reaches.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// The instant that is `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// Nanoseconds since the clock's origin. The origin of [`SystemClock`] on Linux is the boot.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Converts a duration to nanoseconds, capped at the range of an [`Instant`] (584 years).
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, later: Duration) -> Instant {
        Instant(self.0.saturating_add(nanos(later)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, earlier: Duration) -> Instant {
        Instant(self.0.saturating_sub(nanos(earlier)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// The time from `earlier` to `self`, or zero if `earlier` is later.
    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A clock that never runs backward and counts the time while the machine is suspended.
///
/// The engine and its backend read the same clock, [`Backend::clock`](crate::Backend::clock), so a grant's
/// `held_from` can be compared with the engine's deadlines.
///
/// No guarantee that the clock counts the time while a virtual machine is paused, or since its snapshot was taken: no
/// clock inside the machine shows that time.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_backend::{Clock, Instant, SystemClock};
///
/// /// A clock that is ahead of the system's. Its instants cannot be compared with the system clock's.
/// #[derive(Debug)]
/// struct Ahead(Duration);
///
/// impl Clock for Ahead {
///     fn now(&self) -> Instant {
///         SystemClock.now() + self.0
///     }
/// }
/// let clock = Ahead(Duration::from_secs(3_600));
/// let start = clock.now();
/// assert!(clock.now() - start < Duration::from_secs(60));
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Reads the clock.
    fn now(&self) -> Instant;
}

/// The operating system's clock: `CLOCK_BOOTTIME` on Linux and Android.
///
/// On other Unix systems it is `CLOCK_MONOTONIC`, elsewhere `std::time::Instant`; whether those count suspended time
/// depends on the system. On Linux all processes of one machine and one time namespace read the same values.
///
/// # Examples
/// ```
/// use tenure_backend::{Clock, SystemClock};
///
/// let before = SystemClock.now();
/// assert!(SystemClock.now() >= before);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        system_now()
    }
}

#[cfg(unix)]
fn system_now() -> Instant {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let time = clock_gettime(CLOCK);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
}

#[cfg(not(unix))]
fn system_now() -> Instant {
    use std::sync::OnceLock;

    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(std::time::Instant::now);
    Instant(nanos(origin.elapsed()).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant::ORIGIN - Duration::from_secs(1), Instant::ORIGIN);
        assert_eq!(Instant::NEVER + Duration::MAX, Instant::NEVER);
        assert_eq!(Instant::ORIGIN - Instant::NEVER, Duration::ZERO);
    }
}
