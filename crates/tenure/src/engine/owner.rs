//! Re-entrant locks: an owner that holds a key acquires it again without I/O.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;

use parking_lot::Mutex;
use tenure_backend::{ClientId, Instant, Kind, LockKey, Mode};

use super::hold::Hold;
use crate::error::Error;

/// A named owner of locks. Locks that are `owned_by` the same owner can be nested.
///
/// While an owner holds a key, its next lock of that key returns at once, with a guard on the same claim and the
/// same token; the last guard releases the claim. A read lock inside a write lock is a guard on the write
/// lock. A write lock inside a read lock, or inside a lock that was downgraded, is
/// [`WouldDeadlock`](crate::Error::WouldDeadlock). Semaphores are not re-entrant: each acquisition takes permits.
///
/// A nested lock shares the claim of the first one, with its lease, `max_hold`, `at_least` and label. The options of
/// the nested lock are ignored, so a `max_hold` that ends the first lock ends every nested one.
///
/// An owner is a value, not a task or a thread: give a clone to each task that acts for it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let client = tenure::connect("memory:").await?;
/// let owner = client.owner("importer");
/// let mutex = client.mutex("catalogue").owned_by(&owner);
/// let outer = mutex.lock().await?;
/// let inner = mutex.lock().await?;
/// assert_eq!(outer.token(), inner.token());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Owner(Arc<Inner>);

struct Inner {
    number: NonZeroU64,
    name: Arc<str>,
    client: ClientId,
    /// Number of attempts registered so far, which gives each its number.
    seats: AtomicU64,
    holds: Mutex<HashMap<(LockKey, Kind), Owned>>,
}

#[derive(Default)]
struct Owned {
    claims: Vec<Weak<Hold>>,
    /// Wakers of the attempts that wait, by number. The owner's next grant of the key wakes all of them.
    waiting: BTreeMap<u64, Waker>,
}

impl Owned {
    fn prune(&mut self) {
        self.claims
            .retain(|claim| claim.upgrade().is_some_and(|held| held.guards() > 0));
    }

    fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.waiting.is_empty()
    }
}

/// The reply to an owner's attempt to lock a key.
pub(crate) enum Reentry {
    /// The owner holds the key: the attempt gets one more guard.
    Again(Arc<Hold>),
    /// The attempt would wait for its own owner's claim, or the owner belongs to another client.
    Refused(Error),
    /// The owner does not hold the key: its next grant of the key wakes the attempt. Also the reply for every
    /// semaphore, because semaphores are not re-entrant.
    No,
}

/// The registration of an owner's waiting attempt, removed on drop.
pub(crate) struct Seat {
    owner: Owner,
    name: (LockKey, Kind),
    number: u64,
}

impl Owner {
    pub(crate) fn new(number: NonZeroU64, name: &str, client: ClientId) -> Self {
        Owner(Arc::new(Inner {
            number,
            name: name.into(),
            client,
            seats: AtomicU64::new(0),
            holds: Mutex::default(),
        }))
    }

    /// The name that was given to [`Client::owner`](crate::Client::owner), for people.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn number(&self) -> u64 {
        self.0.number.get()
    }

    /// Acquires the key again if this owner holds it. If not, registers the attempt in `seat`: the owner's next grant
    /// of the key wakes the attempt.
    pub(crate) fn enter(
        &self,
        client: ClientId,
        key: &LockKey,
        mode: Mode,
        now: Instant,
        seat: &mut Option<Box<Seat>>,
        waker: &Waker,
    ) -> Reentry {
        if client != self.0.client {
            let message = format!(
                "the owner {:?} is another client's: make one with this client",
                self.name()
            );
            return Reentry::Refused(Error::Invalid(message.into()));
        }
        if matches!(mode, Mode::Permits { .. }) {
            return Reentry::No;
        }
        let name = (key.clone(), mode.kind());
        let mut holds = self.0.holds.lock();
        let hold = holds.entry(name.clone()).or_default();
        for held in hold.claims.iter().filter_map(Weak::upgrade) {
            if !held.is_held(now) || held.has_departed() {
                continue;
            }
            let is_reader = held.asked_mode == Mode::Read || held.may_be_downgraded();
            if is_reader && mode == Mode::Write {
                return Reentry::Refused(Error::WouldDeadlock);
            }
            if held.enter_again() {
                return Reentry::Again(held);
            }
        }
        let seat = seat.get_or_insert_with(|| {
            Box::new(Seat {
                owner: self.clone(),
                name,
                number: self.0.seats.fetch_add(1, Ordering::Relaxed),
            })
        });
        hold.waiting.insert(seat.number, waker.clone());
        Reentry::No
    }

    /// Records a claim granted to the owner. Wakes the owner's other attempts for the key, which may share the claim.
    pub(crate) fn holds(&self, held: &Arc<Hold>) {
        let waiting = {
            let mut holds = self.0.holds.lock();
            let hold = holds
                .entry((held.at.key.clone(), held.asked_mode.kind()))
                .or_default();
            hold.prune();
            hold.claims.push(Arc::downgrade(held));
            std::mem::take(&mut hold.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// Marks the owner's claim for a downgrade, unless several guards share it: each of them may still write. This
    /// method keeps the owner's table of holds locked, so that no other attempt of the owner shares the claim between
    /// the check and the mark.
    pub(crate) fn ask_downgrade(&self, held: &Hold) -> bool {
        let _holds = self.0.holds.lock();
        let is_alone = held.guards() == 1;
        if is_alone {
            held.ask_downgrade();
        }
        is_alone
    }

    /// Removes the entry of a key without claims and waiters, so that memory does not grow with the number of keys.
    pub(crate) fn forget(&self, held: &Hold) {
        self.tidy((held.at.key.clone(), held.asked_mode.kind()), |_| {});
    }

    fn tidy(&self, name: (LockKey, Kind), change: impl FnOnce(&mut Owned)) {
        let mut holds = self.0.holds.lock();
        let Some(hold) = holds.get_mut(&name) else { return };
        change(hold);
        hold.prune();
        if hold.is_empty() {
            holds.remove(&name);
        }
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Owner {}

impl Drop for Seat {
    fn drop(&mut self) {
        let number = self.number;
        self.owner
            .tidy(self.name.clone(), |hold| drop(hold.waiting.remove(&number)));
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner")
            .field("number", &self.0.number)
            .field("name", &self.0.name)
            .finish()
    }
}

#[cfg(feature = "memory")]
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    impl Owner {
        /// Number of keys that have an entry.
        fn kept(&self) -> usize {
            self.0.holds.lock().len()
        }
    }

    /// R32: an owner keeps no entry for a key that it no longer holds or waits for.
    #[tokio::test(start_paused = true)]
    async fn an_owner_forgets_keys_that_it_no_longer_holds() {
        let client = crate::connect("memory:").await.unwrap();
        let owner = client.owner("importer");
        let mutex = |key: &str| client.mutex(key).owned_by(&owner);
        let (unlocked, dropped) = (mutex("unlocked").lock().await, mutex("dropped").lock().await);
        let nested = mutex("unlocked").lock().await;
        assert_eq!(owner.kept(), 2);
        unlocked.unwrap().unlock().await.unwrap();
        assert_eq!(owner.kept(), 2, "its nested guard still holds");
        nested.unwrap().unlock().await.unwrap();
        drop(dropped);
        let other = client.mutex("busy").lock().await.unwrap();
        assert!(mutex("busy").try_lock().await.unwrap().is_none());
        let waited = mutex("busy").lock_within(Duration::from_millis(10)).await;
        assert!(matches!(waited, Err(Error::Timeout)));
        let mut given_up = Box::pin(mutex("busy").lock());
        assert!(futures_util::poll!(&mut given_up).is_pending());
        drop(given_up);
        assert_eq!(owner.kept(), 0);
        other.unlock().await.unwrap();
    }
}
