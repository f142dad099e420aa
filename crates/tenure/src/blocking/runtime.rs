//! The thread on which a blocking client's watchdog and I/O run, and `block_on` for the caller's thread.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::engine::timer::within;
use crate::error::Error;

const NO_THREAD: Error = Error::Closed("the system gave no thread for this client");
const ADOPTED: &str = "a wait with a limit needs the client that runs on this thread";
const ON_A_WORKER: &str = "tenure::blocking was called on a thread that drives async tasks, and would stop them all: \
     use tenure::Client there, or make the call inside tokio::task::spawn_blocking";

/// The runtimes of the clients that a value uses: several for a multi-lock, else one. The first drives the timers of
/// a wait.
///
/// Each client has its own runtime, so that the runtime ends with its client and clients do not affect each other. The
/// caller's future is polled on the caller's thread, which saves a thread switch if the store answers at once.
#[derive(Clone)]
pub(crate) struct Runtime(Arc<[Arc<Shared>]>);

struct Shared {
    handle: Handle,
    client: OnceLock<crate::Client>,
    /// Sends the client to its thread when the last [`Runtime`] is dropped. The thread then closes the client and ends.
    nobody_left: Option<oneshot::Sender<crate::Client>>,
}

impl Runtime {
    /// Starts a client's thread, which ends when the last clone of this `Runtime` is dropped and the client's claims are
    /// released.
    pub(crate) fn start() -> Result<Self, Error> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|_| NO_THREAD)?;
        let handle = runtime.handle().clone();
        let (nobody_left, told) = oneshot::channel::<crate::Client>();
        let thread = std::thread::Builder::new().name("tenure-blocking".to_owned());
        let until_nobody_is_left = async move {
            if let Ok(client) = told.await {
                // An unconfirmed release is ignored: no caller is left, and the lock becomes free when its lease ends.
                let _ = client.close(Duration::MAX).await;
            }
        };
        thread
            .spawn(move || runtime.block_on(until_nobody_is_left))
            .map_err(|_| NO_THREAD)?;
        Ok(Self::with(handle, Some(nobody_left)))
    }

    /// Wraps a runtime that other code drives and ends.
    #[cfg(feature = "testing")]
    pub(crate) fn driven_elsewhere(handle: Handle) -> Self {
        Self::with(handle, None)
    }

    fn with(handle: Handle, nobody_left: Option<oneshot::Sender<crate::Client>>) -> Self {
        let client = OnceLock::new();
        Runtime(Arc::new([Arc::new(Shared {
            handle,
            client,
            nobody_left,
        })]))
    }

    /// Combines the runtimes of several clients, for a multi-lock.
    pub(super) fn of_all(runtimes: &[Runtime]) -> Self {
        let each = runtimes.iter().flat_map(|runtime| runtime.0.iter());
        Runtime(each.cloned().collect())
    }

    /// Binds `client` to this runtime's thread, and starts the client's watchdog on it at once. Otherwise a
    /// multi-lock could start the watchdog on the thread of another client.
    pub(crate) fn adopt(&self, client: &crate::Client) -> Result<(), Error> {
        let own = &self.0[0];
        let _entered = own.handle.enter();
        client.engine.services.start()?;
        let _ = own.client.set(client.clone());
        Ok(())
    }

    /// Polls `future` on this thread until it is ready; its timers and I/O run on the client's thread.
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        match self.0.first() {
            Some(first) => first.block_on(future),
            None => future
                .now_or_never()
                .expect("a call without a client is refused before it waits"),
        }
    }

    /// Waits for `future` as [`block_on`](Self::block_on) does, for at most `limit` on the client's lease clock. Drops
    /// the future and returns `None` if it was not ready by then.
    pub(crate) fn block_within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let client = self.0.first().and_then(|first| first.client.get());
        let services = &client.expect(ADOPTED).engine.services;
        self.block_on(within(&services.tasks, &*services.context.clock, limit, future))
    }
}

impl Shared {
    /// Panics on a thread that drives async tasks. A thread of `spawn_blocking` is in a runtime too, but may block: the
    /// only way to find out is to block on an empty future. If that panics, tokio prints its own message first.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        if Handle::try_current().is_ok() {
            let attempt = catch_unwind(AssertUnwindSafe(|| self.handle.block_on(async {})));
            assert!(attempt.is_ok(), "{ON_A_WORKER}");
        }
        self.handle.block_on(future)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let (Some(nobody_left), Some(client)) = (self.nobody_left.take(), self.client.take()) {
            // Sending fails only if the thread has panicked: then nothing can close the client.
            let _ = nobody_left.send(client);
        }
    }
}
