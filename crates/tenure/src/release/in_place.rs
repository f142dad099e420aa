//! A release that names an heir: its unlock polls it in place, and the client's own task takes it over if the unlock may
//! have stopped polling, for a waiter depends on it.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::BackendError;
use tokio::sync::oneshot;

use super::tries::{Left, Release};
use crate::line::Line;
use crate::waiter::wake;
use crate::watchdog::TakeOver;

type Answer = Result<Left, BackendError>;

/// The release itself, with all its tries.
type Work = Pin<Box<dyn Future<Output = (Release, Answer)> + Send>>;

/// The unlock's end of it.
///
/// # Cancel safety
/// Dropped on the way, the rest is done by the client's own task.
pub(super) struct InPlace {
    shared: Arc<Shared>,
    tracked: bool,
}

struct Shared {
    line: Arc<Line>,
    stage: Mutex<Stage>,
}

enum Stage {
    /// Between two polls of the unlock, which is woken by this if the release is taken over.
    Here(Work, Option<Waker>),
    /// The unlock polls it at this moment. It is not polled under the lock: whatever it wakes may come back here.
    Polled {
        /// Whether it is to be taken over if this poll does not finish it.
        wanted: bool,
    },
    /// The client's own task does it, and tells.
    Taken(oneshot::Receiver<Answer>),
    Done,
}

impl InPlace {
    pub(super) fn new(release: Release, limit: Duration) -> Self {
        let line = release.line().clone();
        let work: Work = Box::pin(release.run_to_end(limit));
        let stage = Mutex::new(Stage::Here(work, None));
        InPlace {
            shared: Arc::new(Shared { line, stage }),
            tracked: false,
        }
    }
}

impl Future for InPlace {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let polled = self.shared.poll(cx);
        if polled.is_pending() && !mem::replace(&mut self.tracked, true) {
            let engine = &self.shared.line.engine;
            engine
                .watchdog
                .track_call(&self.shared, engine.settings.offer_window);
        }
        polled
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        self.shared.clone().take_over();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("line", &self.line.key)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn poll(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let mut stage = self.stage.lock();
        let mut work = match mem::replace(&mut *stage, Stage::Polled { wanted: false }) {
            Stage::Here(work, _) => work,
            Stage::Taken(mut told) => {
                let polled = Pin::new(&mut told).poll(cx);
                *stage = Stage::Taken(told);
                return polled.map(|told| told.unwrap_or_else(|_| Err(BackendError::closed())));
            }
            Stage::Polled { .. } | Stage::Done => panic!("a release was polled after it had finished"),
        };
        drop(stage);
        let polled = work.as_mut().poll(cx);
        let mut stage = self.stage.lock();
        let wanted = matches!(*stage, Stage::Polled { wanted: true });
        if let Poll::Ready((release, answer)) = polled {
            *stage = Stage::Done;
            drop(stage);
            if answer.is_err() {
                release.see_through_behind();
            }
            return Poll::Ready(answer);
        }
        *stage = Stage::Here(work, Some(cx.waker().clone()));
        drop(stage);
        if wanted {
            self.clone().take_over();
        }
        Poll::Pending
    }
}

impl TakeOver for Shared {
    fn take_over(self: Arc<Self>) {
        let mut stage = self.stage.lock();
        match &mut *stage {
            Stage::Polled { wanted } => *wanted = true,
            Stage::Taken(_) | Stage::Done => {}
            Stage::Here(..) => {
                let (tell, told) = oneshot::channel();
                let Stage::Here(work, waker) = mem::replace(&mut *stage, Stage::Taken(told)) else {
                    return;
                };
                drop(stage);
                self.line.engine.watchdog.spawn(finish(work, tell));
                wake(waker);
            }
        }
    }
}

async fn finish(work: Work, tell: oneshot::Sender<Answer>) {
    let (release, answer) = work.await;
    let failed = answer.is_err();
    // Nobody may be there to hear it.
    let _ = tell.send(answer);
    if failed {
        release.see_through().await;
    }
}
