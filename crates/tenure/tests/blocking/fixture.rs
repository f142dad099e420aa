//! Clients, and helpers that read the store and wait for a condition.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::Settings;
use tenure::backend::SystemClock;
use tenure::blocking::{self, Client, Guard, Mutex};
use tenure::inspect::Query;
use tenure_memory::MemoryStore;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) fn client() -> Client {
    blocking::connect("memory:").expect("memory is always there")
}

/// Two clients of one store.
pub(crate) fn two_clients() -> (Client, Client) {
    let store = MemoryStore::new(Arc::new(SystemClock));
    (client_of(&store), client_of(&store))
}

pub(crate) fn client_of(store: &MemoryStore) -> Client {
    let backend = store.client(Arc::new(SystemClock));
    Client::new(backend, Settings::default()).expect("there is a thread")
}

pub(crate) fn held(mutex: Mutex) -> Guard {
    mutex.lock().expect("it is free")
}

pub(crate) fn is_free(client: &Client, key: &str) -> bool {
    let guard = client.mutex(key).try_lock().expect("memory answers");
    guard.is_some()
}

/// Fails unless `$answer` is an error that matches `$error`.
macro_rules! assert_error {
    ($answer:expr, $error:pat) => {
        let answer = $answer;
        assert!(matches!(answer, Err($error)), "{answer:?}");
    };
}
pub(crate) use assert_error;

/// Waits until `is_so` returns true; fails after [`SOON`] with the text `what`.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < SOON, "not within {SOON:?}: {what}");
        std::thread::yield_now();
    }
}

/// Returns true if exactly one claim waits for `key` in the store's queue.
pub(crate) fn one_queues(client: &Client, key: &str) -> bool {
    let waiters = statuses_of(client, key)[0].waiters.clone();
    waiters.is_some_and(|waiters| waiters.len() == 1)
}

pub(crate) fn statuses_of(client: &Client, key: &str) -> Vec<tenure::inspect::LockStatus> {
    let query = Query::Key(tenure::LockKey::new(key).expect("the key is one"));
    client.inspect(query).expect("memory answers").items
}
