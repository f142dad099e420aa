//! The store, and what its requests share.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Backend, BackendError, Claim, Clock, Profile, SystemClock};
use tenure_contenders::{Contenders as _, Table, Watched};

use super::leases::Leases;
use super::names::Names;
use super::placed::{Placed, Target};
use super::profile::profile;
use crate::client::{Client, RANGE, RangeRequest};
use crate::config::Config;

/// Locks in etcd: mutexes, read-write locks and semaphores, all first come, first served.
///
/// # Examples
/// ```no_run
/// use tenure_etcd::{Config, EtcdStore, StoreUrl};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::from_url(&StoreUrl::parse("etcd://etcd.example/locks")?)?;
/// let store = EtcdStore::open(config).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum EtcdStore {}

/// What all requests share.
pub(super) struct Locks {
    pub(super) client: Arc<Client>,
    pub(super) config: Config,
    pub(super) profile: Profile,
    pub(super) names: Names,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) leases: Leases,
    pub(super) table: Table<Placed>,
    pub(super) watched: Watched<Target>,
}

impl EtcdStore {
    /// Connects to a member, and opens the store on the runtime of the caller.
    ///
    /// # Cancel safety
    /// Dropping the future opens nothing.
    ///
    /// # Errors
    /// `Invalid` for certificates that cannot be used, `Unavailable` if no member answers, `Denied` if etcd refuses the user,
    /// the password or to read the prefix.
    pub async fn open(config: Config) -> Result<Arc<dyn Backend>, BackendError> {
        let client = Client::new(config.clone())?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let locks = Arc::new(Locks {
            profile: profile(&config),
            names: Names::new(config.prefix()),
            leases: Leases::new(client.clone(), clock.clone()),
            table: Table::default(),
            watched: Watched::default(),
            client,
            config,
            clock,
        });
        let first = RangeRequest::key(locks.names.listing("k"));
        locks.client.call(RANGE, first).await?;
        Ok(tenure_contenders::open(locks))
    }
}

impl Locks {
    /// The length of a claim's lease: etcd counts whole seconds.
    pub(super) fn ttl(&self, lease: Duration) -> Duration {
        let lease = self.profile.limits.lease(lease);
        Duration::from_secs(lease.as_secs() + u64::from(lease.subsec_nanos() > 0))
    }

    /// The value that a claim's key gets.
    pub(super) fn written(&self, claim: &Claim) -> String {
        match claim.is_candidate {
            true => claim.label.to_string(),
            false => self.value(claim).write(),
        }
    }
}
