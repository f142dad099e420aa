//! A store for each test, with another project's client and a Tenure client.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::{Client, Settings};
use tenure_interop::{Driver, Lock, Peer, Worker};

use super::subject::{Ours, Subject};

/// A time limit that only a failing test reaches.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Time limit for a waiter whose turn has come, on a machine that is busy with other tests.
pub(crate) const PROMPT: Duration = Duration::from_secs(10);

/// The lease of tests that never reach its end.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// The lease of tests that wait for its end.
pub(crate) const SHORT: Duration = Duration::from_secs(3);

/// The kind of lock and the client with which a case runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) subject: &'static Subject,
    pub(crate) driver: Driver,
}

/// The store of one test.
pub(crate) trait Store: Send + Sync {
    /// The URL for both sides. Tenure adds the options of the subject.
    fn url(&self) -> String;

    /// The locks in the store, without Tenure's own records. What differs between two runs is replaced by a word.
    fn data(&self) -> Vec<String>;

    /// Number of waiters in the lock's queue, in a store that has one.
    fn queued(&self) -> usize {
        unreachable!("this store has no queue")
    }

    /// The name of a number for the other client.
    fn number(&self) -> String {
        "counter".to_owned()
    }

    /// Returns a function that increments that number by reading and then writing it, on a connection of its
    /// own, or on that of a lock of the other client.
    fn counter(&self, theirs: &Lock) -> Box<dyn FnMut() + Send>;

    /// Reads the number.
    fn counted(&self) -> u32;
}

pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) peer: Peer,
    pub(crate) client: Client,
    pub(crate) subject: &'static Subject,
}

impl Setting {
    /// Creates a fixture whose other client runs in the driver's process that all tests share. Both clients use
    /// `lease`. Returns `None` if `TENURE_SKIP` names a tool that the driver or the store needs.
    pub(crate) async fn fixture(self, lease: Duration) -> Option<Fixture> {
        self.fixture_in(&Worker::shared(self.driver)?, lease).await
    }

    /// Creates a fixture whose other client runs in the process of `worker`.
    pub(crate) async fn fixture_in(self, worker: &Worker, lease: Duration) -> Option<Fixture> {
        let store = (self.subject.store)(self.subject)?;
        let peer = Peer::open(worker, &store.url(), lease).await.unwrap();
        let settings = Settings::default().lease(lease);
        let url = format!("{}{}", store.url(), self.subject.options);
        let client = tenure::connect_with(&url, settings).await.unwrap();
        Some(Fixture {
            store,
            peer,
            client,
            subject: self.subject,
        })
    }
}

impl Fixture {
    /// Tenure's lock.
    pub(crate) fn ours(&self) -> Ours {
        self.subject.ours(&self.client)
    }

    /// The other client's lock, used by that owner.
    pub(crate) fn theirs(&self, owner: &str) -> Lock {
        self.peer.owner(owner).lock(self.subject.kind, self.subject.key)
    }

    /// The URL for another Tenure client.
    pub(crate) fn url(&self) -> String {
        format!("{}{}", self.store.url(), self.subject.options)
    }

    /// The locks in the store.
    pub(crate) fn data(&self) -> Vec<String> {
        self.store.data()
    }

    /// Waits until the store has only data that satisfies `is_expected`.
    pub(crate) async fn until_data(&self, is_expected: impl Fn(&[String]) -> bool) {
        self.until(|store| is_expected(&store.data())).await;
    }

    /// Waits until the store satisfies `is_expected`.
    pub(crate) async fn until(&self, is_expected: impl Fn(&dyn Store) -> bool) {
        let end = Instant::now() + LIMIT;
        while !is_expected(&*self.store) {
            assert!(Instant::now() < end, "the store still has {:?}", self.data());
            // sleep: stores do not say when a key changes.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(limit, future).await;
    answer.unwrap_or_else(|_| panic!("not within {limit:?}: {what}"))
}

/// Waits for `time`, and checks that the waiter still waits then.
pub(crate) async fn assert_waits<T: Debug>(
    time: Duration,
    what: &str,
    future: impl Future<Output = T> + Unpin,
) {
    if let Ok(answer) = tokio::time::timeout(time, future).await {
        panic!("{what} did not wait for {time:?}: {answer:?}");
    }
}
