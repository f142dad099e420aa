//! The store of a fault run, and the links (proxies) between its workers and its servers.

use std::io;
use std::path::Path;
use std::time::Duration;

use tenure_servers::{
    Disk, Etcd, EtcdCluster, MariaDb, Postgres, Proxy, Redis, RedisCluster, Replicated, SteppedClock,
    ZooKeeper, ZooKeeperEnsemble,
};

use crate::fault::{Allowed, InjectedFault};
use crate::servers::{Group, Servers};

/// URL options of the workers, in turn: the default time-outs, which are longer than a lease, and shorter ones.
const OPTIONS: [&str; 2] = ["", "connect_timeout=500ms&command_timeout=400ms"];

/// Start of the names of token counters. They have no time to live, because tokens must always rise.
const COUNTER: &str = "tenure_tokens";

/// Time without an answer after which the nodes of a cluster consider a node dead, in milliseconds.
const NODE_TIMEOUT: &str = "1000";

/// The store on which the workers of a fault run take locks.
#[derive(Debug)]
pub struct Store {
    /// URL that leads directly to the store, not over a link.
    url: String,
    /// Servers of the store. `None` for a file, which the workers open themselves, so only workers can have faults.
    pub(crate) servers: Option<Servers>,
    /// Links of each worker, one to each server. Empty for a file. Also empty if clients learn the servers' addresses
    /// from the servers, because they would not connect over links.
    pub(crate) links: Vec<Vec<Proxy>>,
}

impl Store {
    /// Uses an SQLite file in `folder`.
    pub fn sqlite(folder: &Path) -> Store {
        Store {
            url: format!("sqlite:{}", folder.join("locks.db").display()),
            servers: None,
            links: Vec::new(),
        }
    }

    /// Starts a Redis server, whose clock can be set.
    ///
    /// # Errors
    /// Returns an error if the server cannot be started.
    pub fn redis(disk: Disk) -> io::Result<Store> {
        let server = Redis::start_on(disk, Some(SteppedClock::new()?))?;
        let allowed = Allowed {
            steps: true,
            loses: true,
            forgets: disk != Disk::EveryWrite,
            ..Allowed::default()
        };
        Ok(Store::of(server.url(), Group::Members(vec![server]), allowed))
    }

    /// Starts a quorum of three Redis servers, for which the clients vouch (`durable=true`). The first writes to its disk
    /// before it replies, and loses its data in some of its restarts. The others forget all in a restart. Without its data, a
    /// server grants nothing for the longest lease. So no fault makes two clients hold a key.
    ///
    /// # Errors
    /// Returns an error if the servers cannot be started.
    pub fn quorum() -> io::Result<Store> {
        let disks = [Disk::EveryWrite, Disk::Nothing, Disk::Nothing];
        let members: io::Result<Vec<Redis>> = disks
            .map(|disk| Redis::start_on(disk, None))
            .into_iter()
            .collect();
        let members = members?;
        let hosts: Vec<_> = members
            .iter()
            .map(|member| member.address().to_string())
            .collect();
        let url = format!(
            "redlock://{}?layout=redisson&max_lease=2s&durable=true",
            hosts.join(",")
        );
        let allowed = Allowed {
            loses: true,
            forgets: true,
            withstands_all: true,
            ..Allowed::default()
        };
        Ok(Store::of(url, Group::Members(members), allowed))
    }

    /// Starts a master, two replicas and three sentinels. Grants wait for the acknowledgements of this many replicas.
    /// If both acknowledge, no failover makes two clients hold a key.
    ///
    /// # Errors
    /// Returns an error if the servers cannot be started.
    pub fn sentinel(replicas: u64) -> io::Result<Store> {
        let group = Replicated::start(&[])?;
        let options = match replicas {
            0 => String::new(),
            _ => format!("?replicas={replicas}&replica_wait=100ms"),
        };
        let allowed = Allowed {
            forgets: true,
            replicated: true,
            withstands_all: replicas == 2,
            ..Allowed::default()
        };
        Ok(Store::of(group.url() + &options, Group::Sentinel(group), allowed))
    }

    /// Starts a cluster of three masters with a replica each. All write to their disks before they reply.
    ///
    /// # Errors
    /// Returns an error if the servers cannot be started.
    pub fn cluster() -> io::Result<Store> {
        let of_nodes = [
            "--cluster-node-timeout",
            NODE_TIMEOUT,
            "--cluster-allow-replica-migration",
            "no",
        ];
        let options = [Disk::EveryWrite.options(), &of_nodes].concat();
        let cluster = RedisCluster::start(3, true, &options, None)?;
        let allowed = Allowed {
            replicated: true,
            ..Allowed::default()
        };
        Ok(Store::of(cluster.url(), Group::Cluster(cluster), allowed))
    }

    /// Starts a cluster of three members of etcd, whose network can be cut. No fault makes two clients hold a key.
    ///
    /// # Errors
    /// Returns an error if the members cannot be started.
    pub async fn etcd() -> io::Result<Store> {
        let cluster = EtcdCluster::start_divisible(&[]).await?;
        let allowed = Allowed {
            spares_masters: true,
            withstands_all: true,
            ..Allowed::default()
        };
        Ok(Store::of(cluster.url(), Group::Etcd(cluster), allowed))
    }

    /// Starts an ensemble of three servers of ZooKeeper, whose network can be cut. No fault makes two clients hold a key.
    ///
    /// # Errors
    /// Returns an error if the servers cannot be started.
    pub async fn zookeeper() -> io::Result<Store> {
        let ensemble =
            ZooKeeperEnsemble::start_with(Duration::from_millis(500), "maxSessionTimeout=60000\n").await?;
        let url = ensemble.url() + "?tick_time=500ms";
        let allowed = Allowed {
            withstands_all: true,
            ..Allowed::default()
        };
        Ok(Store::of(url, Group::ZooKeeper(ensemble), allowed))
    }

    /// Starts a PostgreSQL server, whose clock can be set, with the table of a layout.
    ///
    /// # Errors
    /// Returns an error if the server cannot be started, or refuses the table.
    pub async fn postgres(layout: &str) -> io::Result<Store> {
        let server = Postgres::start_with(&[], &[], Some(SteppedClock::new()?))?;
        let url = format!("{}?layout={layout}", server.url());
        Store::database(url, Group::Postgres(server)).await
    }

    /// Starts a MariaDB server, whose clock can be set, with the table of a layout.
    ///
    /// # Errors
    /// Returns an error if the server cannot be started, or refuses the table.
    pub async fn mariadb(layout: &str) -> io::Result<Store> {
        let server = MariaDb::start_with(&[], &[], Some(SteppedClock::new()?))?;
        server.ask("CREATE DATABASE locks")?;
        let url = format!("{}locks?layout={layout}", server.url());
        Store::database(url, Group::MariaDb(server)).await
    }

    async fn database(url: String, group: Group) -> io::Result<Store> {
        tenure::create_schema(&url).await.map_err(io::Error::other)?;
        let allowed = Allowed {
            steps: true,
            ..Allowed::default()
        };
        Ok(Store::of(url, group, allowed))
    }

    fn of(url: String, group: Group, allowed: Allowed) -> Store {
        Store {
            url,
            servers: Some(Servers::new(group, allowed)),
            links: Vec::new(),
        }
    }

    /// URL that leads directly to the store, not over a link.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Scheme and options of the URL, for the report.
    pub(crate) fn name(&self) -> String {
        let scheme = self.url.split(':').next().unwrap_or_default();
        let options = self.url.split('?').nth(1).map(|options| format!(" {options}"));
        format!("{scheme}{}", options.unwrap_or_default())
    }

    /// Creates the links of each worker, if the store's URL names the servers that clients connect to. Returns the URL
    /// for each worker.
    pub(crate) async fn link(&mut self, workers: usize) -> io::Result<Vec<String>> {
        let Some(servers) = &mut self.servers else {
            return Ok(vec![self.url.clone(); workers]);
        };
        let mut urls = Vec::new();
        for options in OPTIONS.iter().cycle().take(workers) {
            let (mut url, mut links) = (self.url.clone(), Vec::new());
            let addresses: Vec<_> = match &servers.group {
                Group::Members(members) => members.iter().map(Redis::address).collect(),
                Group::Postgres(server) => vec![server.address()],
                Group::MariaDb(server) => vec![server.address()],
                Group::Etcd(cluster) => cluster.members().iter().map(Etcd::address).collect(),
                Group::ZooKeeper(ensemble) => ensemble.servers().iter().map(ZooKeeper::address).collect(),
                Group::Sentinel(_) | Group::Cluster(_) => Vec::new(),
            };
            for address in addresses {
                let link = Proxy::start(address).await?;
                url = url.replace(&address.to_string(), &link.address().to_string());
                links.push(link);
            }
            if !links.is_empty() {
                self.links.push(links);
            }
            let separator = if url.contains('?') { "&" } else { "?" };
            urls.push(match *options {
                "" => url,
                options => url + separator + options,
            });
        }
        Ok(urls)
    }

    /// Keys that would stay for ever: on Redis those without a time to live, other than token counters; on etcd those without
    /// a lease.
    pub(crate) fn kept_for_ever(&mut self) -> io::Result<Vec<String>> {
        let mut kept = Vec::new();
        let Some(servers) = &mut self.servers else {
            return Ok(kept);
        };
        if let Group::Etcd(cluster) = &servers.group {
            return cluster.members()[0].keys_without_lease();
        }
        for master in servers.masters()? {
            let Some(server) = servers.redis(master) else {
                return Ok(kept);
            };
            let keys = server.ask(&["KEYS", "*"])?;
            for key in keys
                .lines()
                .filter(|key| !key.is_empty() && !key.starts_with(COUNTER))
            {
                if server.ask(&["PTTL", key])? == "-1" {
                    kept.push(key.to_owned());
                }
            }
        }
        Ok(kept)
    }

    /// Returns the failover that happened without an injected fault since the last fault or the last call of this
    /// method, if there was one.
    pub(crate) async fn unexpected_failover(&mut self) -> io::Result<Option<InjectedFault>> {
        match &mut self.servers {
            Some(servers) => servers.unexpected_failover().await,
            None => Ok(None),
        }
    }
}
