//! The thread on which a client's watchdog and I/O run, and how a caller's thread waits for a future beside it.
//! The futures are the async face's.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::error::Error;
use crate::timer::within;

const NO_THREAD: Error = Error::Closed("the system gave no thread for this client");
const ADOPTED: &str = "whatever waits for so long came from the client that runs here";
const ON_A_WORKER: &str = "tenure::blocking was called on a thread that drives async tasks, and would stop them all: \
     use tenure::Client there, or make the call inside tokio::task::spawn_blocking";

/// The runtime of one client, shared by all that came from it.
///
/// One for each client and not one for the process: it then ends with its client, and clients do not share a fate. The
/// caller's future is polled on the caller's thread, so that a store that answers at once costs no hop.
#[derive(Clone)]
pub(crate) struct Runtime(Arc<Shared>);

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
        Runtime(Arc::new(Shared {
            handle,
            client: OnceLock::new(),
            nobody_left,
        }))
    }

    /// Makes `client` the one that runs here. Its watchdog starts at once: a lock held together with another client's
    /// would else start it on that one's thread.
    pub(crate) fn adopt(&self, client: &crate::Client) -> Result<(), Error> {
        let _entered = self.0.handle.enter();
        client.engine.watchdog.start(&client.engine)?;
        let _ = self.0.client.set(client.clone());
        Ok(())
    }

    /// Waits for `future` on this thread; its timers and I/O are the client's thread's.
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.refuse_on_a_worker();
        self.0.handle.block_on(future)
    }

    /// Waits for `future` as [`block_on`](Self::block_on) does, for at most `limit` on the client's belief clock; `None` if
    /// it was not done by then, and dropped.
    pub(crate) fn block_within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let client = self.0.client.get().expect(ADOPTED);
        self.block_on(within(&client.engine, limit, future))
    }

    /// Threads of `spawn_blocking` are in a runtime too: only an attempt to wait tells whether one may. Tokio says its own
    /// sentence first.
    fn refuse_on_a_worker(&self) {
        if Handle::try_current().is_ok() {
            let attempt = catch_unwind(AssertUnwindSafe(|| self.0.handle.block_on(async {})));
            assert!(attempt.is_ok(), "{ON_A_WORKER}");
        }
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

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Runtime(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use super::*;

    #[test]
    fn the_thread_ends_with_the_last_clone_and_not_before() {
        let runtime = Runtime::start().expect("there is a thread");
        let client = runtime
            .block_on(crate::connect("memory:"))
            .expect("memory is there");
        runtime.adopt(&client).expect("the client is open");
        drop(client);
        let (alive, ended) = channel::<()>();
        runtime.0.handle.spawn(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        let clone = runtime.clone();
        drop(runtime);
        let soon = Duration::from_millis(50);
        assert_eq!(ended.recv_timeout(soon), Err(RecvTimeoutError::Timeout));
        drop(clone);
        let at_last = ended.recv_timeout(Duration::from_secs(10));
        assert_eq!(at_last, Err(RecvTimeoutError::Disconnected));
    }
}
