//! Waiting on the belief clock with tokio's timers, which do not count the time a machine was suspended.

use std::time::Duration;

use tenure_backend::{Clock, Instant};

/// How long a timer runs at the most before the belief clock is read again.
const RECHECK: Duration = Duration::from_secs(1);

/// Sleeps for `time` or a second, whichever is shorter: the caller reads the belief clock again.
pub(crate) fn nap(time: Duration) -> tokio::time::Sleep {
    // Timers tick in milliseconds: one more, so that the clock has really got there.
    tokio::time::sleep(time.saturating_add(Duration::from_millis(1)).min(RECHECK))
}

/// Sleeps until the belief clock has reached `until`.
pub(crate) async fn sleep_until(clock: &dyn Clock, until: Instant) {
    loop {
        let left = until - clock.now();
        if left.is_zero() {
            return;
        }
        nap(left).await;
    }
}
