//! A store for the worker processes of one client. No other client uses it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tenure_servers::{Etcd, Postgres, Proxy, Redis, RedisCluster, Way, ZooKeeper, is_installed};

use crate::Fallible;
use crate::cores::Core;
use crate::plan::{Client, Distance, Store};

/// Name of the lock file in the folder of a site, i.e. of one client's store.
const FILE: &str = "locks.db";

/// With this option a PostgreSQL server shows the statements of its clients, from which the client `bare` learns them.
const SHOWS_LONG_STATEMENTS: &str = "track_activity_query_size = '16kB'";

/// ZooKeeper's unit of time, as in its own example of settings. It allows sessions of Tenure's default lease.
const TICK: Duration = Duration::from_secs(2);

/// Number of masters of a cluster, and of servers of a quorum.
const SEVERAL: usize = 3;

/// The lease of `Client::TenureQuorum`, and also the longest lease of its quorum. It is short, because a member
/// places no claim for that time after its start.
pub(crate) const QUORUM_LEASE: Duration = Duration::from_secs(1);

/// Time that a new quorum needs, in addition to the longest lease, before it places claims: a server counts its
/// uptime in whole seconds.
const RECOVERY_SLACK: Duration = Duration::from_secs(1);

/// Delay of each message with `--distance away`. Timers have a resolution of 1 ms, so it may be 1 ms more.
const DELAY: Duration = Duration::from_millis(1);

/// The store of one [`Client`] under test, and the folder for its files. Dropping this ends the store's servers and deletes
/// the folder.
pub(crate) struct Site {
    pub(crate) location: Location,
    _servers: Vec<(Redis, Option<Proxy>)>,
    _cluster: Option<RedisCluster>,
    _database: Option<Postgres>,
    _etcd: Option<Etcd>,
    _zookeeper: Option<ZooKeeper>,
    _folder: TempDir,
}

/// What all sites of a run share. A site is the store of one client, with its folder.
pub(crate) struct Sites {
    /// The folder in which the sites' own folders are created.
    root: PathBuf,
    /// The core on which the servers run, if they have one of their own.
    core: Option<Core>,
    /// True if a proxy delays messages to and from a server.
    away: bool,
}

/// How a worker process finds its store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Location {
    pub(crate) store: Store,
    /// URL for `tenure::connect`.
    pub(crate) url: String,
    /// Folder for the files of the workers.
    pub(crate) folder: PathBuf,
}

impl Sites {
    /// Prepares for servers at this distance. `Apart` moves this thread, and those it starts later, off the servers'
    /// core.
    pub(crate) fn prepare(root: PathBuf, distance: Distance) -> Fallible<Self> {
        let core = (distance == Distance::Apart).then(Core::leave).transpose()?;
        let away = distance == Distance::Away;
        Ok(Sites { root, core, away })
    }

    /// Moves a server to the servers' core, if they have one.
    fn place(&self, server: &mut Redis) -> Fallible<()> {
        match self.core {
            Some(core) => core.give_to(server.process().pid()),
            None => Ok(()),
        }
    }

    /// Starts a server; if it is to be away, with a proxy that delays messages.
    async fn server(&self) -> Fallible<(Redis, Option<Proxy>)> {
        let mut server = Redis::start()?;
        self.place(&mut server)?;
        if !self.away {
            return Ok((server, None));
        }
        let proxy = Proxy::start(server.address()).await?;
        proxy.delay(Way::ToServer, DELAY);
        proxy.delay(Way::ToClient, DELAY);
        Ok((server, Some(proxy)))
    }
}

impl Site {
    /// Creates a folder, and the servers if the store has some, on free ports. Only etcd and ZooKeeper write each change to
    /// the disk.
    pub(crate) async fn make(store: Store, client: Client, sites: &Sites) -> Fallible<Self> {
        let folder = tempfile::Builder::new()
            .prefix("tenure-bench-")
            .tempdir_in(&sites.root)?;
        let (mut servers, mut cluster, mut database) = (Vec::new(), None, None);
        let (mut etcd, mut zookeeper) = (None, None);
        let url = match store {
            Store::Memory => "memory:".to_owned(),
            Store::Sqlite => {
                let path = folder.path().join(FILE).display().to_string();
                format!("sqlite:{}", path.replace('%', "%25").replace('?', "%3F"))
            }
            Store::Postgres => {
                let server = database.insert(Postgres::start_with(&[SHOWS_LONG_STATEMENTS], &[], None)?);
                let url = format!("{}?layout=version", server.url());
                tenure::create_schema(&url).await?;
                url
            }
            Store::Etcd => etcd.insert(Etcd::start()?).url(),
            Store::Zookeeper => zookeeper.insert(ZooKeeper::start(TICK)?).url(),
            Store::Redis if client == Client::TenureCluster => {
                let cluster = cluster.insert(RedisCluster::start(SEVERAL, false, &["--save", ""], None)?);
                for number in 0..SEVERAL {
                    sites.place(cluster.node_mut(number))?;
                }
                cluster.url()
            }
            Store::Redis => {
                let is_quorum = client == Client::TenureQuorum;
                let mut addresses = Vec::new();
                for _ in 0..if is_quorum { SEVERAL } else { 1 } {
                    let (server, proxy) = sites.server().await?;
                    let address = proxy.as_ref().map_or(server.address(), Proxy::address);
                    addresses.push(address.to_string());
                    servers.push((server, proxy));
                }
                let addresses = addresses.join(",");
                if is_quorum {
                    // sleep: a member of a quorum places no claim until it has run for the longest lease.
                    tokio::time::sleep(QUORUM_LEASE + RECOVERY_SLACK).await;
                    format!("redlock://{addresses}?max_lease={}ms", QUORUM_LEASE.as_millis())
                } else {
                    format!("redis://{addresses}")
                }
            }
        };
        let location = Location {
            store,
            url,
            folder: folder.path().to_owned(),
        };
        Ok(Site {
            location,
            _servers: servers,
            _cluster: cluster,
            _database: database,
            _etcd: etcd,
            _zookeeper: zookeeper,
            _folder: folder,
        })
    }
}

impl Location {
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// The file with the last holder of the key, shared by several processes.
    pub(crate) fn last_holder(&self) -> PathBuf {
        self.folder.join("last_holder")
    }
}

/// Fails if the store needs a program that is not installed. The error says how to install it.
pub(crate) fn check(store: Store) -> Fallible<()> {
    let (program, package) = match store {
        Store::Memory | Store::Sqlite => return Ok(()),
        Store::Redis => ("redis-server", "redis-server"),
        Store::Postgres => ("postgres", "postgresql"),
        Store::Etcd => ("etcd", "etcd-server"),
        Store::Zookeeper => ("zookeeper", "zookeeper"),
    };
    match is_installed(program) {
        true => Ok(()),
        false => Err(format!(
            "`{program}` is not installed: `cargo xtask setup` or `apt-get install {package}` brings it, \
             `--store memory,sqlite` does without"
        )
        .into()),
    }
}
