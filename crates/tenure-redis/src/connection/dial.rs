//! Finds the server to call, opens connections to it, and prepares the login.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use redis::RedisConnectionInfo;
use tenure_backend::BackendError;
use tenure_endpoint::Host;
use tokio::sync::Notify;

use crate::config::Config;
use crate::connection::sentinel::Sentinels;
use crate::connection::stream::{Duplex, Streams};
use crate::error::{self, ConnectError};
use crate::topology::Topology;

/// Opens the connection for calls and the one for subscriptions.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) config: Arc<Config>,
    /// ID of the process that connected. A child made by `fork` has the connections, but not their tasks: its calls fail.
    pub(crate) process: u32,
    /// Set if the server is a node of a cluster: notified when slots may have moved to other nodes.
    pub(crate) moves: Option<Arc<Notify>>,
    servers: Servers,
    streams: Streams,
}

/// The servers of the store.
#[derive(Clone)]
enum Servers {
    One(Host),
    Sentinels(Arc<Sentinels>),
}

impl Servers {
    fn of(config: &Config, streams: &Streams) -> Self {
        match &config.topology {
            // A node of a cluster is dialed by a copy of the dialer: see `Dialer::to`.
            Topology::Single(server) | Topology::Cluster(server, _) => Servers::One(server.clone()),
            Topology::Sentinel(sentinels) => {
                let (sentinels, limit) = (sentinels.clone(), config.connect_timeout);
                Servers::Sentinels(Arc::new(Sentinels::new(sentinels, streams.clone(), limit)))
            }
        }
    }
}

impl Dialer {
    /// Reads the certificates if TLS is configured; fails if they are invalid.
    pub(crate) fn new(config: Config) -> Result<Self, BackendError> {
        config.check()?;
        let streams = Streams::new(&config)?;
        let servers = Servers::of(&config, &streams);
        Ok(Dialer {
            config: Arc::new(config),
            process: std::process::id(),
            moves: None,
            servers,
            streams,
        })
    }

    /// The same settings for the nodes of a cluster, which notify `moves` when slots may have moved.
    pub(crate) fn for_cluster(self, moves: Arc<Notify>) -> Self {
        let moves = Some(moves);
        Dialer { moves, ..self }
    }

    /// The same settings for another server.
    pub(crate) fn to(&self, host: Host) -> Self {
        let config = (*self.config).clone().host(host);
        Dialer {
            servers: Servers::of(&config, &self.streams),
            config: Arc::new(config),
            ..self.clone()
        }
    }

    /// Asks for a look at which node serves which slot, if the server is a node of a cluster.
    pub(crate) fn slots_may_have_moved(&self) {
        if let Some(moves) = &self.moves {
            moves.notify_one();
        }
    }

    /// Fails in a child made by `fork`. Callers check this before they take a mutex, because a thread of the parent may have
    /// held the mutex at the fork.
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
            Servers::Sentinels(sentinels) => sentinels.locate().await.map_err(ConnectError::Translated),
        }
    }

    /// Returns the server that was located last, to subscribe where the calls go.
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

    /// Opens a connection, without logging in.
    pub(crate) async fn dial(&self, server: &Host) -> Result<Box<dyn Duplex>, ConnectError> {
        self.streams.open(server).await
    }

    /// Opens a connection for calls. `in_flight` counts the calls that wait for a reply.
    pub(crate) async fn dial_for_calls(
        &self,
        server: &Host,
        in_flight: &Arc<AtomicUsize>,
    ) -> Result<Box<dyn Duplex>, ConnectError> {
        self.streams.open_for_calls(server, in_flight).await
    }

    /// The user, password and database to log in with. Fetches credentials or reads the password file each time, because
    /// they may have been rotated.
    pub(crate) async fn handshake(&self) -> Result<RedisConnectionInfo, ConnectError> {
        let config = &self.config;
        if let Some(source) = &config.credentials {
            let fetched = source.fetch().await.map_err(ConnectError::Translated)?;
            let info = RedisConnectionInfo::default()
                .set_lib_name("tenure", env!("CARGO_PKG_VERSION"))
                .set_db(i64::from(config.database))
                .set_password(fetched.password.expose());
            return Ok(match &fetched.user {
                Some(user) => info.set_username(user),
                None => info,
            });
        }
        let info = config.login.info().map_err(ConnectError::PasswordFile)?;
        Ok(info.set_db(i64::from(config.database)))
    }
}
