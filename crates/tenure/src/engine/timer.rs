//! Waiting on the lease clock with tokio's timers, which do not count the time that a machine was suspended.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tenure_backend::{Clock, Instant};
use tokio_util::task::AbortOnDropHandle;

use super::tasks::Tasks;

/// The longest time for which a timer runs before the lease clock is read again.
pub(crate) const RECHECK: Duration = Duration::from_secs(1);

/// Sleeps for `time`, but at most one second. The caller then reads the lease clock again.
///
/// Never returns if the client's runtime ends. So callers also wait for another future, which then ends their wait.
pub(crate) async fn nap(tasks: &Tasks, time: Duration) {
    // Adds 1 ms, because timers tick in milliseconds: the clock has then surely reached the time.
    let time = time.saturating_add(Duration::from_millis(1)).min(RECHECK);
    if !has_slept(tasks, time).await {
        pending().await
    }
}

/// Sleeps for `time`, or until the client's runtime has ended.
pub(crate) async fn sleep(tasks: &Tasks, time: Duration) {
    has_slept(tasks, time).await;
}

/// Sleeps for `time` on the client's runtime. Any thread may poll this future. Returns false if that runtime has
/// ended.
async fn has_slept(tasks: &Tasks, time: Duration) -> bool {
    let sleep = async move { tokio::time::sleep(time).await };
    match tasks.elsewhere() {
        None => {
            sleep.await;
            true
        }
        // If that runtime ends, a timer polled here would panic; a task is only cancelled.
        Some(runtime) => AbortOnDropHandle::new(runtime.spawn(sleep)).await.is_ok(),
    }
}

/// A time limit on the lease clock: ends when the time is over.
pub(crate) type Limit = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) fn limit(tasks: &Tasks, clock: &Arc<dyn Clock>, time: Duration) -> Limit {
    let (tasks, clock) = (tasks.clone(), clock.clone());
    Box::pin(async move { wait_for(&tasks, &*clock, time).await })
}

/// Waits for `time` on the lease clock, and at least for one tick of the timer.
async fn wait_for(tasks: &Tasks, clock: &dyn Clock, time: Duration) {
    let until = clock.now() + time;
    nap(tasks, time).await;
    sleep_until(tasks, clock, until).await;
}

/// Runs `work` for at most `limit` on the lease clock. Then drops it and returns `None`.
pub(crate) async fn within<T>(
    tasks: &Tasks,
    clock: &dyn Clock,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    if !tasks.has_timers() {
        // Before the client's first attempt, the caller may have no runtime for a timer. `work` then runs unlimited.
        return Some(work.await);
    }
    let mut work = pin!(work);
    let mut timer = None;
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            // Created late: work that ends at its first poll needs no timer.
            let timer = timer.get_or_insert_with(|| Box::pin(wait_for(tasks, clock, limit)));
            timer.as_mut().poll(cx).map(|()| None)
        }
    })
    .await
}

pub(crate) async fn sleep_until(tasks: &Tasks, clock: &dyn Clock, then: Instant) {
    loop {
        let now = clock.now();
        if now >= then {
            return;
        }
        nap(tasks, then - now).await;
    }
}

/// Sleeps for `time`, but at most one second, on the runtime of the caller. Without a time, never returns.
pub(crate) async fn rest(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time.min(RECHECK)).await,
        None => pending().await,
    }
}
