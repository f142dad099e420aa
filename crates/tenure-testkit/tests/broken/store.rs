//! Store under test: the memory store on a manual clock, behind connections with one bug or none.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{Backend, Call, Clock};
use tenure_memory::MemoryStore;
use tenure_testkit::{FaultyBackend, Link, ManualClock, SlowClient, StoreFailure, Subject};

use crate::bug::Bug;
use crate::connection::{BuggyConnection, SharedState};

/// Link whose delays of requests and replies advance the clock.
#[derive(Debug)]
pub(crate) struct SlowLink {
    clock: ManualClock,
    delays: Mutex<(Duration, Duration)>,
}

impl Link for SlowLink {
    fn delay(&self, requests: Duration, answers: Duration) {
        *self.delays.lock() = (requests, answers);
    }
}

impl SlowLink {
    pub(crate) fn delay_request(&self) {
        self.clock.advance(self.delays.lock().0);
    }

    pub(crate) fn delay_reply(&self) {
        self.clock.advance(self.delays.lock().1);
    }
}

/// Memory store with one bug, or without a bug.
pub(crate) struct BuggyStore {
    bug: Option<Bug>,
    clock: ManualClock,
    memory: MemoryStore,
    shared: Arc<SharedState>,
}

impl BuggyStore {
    pub(crate) fn new(bug: Option<Bug>) -> Self {
        let clock = ManualClock::new();
        BuggyStore {
            bug,
            memory: MemoryStore::new(Arc::new(clock.clone())),
            clock,
            shared: Arc::default(),
        }
    }

    fn connect(&self, memory: &MemoryStore, clock: Arc<dyn Clock>) -> SlowClient {
        let link = Arc::new(SlowLink {
            clock: self.clock.clone(),
            delays: Mutex::default(),
        });
        let connection = BuggyConnection {
            bug: self.bug,
            memory: memory.clone(),
            store: memory.client(clock),
            link: link.clone(),
            shared: self.shared.clone(),
        };
        let backend = Arc::new(FaultyBackend::new(connection));
        SlowClient { backend, link }
    }
}

impl Subject for BuggyStore {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        let client = self.connect(&self.memory, Arc::new(self.clock.clone()));
        Call::ready(Ok(client.backend))
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.clock.advance(time);
        Box::pin(std::future::ready(()))
    }

    fn client_on(&self, clock: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        let client = self.connect(&MemoryStore::new(clock.clone()), clock);
        Some(Call::ready(Ok(client.backend)))
    }

    fn slow_client(&self) -> Option<Call<SlowClient>> {
        let client = self.connect(&self.memory, Arc::new(self.clock.clone()));
        Some(Call::ready(Ok(client)))
    }

    fn set_failure(&self, failure: Option<StoreFailure>) -> Option<Call<()>> {
        *self.shared.failure.lock() = failure;
        Some(Call::ready(Ok(())))
    }
}
