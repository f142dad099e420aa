//! Runs the contract's conformance suite on quorums of memory stores, with and without injected faults.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use tenure_backend::{Backend, Call, Clock};
use tenure_memory::MemoryStore;
use tenure_quorum::{Config, Quorum};
use tenure_testkit::{ManualClock, Subject};
use tokio::runtime::{Builder, Handle};

/// The runtime on which all quorums of these tests send requests to their members. It has one thread, which runs tasks
/// in the order in which they were started. So a request has reached all members before its caller sends the next one.
///
/// With several threads, a claim could reach one member after the next claim of the case, lose the vote there, and end.
/// The contract allows that, but most cases expect that their claim still waits.
static MEMBERS: LazyLock<Handle> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be made");
    let handle = runtime.handle().clone();
    thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    handle
});

/// Memory stores on a clock that the suite advances.
struct Stores {
    clock: ManualClock,
    stores: Vec<MemoryStore>,
}

fn quorum(stores: &[MemoryStore], clock: Arc<dyn Clock>) -> Call<Arc<dyn Backend>> {
    let members = stores
        .iter()
        .map(|store| store.client(clock.clone()) as Arc<dyn Backend>);
    let _runtime = MEMBERS.enter();
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
