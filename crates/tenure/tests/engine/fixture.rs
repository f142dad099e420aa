//! A store, its clock and its clients, for one test; and what stands in the store.

use std::fmt::Debug;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tenure::{
    Client, Error, Guard, HolderId, LockKey, LockStatus, Lost, Mutex, Profile, Query, ReleaseTarget,
    Settings, WaiterStatus,
};
use tenure_backend::{
    AcquireReply, Backend, Claim, ClaimId, ClaimRef, ClientId, Clock, Fairness, Mode, OwnerId,
};
use tenure_memory::MemoryStore;
use tenure_testkit::SimClock;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::stage::{Stage, stage, stage_with_profile};

pub(crate) struct World {
    pub(crate) clock: SimClock,
    store: MemoryStore,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = SimClock::new();
        let store = MemoryStore::new(Arc::new(clock.clone()));
        World { clock, store }
    }

    /// A world with clients whose calls are answered at once.
    pub(crate) fn clients<const N: usize>() -> (Self, [Client; N]) {
        let world = World::new();
        let clients = [(); N].map(|()| world.client());
        (world, clients)
    }

    /// A world with one client whose calls a test can hold up and let fail.
    pub(crate) fn with_stage() -> (Self, Client, Arc<Stage>) {
        let world = World::new();
        let (client, stage) = world.staged();
        (world, client, stage)
    }

    /// A client whose calls are answered at once.
    pub(crate) fn client(&self) -> Client {
        self.client_with(Settings::default())
    }

    pub(crate) fn client_with(&self, settings: Settings) -> Client {
        Client::new(self.backend(), settings)
    }

    /// A client whose calls a test can hold up and let fail.
    pub(crate) fn staged(&self) -> (Client, Arc<Stage>) {
        self.staged_with(Settings::default())
    }

    pub(crate) fn staged_with(&self, settings: Settings) -> (Client, Arc<Stage>) {
        let stage = stage(self.backend());
        (Client::new(stage.clone(), settings), stage)
    }

    /// A client of a store with another profile.
    pub(crate) fn staged_where(&self, change: impl FnOnce(&mut Profile)) -> (Client, Arc<Stage>) {
        let backend = self.backend();
        let mut profile = backend.profile().clone();
        change(&mut profile);
        let stage = stage_with_profile(backend, profile);
        (Client::new(stage.clone(), Settings::default()), stage)
    }

    /// A world with one client that holds the key `k`, and gives it back through the store.
    pub(crate) async fn held() -> (Self, Client, Arc<Stage>, Guard) {
        let world = World::new();
        let (client, stage) = world.staged_with(Settings::default().passing(false));
        let guard = client.mutex("k").lock().await.expect("nobody holds it");
        (world, client, stage, guard)
    }

    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        self.store.client(Arc::new(self.clock.clone()))
    }

    /// Has somebody hold that key who never does anything again.
    pub(crate) async fn dead_holder(&self, key: &str, lease: Duration) {
        let dead = Claim {
            at: ClaimRef {
                key: LockKey::new(key).expect("tests use good keys"),
                id: ClaimId::new(ClientId::from_random([1; 16]), 1),
            },
            owner: OwnerId(0),
            label: "dead".into(),
            mode: Mode::Exclusive,
            fairness: Fairness::Unfair,
            lease,
            grants: NonZeroU32::MIN,
        };
        let not_after = self.clock.now() + SECOND;
        let standing = self.backend().acquire(Arc::new(dead), not_after).await;
        assert!(matches!(standing, Ok(AcquireReply::Granted(_))), "{standing:?}");
    }

    /// What stands in the store about that key.
    pub(crate) async fn status(&self, key: &str) -> Option<LockStatus> {
        let key = LockKey::new(key).expect("tests use good keys");
        let page = self
            .backend()
            .inspect(Query::Key(key))
            .await
            .expect("memory can be inspected");
        page.items.into_iter().next()
    }

    /// The claims that queue for that key in the store.
    pub(crate) async fn queue(&self, key: &str) -> Vec<WaiterStatus> {
        let status = self.status(key).await.expect("somebody holds it");
        status.waiters.expect("memory shows its queue")
    }

    /// Whether nobody holds that key or queues for it.
    pub(crate) async fn is_free(&self, key: &str) -> bool {
        self.status(key).await.is_none()
    }

    /// Waits until nobody holds that key or queues for it; fails after `limit`.
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

/// Lets tokio's paused time pass, and every task do what it has to do meanwhile.
pub(crate) async fn pass(time: Duration) {
    // sleep: time is paused, so this is an instruction and not a wait.
    tokio::time::sleep(time).await;
}

/// Lets every task that can go on do so, without time passing.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A runtime of one thread, in real time.
pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("tokio starts")
}

/// A runtime whose one thread has that name, and works also while nobody waits for it.
pub(crate) fn worker(name: &str) -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).thread_name(name).enable_all();
    builder.build().expect("tokio starts")
}

/// The background tasks of the test's runtime that are alive.
pub(crate) fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// The mutex of the key `k`, fair or not.
pub(crate) fn mutex(client: &Client, fair: bool) -> Mutex {
    let mutex = client.mutex("k");
    if fair { mutex.fair() } else { mutex }
}

/// Somebody who waits for the key `k`: the successor of whoever of the same client holds it.
pub(crate) async fn successor(client: &Client) -> JoinHandle<Result<Guard, Error>> {
    spawned(client.mutex("k").lock_within(10 * SECOND)).await
}

/// Lets a task of its own do this work, as far as it can go at once.
pub(crate) async fn spawned<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let task = tokio::spawn(work);
    settle().await;
    task
}

/// The guard of a task that waits for it; fails when it is stranded.
pub(crate) async fn served(next: JoinHandle<Result<Guard, Error>>) -> Guard {
    served_within(60 * SECOND, next).await
}

/// The guard of a task that has to have it by then.
pub(crate) async fn served_within(limit: Duration, next: JoinHandle<Result<Guard, Error>>) -> Guard {
    let served = tokio::time::timeout(limit, next).await;
    served.expect("a waiter is stranded").unwrap().unwrap()
}

/// Locks of so many keys, `k0` and so on.
pub(crate) async fn hold_many(client: &Client, locks: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for n in 0..locks {
        guards.push(client.mutex(format!("k{n}")).lock().await.unwrap());
    }
    guards
}

/// Waits for the loss, but not for ever.
pub(crate) async fn lost(guard: &Guard) -> Lost {
    let lost = tokio::time::timeout(120 * SECOND, guard.lost()).await;
    lost.expect("the loss is never told")
}

/// Takes a key away from whoever holds it or queues for it.
pub(crate) async fn evict(client: &Client, key: &str) -> Vec<HolderId> {
    let key = LockKey::new(key).expect("tests use good keys");
    client
        .evict(ReleaseTarget::All(key))
        .await
        .expect("memory evicts")
}

/// Fails unless the answer is that error.
macro_rules! assert_error {
    ($answer:expr, $error:pat) => {
        let answer = $answer;
        assert!(matches!(answer, Err($error)), "{answer:?}");
    };
}
pub(crate) use assert_error;

/// Fails unless the answer is that the store cannot be reached for now.
#[track_caller]
pub(crate) fn assert_weather<T: Debug>(answer: &Result<T, Error>, what: impl Debug) {
    let weather = matches!(answer, Err(Error::Backend(error)) if error.is_transient());
    assert!(weather, "{what:?}: {answer:?}");
}

/// A future that was polled once and has to wait.
pub(crate) async fn begun<F: Future + Unpin>(mut future: F) -> F {
    assert!(
        poll_once(&mut future).await.is_none(),
        "it has nothing to wait for"
    );
    future
}

/// As [`begun`], after everything that follows at once.
pub(crate) async fn queued<F: Future + Unpin>(future: F) -> F {
    let future = begun(future).await;
    settle().await;
    future
}

/// Polls a future once.
pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx: &mut Context<'_>| match Pin::new(&mut *future).poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);
/// How long a holder may believe in the default lease: it, less drift and margin.
pub(crate) const BELIEF: Duration = Duration::from_millis(29_400);
