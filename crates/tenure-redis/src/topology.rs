//! Topology: how the servers of a URL form one store, and how many replicas must have a grant.

use std::fmt;
use std::time::Duration;

use tenure_backend::BackendError;
use tenure_endpoint::{Host, Login, Options, StoreUrl};

use crate::error::invalid;

/// Default ports of a server and of a sentinel.
const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// Time for replicas to acknowledge a grant, unless the URL sets another.
const REPLICA_WAIT: Duration = Duration::from_millis(100);

/// The most replicas whose acknowledgement a URL can require.
const MAX_REPLICAS: u64 = 100;

/// How the servers of a URL form one store.
#[derive(Clone, Debug)]
pub(crate) enum Topology {
    /// One server, with its port.
    Single(Host),
    /// A master and its replicas. Sentinels say which server is the master.
    Sentinel(SentinelConfig),
    /// A cluster: the first node that the URL names, and the other ones, with their ports.
    Cluster(Host, Vec<Host>),
}

/// The sentinels to ask, and the name of the master to ask for.
#[derive(Clone, Debug)]
pub(crate) struct SentinelConfig {
    /// The sentinels, with their ports.
    pub(crate) sentinels: Vec<Host>,
    pub(crate) master: String,
    /// The sentinels' own credentials. Those of the servers are never sent to a sentinel.
    pub(crate) login: Login,
}

/// How many replicas must acknowledge a grant or a renewal, and within which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledgement {
    pub(crate) replicas: u64,
    pub(crate) wait: Duration,
}

impl Acknowledgement {
    /// Reads `replicas` and `replica_wait`, if they are given.
    pub(crate) fn of(options: &Options) -> Result<Option<Self>, BackendError> {
        let wait = options.duration("replica_wait");
        let Some(replicas) = options.text("replicas") else {
            return match wait {
                Some(_) => Err(invalid("`replica_wait` is for `replicas`: give both")),
                None => Ok(None),
            };
        };
        let replicas = replicas
            .parse()
            .ok()
            .filter(|count| (1..=MAX_REPLICAS).contains(count));
        let Some(replicas) = replicas else {
            return Err(invalid(format!(
                "`replicas` is a number from 1 to {MAX_REPLICAS}: that many replicas must acknowledge a lock; leave it out to \
                 wait for none"
            )));
        };
        let wait = wait.unwrap_or(REPLICA_WAIT);
        // For the server, a wait of 0 ms is one without limit.
        if wait < Duration::from_millis(1) {
            return Err(invalid("`replica_wait` must be at least 1ms"));
        }
        Ok(Some(Acknowledgement { replicas, wait }))
    }
}

impl Topology {
    pub(crate) fn single(host: Host) -> Self {
        Topology::Single(host.with_default_port(SERVER_PORT))
    }

    /// Returns the topology of a URL, and the part of its path that names the database.
    pub(crate) fn of<'a>(url: &'a StoreUrl, options: &Options) -> Result<(Self, &'a str), BackendError> {
        let servers = url.scheme().split_once('+').map(|(_, servers)| servers);
        if let Some("sentinel") = servers {
            let (master, database) = url.path().split_once('/').unwrap_or((url.path(), ""));
            return Ok((Topology::Sentinel(sentinels(url, master, options)?), database));
        }
        if options.text("sentinel_user").is_some() || options.path("sentinel_password_file").is_some() {
            return Err(invalid(
                "`sentinel_user` and `sentinel_password_file` are for `redis+sentinel://`",
            ));
        }
        match (url.hosts(), servers) {
            ([node, others @ ..], Some("cluster")) if ["", "0"].contains(&url.path()) => {
                let with_port = |host: &Host| host.clone().with_default_port(SERVER_PORT);
                let others = others.iter().map(with_port).collect();
                Ok((Topology::Cluster(with_port(node), others), ""))
            }
            (_, Some("cluster")) => Err(invalid(
                "a cluster has no database but 0: leave the path of the URL out",
            )),
            ([host], _) => Ok((Topology::single(host.clone()), url.path())),
            _ => Err(invalid(
                "a `redis://` URL names one server: write `redis+sentinel://HOST,HOST,HOST/MASTER` for a list of sentinels, or \
                 `redis+cluster://HOST,HOST,HOST` for nodes of a cluster",
            )),
        }
    }
}

fn sentinels(url: &StoreUrl, master: &str, options: &Options) -> Result<SentinelConfig, BackendError> {
    if master.is_empty() {
        return Err(invalid(
            "the URL does not name the master that the sentinels monitor: write `redis+sentinel://HOST,HOST,HOST/MASTER`",
        ));
    }
    let user = options.text("sentinel_user");
    let file = options.path("sentinel_password_file");
    if user.is_some() && file.is_none() {
        return Err(invalid(
            "`sentinel_user` needs a password: name its file in `sentinel_password_file`",
        ));
    }
    let hosts = url.hosts().iter().cloned();
    Ok(SentinelConfig {
        sentinels: hosts.map(|host| host.with_default_port(SENTINEL_PORT)).collect(),
        master: master.to_owned(),
        login: Login::new(user, None, file)?,
    })
}

/// Writes the server as `host:port`, or the name of the master and its sentinels, or the nodes of the cluster.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Topology::Single(host) => host.fmt(f),
            Topology::Sentinel(config) => {
                let hosts: Vec<_> = config.sentinels.iter().map(Host::to_string).collect();
                write!(f, "`{}` of the sentinels {}", config.master, hosts.join(", "))
            }
            Topology::Cluster(node, others) => {
                write!(f, "the cluster of {node}")?;
                others.iter().try_for_each(|other| write!(f, ", {other}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_backend::Fault;

    use super::*;
    use crate::config::Config;

    fn refused(url: &str) -> String {
        let refused = Config::from_url(&StoreUrl::parse(url).expect("a URL")).expect_err("it is refused");
        assert_eq!(refused.fault(), Fault::Invalid, "{url}");
        refused.to_string()
    }

    #[test]
    fn a_sentinel_url_names_the_master_and_the_database() {
        for (url, database) in [("a,b:1/locks", 0), ("a,b:1/locks/", 0), ("a,b:1/locks/3", 3)] {
            let url = StoreUrl::parse(&format!("redis+sentinel://ada:pw@{url}")).expect("a URL");
            let config = Config::from_url(&url).expect("it is valid");
            assert_eq!(config.address(), "`locks` of the sentinels a:26379, b:1");
            assert_eq!((config.database, config.login.user()), (database, Some("ada")));
        }
    }

    #[test]
    fn a_cluster_url_names_some_of_its_nodes() {
        let url = StoreUrl::parse("rediss+cluster://ada:pw@a,b:1/0").expect("a URL");
        let config = Config::from_url(&url).expect("it is valid");
        assert_eq!(config.address(), "the cluster of a:6379, b:1");
        assert!(config.tls.is_some());
    }

    #[test]
    fn a_url_that_does_not_fit_its_topology_is_refused() {
        for (url, words) in [
            ("redis://a,b", "names one server: write `redis+sentinel://"),
            ("redis+sentinel://a,b", "does not name the master"),
            ("redis+sentinel://a,b//1", "does not name the master"),
            ("redis+sentinel://a/m/x", "the number of a database"),
            (
                "redis+sentinel://a/m?sentinel_user=x",
                "name its file in `sentinel_password_file`",
            ),
            ("redis://a?sentinel_user=x", "are for `redis+sentinel://`"),
            (
                "redis://a?sentinel_password_file=x",
                "are for `redis+sentinel://`",
            ),
            ("redis+sentinel://a/m?sentinel_password_file=/nowhere", "/nowhere"),
            ("redis+sentinel://a/m?ca=x", "are for TLS: write `rediss"),
            ("redis://a?replicas=0", "a number from 1 to 100"),
            ("redis://a?replicas=-1", "a number from 1 to 100"),
            ("redis://a?replicas=101", "a number from 1 to 100"),
            ("redis://a?replica_wait=1s", "`replica_wait` is for `replicas`"),
            ("redis://a?replicas=1&replica_wait=0s", "at least 1ms"),
            ("redis+cluster://a,b/1", "a cluster has no database but 0"),
        ] {
            let message = refused(url);
            assert!(message.contains(words), "{url}: {message}");
        }
    }
}
