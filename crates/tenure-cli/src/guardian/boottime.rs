//! The clock that deadlines are told on: it counts the time the machine is suspended.

use std::ops::Add;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
/// Elsewhere the monotonic clock counts suspend (macOS) or nothing does.
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The longest sleep: timers do not count suspend, so the clock is read again this often.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A point in time on CLOCK_BOOTTIME.
///
/// All processes of one machine and one time namespace share this clock; it never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BootTime {
    since_boot_ns: u64,
}

impl BootTime {
    /// Reads the clock.
    pub fn now() -> BootTime {
        let time = clock_gettime(CLOCK);
        let (secs, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
        // The kernel's boot clock is never negative.
        BootTime::from_nanos(secs.unwrap_or(0).saturating_mul(1_000_000_000) + nanos.unwrap_or(0))
    }

    /// The point that many nanoseconds after boot.
    pub fn from_nanos(since_boot_ns: u64) -> BootTime {
        BootTime { since_boot_ns }
    }

    /// How long until `self`; zero when it has passed.
    pub fn left(self, now: BootTime) -> Duration {
        Duration::from_nanos(self.since_boot_ns.saturating_sub(now.since_boot_ns))
    }

    /// Waits until then.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn reached(self) {
        loop {
            let left = self.left(BootTime::now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
        }
    }

    /// The point `span` earlier, or boot if that is later.
    pub fn earlier(self, span: Duration) -> BootTime {
        BootTime::from_nanos(self.since_boot_ns.saturating_sub(nanos(span)))
    }
}

impl Add<Duration> for BootTime {
    type Output = BootTime;

    /// Saturates: the end of time is a deadline that never comes.
    fn add(self, span: Duration) -> BootTime {
        BootTime::from_nanos(self.since_boot_ns.saturating_add(nanos(span)))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
