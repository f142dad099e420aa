//! The store under test: memory on a clock that the suite moves, behind connections with one bug or none.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{Backend, Call, Clock};
use tenure_memory::MemoryStore;
use tenure_testkit::{Ailment, Door, FaultyBackend, ManualClock, Slow, Subject};

use crate::bug::Bug;
use crate::planted::{Notes, Planted};

/// Makes time pass while a request or a reply is on its way.
#[derive(Debug)]
pub(crate) struct SlowDoor {
    clock: ManualClock,
    delays: Mutex<(Duration, Duration)>,
}

impl Door for SlowDoor {
    fn delay(&self, requests: Duration, answers: Duration) {
        *self.delays.lock() = (requests, answers);
    }
}

impl SlowDoor {
    pub(crate) fn lets_in(&self) {
        self.clock.advance(self.delays.lock().0);
    }

    pub(crate) fn lets_out(&self) {
        self.clock.advance(self.delays.lock().1);
    }
}

/// A store in memory with a bug, or with none.
pub(crate) struct Buggy {
    bug: Option<Bug>,
    clock: ManualClock,
    memory: MemoryStore,
    notes: Arc<Notes>,
}

impl Buggy {
    pub(crate) fn new(bug: Option<Bug>) -> Self {
        let clock = ManualClock::new();
        Buggy {
            bug,
            memory: MemoryStore::new(Arc::new(clock.clone())),
            clock,
            notes: Arc::default(),
        }
    }

    fn connect(&self, memory: &MemoryStore, clock: Arc<dyn Clock>) -> Slow {
        let door = Arc::new(SlowDoor {
            clock: self.clock.clone(),
            delays: Mutex::default(),
        });
        let planted = Planted {
            bug: self.bug,
            memory: memory.clone(),
            store: memory.client(clock),
            door: door.clone(),
            notes: self.notes.clone(),
        };
        let backend = Arc::new(FaultyBackend::new(planted));
        Slow { backend, door }
    }
}

impl Subject for Buggy {
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

    fn slow(&self) -> Option<Call<Slow>> {
        let client = self.connect(&self.memory, Arc::new(self.clock.clone()));
        Some(Call::ready(Ok(client)))
    }

    fn ail(&self, ailment: Option<Ailment>) -> Option<Call<()>> {
        *self.notes.ailment.lock() = ailment;
        Some(Call::ready(Ok(())))
    }
}
