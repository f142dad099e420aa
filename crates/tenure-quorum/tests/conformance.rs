//! Runs the contract's conformance suite on quorums of memory stores, with and without injected faults.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use tenure_backend::{Backend, Call, Clock, Effect};
use tenure_memory::MemoryStore;
use tenure_quorum::{Config, Quorum};
use tenure_testkit::{FaultyBackend, ManualClock, Subject};
use tokio::runtime::{Builder, Handle};

#[path = "members/unreachable.rs"]
mod unreachable;

use unreachable::Unreachable;

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

/// Memory stores on a clock that the suite advances. The first `dead` ones refuse connections.
struct Stores {
    clock: ManualClock,
    stores: Vec<MemoryStore>,
    dead: usize,
}

fn quorum(stores: &[MemoryStore], dead: usize, clock: Arc<dyn Clock>) -> Call<Arc<dyn Backend>> {
    let members = stores.iter().enumerate().map(|(number, store)| {
        let client = store.client(clock.clone()) as Arc<dyn Backend>;
        match number < dead {
            true => Arc::new(FaultyBackend::new(Unreachable(client, Effect::None))) as Arc<dyn Backend>,
            false => client,
        }
    });
    let _runtime = MEMBERS.enter();
    let quorum = Quorum::new(members.collect(), Config::default());
    Call::ready(quorum.map(|quorum| quorum as Arc<dyn Backend>))
}

impl Subject for Stores {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        quorum(&self.stores, self.dead, Arc::new(self.clock.clone()))
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
        Some(quorum(&stores, self.dead, clock))
    }
}

fn members(count: usize, dead: usize) -> Stores {
    let clock = ManualClock::new();
    let store = |_| MemoryStore::new(Arc::new(clock.clone()));
    let stores = (0..count).map(store).collect();
    Stores { clock, stores, dead }
}

mod of_three {
    async fn subject() -> impl tenure_testkit::Subject {
        super::members(3, 0)
    }

    tenure_testkit::conformance!(subject);
    tenure_testkit::conformance_under_chaos!(subject);
    tenure_testkit::agrees_with_the_model!(subject, walks: 200);
}

mod of_two {
    async fn subject() -> impl tenure_testkit::Subject {
        super::members(2, 0)
    }

    tenure_testkit::conformance!(subject);
}

mod of_five {
    async fn subject() -> impl tenure_testkit::Subject {
        super::members(5, 0)
    }

    tenure_testkit::conformance!(subject);
    tenure_testkit::agrees_with_the_model!(subject, walks: 50);
}

mod of_three_with_one_dead {
    async fn subject() -> impl tenure_testkit::Subject {
        super::members(3, 1)
    }

    tenure_testkit::conformance!(subject);
    tenure_testkit::agrees_with_the_model!(subject, walks: 50);
}
