//! The `Lab` of users' tests: clients of a memory store, its time, and its faults.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use smallvec::smallvec;
use tenure_backend::{
    Backend, Cause, Clock, HANDOVER_WINDOW, HolderId, HolderStatus, Instant, LockKey, LockStatus, Loss,
    Query, ReleaseRequest, ReleaseTarget,
};

use super::backend::{Fate, Link};
use super::clock::LabClock;
use crate::client::Client;
use crate::connect::{Memory, MemoryStore};
use crate::engine::root::Queues;
use crate::engine::timer::RECHECK;
use crate::settings::Settings;

const READY: &str = "the memory store answers at once";

/// A store in memory with its own time, for several clients to share. All clones are the same lab.
///
/// # Guarantees
/// - Time goes on by itself as tokio's does, and [`advance`](Lab::advance) lets it pass without waiting. Made on a
///   current-thread runtime (`#[tokio::test]`), the lab's time *is* that runtime's: your own timers advance with it,
///   and paused time advances only when tokio allows it. Elsewhere (on a multi-thread runtime, or in a plain test) the
///   lab has a runtime of its own, on a thread of its own, and advances only the time of its locks.
/// - The lab takes locks away as a store would: guards detect it by the reply to a renewal.
/// - No guarantee on the order in which tasks *of other threads* see time pass.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure::testing::Lab;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let lab = Lab::new();
/// let guard = lab.client().mutex("k").lock().await?;
/// lab.suspend(Duration::from_secs(60)).await; // the machine sleeps for longer than the lease
/// assert!(!guard.is_held());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Lab(Arc<Inner>);

struct Inner {
    clock: Arc<LabClock>,
    store: MemoryStore,
    /// The lab's own connection to the store, always available.
    own: Arc<Memory>,
    fate: Arc<Fate>,
    members: Mutex<Vec<Member>>,
}

struct Member {
    queues: Weak<Queues>,
    link: Arc<Link>,
}

impl Lab {
    /// Creates an empty store. It uses the time of the current runtime if that is a current-thread runtime, else the time
    /// of a new runtime.
    pub fn new() -> Self {
        let clock = Arc::new(LabClock::new());
        let store = MemoryStore::new(clock.clone());
        Lab(Arc::new(Inner {
            own: store.client(clock.clone()),
            clock,
            store,
            fate: Arc::default(),
            members: Mutex::default(),
        }))
    }

    /// Creates a client with default settings. Each client stands for a separate service.
    pub fn client(&self) -> Client {
        self.client_with(Settings::default())
    }

    /// Creates a client. Its watchdog runs on the runtime of the lab's time, even with [`Settings::own_thread`].
    #[expect(clippy::missing_panics_doc, reason = "the expectation cannot fail")]
    pub fn client_with(&self, settings: Settings) -> Client {
        let Inner {
            clock,
            store,
            fate,
            members,
            ..
        } = &*self.0;
        let link = Arc::new(Link {
            store: store.client(clock.clone()),
            fate: fate.clone(),
            cut: AtomicBool::new(false),
        });
        let client = Client::new(link.clone(), settings.own_thread(false));
        let queues = Arc::downgrade(client.engine.queues());
        let _entered = clock.runtime.enter();
        client
            .engine
            .services
            .start()
            .expect("a client that was just made is open, and its runtime is the lab's");
        let mut members = members.lock();
        members.retain(|member| member.queues.strong_count() > 0);
        members.push(Member { queues, link });
        client
    }

    /// Creates a client of the blocking API with default settings.
    #[cfg(feature = "blocking")]
    pub fn blocking_client(&self) -> crate::blocking::Client {
        self.blocking_client_with(Settings::default())
    }

    /// Creates a client of the blocking API. Its watchdog runs on the runtime of the lab's time, as with
    /// [`client_with`](Lab::client_with).
    #[cfg(feature = "blocking")]
    #[expect(clippy::missing_panics_doc, reason = "the expectation cannot fail")]
    pub fn blocking_client_with(&self, settings: Settings) -> crate::blocking::Client {
        crate::blocking::Client::on(self.blocking_runtime(), self.client_with(settings))
            .expect("a client that was just made is open, and its runtime is the lab's")
    }

    #[cfg(feature = "blocking")]
    fn blocking_runtime(&self) -> crate::blocking::Runtime {
        crate::blocking::Runtime::driven_elsewhere(self.0.clock.runtime.clone())
    }

    /// Advances the time of the store, the clients and their timers, without waiting. All tasks run meanwhile: leases
    /// are renewed when due, and time limits pass.
    ///
    /// On a current-thread runtime this waits for the end of every `spawn_blocking` under way: until then tokio lets no
    /// paused time pass.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the time that is passing.
    pub async fn advance(&self, time: Duration) {
        let clock = self.0.clock.clone();
        let passing = self.0.clock.runtime.spawn(async move { clock.pass(time).await });
        // The task cannot panic, and is aborted only with the runtime.
        let _ = passing.await;
    }

    /// Advances the time by `time` while no task runs, as when a machine sleeps or a process is stopped. Then advances it
    /// by one second, in which all tasks run and detect the leases that have ended.
    ///
    /// # Cancel safety
    /// The same as [`advance`](Lab::advance).
    pub async fn suspend(&self, time: Duration) {
        self.0.clock.suspend(time);
        self.advance(RECHECK).await;
    }

    /// [`advance`](Lab::advance) for a test on a plain thread.
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    #[cfg(feature = "blocking")]
    pub fn blocking_advance(&self, time: Duration) {
        self.blocking_runtime().block_on(self.advance(time));
    }

    /// [`suspend`](Lab::suspend) for a test on a plain thread.
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    #[cfg(feature = "blocking")]
    pub fn blocking_suspend(&self, time: Duration) {
        self.blocking_runtime().block_on(self.suspend(time));
    }

    /// The current time of the lab's clock, on which local deadlines are measured.
    pub fn now(&self) -> Instant {
        self.0.clock.now()
    }

    /// Evicts all holders of a key, as an operator does, and lets them renew at once, so that they detect the eviction.
    ///
    /// # Panics
    /// If the key has no holder or is invalid: such a test would test nothing.
    pub fn lose(&self, key: &str) {
        let by = Some("the lab".into());
        self.lose_as(key, Loss::Evicted { by });
    }

    /// Takes a lock from all its holders for the given reason, such as an expired lease or a session that ended.
    ///
    /// # Panics
    /// The same as [`lose`](Lab::lose).
    pub fn lose_as(&self, key: &str, loss: Loss) {
        let holders = self.holders(key);
        assert!(
            !holders.is_empty(),
            "nobody holds {key:?}: there is nothing to lose"
        );
        let claims = holders.iter().filter_map(|holder| match holder.id {
            HolderId::Claim(id) => Some((id, loss.clone())),
            HolderId::Foreign(_) => None,
        });
        self.0.fate.losses.lock().extend(claims);
        let (cause, cooldown) = match loss {
            Loss::Evicted { by } => (Cause::Evicted { by }, HANDOVER_WINDOW),
            _ => (Cause::Withdrawn, Duration::ZERO),
        };
        let key = checked(key);
        let departure = ReleaseRequest {
            target: ReleaseTarget::All(key.clone()),
            cause,
            successor: None,
            cooldown,
        };
        let release = self.0.own.clone().release(smallvec![departure]);
        drop(release.now_or_never().expect(READY));
        self.have_renewed(&key);
    }

    /// Lets every client ask the store about its hold of the key.
    fn have_renewed(&self, key: &LockKey) {
        let all: Vec<_> = self
            .0
            .members
            .lock()
            .iter()
            .filter_map(|member| member.queues.upgrade())
            .collect();
        for queues in all {
            queues.verify_holds(key);
        }
    }

    /// Makes the store unavailable to all clients, until [`restore`](Lab::restore): calls fail at once, without effect.
    /// Leases keep running.
    pub fn fail(&self) {
        self.0.fate.down.store(true, Ordering::SeqCst);
    }

    /// Makes the store available to all clients again.
    pub fn restore(&self) {
        self.0.fate.down.store(false, Ordering::SeqCst);
        for member in self.0.members.lock().iter() {
            member.link.cut.store(false, Ordering::SeqCst);
        }
    }

    /// Cuts one client off from the store, until [`restore`](Lab::restore): other clients can acquire its locks when
    /// its leases end.
    ///
    /// # Panics
    /// If `client` is not a client of this lab.
    pub fn cut_off(&self, client: &Client) {
        let members = self.0.members.lock();
        let queues = Arc::downgrade(client.engine.queues());
        let member = members.iter().find(|member| member.queues.ptr_eq(&queues));
        let member = member.expect("only a client of this lab can be cut off from its store");
        member.link.cut.store(true, Ordering::SeqCst);
    }

    /// The holders of a key, as the store sees them.
    ///
    /// # Panics
    /// If the key is invalid.
    pub fn holders(&self, key: &str) -> Vec<HolderStatus> {
        let found = self.look(Query::Key(checked(key)));
        found.into_iter().flat_map(|status| status.holders).collect()
    }

    /// Every key with holders or waiters, as the store sees it.
    pub fn keys(&self) -> Vec<LockStatus> {
        self.look(Query::Prefix {
            prefix: "".into(),
            after: None,
            limit: NonZeroU32::MAX,
        })
    }

    fn look(&self, query: Query) -> Vec<LockStatus> {
        let page = self.0.own.clone().inspect(query).now_or_never().expect(READY);
        page.expect("the lab's own connection is never closed").items
    }
}

fn checked(key: &str) -> LockKey {
    LockKey::new(key).unwrap_or_else(|error| panic!("{key:?} is not the key of a lock: {error}"))
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Lab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lab")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}
