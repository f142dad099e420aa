//! Runs a store's requests in tasks, so that each ends even if its caller stops.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};

use crate::{BackendError, Batch, BatchCall, Call, Effect, Fault, Limits};

/// The tasks of a store, on the tokio runtime on which it was opened.
///
/// A request runs to its end even if its caller drops the call: the store then learns what became of it. It keeps its `owner` until
/// then, because a store that is dropped closes its connections. After [`close`](Tasks::close), and in a child made by `fork`, every
/// call fails without effect. Clones are the same tasks.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::sync::Arc;
/// use tenure_backend::{Fault, Tasks};
///
/// let (tasks, store) = (Tasks::of_this_runtime(), Arc::new("a store"));
/// let call = tasks.call(store.clone(), async { Ok("granted") });
/// assert_eq!(call.await.ok(), Some("granted"));
/// tasks.close().expect("this process has opened the store");
/// let refused = tasks.call(store, async { Ok("granted") }).await.unwrap_err();
/// assert_eq!(refused.fault(), Fault::Closed);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Tasks {
    runtime: Handle,
    process: u32,
    is_closed: Arc<AtomicBool>,
}

impl Tasks {
    /// Tasks on the runtime of the caller.
    ///
    /// # Panics
    /// If the caller is not on a runtime.
    #[must_use]
    pub fn of_this_runtime() -> Self {
        Tasks {
            runtime: Handle::current(),
            process: std::process::id(),
            is_closed: Arc::default(),
        }
    }

    /// The runtime that runs the tasks.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Refuses all later calls. Those that run go on.
    ///
    /// # Errors
    /// `Closed` in a child made by `fork`, where nothing is done: the connections belong to the parent.
    pub fn close(&self) -> Result<(), BackendError> {
        self.check_process()?;
        self.is_closed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// One request.
    pub fn call<T: Send + 'static>(
        &self,
        owner: Arc<impl Send + Sync + 'static>,
        work: impl Future<Output = Result<T, BackendError>> + Send + 'static,
    ) -> Call<T> {
        let tasks = self.clone();
        Call::new(async move {
            tasks.check()?;
            let done = tasks.runtime.spawn(keeping(owner, work)).await;
            done.map_err(lost).flatten()
        })
    }

    /// A batch of requests that one task carries out. `failed` makes a reply of an error that concerns all.
    pub fn batch<A, T, F>(
        &self,
        owner: Arc<impl Send + Sync + 'static>,
        limits: &Limits,
        batch: Batch<A>,
        work: impl FnOnce(Batch<A>) -> F + Send + 'static,
        failed: fn(BackendError) -> T,
    ) -> BatchCall<T>
    where
        A: Send + 'static,
        T: Send + 'static,
        F: Future<Output = Batch<T>> + Send + 'static,
    {
        let (tasks, count, checked) = (self.clone(), batch.len(), limits.check_batch(batch.len()));
        BatchCall::new(async move {
            let done = match checked.and_then(|()| tasks.check()) {
                Ok(()) => tasks
                    .runtime
                    .spawn(keeping(owner, work(batch)))
                    .await
                    .map_err(lost),
                Err(error) => Err(error),
            };
            done.unwrap_or_else(|error| (0..count).map(|_| failed(error.clone())).collect())
        })
    }

    /// A batch of requests that are carried out at the same time, each in a task of its own.
    pub fn each<A, T, F>(
        &self,
        owner: Arc<impl Send + Sync + 'static>,
        limits: &Limits,
        batch: Batch<A>,
        work: impl Fn(A) -> F + Send + 'static,
        failed: fn(BackendError) -> T,
    ) -> BatchCall<T>
    where
        A: Send + 'static,
        T: Send + 'static,
        F: Future<Output = Result<T, BackendError>> + Send + 'static,
    {
        let (tasks, checked) = (self.clone(), limits.check_batch(batch.len()));
        BatchCall::new(async move {
            if let Err(error) = checked.and_then(|()| tasks.check()) {
                return batch.iter().map(|_| failed(error.clone())).collect();
            }
            let running: Vec<JoinHandle<_>> = batch
                .into_iter()
                .map(|request| tasks.runtime.spawn(keeping(owner.clone(), work(request))))
                .collect();
            let mut replies = Batch::with_capacity(running.len());
            for task in running {
                replies.push(task.await.map_err(lost).flatten().unwrap_or_else(failed));
            }
            replies
        })
    }

    fn check(&self) -> Result<(), BackendError> {
        self.check_process()?;
        match self.is_closed.load(Ordering::Relaxed) {
            true => Err(BackendError::closed()),
            false => Ok(()),
        }
    }

    fn check_process(&self) -> Result<(), BackendError> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let message = "this store belongs to the parent process: connect again after a fork";
        Err(BackendError::new(Fault::Closed, Effect::None, message))
    }
}

/// Runs work to its end, and then drops the store.
async fn keeping<T>(owner: Arc<impl Send + Sync>, work: impl Future<Output = T>) -> T {
    let done = work.await;
    drop(owner);
    done
}

/// Error for a request whose task has not ended by itself.
fn lost(error: JoinError) -> BackendError {
    if error.is_panic() {
        return BackendError::panicked();
    }
    let message = "the runtime on which this store was opened has ended: open it on one that lives longer";
    BackendError::new(Fault::Closed, Effect::Unknown, message)
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_request_ends_and_keeps_its_store_although_its_caller_has_left() {
        let (tasks, store) = (Tasks::of_this_runtime(), Arc::new(()));
        let (server, reply) = oneshot::channel();
        let (done, is_done) = oneshot::channel();
        let mut call = tasks.call(store.clone(), async move {
            let reply: &str = reply.await.expect("the server answers");
            done.send(reply).expect("the test waits");
            Ok(())
        });
        let polled = timeout(Duration::from_millis(1), &mut call).await;
        assert!(polled.is_err(), "the server has not answered");
        drop(call);
        assert_eq!(Arc::strong_count(&store), 2, "the request keeps the store");
        server.send("granted").expect("the request runs");
        assert_eq!(is_done.await, Ok("granted"));
    }

    #[tokio::test]
    async fn a_batch_that_is_too_long_is_refused_whole() {
        let (tasks, store) = (Tasks::of_this_runtime(), Arc::new(()));
        let mut limits = Limits::new(Duration::ZERO, Duration::MAX);
        limits.max_batch = std::num::NonZeroU32::MIN;
        let two = || Batch::from_iter([1, 2]);
        let failed = |error: BackendError| Err(error.fault());
        let answer =
            |number: u32| -> Ready<Result<Result<u32, Fault>, BackendError>> { ready(Ok(Ok(number))) };
        let each = tasks.each(store.clone(), &limits, two(), answer, failed);
        let whole = tasks.batch(
            store,
            &limits,
            two(),
            |batch| ready(batch.into_iter().map(Ok).collect()),
            failed,
        );
        let refused = [Err(Fault::Limit), Err(Fault::Limit)];
        assert_eq!((&each.await[..], &whole.await[..]), (&refused[..], &refused[..]));
    }
}
