//! An ensemble of three ZooKeeper servers for tests. A test can cut a server off from the others.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::port::Port;
use crate::process::Data;
use crate::proxy::{Proxy, Way};
use crate::shim::{self, preload};
use crate::zookeeper::{Member, ZooKeeper};

/// The number of servers.
const SIZE: usize = 3;

/// Time limit for servers to elect a leader.
const PATIENCE: Duration = Duration::from_secs(60);

/// Limits of the servers, in ticks: to follow a new leader, and to miss the leader's pings. A server that reaches a new
/// leader's proxy before the leader listens gives up, and the leader waits for it until the first limit, so that
/// limit is short. A server repeats its vote at the latest after a second: by default it may wait a minute.
const LIMITS: &str = "initLimit=6\nsyncLimit=5\nfastleader.maxNotificationInterval=1000\n";

/// Three ZooKeeper servers with a leader. Dropping this ends them.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    servers: Vec<ZooKeeper>,
    links: Vec<Vec<Link>>,
    _ports: Vec<[Port; 2]>,
    _folder: TempDir,
}

/// The network by which a server connects to another one: the other's port for followers, and that for elections.
type Link = [Proxy; 2];

impl ZooKeeperEnsemble {
    /// Starts three servers, and waits until they have a leader. They reach each other through proxies.
    ///
    /// # Cancel safety
    /// Dropping the future ends the servers.
    ///
    /// # Errors
    /// As [`ZooKeeper::start`].
    ///
    /// # Panics
    /// On a runtime with one thread: this blocks until the servers have a leader, and another thread must serve the
    /// proxies.
    pub async fn start(tick_time: Duration) -> io::Result<ZooKeeperEnsemble> {
        Self::start_with(tick_time, "").await
    }

    /// As [`start`](Self::start). `further` are more lines of each server's file `zoo.cfg`, such as those that limit sessions.
    ///
    /// # Cancel safety
    /// Dropping the future ends the servers.
    ///
    /// # Errors
    /// As [`ZooKeeper::start`].
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub async fn start_with(tick_time: Duration, further: &str) -> io::Result<ZooKeeperEnsemble> {
        let ports: io::Result<Vec<_>> = (0..SIZE)
            .map(|_| Ok([Port::reserve()?, Port::reserve()?]))
            .collect();
        let ports = ports?;
        let mut links = Vec::new();
        for _ in 0..SIZE {
            let mut of_server = Vec::new();
            for [followers, elections] in &ports {
                let followers = Proxy::start(followers.address()).await?;
                of_server.push([followers, Proxy::start(elections.address()).await?]);
            }
            links.push(of_server);
        }
        tokio::task::block_in_place(|| {
            let folder = tempfile::tempdir()?;
            // A server has to be told to listen at all addresses.
            let preload = preload(folder.path(), shim::LOOPBACK)?;
            let start = |number| {
                let settings = settings(number, &ports, &links[number]) + further;
                let member = Member {
                    number: number + 1,
                    environment: vec![preload.clone()],
                };
                ZooKeeper::launch_with(tick_time, &settings, None, Some(member))
            };
            let servers: io::Result<Vec<_>> = (0..SIZE).map(start).collect();
            let mut ensemble = ZooKeeperEnsemble {
                servers: servers?,
                links,
                _ports: ports,
                _folder: folder,
            };
            for server in &mut ensemble.servers {
                server.wait_until_it_serves()?;
            }
            Ok(ensemble)
        })
    }

    /// The servers.
    pub fn servers(&self) -> &[ZooKeeper] {
        &self.servers
    }

    /// A server, to pause, continue or kill it.
    pub fn server_mut(&mut self, number: usize) -> &mut ZooKeeper {
        &mut self.servers[number]
    }

    /// The URL of a store, which names all servers.
    pub fn url(&self) -> String {
        let hosts = self.servers.iter().map(|server| server.address().to_string());
        format!("zookeeper://{}", hosts.collect::<Vec<_>>().join(","))
    }

    /// Number of the server that says it is the leader.
    ///
    /// # Errors
    /// An error if no server says so within a minute.
    pub fn leader(&self) -> io::Result<usize> {
        self.leader_among(0..SIZE)
    }

    /// Number of the one of these servers that says it is the leader. A server that is cut off may still say so for some
    /// ticks.
    ///
    /// # Errors
    /// An error if none of them says so within a minute.
    pub fn leader_among(&self, numbers: impl IntoIterator<Item = usize>) -> io::Result<usize> {
        let numbers: Vec<usize> = numbers.into_iter().collect();
        let leads = |number: &&usize| self.servers[**number].mode().as_deref() == Some("leader");
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(leader) = numbers.iter().find(leads) {
                return Ok(*leader);
            }
            if Instant::now() >= end {
                return Err(io::Error::other("no server is the leader"));
            }
            // sleep: a server sends no event when it becomes the leader.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether all servers serve requests, and one of them leads.
    pub fn is_settled(&self) -> bool {
        let modes: Option<Vec<String>> = self.servers.iter().map(ZooKeeper::mode).collect();
        modes.is_some_and(|modes| modes.iter().filter(|mode| *mode == "leader").count() == 1)
    }

    /// Kills a server if it runs, starts it again on the same ports, and waits until it serves requests, which needs a
    /// majority.
    ///
    /// # Errors
    /// As [`ZooKeeper::start`].
    pub fn restart(&mut self, number: usize, data: Data) -> io::Result<()> {
        self.servers[number].restart(data)
    }

    /// Cuts a server off from the others, in both directions, until [`heal`](Self::heal). What they send to each other is
    /// kept back. Clients still reach all of them.
    pub fn cut_off(&self, number: usize) {
        for other in (0..SIZE).filter(|other| *other != number) {
            for proxy in self.links[number][other].iter().chain(&self.links[other][number]) {
                proxy.hold(Way::ToServer);
                proxy.hold(Way::ToClient);
            }
        }
    }

    /// Ends all cuts, and delivers what was kept back.
    pub fn heal(&self) {
        self.links.iter().flatten().flatten().for_each(Proxy::heal);
    }
}

/// The settings of a server: it knows the others by the proxies that lead from it to them.
fn settings(number: usize, ports: &[[Port; 2]], links: &[Link]) -> String {
    let mut settings = LIMITS.to_owned();
    for (other, link) in links.iter().enumerate() {
        let addresses: [SocketAddr; 2] = match other == number {
            // A server tells the others its own address for elections, and they would connect to it past the proxies.
            // They ignore an address without a host.
            true => [0, 1].map(|at| ([0, 0, 0, 0], ports[other][at].address().port()).into()),
            false => [0, 1].map(|at| link[at].address()),
        };
        let [followers, elections] = addresses;
        // Writing to a string cannot fail.
        let _ = writeln!(settings, "server.{}={followers}:{}", other + 1, elections.port());
    }
    settings
}
