//! The store, and what its requests share.

use std::sync::Arc;

use tenure_backend::{Backend, BackendError, Clock, Profile, SystemClock};
use tenure_contenders::{Table, Watched};

use super::contenders::Target;
use super::hints::Hints;
use super::names::Names;
use super::placed::Placed;
use super::profile::profile;
use super::sessions::Sessions;
use crate::config::Config;

/// Locks in ZooKeeper, in one of three [layouts](crate::Layout).
///
/// # Examples
/// ```no_run
/// use tenure_zookeeper::{Config, ZookeeperStore, StoreUrl};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::from_url(&StoreUrl::parse("zookeeper://zk.example/locks")?)?;
/// let store = ZookeeperStore::open(config).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum ZookeeperStore {}

/// What all requests share.
pub(super) struct Locks {
    pub(super) config: Config,
    pub(super) profile: Profile,
    pub(super) names: Names,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) sessions: Sessions,
    pub(super) table: Table<Placed>,
    pub(super) watched: Watched<Target>,
    pub(super) hints: Hints,
}

impl ZookeeperStore {
    /// Opens a session, and opens the store on the runtime of the caller.
    ///
    /// # Cancel safety
    /// Dropping the future opens nothing.
    ///
    /// # Errors
    /// `Invalid` for certificates that cannot be used, `Unavailable` if no server answers, `Denied` if ZooKeeper refuses the
    /// user, the password or to create the node of the sessions.
    pub async fn open(config: Config) -> Result<Arc<dyn Backend>, BackendError> {
        let locks = Arc::new(Locks::new(config));
        locks.any_session().await?;
        Ok(tenure_contenders::open(locks))
    }
}

impl Locks {
    /// Connects when a session is asked for.
    pub(super) fn new(config: Config) -> Self {
        Locks {
            profile: profile(&config),
            names: Names::new(config.path(), config.layout),
            sessions: Sessions::default(),
            table: Table::default(),
            watched: Watched::default(),
            hints: Hints::default(),
            clock: Arc::new(SystemClock),
            config,
        }
    }
}
