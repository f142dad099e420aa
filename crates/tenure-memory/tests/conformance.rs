//! Runs the conformance suite on the memory store, with and without injected faults.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Backend, Call, Clock};
use tenure_memory::MemoryStore;
use tenure_testkit::{ManualClock, Subject};

struct Memory {
    clock: ManualClock,
    store: MemoryStore,
}

impl Subject for Memory {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        Call::ready(Ok(self.store.client(Arc::new(self.clock.clone()))))
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.clock.advance(time);
        Box::pin(std::future::ready(()))
    }

    fn client_on(&self, clock: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        let store = MemoryStore::new(Arc::clone(&clock));
        Some(Call::ready(Ok(store.client(clock))))
    }
}

async fn subject() -> impl Subject {
    let clock = ManualClock::new();
    let store = MemoryStore::new(Arc::new(clock.clone()));
    Memory { clock, store }
}

tenure_testkit::conformance!(subject);
tenure_testkit::conformance_under_chaos!(subject);
tenure_testkit::agrees_with_the_model!(subject, walks: 2_000);
