//! Waiting on the belief clock with tokio's timers, which do not count the time a machine was suspended.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tenure_backend::Instant;

use crate::engine::Engine;
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

/// A time limit on the belief clock.
#[derive(Debug)]
pub(crate) struct Limit {
    until: Instant,
    nap: Pin<Box<tokio::time::Sleep>>,
}

impl Limit {
    /// A limit of `time` from now on.
    pub(crate) fn new(engine: &Engine, time: Duration) -> Self {
        Limit {
            until: engine.clock.now() + time,
            nap: Box::pin(nap(&engine.watchdog, time)),
        }
    }

    /// Ready when the time is over.
    pub(crate) fn poll(&mut self, engine: &Engine, cx: &mut Context<'_>) -> Poll<()> {
        if engine.watchdog.is_gone() {
            // Its timers are no more; what is waited for ends with the runtime.
            return Poll::Pending;
        }
        while self.nap.as_mut().poll(cx).is_ready() {
            let now = engine.clock.now();
            if now >= self.until {
                return Poll::Ready(());
            }
            self.nap.set(nap(&engine.watchdog, self.until - now));
        }
        Poll::Pending
    }
}

/// Runs `work` for at most `limit` on the belief clock; `None` if it was not done by then, and dropped.
pub(crate) async fn within<T>(engine: &Engine, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    if !engine.watchdog.has_timers() {
        // Nothing was ever begun, so there is nothing to wait for.
        return Some(work.await);
    }
    let mut work = pin!(work);
    let mut limit = Limit::new(engine, limit);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => limit.poll(engine, cx).map(|()| None),
    })
    .await
}

/// Sleeps for `time` on the timers of the client's runtime.
pub(crate) fn sleep(watchdog: &Watchdog, time: Duration) -> tokio::time::Sleep {
    let _entered = watchdog.enter();
    tokio::time::sleep(time)
}
