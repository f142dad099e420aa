//! The thread on which a client's watchdog and I/O run, and how a caller's thread waits for a future beside it.
//! The futures are the async face's.

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
const ADOPTED: &str = "whatever waits for so long came from the client that runs here";
const ON_A_WORKER: &str = "tenure::blocking was called on a thread that drives async tasks, and would stop them all: \
     use tenure::Client there, or make the call inside tokio::task::spawn_blocking";

/// The runtime of one client, shared by all that came from it; or those of several, of which the first is waited on.
///
/// One for each client and not one for the process: it then ends with its client, and clients do not share a fate. The
/// caller's future is polled on the caller's thread, so that a store that answers at once costs no hop.
#[derive(Clone)]
pub(crate) struct Runtime(Arc<[Arc<Shared>]>);

struct Shared {
    handle: Handle,
    client: OnceLock<crate::Client>,
    /// Tells the thread that nobody is left, and gives it the client to close.
    nobody_left: Option<oneshot::Sender<crate::Client>>,
}

impl Runtime {
    /// Starts the thread. It ends when the last clone has gone and what the client held is given back.
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
                // Every hand-back ends with its lease at the latest: there is nobody to tell if one could not be confirmed.
                let _ = client.close(Duration::MAX).await;
            }
        };
        thread
            .spawn(move || runtime.block_on(until_nobody_is_left))
            .map_err(|_| NO_THREAD)?;
        Ok(Self::with(handle, Some(nobody_left)))
    }

    /// A runtime that is driven, and ended, by somebody else.
    #[cfg(feature = "testing")]
    pub(crate) fn beside(handle: Handle) -> Self {
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

    /// Those of several clients.
    pub(super) fn of_all(runtimes: &[Runtime]) -> Self {
        let each = runtimes.iter().flat_map(|runtime| runtime.0.iter());
        Runtime(each.cloned().collect())
    }

    /// Makes `client` the one that runs here. Its watchdog starts at once: a lock held together with another client's
    /// would else start it on that one's thread.
    pub(crate) fn adopt(&self, client: &crate::Client) -> Result<(), Error> {
        let own = &self.0[0];
        let _entered = own.handle.enter();
        client.engine.services.start()?;
        let _ = own.client.set(client.clone());
        Ok(())
    }

    /// Waits for `future` on this thread; its timers and I/O are the client's thread's.
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        match self.0.first() {
            Some(first) => first.block_on(future),
            None => future
                .now_or_never()
                .expect("what belongs to no client is refused before it waits"),
        }
    }

    /// Waits for `future` as [`block_on`](Self::block_on) does, for at most `limit` on the client's belief clock; `None` if
    /// it was not done by then, and dropped.
    pub(crate) fn block_within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let client = self.0.first().and_then(|first| first.client.get());
        let services = &client.expect(ADOPTED).engine.services;
        self.block_on(within(&services.tasks, &*services.context.clock, limit, future))
    }
}

impl Shared {
    /// Threads of `spawn_blocking` are in a runtime too: only an attempt to wait tells whether one may. Tokio says its own
    /// sentence first.
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
            // If the thread has ended, the client was closed, or never made.
            let _ = nobody_left.send(client);
        }
    }
}
