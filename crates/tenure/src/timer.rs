//! Waiting on the belief clock with tokio's timers, which do not count the time a machine was suspended.

use std::time::Duration;

use crate::watchdog::Watchdog;

/// How long a timer runs at the most before the belief clock is read again.
pub(crate) const RECHECK: Duration = Duration::from_secs(1);

/// Sleeps for `time` or a second, whichever is shorter: the caller reads the belief clock again.
///
/// The timer is the client's runtime's: it works wherever its future is polled.
pub(crate) fn nap(watchdog: &Watchdog, time: Duration) -> tokio::time::Sleep {
    // Timers tick in milliseconds: one more, so that the clock has really got there.
    sleep(
        watchdog,
        time.saturating_add(Duration::from_millis(1)).min(RECHECK),
    )
}

/// Sleeps for `time` on the timers of the client's runtime.
pub(crate) fn sleep(watchdog: &Watchdog, time: Duration) -> tokio::time::Sleep {
    let _entered = watchdog.enter();
    tokio::time::sleep(time)
}
