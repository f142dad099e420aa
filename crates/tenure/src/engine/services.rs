//! What the queues of one client share: its context, its tasks, its renewer and its releaser.

use std::sync::{Arc, Weak};

use super::context::Context;
use super::releaser::Releaser;
use super::renewer::Renewer;
use super::tasks::Tasks;
use crate::error::Error;

pub(crate) struct Services {
    pub(crate) context: Arc<Context>,
    pub(crate) tasks: Tasks,
    pub(crate) renewer: Renewer,
    pub(crate) releaser: Releaser,
    waiters: Weak<dyn OnRuntimeEnd>,
}

/// Waiting callers, which get an error when the client's runtime has ended.
pub(crate) trait OnRuntimeEnd: Send + Sync {
    fn runtime_ended(&self);
}

impl Services {
    /// `waiters` is notified when the client's runtime has ended.
    pub(crate) fn new(context: Arc<Context>, tasks: Tasks, waiters: Weak<dyn OnRuntimeEnd>) -> Arc<Self> {
        Arc::new(Services {
            renewer: Renewer::new(&context, &tasks),
            releaser: Releaser::new(&context, &tasks),
            waiters,
            context,
            tasks,
        })
    }

    /// Starts the client's tasks once, on the caller's runtime or on the client's own thread.
    ///
    /// # Errors
    /// [`Error::Closed`] if the client was closed before it was used, or if there is no runtime or thread for them.
    pub(crate) fn start(&self) -> Result<(), Error> {
        if self.tasks.has_started() {
            return Ok(());
        }
        let (renewer, releaser) = (self.renewer.clone(), self.releaser.clone());
        let (calls, waiters) = (self.releaser.clone(), self.waiters.clone());
        let watchdog = async move {
            tokio::spawn(releaser.run());
            renewer.run().await;
        };
        let on_gone = move || {
            calls.drop_pending();
            calls.adopt_all();
            if let Some(waiters) = waiters.upgrade() {
                waiters.runtime_ended();
            }
        };
        self.tasks.start(watchdog, on_gone)
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}
