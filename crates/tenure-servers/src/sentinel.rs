//! A real master with replicas, and the sentinels that watch them.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::redis::{CONFIGURATION, Redis};

/// The name by which the sentinels know the master.
pub const MASTER: &str = "locks";

/// A sentinel takes a master for dead if it has been silent for this long.
const DOWN_AFTER: Duration = Duration::from_secs(1);

/// Time limit for replicas to be in sync, for sentinels to know each other, and for a failover.
const PATIENCE: Duration = Duration::from_secs(60);

/// A master, two replicas and three sentinels. Dropping this ends them all.
#[derive(Debug)]
pub struct Replicated {
    servers: Vec<Redis>,
    sentinels: Vec<Redis>,
}

impl Replicated {
    /// Starts all servers and sentinels, and waits until they know each other. The servers have these command-line
    /// options.
    ///
    /// # Errors
    /// As [`Redis::start`], or an error if they do not find each other.
    pub fn start(options: &[&str]) -> io::Result<Replicated> {
        let mut group = Self::start_servers(options)?;
        for _ in 0..3 {
            group
                .sentinels
                .push(start_sentinel(group.servers[0].address(), 2, "")?);
        }
        for sentinel in &group.sentinels {
            wait_until("the sentinels know each other", || is_calm(sentinel))?;
        }
        Ok(group)
    }

    /// Starts a master and two replicas that are in sync, without sentinels.
    ///
    /// # Errors
    /// As [`start`](Replicated::start).
    pub fn start_servers(options: &[&str]) -> io::Result<Replicated> {
        let master = Redis::start_with(&[QUICK_SYNC, options].concat(), None)?;
        let port = master.address().port().to_string();
        let mut servers = vec![master];
        for _ in 0..2 {
            let replica = [&["--replicaof", "127.0.0.1", &port], QUICK_SYNC, options].concat();
            servers.push(Redis::start_with(&replica, None)?);
        }
        for replica in &servers[1..] {
            wait_until("the replicas are in sync", || is_in_sync(replica))?;
        }
        Ok(Replicated {
            servers,
            sentinels: Vec::new(),
        })
    }

    /// The store's URL, which names the sentinels.
    pub fn url(&self) -> String {
        let hosts = self
            .sentinels
            .iter()
            .map(|sentinel| sentinel.address().to_string());
        let hosts: Vec<_> = hosts.collect();
        format!("redis+sentinel://{}/{MASTER}", hosts.join(","))
    }

    /// The servers. The first one is the master until a failover.
    pub fn servers(&mut self) -> &mut [Redis] {
        &mut self.servers
    }

    /// The sentinels.
    pub fn sentinels(&mut self) -> &mut [Redis] {
        &mut self.sentinels
    }

    /// The index of the server that all sentinels name as the master.
    ///
    /// # Errors
    /// An error if a sentinel does not answer, or they do not agree.
    pub fn master(&self) -> io::Result<usize> {
        let mut named = Vec::new();
        for sentinel in &self.sentinels {
            let answer = sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])?;
            named.push(answer.replace('\n', ":"));
        }
        let is_named = |server: &Redis| named.iter().all(|name| *name == server.address().to_string());
        let master = self.servers.iter().position(is_named);
        master.ok_or_else(|| io::Error::other(format!("the sentinels do not agree: {named:?}")))
    }

    /// Returns whether no failover is under way, and both other servers are replicas in sync. If a former master still
    /// acts as master, demotes it; the sentinels would do so some seconds later.
    ///
    /// # Errors
    /// An error if a server does not answer, or the sentinels do not agree.
    pub fn settle(&self) -> io::Result<bool> {
        let master = self.master()?;
        for sentinel in &self.sentinels {
            if !is_calm(sentinel)? {
                return Ok(false);
            }
        }
        let address = self.servers[master].address();
        let [ip, port] = [address.ip().to_string(), address.port().to_string()];
        let mut settled = true;
        for (number, server) in self.servers.iter().enumerate() {
            let role = server.ask(&["ROLE"])?;
            let role: Vec<_> = role.lines().collect();
            settled &= match (&role[..], number == master) {
                (["master", ..], true) => true,
                (["slave", of, at, "connected", ..], false) => [*of, *at] == [&ip, &port],
                (["master", ..], false) => {
                    server.ask(&["REPLICAOF", &ip, &port])?;
                    false
                }
                _ => false,
            };
        }
        Ok(settled)
    }

    /// Lets a replica take over in an orderly way. Returns the index of the new master, once all sentinels name it.
    ///
    /// # Errors
    /// An error if the sentinels refuse, or do not agree within a minute.
    pub fn fail_over(&self) -> io::Result<usize> {
        let before = self.master()?;
        self.sentinels[0].ask(&["SENTINEL", "FAILOVER", MASTER])?;
        self.wait_for_failover(before)
    }

    /// Waits until all sentinels name another master than the one with the index `before`. Returns its index.
    ///
    /// # Errors
    /// An error if that takes longer than a minute.
    pub fn wait_for_failover(&self, before: usize) -> io::Result<usize> {
        wait_until("the sentinels name another master", || {
            Ok(self.master().is_ok_and(|master| master != before))
        })?;
        self.master()
    }
}

/// Options with which a replica is in sync after a second instead of six.
const QUICK_SYNC: &[&str] = &[
    "--save",
    "",
    "--repl-diskless-sync",
    "yes",
    "--repl-diskless-sync-delay",
    "0",
];

/// Starts a sentinel that watches the server at `master`. For a failover, `quorum - 1` others must agree with it.
/// `more` are further lines of its configuration.
///
/// # Errors
/// As [`Redis::start`].
pub fn start_sentinel(master: SocketAddr, quorum: u32, more: &str) -> io::Result<Redis> {
    let folder = tempfile::tempdir()?;
    let mut text = String::new();
    let (host, port, down) = (master.ip(), master.port(), DOWN_AFTER.as_millis());
    let written = writeln!(
        text,
        "sentinel monitor {MASTER} {host} {port} {quorum}\n\
         sentinel down-after-milliseconds {MASTER} {down}\n\
         sentinel failover-timeout {MASTER} 5000\n\
         {more}"
    );
    written.map_err(io::Error::other)?;
    std::fs::write(folder.path().join(CONFIGURATION), text)?;
    Redis::start_in(folder, &["--sentinel"], None)
}

/// Returns whether a sentinel knows all others and both replicas, takes the master for alive, and carries out no
/// failover.
fn is_calm(sentinel: &Redis) -> io::Result<bool> {
    let known = sentinel.ask(&["SENTINEL", "MASTER", MASTER])?;
    let known: Vec<_> = known.lines().collect();
    let says = |name: &str, value: &str| known.chunks_exact(2).any(|pair| pair == [name, value]);
    Ok(says("num-slaves", "2") && says("num-other-sentinels", "2") && says("flags", "master"))
}

fn is_in_sync(replica: &Redis) -> io::Result<bool> {
    let info = replica.ask(&["INFO", "replication"])?;
    Ok(info.contains("master_link_status:up"))
}

fn wait_until(what: &str, reached: impl Fn() -> io::Result<bool>) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !reached()? {
        if Instant::now() >= end {
            return Err(io::Error::other(format!("not within {PATIENCE:?}: {what}")));
        }
        // sleep: servers and sentinels send no event for most of these conditions.
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
