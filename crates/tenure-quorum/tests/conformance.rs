//! Runs the contract's conformance suite on quorums of memory stores, with and without injected faults.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Backend, Call, Clock};
use tenure_memory::MemoryStore;
use tenure_quorum::{Config, Quorum};
use tenure_testkit::{ManualClock, Subject};

/// Memory stores on a clock that the suite advances.
struct Stores {
    clock: ManualClock,
    stores: Vec<MemoryStore>,
}

fn quorum(stores: &[MemoryStore], clock: Arc<dyn Clock>) -> Call<Arc<dyn Backend>> {
    let members = stores
        .iter()
        .map(|store| store.client(clock.clone()) as Arc<dyn Backend>);
    let quorum = Quorum::new(members.collect(), Config::default());
    Call::ready(quorum.map(|quorum| quorum as Arc<dyn Backend>))
}

impl Subject for Stores {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        quorum(&self.stores, Arc::new(self.clock.clone()))
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.clock.advance(time);
        Box::pin(std::future::ready(()))
    }

    fn client_on(&self, clock: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        let stores: Vec<_> = self
            .stores
            .iter()
            .map(|_| MemoryStore::new(clock.clone()))
            .collect();
        Some(quorum(&stores, clock))
    }
}

fn members(count: usize) -> Stores {
    let clock = ManualClock::new();
    let store = |_| MemoryStore::new(Arc::new(clock.clone()));
    let stores = (0..count).map(store).collect();
    Stores { clock, stores }
}

mod of_three {
    async fn subject() -> impl tenure_testkit::Subject {
        super::members(3)
    }

    tenure_testkit::conformance!(subject);
    tenure_testkit::conformance_under_chaos!(subject);
    tenure_testkit::agrees_with_the_model!(subject, walks: 200);
}

mod of_two {
    async fn subject() -> impl tenure_testkit::Subject {
        super::members(2)
    }

    tenure_testkit::conformance!(subject);
}
