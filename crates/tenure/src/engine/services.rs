//! What the queues of one client share: its context, its tasks, its renewer and its releaser.

use std::sync::Arc;

use super::context::Context;
use super::invalidations::{Follower, HeldClaims};
use super::releaser::Releaser;
use super::renewer::Renewer;
use super::tasks::Tasks;
use crate::error::Error;

/// Has cache lines of its own, without the count of the references to it: each lock that is acquired changes that count.
#[repr(align(128))]
pub(crate) struct Services {
    pub(crate) context: Arc<Context>,
    pub(crate) tasks: Tasks,
    pub(crate) renewer: Renewer,
    pub(crate) releaser: Releaser,
    end_waiters: Arc<dyn Fn() + Send + Sync>,
    held: Arc<dyn HeldClaims>,
}

impl Services {
    /// `end_waiters` is called if the client's runtime ends before the client does. `held` finds the claims that the
    /// store's invalidations name.
    pub(crate) fn new(
        context: Arc<Context>,
        tasks: Tasks,
        end_waiters: impl Fn() + Send + Sync + 'static,
        held: impl HeldClaims + 'static,
    ) -> Arc<Self> {
        Arc::new(Services {
            renewer: Renewer::new(&context, &tasks),
            releaser: Releaser::new(&context, &tasks),
            end_waiters: Arc::new(end_waiters),
            held: Arc::new(held),
            context,
            tasks,
        })
    }

    /// Starts the client's tasks once, on the caller's runtime or on the client's own thread.
    ///
    /// # Errors
    /// [`Error::Closed`] if the client was closed before it was used, or if there is no runtime or thread for the
    /// tasks.
    pub(crate) fn start(&self) -> Result<(), Error> {
        if self.tasks.has_started() {
            return Ok(());
        }
        let (renewer, releaser) = (self.renewer.clone(), self.releaser.clone());
        let (calls, end_waiters) = (self.releaser.clone(), self.end_waiters.clone());
        let held = self.held.clone();
        let watchdog = async move {
            tokio::spawn(releaser.run());
            tokio::spawn(Follower::new(renewer.clone(), held).run());
            renewer.run().await;
        };
        let on_gone = move || {
            calls.drop_pending();
            calls.adopt_all();
            end_waiters();
        };
        self.tasks.start(watchdog, on_gone)
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}
