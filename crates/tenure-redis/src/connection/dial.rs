//! Finds the server to connect to, and prepares the login.

use std::sync::Arc;

use redis::RedisConnectionInfo;
use tenure_backend::BackendError;
use tenure_endpoint::Host;
use tokio::sync::Notify;

use crate::config::Config;
use crate::connection::connect_error::ConnectError;
use crate::connection::driver::handshake;
use crate::connection::sentinel::Sentinels;
use crate::connection::stream::Streams;
use crate::error;
use crate::topology::Topology;

/// The settings with which a store opens each connection.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) config: Arc<Config>,
    /// ID of the process that connected. A child made by `fork` inherits the connections, but not the tasks that
    /// serve them, so its calls fail.
    pub(crate) process: u32,
    /// Set if the server is a node of a cluster: notified when slots may have moved to other nodes.
    pub(crate) moves: Option<Arc<Notify>>,
    pub(crate) streams: Streams,
    servers: Servers,
}

#[derive(Clone)]
enum Servers {
    One(Host),
    Sentinels(Arc<Sentinels>),
}

impl Dialer {
    /// Reads the certificates if TLS is configured. Fails if they are invalid, or if settings contradict each other.
    pub(crate) fn new(config: Config) -> Result<Self, BackendError> {
        config.check()?;
        let streams = Streams::new(&config)?;
        let servers = match &config.topology {
            // For a cluster this server is not used: each node has a copy of the dialer, made by `Dialer::to`.
            Topology::Single(server) | Topology::Cluster(server, _) => Servers::One(server.clone()),
            Topology::Sentinel(named) => {
                let sentinels = Sentinels::new(named.clone(), streams.clone(), config.connect_timeout);
                Servers::Sentinels(Arc::new(sentinels))
            }
        };
        Ok(Dialer {
            config: Arc::new(config),
            process: std::process::id(),
            moves: None,
            streams,
            servers,
        })
    }

    /// The same settings for the nodes of a cluster, which notify `moves` when slots may have moved.
    pub(crate) fn for_cluster(self, moves: Arc<Notify>) -> Self {
        let moves = Some(moves);
        Dialer { moves, ..self }
    }

    /// The same settings for another server: a node of the cluster, or a replica.
    pub(crate) fn to(&self, host: Host) -> Self {
        Dialer {
            config: Arc::new((*self.config).clone().host(host.clone())),
            servers: Servers::One(host),
            ..self.clone()
        }
    }

    /// Asks for a look at which node serves which slot, if the server is a node of a cluster.
    pub(crate) fn slots_may_have_moved(&self) {
        if let Some(moves) = &self.moves {
            moves.notify_one();
        }
    }

    /// Fails in a child made by `fork`. Callers check this before they take a mutex, because a thread of the parent may
    /// have held the mutex at the fork.
    pub(crate) fn check_process(&self) -> Result<(), BackendError> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(error::forked()),
        }
    }

    /// Returns the server to call: that of the URL, or the master that the sentinels name.
    pub(crate) async fn locate(&self) -> Result<Host, ConnectError> {
        match &self.servers {
            Servers::One(server) => Ok(server.clone()),
            Servers::Sentinels(sentinels) => Ok(sentinels.locate().await?),
        }
    }

    /// Returns the server to subscribe at, which is the one that calls go to: the master that the sentinels named
    /// last, or what `locate` returns.
    pub(crate) async fn located(&self) -> Result<Host, ConnectError> {
        match self.sentinels().and_then(|sentinels| sentinels.master()) {
            Some(master) => Ok(master),
            None => self.locate().await,
        }
    }

    /// The sentinels that name the master, if the URL has any.
    pub(crate) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match &self.servers {
            Servers::One(_) => None,
            Servers::Sentinels(sentinels) => Some(sentinels),
        }
    }

    /// The user, password and database to log in with. Fetches credentials or reads the password file each time,
    /// because they may have been rotated.
    pub(crate) async fn handshake(&self) -> Result<RedisConnectionInfo, ConnectError> {
        let info = handshake(&self.config.login).await?;
        Ok(info.set_db(i64::from(self.config.database)))
    }
}
