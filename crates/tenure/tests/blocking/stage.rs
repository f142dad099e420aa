//! What these tests share: clients, and waiting for an event with a deadline. No test is here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::backend::SystemClock;
use tenure::blocking::{self, Client};
use tenure::{Query, Settings};
use tenure_memory::MemoryStore;

pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) fn client() -> Client {
    blocking::connect("memory:").expect("memory is always there")
}

/// Two clients of one store.
pub(crate) fn two_clients() -> (Client, Client) {
    let store = MemoryStore::new(Arc::new(SystemClock));
    let one =
        || Client::new(store.client(Arc::new(SystemClock)), Settings::default()).expect("there is a thread");
    (one(), one())
}

/// Waits until it is so.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < SOON, "not within {SOON:?}: {what}");
        std::thread::yield_now();
    }
}

pub(crate) fn everybody_on(client: &Client, key: &str) -> Vec<tenure::LockStatus> {
    let query = Query::Key(tenure::LockKey::new(key).expect("the key is one"));
    client.inspect(query).expect("memory answers").items
}
