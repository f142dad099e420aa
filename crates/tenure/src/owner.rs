//! Re-entry, asked for by name: an owner's second lock of a key is its first one once more, without I/O.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};

use parking_lot::Mutex;
use tenure_backend::{Kind, LockKey, Mode};

use crate::held::Held;
use crate::line::Line;

/// On whose behalf locks are taken. Locks that are `owned_by` the same owner can be nested.
///
/// While an owner holds a key, its next lock of that key returns at once, with a guard on the same claim and the
/// same token; the claim is given back with the last guard. A read lock inside a write lock is a guard on the write
/// lock. A write lock inside a read lock is [`WouldDeadlock`](crate::Error::WouldDeadlock). Semaphores are not
/// re-entrant: each acquisition takes permits.
///
/// An owner is a value, not a task or a thread: clone it to whoever acts on its behalf.
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
    holds: Mutex<HashMap<(LockKey, Kind), Hold>>,
}

/// What an owner has of one key.
#[derive(Default)]
struct Hold {
    claims: Vec<Weak<Held>>,
    /// An attempt is under way; others of this owner wait for how it ends.
    pending: bool,
    waiting: Vec<Waker>,
}

/// What an owner's attempt is told.
pub(crate) enum Reentry {
    /// It holds the key: this is one more guard.
    Again(Arc<Held>),
    Deadlock,
    /// Another attempt of this owner for this key is under way; the waker is woken when it has ended.
    Busy,
    /// Go on, and say how it went by means of the ticket, if there is one.
    Proceed(Option<Ticket>),
}

/// An owner's attempt under way; dropped, it has ended.
pub(crate) struct Ticket {
    owner: Owner,
    name: (LockKey, Kind),
}

impl Owner {
    pub(crate) fn new(number: NonZeroU64, name: &str) -> Self {
        Owner(Arc::new(Inner { number, name: name.into(), holds: Mutex::default() }))
    }

    /// The name it was given, for people.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn number(&self) -> u64 {
        self.0.number.get()
    }

    pub(crate) fn enter(&self, line: &Line, mode: Mode, cx: &mut Context<'_>) -> Reentry {
        if matches!(mode, Mode::Permits { .. }) {
            return Reentry::Proceed(None);
        }
        let name = (line.key.clone(), mode.kind());
        let now = line.engine.clock.now();
        let mut holds = self.0.holds.lock();
        let hold = holds.entry(name.clone()).or_default();
        for held in hold.claims.iter().filter_map(Weak::upgrade) {
            if !held.is_believed(now) || held.has_departed() {
                continue;
            }
            if held.claim.mode == Mode::Read && mode == Mode::Write {
                return Reentry::Deadlock;
            }
            if held.enter_again() {
                return Reentry::Again(held);
            }
        }
        if hold.pending {
            hold.waiting.push(cx.waker().clone());
            return Reentry::Busy;
        }
        hold.pending = true;
        Reentry::Proceed(Some(Ticket { owner: self.clone(), name }))
    }
}

impl Owner {
    /// Forgets a key of which nothing is left: nothing stays behind per name.
    pub(crate) fn forget(&self, key: &LockKey, kind: Kind) {
        let name = (key.clone(), kind);
        let mut holds = self.0.holds.lock();
        let Some(hold) = holds.get_mut(&name) else { return };
        hold.claims.retain(|claim| claim.upgrade().is_some_and(|held| held.guards() > 0));
        if hold.claims.is_empty() && hold.waiting.is_empty() && !hold.pending {
            holds.remove(&name);
        }
    }
}

impl Ticket {
    /// The attempt was granted.
    pub(crate) fn holds(self, held: &Arc<Held>) {
        let mut holds = self.owner.0.holds.lock();
        let hold = holds.entry(self.name.clone()).or_default();
        hold.claims.retain(|claim| claim.strong_count() > 0);
        hold.claims.push(Arc::downgrade(held));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut holds = self.owner.0.holds.lock();
        let Some(hold) = holds.get_mut(&self.name) else { return };
        hold.pending = false;
        let waiting = std::mem::take(&mut hold.waiting);
        hold.claims.retain(|claim| claim.strong_count() > 0);
        if hold.claims.is_empty() && waiting.is_empty() {
            holds.remove(&self.name);
        }
        drop(holds);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("number", &self.0.number).field("name", &self.0.name).finish()
    }
}
