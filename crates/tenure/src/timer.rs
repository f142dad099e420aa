//! Waiting on the belief clock with tokio's timers, which do not count the time a machine was suspended.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tenure_backend::Instant;
use tokio::task::JoinHandle;

use crate::engine::Engine;
use crate::watchdog::Watchdog;

/// How long a timer runs at the most before the belief clock is read again.
pub(crate) const RECHECK: Duration = Duration::from_secs(1);

/// Sleeps for `time` or a second, whichever is shorter: the caller reads the belief clock again.
///
/// If the client's runtime ends meanwhile it never wakes: what is waited for ends with the runtime, and wakes the caller.
pub(crate) fn nap(watchdog: &Watchdog, time: Duration) -> Nap {
    // Timers tick in milliseconds: one more, so that the clock has really got there.
    let time = time.saturating_add(Duration::from_millis(1)).min(RECHECK);
    Nap::new(watchdog, time, Poll::Pending)
}

/// Sleeps for `time`, or until the client's runtime has ended.
pub(crate) fn sleep(watchdog: &Watchdog, time: Duration) -> Nap {
    Nap::new(watchdog, time, Poll::Ready(()))
}

pin_project! {
    /// A timer of the client's runtime, wherever it is polled.
    #[derive(Debug)]
    pub(crate) struct Nap {
        #[pin]
        timer: Timer,
        // What it answers once that runtime has ended.
        when_gone: Poll<()>,
    }
}

pin_project! {
    #[project = TimerProjection]
    #[derive(Debug)]
    enum Timer {
        // Polled on the runtime to which it belongs.
        Here { #[pin] sleep: tokio::time::Sleep },
        // Polled elsewhere: a timer panics when it is asked while its runtime ends, and a task is merely told.
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
    fn new(watchdog: &Watchdog, time: Duration, when_gone: Poll<()>) -> Self {
        let timer = match watchdog.elsewhere() {
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

/// A time limit on the belief clock.
#[derive(Debug)]
pub(crate) struct Limit {
    until: Instant,
    nap: Pin<Box<Nap>>,
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
