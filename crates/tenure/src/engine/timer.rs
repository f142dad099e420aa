//! Waiting on the lease clock with tokio's timers, which do not count the time that a machine was suspended.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tenure_backend::{Clock, Instant};
use tokio::task::JoinHandle;

use super::tasks::Tasks;

/// The longest time for which a timer runs before the lease clock is read again.
pub(crate) const RECHECK: Duration = Duration::from_secs(1);

/// Sleeps for `time`, but at most one second. The caller then reads the lease clock again.
///
/// Never wakes if the client's runtime ends: the event that the caller waits for ends too, and wakes the caller.
pub(crate) fn nap(tasks: &Tasks, time: Duration) -> Nap {
    // Adds 1 ms, because timers tick in milliseconds: the clock has then surely reached the time.
    let time = time.saturating_add(Duration::from_millis(1)).min(RECHECK);
    Nap::new(tasks, time, Poll::Pending)
}

/// Sleeps for `time`, or until the client's runtime has ended.
pub(crate) fn sleep(tasks: &Tasks, time: Duration) -> Nap {
    Nap::new(tasks, time, Poll::Ready(()))
}

pin_project! {
    /// A timer on the client's runtime, which can be polled from any thread.
    #[derive(Debug)]
    pub(crate) struct Nap {
        #[pin]
        timer: Timer,
        // What a poll returns after the client's runtime has ended.
        when_gone: Poll<()>,
    }
}

pin_project! {
    #[project = TimerProjection]
    #[derive(Debug)]
    enum Timer {
        // The timer, polled on the client's runtime.
        Here { #[pin] sleep: tokio::time::Sleep },
        // A task with the timer, polled on another runtime. A timer panics if its runtime ends meanwhile; a task is
        // cancelled.
        There { task: JoinHandle<()> },
        Gone,
    }

    impl PinnedDrop for Timer {
        fn drop(this: Pin<&mut Self>) {
            if let TimerProjection::There { task } = this.project() {
                task.abort();
            }
        }
    }
}

impl Nap {
    fn new(tasks: &Tasks, time: Duration, when_gone: Poll<()>) -> Self {
        let timer = match tasks.elsewhere() {
            None => Timer::Here {
                sleep: tokio::time::sleep(time),
            },
            Some(runtime) => Timer::There {
                task: runtime.spawn(async move { tokio::time::sleep(time).await }),
            },
        };
        Nap { timer, when_gone }
    }
}

impl Future for Nap {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        match this.timer.as_mut().project() {
            TimerProjection::Here { sleep } => sleep.poll(cx),
            TimerProjection::There { task } => match ready!(Pin::new(task).poll(cx)) {
                Ok(()) => Poll::Ready(()),
                Err(_) => {
                    this.timer.set(Timer::Gone);
                    *this.when_gone
                }
            },
            TimerProjection::Gone => *this.when_gone,
        }
    }
}

/// A time limit on the lease clock.
#[derive(Debug)]
pub(crate) struct Limit {
    until: Instant,
    nap: Pin<Box<Nap>>,
}

impl Limit {
    pub(crate) fn new(tasks: &Tasks, clock: &dyn Clock, time: Duration) -> Self {
        Limit {
            until: clock.now() + time,
            nap: Box::pin(nap(tasks, time)),
        }
    }

    pub(crate) fn poll(&mut self, tasks: &Tasks, clock: &dyn Clock, cx: &mut Context<'_>) -> Poll<()> {
        while self.nap.as_mut().poll(cx).is_ready() {
            let now = clock.now();
            if now >= self.until {
                return Poll::Ready(());
            }
            self.nap.set(nap(tasks, self.until - now));
        }
        Poll::Pending
    }
}

/// Runs `work` for at most `limit` on the lease clock. Then drops it and returns `None`.
pub(crate) async fn within<T>(
    tasks: &Tasks,
    clock: &dyn Clock,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    if !tasks.has_timers() {
        // Before the client's first attempt, the caller may have no runtime for a timer. `work` then ends at once.
        return Some(work.await);
    }
    let mut work = pin!(work);
    let mut timer = None;
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            // Created late: work that ends at its first poll needs no timer.
            let timer = timer.get_or_insert_with(|| Limit::new(tasks, clock, limit));
            timer.poll(tasks, clock, cx).map(|()| None)
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
