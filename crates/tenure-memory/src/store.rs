//! The store that clients share: one lock around the table, and the clocks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tenure_backend::{Claim, Clock, Instant, WakeSignal, Wakes};

use crate::backend::Memory;
use crate::table::Table;
use crate::visit::{Bells, Moment};

/// A store in this process's memory, for several clients to share. Cloning it copies a pointer.
///
/// Leases are counted on the store's own clock. Each client reads the clock it was given, as if the two were
/// on different machines; with [`Memory::new`] both are the system's.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use tenure_backend::{Backend, SystemClock};
/// use tenure_memory::MemoryStore;
///
/// let store = MemoryStore::new(Arc::new(SystemClock));
/// let (one, other) = (store.client(Arc::new(SystemClock)), store.client(Arc::new(SystemClock)));
/// assert_eq!(one.profile(), other.profile());
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Shared>);

struct Shared {
    clock: Arc<dyn Clock>,
    table: Mutex<Table>,
}

impl MemoryStore {
    /// An empty store that counts leases on `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let table = Mutex::new(Table::new(clock.now(), wall));
        MemoryStore(Arc::new(Shared { clock, table }))
    }

    /// A connection to the store for one client, which reads `clock`. Closing it closes no other.
    pub fn client(&self, clock: Arc<dyn Clock>) -> Arc<Memory> {
        Arc::new(Memory {
            store: self.clone(),
            clock,
            closed: AtomicBool::new(false),
        })
    }

    /// Does one thing to the table, for a client that reads `clock`, and wakes whom it concerns.
    ///
    /// Both clocks are read while the store is locked, the client's first: so no request acts on an older
    /// reading than one that acted before it, and no client believes in a lease for longer than the store
    /// counts it.
    pub(crate) fn act<T>(
        &self,
        clock: &Arc<dyn Clock>,
        act: impl FnOnce(&mut Table, Moment, &mut Bells) -> T,
    ) -> T {
        let mut signals = Bells::new();
        let answer = {
            let mut table = self.0.table.lock();
            let asked = clock.now();
            let now = if Arc::ptr_eq(clock, &self.0.clock) {
                asked
            } else {
                self.0.clock.now()
            };
            act(&mut table, Moment { now, asked }, &mut signals)
        };
        for signal in signals {
            signal.notify();
        }
        answer
    }

    /// Looks at the table.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Table, Instant) -> T) -> T {
        let table = self.0.table.lock();
        look(&table, self.0.clock.now())
    }

    /// Wake-ups for the claim, which end its watch when they are dropped.
    pub(crate) fn watch(&self, claim: Arc<Claim>) -> Wakes {
        let signal = WakeSignal::default();
        let key = claim.at.key.clone();
        self.act(&self.0.clock, |table, at, signals| {
            table.watch(claim, signal.clone(), at, signals);
        });
        let (store, theirs) = (self.clone(), signal.clone());
        signal.wakes(move || {
            store.act(&store.0.clock, |table, at, signals| {
                table.unwatch(&key, &theirs, at, signals);
            });
        })
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryStore(..)")
    }
}
