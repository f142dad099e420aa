//! A memory store, its clock and its clients for one test, and helpers that read the store's state.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tenure::inspect::{LockStatus, Query, WaiterStatus};
use tenure::{Client, Error, Guard, HolderId, LockKey, Lost, Mutex, Profile, ReleaseTarget, Settings};
use tenure_backend::{AcquireReply, Backend, Claim, ClaimId, ClaimRef, ClientId, Clock};
use tenure_memory::MemoryStore;
use tenure_testkit::SimClock;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::faulty_backend::{FaultyBackend, faulty, faulty_with_profile};

pub(crate) struct Fixture {
    pub(crate) clock: SimClock,
    store: MemoryStore,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let clock = SimClock::new();
        let store = MemoryStore::new(Arc::new(clock.clone()));
        Fixture { clock, store }
    }

    /// A fixture with clients whose calls are answered at once.
    pub(crate) fn clients<const N: usize>() -> (Self, [Client; N]) {
        let fixture = Fixture::new();
        let clients = [(); N].map(|()| fixture.client());
        (fixture, clients)
    }

    /// A fixture with one client whose calls the test can hold and fail.
    pub(crate) fn with_faulty_backend() -> (Self, Client, Arc<FaultyBackend>) {
        let fixture = Fixture::new();
        let (client, backend) = fixture.faulty_client();
        (fixture, client, backend)
    }

    /// A client whose calls are answered at once.
    pub(crate) fn client(&self) -> Client {
        self.client_with(Settings::default())
    }

    pub(crate) fn client_with(&self, settings: Settings) -> Client {
        Client::new(self.backend(), settings)
    }

    /// A client whose calls the test can hold and fail.
    pub(crate) fn faulty_client(&self) -> (Client, Arc<FaultyBackend>) {
        self.faulty_client_with(Settings::default())
    }

    pub(crate) fn faulty_client_with(&self, settings: Settings) -> (Client, Arc<FaultyBackend>) {
        let backend = faulty(self.backend());
        (Client::new(backend.clone(), settings), backend)
    }

    /// A client whose calls the test can hold and fail, on a store whose profile `change` has modified.
    pub(crate) fn faulty_client_where(
        &self,
        change: impl FnOnce(&mut Profile),
    ) -> (Client, Arc<FaultyBackend>) {
        let backend = self.backend();
        let mut profile = backend.profile().clone();
        change(&mut profile);
        let backend = faulty_with_profile(backend, profile);
        (Client::new(backend.clone(), Settings::default()), backend)
    }

    /// A fixture with one client that holds the key `k`. Without local hand-over, an unlock always calls the store.
    pub(crate) async fn holding() -> (Self, Client, Arc<FaultyBackend>, Guard) {
        let fixture = Fixture::new();
        let (client, backend) = fixture.faulty_client_with(Settings::default().local_handover(false));
        let guard = client.mutex("k").lock().await.expect("the key is free");
        (fixture, client, backend, guard)
    }

    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        self.store.client(Arc::new(self.clock.clone()))
    }

    /// Grants `key` to a holder that never renews or releases it.
    pub(crate) async fn dead_holder(&self, key: &str, lease: Duration) {
        let at = ClaimRef {
            key: LockKey::new(key).expect("tests use good keys"),
            id: ClaimId::new(ClientId::from_random([1; 16]), 1),
        };
        let dead = Claim {
            label: "dead".into(),
            ..Claim::of(at, lease)
        };
        let not_after = self.clock.now() + SECOND;
        let standing = self.backend().acquire(Arc::new(dead), not_after).await;
        assert!(matches!(standing, Ok(AcquireReply::Granted(_))), "{standing:?}");
    }

    /// The state of `key` in the store; `None` if it has neither a holder nor a waiter.
    pub(crate) async fn status(&self, key: &str) -> Option<LockStatus> {
        let key = LockKey::new(key).expect("tests use good keys");
        let page = self
            .backend()
            .inspect(Query::Key(key))
            .await
            .expect("memory can be inspected");
        page.items.into_iter().next()
    }

    /// The claims in the store's queue for `key`. Panics if the key is free.
    pub(crate) async fn queue(&self, key: &str) -> Vec<WaiterStatus> {
        let status = self.status(key).await.expect("the key is held");
        status.waiters.expect("memory shows its queue")
    }

    /// Returns true if `key` has neither a holder nor a waiter in the store.
    pub(crate) async fn is_free(&self, key: &str) -> bool {
        self.status(key).await.is_none()
    }

    /// Waits until `key` has neither a holder nor a waiter; fails after `limit`.
    pub(crate) async fn freed(&self, key: &str, limit: Duration) {
        let end = self.clock.now() + limit;
        while let Some(status) = self.status(key).await {
            assert!(
                self.clock.now() < end,
                "{key} is not free within {limit:?}: {status:?}"
            );
            pass(Duration::from_millis(1)).await;
        }
    }
}

/// Advances tokio's paused time, in which all tasks run.
pub(crate) async fn pass(time: Duration) {
    // sleep: time is paused, so this advances it instead of waiting.
    tokio::time::sleep(time).await;
}

/// Lets every task run until it has to wait, without advancing time.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A runtime with one thread, in real time.
pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("tokio starts")
}

/// A runtime with one worker thread called `name`, which runs tasks also outside of `block_on`.
pub(crate) fn worker(name: &str) -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).thread_name(name).enable_all();
    builder.build().expect("tokio starts")
}

/// Number of background tasks of the test's runtime.
pub(crate) fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

pub(crate) fn mutex(client: &Client, fair: bool) -> Mutex {
    let mutex = client.mutex("k");
    if fair { mutex.fair() } else { mutex }
}

/// Starts a waiter for `k`. If this client holds `k`, its release names the waiter's claim as the successor.
pub(crate) async fn successor(client: &Client) -> JoinHandle<Result<Guard, Error>> {
    spawned(client.mutex("k").lock_within(10 * SECOND)).await
}

/// Starts a task for `work`, and lets it run until it has to wait.
pub(crate) async fn spawned<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let task = tokio::spawn(work);
    settle().await;
    task
}

/// Returns the guard of a waiting task; fails if the task has none within 60 s.
pub(crate) async fn served(next: JoinHandle<Result<Guard, Error>>) -> Guard {
    served_within(60 * SECOND, next).await
}

/// Returns the guard of a waiting task; fails if the task has none within `limit`.
pub(crate) async fn served_within(limit: Duration, next: JoinHandle<Result<Guard, Error>>) -> Guard {
    let served = tokio::time::timeout(limit, next).await;
    served.expect("the waiter never gets the lock").unwrap().unwrap()
}

/// Locks the keys `k0`, `k1` and so on.
pub(crate) async fn hold_many(client: &Client, locks: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for n in 0..locks {
        guards.push(client.mutex(format!("k{n}")).lock().await.unwrap());
    }
    guards
}

/// Waits until the lock is lost, and returns the loss; fails after 120 s.
pub(crate) async fn lost(guard: &Guard) -> Lost {
    let lost = tokio::time::timeout(120 * SECOND, guard.lost()).await;
    lost.expect("the loss is never reported")
}

/// Evicts all holders of a key.
pub(crate) async fn evict(client: &Client, key: &str) -> Vec<HolderId> {
    let key = LockKey::new(key).expect("tests use good keys");
    client
        .evict(ReleaseTarget::All(key))
        .await
        .expect("memory evicts")
}

/// Fails unless `$answer` is an error that matches `$error`.
macro_rules! assert_error {
    ($answer:expr, $error:pat) => {
        let answer = $answer;
        assert!(matches!(answer, Err($error)), "{answer:?}");
    };
}
pub(crate) use assert_error;

/// Fails unless the result is a transient error of the store.
#[track_caller]
pub(crate) fn assert_transient<T: Debug>(answer: &Result<T, Error>, what: impl Debug) {
    let is_transient = matches!(answer, Err(Error::Backend(error)) if error.is_transient());
    assert!(is_transient, "{what:?}: {answer:?}");
}

/// Polls a future once and returns it; fails if the future is ready.
pub(crate) async fn begun<F: Future + Unpin>(mut future: F) -> F {
    assert!(
        poll_once(&mut future).await.is_none(),
        "it has nothing to wait for"
    );
    future
}

/// Polls a future once, which must not be ready. Then lets every task run until it has to wait.
pub(crate) async fn queued<F: Future + Unpin>(future: F) -> F {
    let future = begun(future).await;
    settle().await;
    future
}

pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx: &mut Context<'_>| match Pin::new(&mut *future).poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);
/// Time from a grant to its local deadline: the default lease of 30 s, less 300 ms for drift and 300 ms as a margin.
pub(crate) const LOCAL_LEASE: Duration = Duration::from_millis(29_400);
