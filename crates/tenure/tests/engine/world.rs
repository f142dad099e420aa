//! A store, its clock and its clients, for one test; and what stands in the store.

use std::future::{Future, IntoFuture};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tenure::{Client, Error, Guard, LockKey, LockStatus, Mutex, Query, Settings};
use tenure_backend::{Backend, Claim, ClaimId, ClaimRef, ClientId, Clock, Fairness, Mode, OwnerId, Standing};
use tenure_memory::MemoryStore;
use tenure_testkit::SimClock;
use tokio::task::JoinHandle;

use crate::stage::{Stage, stage};

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

    /// A client that holds the key `k`, whose release goes through the store.
    pub(crate) async fn held(&self) -> (Client, Arc<Stage>, Guard) {
        let (client, stage) = self.staged_with(Settings::default().passing(false));
        let guard = client.mutex("k").lock().await.expect("nobody holds it");
        (client, stage, guard)
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
        let place_by = self.clock.now() + SECOND;
        let standing = self.backend().acquire(Arc::new(dead), place_by).await;
        assert!(matches!(standing, Ok(Standing::Granted(_))), "{standing:?}");
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

/// The background tasks of the test's runtime that are alive.
pub(crate) fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// The mutex of the key `k`, fair or not.
pub(crate) fn mutex(client: &Client, fair: bool) -> Mutex {
    let mutex = client.mutex("k");
    if fair { mutex.fair() } else { mutex }
}

/// Somebody who waits for the key `k`: the heir of whoever of the same client holds it.
pub(crate) async fn heir(client: &Client) -> JoinHandle<Result<Guard, Error>> {
    let waiting = tokio::spawn(client.mutex("k").lock_within(10 * SECOND).into_future());
    settle().await;
    waiting
}

/// The guard of a task that waits for it; fails when it is stranded.
pub(crate) async fn served(next: JoinHandle<Result<Guard, Error>>) -> Guard {
    let served = tokio::time::timeout(60 * SECOND, next).await;
    served.expect("a waiter is stranded").unwrap().unwrap()
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
