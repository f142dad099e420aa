//! The store that clients share: a lock around the table of all keys, and the clock of its leases.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tenure_backend::{
    Claim, ClientId, Clock, HolderId, Instant, Invalidation, InvalidationQueue, Invalidations, LockKey,
    WakeSignal, Wakes,
};

use crate::operation::{Moment, Signals};
use crate::table::Table;

/// A store in the memory of this process, which several clients share. Cloning it copies a pointer.
///
/// The store counts leases on its own clock. Each client reads the clock that it was created with, as if it ran on
/// another machine. With [`Memory::new`](crate::Memory::new) both are the system's clock.
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

/// Has cache lines of its own, as [`Memory`](crate::Memory) has.
#[repr(align(128))]
struct Shared {
    clock: Arc<dyn Clock>,
    table: Mutex<Table>,
    /// The clients that subscribed to invalidations.
    invalidated: Mutex<Vec<(ClientId, InvalidationQueue)>>,
}

impl MemoryStore {
    /// Creates an empty store that counts leases on `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let table = Mutex::new(Table::new(clock.now(), wall));
        MemoryStore(Arc::new(Shared {
            clock,
            table,
            invalidated: Mutex::default(),
        }))
    }

    /// Runs `act` on the table for the client that reads `clock`, and then notifies the signals that `act` collected.
    ///
    /// The client's clock is read before the store's, so that a client never counts a lease from a later moment than
    /// the store does (rule B3). Both are read while the table is locked, so that the readings of successive requests
    /// never go back.
    pub(crate) fn act<T>(
        &self,
        clock: &Arc<dyn Clock>,
        act: impl FnOnce(&mut Table, Moment, &mut Signals) -> T,
    ) -> T {
        let mut signals = Signals::new();
        let reply = {
            let mut table = self.0.table.lock();
            let client_now = clock.now();
            let now = if Arc::ptr_eq(clock, &self.0.clock) {
                client_now
            } else {
                self.0.clock.now()
            };
            act(&mut table, Moment { now, client_now }, &mut signals)
        };
        for signal in signals {
            signal.notify();
        }
        reply
    }

    /// Runs `read` on the locked table, with the store's time.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Table, Instant) -> T) -> T {
        let table = self.0.table.lock();
        read(&table, self.0.clock.now())
    }

    /// Tells the client of each of these claims that its claim on the key was evicted.
    pub(crate) fn report_evictions(&self, key: &LockKey, evicted: &[HolderId]) {
        for holder in evicted {
            let HolderId::Claim(id) = holder else { continue };
            let clients = self.0.invalidated.lock();
            let of_client = clients.iter().filter(|(client, _)| *client == id.client());
            let queues: Vec<InvalidationQueue> = of_client.map(|(_, queue)| queue.clone()).collect();
            drop(clients);
            for queue in queues {
                queue.push(Invalidation::Key(key.clone()));
            }
        }
    }

    /// Subscribes the client to its evictions. Dropping the stream ends the subscription.
    pub(crate) fn invalidations(&self, client: ClientId) -> Invalidations {
        let queue = InvalidationQueue::default();
        queue.push(Invalidation::All);
        self.0.invalidated.lock().push((client, queue.clone()));
        let (store, subscribed) = (self.clone(), queue.clone());
        queue.invalidations(move || {
            let mut clients = store.0.invalidated.lock();
            clients.retain(|(_, queue)| !queue.is(&subscribed));
        })
    }

    /// Subscribes the claim to wake-ups. Dropping the stream ends the subscription.
    pub(crate) fn watch(&self, claim: Arc<Claim>) -> Wakes {
        let signal = WakeSignal::default();
        let key = claim.at.key.clone();
        self.act(&self.0.clock, |table, at, signals| {
            table.watch(claim, signal.clone(), at, signals);
        });
        let (store, watched) = (self.clone(), signal.clone());
        signal.wakes(move || {
            store.act(&store.0.clock, |table, at, signals| {
                table.unwatch(&key, &watched, at, signals);
            });
        })
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryStore(..)")
    }
}
