//! A client of one store: creates locks, and inspects and evicts the locks of all clients.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use tenure_backend::{
    Backend, Cause, Finding, Guarantee, HANDOVER_WINDOW, HolderId, LockStatus, Mode, Page, Profile, Query,
    ReleaseReply, ReleaseRequest, ReleaseTarget,
};

use crate::changes::{Changes, Scans, Scope};
use crate::engine::Engine;
use crate::engine::own_thread::OwnThread;
use crate::engine::owner::Owner;
use crate::error::{Error, no_answer};
use crate::lock::election::Election;
use crate::lock::mutex::Mutex;
use crate::lock::options::LockHandle;
use crate::lock::rwlock::RwLock;
use crate::lock::semaphore::Semaphore;
use crate::lock::striped::Striped;
use crate::settings::Settings;

/// A client of one store. Cheap to clone: all clones are the same client and share one watchdog.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// use std::time::Duration;
///
/// let client = tenure::connect("memory:").await?;
/// client.mutex("nightly").with(async |_guard| println!("only one of us does this")).await?;
/// client.close(Duration::from_secs(1)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) engine: Arc<Engine>,
    /// Scans of the store, shared by all [`Changes`] of this client.
    scans: Arc<Scans>,
}

impl Client {
    /// Creates a client of your own backend. Does no I/O; the first lock starts the watchdog on its caller's runtime.
    ///
    /// With [`Settings::own_thread`] the watchdog has a thread of its own. The backend's connections stay on the
    /// runtime on which you created them.
    pub fn new(backend: Arc<dyn Backend>, settings: Settings) -> Client {
        Client {
            engine: Engine::new(backend, settings),
            scans: Arc::default(),
        }
    }

    /// Creates a client of a store whose connections were opened on `thread`.
    pub(crate) fn on(thread: OwnThread, backend: Arc<dyn Backend>, settings: Settings) -> Client {
        let client = Client::new(backend, settings);
        client.engine.settle_on(thread);
        client
    }

    /// A lock with one holder at a time. No I/O; an invalid key is [`Error::Invalid`] at first use.
    pub fn mutex(&self, key: impl AsRef<str>) -> Mutex {
        Mutex::new(&self.engine, key.as_ref())
    }

    /// A lock for many readers or one writer. No I/O.
    pub fn rwlock(&self, key: impl AsRef<str>) -> RwLock {
        RwLock(LockHandle::new(&self.engine, key.as_ref(), Mode::Read))
    }

    /// A lock of `of` permits. No I/O.
    pub fn semaphore(&self, key: impl AsRef<str>, of: u32) -> Semaphore {
        Semaphore(LockHandle::semaphore(&self.engine, key.as_ref(), of))
    }

    /// Maps any number of names to `stripes` mutexes (at least one), called `key#0`, `key#1` and so on. No I/O.
    ///
    /// More than [`Striped::MAX_STRIPES`] stripes are [`Error::Invalid`] at first use.
    pub fn striped(&self, key: impl AsRef<str>, stripes: usize) -> Striped {
        Striped::new(&self.engine, key.as_ref(), stripes)
    }

    /// Creates an owner, for nested locks. Two owners are always different, even if they have the same name.
    #[doc(alias = "reentrant")]
    pub fn owner(&self, name: impl AsRef<str>) -> Owner {
        Owner::new(
            self.engine.context().next_owner(),
            name.as_ref(),
            self.engine.context().id,
        )
    }

    /// An election: of all candidates that campaign for `name`, one leads at a time. No I/O.
    #[doc(alias = "leader")]
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(&self.engine, name.as_ref())
    }

    /// Watches all keys that begin with `prefix`, by polling the store once a second. No I/O until a change is awaited.
    pub fn watch(&self, prefix: impl AsRef<str>) -> Changes {
        let scope = Scope::Prefix(prefix.as_ref().into(), self.scans.clone());
        Changes::new(&self.engine, Ok(scope))
    }

    /// The store's guarantees and limitations.
    pub fn profile(&self) -> &Profile {
        self.engine.profile()
    }

    /// Fails if the store lacks a guarantee, so that a program can refuse to start on a store that is too weak.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the store lacks the guarantee.
    pub fn require(&self, guarantee: Guarantee) -> Result<(), Error> {
        let profile = self.profile();
        if profile.offers(guarantee) {
            return Ok(());
        }
        let message = format!(
            "{} ({}) does not promise: {guarantee}",
            profile.store, profile.layout
        );
        Err(tenure_backend::BackendError::unsupported(message).into())
    }

    /// Lists locks, their holders and their waiters. The result may be out of date at once: do not use it to decide
    /// whether a lock is held.
    ///
    /// A holder's label and token may be missing until the [first renewal](tenure_backend::Profile::first_renewal) of
    /// its claim: on Redis for 100 ms.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Backend`], also for a single key whose holders the store cannot determine (on Redis, a key that is no
    /// lock); [`Error::Unsupported`], [`Error::Closed`]; [`Error::Invalid`] for a cursor that the store cannot read.
    pub async fn inspect(&self, query: Query) -> Result<Page<LockStatus>, Error> {
        self.engine.inspect(query).await
    }

    /// Evicts a holder, a waiter, or all holders of a key, also of other clients. Returns those that it evicted.
    ///
    /// A holder of this client detects the eviction at once. A holder of another client does so within milliseconds on
    /// memory, Redis, a quorum, etcd and ZooKeeper, if it has held a lock for 100 ms; otherwise at its next renewal, within
    /// a third of its lease. A holder with a [fixed lease](Mutex::fixed_lease) may then detect it only when the lease ends.
    /// For 10 ms the store grants the key to no client, so that every local hand-over of an evicted claim is over
    /// before the next grant.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the eviction's outcome unknown.
    ///
    /// # Errors
    /// [`Error::Backend`], [`Error::Unsupported`], [`Error::Closed`]; [`Error::Mismatch`] for a key of a kind that the
    /// store cannot evict: [`inspect`](Client::inspect) shows the kind. After an unknown outcome, it is safe to repeat
    /// the eviction of a named holder. A repeated eviction of all holders also evicts holders that acquired the lock
    /// meanwhile.
    #[doc(alias("force_unlock", "break"))]
    pub async fn evict(&self, holder: ReleaseTarget) -> Result<Vec<HolderId>, Error> {
        let by = Some(self.engine.context().settings.label.clone());
        let key = holder.key().clone();
        let departure = ReleaseRequest {
            target: holder,
            cause: Cause::Evicted { by },
            successor: None,
            cooldown: HANDOVER_WINDOW,
        };
        match self
            .engine
            .context()
            .store
            .release(smallvec![departure])
            .await
            .pop()
        {
            Some(ReleaseReply::Done { freed, .. }) => {
                self.engine.queues().verify_holds(&key);
                Ok(freed.into_vec())
            }
            Some(ReleaseReply::Unknown(error)) => Err(error.into()),
            None => Err(no_answer().into()),
        }
    }

    /// Checks the store, and reports everything about it that weakens its locks.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Backend`], [`Error::Closed`].
    pub async fn examine(&self) -> Result<Vec<Finding>, Error> {
        Ok(self.engine.context().store.backend().examine().await?)
    }

    /// Releases every lock and withdraws every waiting claim of this client, waits for confirmation, and disconnects.
    ///
    /// Call it at the end of `main`: if the runtime ends before the watchdog has released dropped guards, their locks
    /// stay held until their leases end. Waiting attempts fail with [`Error::Closed`], and the locks of live guards
    /// are lost. A lock with `at_least` stays held in the store until that time has passed, as far as that option says;
    /// `close` does not wait for this.
    ///
    /// `close` also ends the locks of tasks that you spawned for work that must not stop half-way, and `while_held` and
    /// `with` then drop this work. So stop serving first, wait for these tasks before `close`, and call it last.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the client is closed, and the watchdog continues to release what
    /// is left.
    ///
    /// # Errors
    /// [`Error::CloseTimeout`] if not every release was confirmed within `limit`: the remaining locks become free when
    /// their leases end. [`Error::Backend`] if disconnecting failed. Log these errors: neither is a reason for a failing
    /// exit code, because the work of the program is done.
    pub async fn close(&self, limit: Duration) -> Result<(), Error> {
        self.engine.close(limit).await
    }
}
