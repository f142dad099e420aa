//! A client of one store: where locks come from, and what can be seen and done about everybody's.

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

/// A client of one store. Clone it freely: clones are the same client, with one watchdog.
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
    /// Scans of the store that the client's watchers share.
    scans: Arc<Scans>,
}

impl Client {
    /// A client of your own backend. Does no I/O; the watchdog starts with the first lock, on the runtime of its caller.
    ///
    /// With [`Settings::own_thread`] the watchdog has a thread of its own; the backend's connections are where you made
    /// them.
    pub fn new(backend: Arc<dyn Backend>, settings: Settings) -> Client {
        Client {
            engine: Engine::new(backend, settings),
            scans: Arc::default(),
        }
    }

    /// A client of a store that was opened on that thread.
    pub(crate) fn on(thread: OwnThread, backend: Arc<dyn Backend>, settings: Settings) -> Client {
        let client = Client::new(backend, settings);
        client.engine.settle_on(thread);
        client
    }

    /// A lock that one holds at a time. No I/O; a bad key is [`Error::Invalid`] at first use.
    pub fn mutex(&self, key: impl AsRef<str>) -> Mutex {
        Mutex::new(&self.engine, key.as_ref())
    }

    /// A lock that many readers share and one writer holds alone. No I/O.
    pub fn rwlock(&self, key: impl AsRef<str>) -> RwLock {
        RwLock(LockHandle::new(&self.engine, key.as_ref(), Mode::Read))
    }

    /// A lock of `of` permits. No I/O.
    pub fn semaphore(&self, key: impl AsRef<str>, of: u32) -> Semaphore {
        Semaphore(LockHandle::semaphore(&self.engine, key.as_ref(), of))
    }

    /// Any number of names on `stripes` mutexes (at least one), called `key#0`, `key#1` and so on. No I/O.
    ///
    /// More than [`Striped::MOST`] stripes are [`Error::Invalid`] at first use.
    pub fn striped(&self, key: impl AsRef<str>, stripes: usize) -> Striped {
        Striped::new(&self.engine, key.as_ref(), stripes)
    }

    /// An owner, on whose behalf locks can be nested. Two owners are never the same, whatever their names.
    #[doc(alias = "reentrant")]
    pub fn owner(&self, name: impl AsRef<str>) -> Owner {
        Owner::new(
            self.engine.context().next_owner(),
            name.as_ref(),
            self.engine.context().id,
        )
    }

    /// An election: of all that campaign for `name`, one leads at a time. No I/O.
    #[doc(alias = "leader")]
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(&self.engine, name.as_ref())
    }

    /// Watches all keys that begin with `prefix`, by a look at the store once a second. No I/O until it is awaited.
    pub fn watch(&self, prefix: impl AsRef<str>) -> Changes {
        let scope = Scope::Prefix(prefix.as_ref().into(), self.scans.clone());
        Changes::new(&self.engine, Ok(scope))
    }

    /// What the store promises, and what it cannot do.
    pub fn profile(&self) -> &Profile {
        self.engine.profile()
    }

    /// Demands a guarantee of the store, so that a program refuses to start on one that is too weak for it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the store does not give it.
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

    /// What people and tools see of locks. Never decide by it who holds one.
    ///
    /// Where the profile has a [`first_renewal`](tenure_backend::Profile::first_renewal), a holder's label and token may
    /// be missing before that: on Redis for 100 ms.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Backend`], also for a single key that holds something of which the store cannot tell who holds it (on Redis,
    /// what is no mutex); [`Error::Unsupported`], [`Error::Closed`]; [`Error::Invalid`] for a cursor of another store.
    pub async fn inspect(&self, query: Query) -> Result<Page<LockStatus>, Error> {
        self.engine.inspect(query).await
    }

    /// Takes locks away from their holders, foreign ones too; answers who was freed.
    ///
    /// A holder of this client learns at once, one of another at its next renewal, within a third of its lease; one whose
    /// lease is not renewed, at its end. For 10 ms the key admits nobody, so that no grant that is passed on in its client's
    /// memory is older than the next one.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the eviction's outcome unknown.
    ///
    /// # Errors
    /// [`Error::Backend`], [`Error::Unsupported`], [`Error::Closed`]; [`Error::Mismatch`] for a key of a kind that the
    /// store cannot evict: [`inspect`](Client::inspect) shows which. After an unknown outcome it is safe to repeat for a
    /// named holder; repeated for all, it takes whoever holds by then.
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

    /// Everything about the store that weakens its locks.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Backend`], [`Error::Closed`].
    pub async fn examine(&self) -> Result<Vec<Finding>, Error> {
        Ok(self.engine.context().store.backend().examine().await?)
    }

    /// Gives every lock and every waiting claim of this client back, waits until that is confirmed, and disconnects.
    ///
    /// Call it last in `main`: when a runtime ends before the watchdog has given back what was dropped, that is left to
    /// its lease. Waiting attempts end with [`Error::Closed`], live guards are lost.
    ///
    /// # Cancel safety
    /// Dropped after its first poll, the client is closed, and the watchdog goes on giving back what is left.
    ///
    /// # Errors
    /// [`Error::CloseTimeout`] if not everything was confirmed within `limit`; what is left ends with its lease. [`Error::Backend`]
    /// if the store could not be left.
    pub async fn close(&self, limit: Duration) -> Result<(), Error> {
        self.engine.close(limit).await
    }
}
