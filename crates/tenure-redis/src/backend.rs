//! The contract over one server: each verb becomes the future of its call, polled in place by whoever asked.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, Clock, Finding, Instant, LockStatus,
    Page, Profile, Query, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Wakes,
};

use crate::config::Config;
use crate::dial::Dialer;
use crate::known::Known;
use crate::link::Link;
use crate::profile::PROFILE;
use crate::watch::Ear;

/// Locks in Redis, in Redisson's layout.
///
/// All rules of [`Backend`] hold for mutexes, unfair and fair. Cloning is done by the [`Arc`] in which it comes.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tenure_backend::Backend;
/// use tenure_endpoint::StoreUrl;
/// use tenure_redis::{Config, RedisStore};
///
/// let config = Config::from_url(&StoreUrl::parse("redis://cache.example")?)?;
/// let store = RedisStore::connect(config).await?;
/// assert_eq!(store.profile().layout, "redisson");
/// # Ok(()) }
/// ```
pub struct RedisStore {
    pub(crate) link: Link,
    pub(crate) ear: Ear,
    pub(crate) known: Known,
    /// It was said that the server has many keys.
    pub(crate) warned_of_many: AtomicBool,
}

impl RedisStore {
    /// Connects to the server. It is tried once.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    ///
    /// # Errors
    /// `Unavailable` if it cannot be reached, `Denied` if it refuses us; the server then did nothing.
    pub async fn connect(config: Config) -> Result<Arc<Self>, BackendError> {
        let dialer = Dialer::new(config)?;
        let link = Link::open(dialer.clone()).await?;
        let ear = Ear::new(dialer, link.moves());
        Ok(Arc::new(RedisStore {
            link,
            ear,
            known: Known::default(),
            warned_of_many: AtomicBool::new(false),
        }))
    }

    pub(crate) fn now(&self) -> Instant {
        self.link.dialer.config.clock.now()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisStore")
            .field(&self.link.dialer.config.address())
            .finish()
    }
}

impl Backend for RedisStore {
    fn profile(&self) -> &Profile {
        &PROFILE
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.link.dialer.config.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        Call::new(async move { self.place(&claim, not_after).await })
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        BatchCall::new(async move { self.renew_all(batch).await })
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        BatchCall::new(async move { self.depart_all(batch).await })
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        Call::new(async move { self.ear.watch(&claim).await })
    }

    fn reconnects(&self) -> Option<Wakes> {
        Some(self.link.reconnects())
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        Call::new(async move { self.look(query).await })
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        Call::new(async move { self.find().await })
    }

    fn close(self: Arc<Self>) -> Call<()> {
        if let Err(forked) = self.link.dialer.check_process() {
            return Call::ready(Err(forked));
        }
        self.link.close();
        self.ear.close();
        Call::ready(Ok(()))
    }
}
