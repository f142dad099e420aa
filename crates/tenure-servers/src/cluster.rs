//! A real Redis Cluster for tests: masters, replicas, slots that move, and failovers.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::SteppedClock;
use crate::port::{BUS, Port};
use crate::redis::Redis;

/// Longest wait until all nodes count the cluster as complete.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time for which a master that has started refuses calls, so that the cluster can depose it first.
const WRITABLE_DELAY_MS: i64 = 2_000;

const SLOTS: usize = 16_384;

/// A cluster whose masters share all slots evenly. Dropping this ends its servers.
#[derive(Debug)]
pub struct RedisCluster {
    clock: Option<Arc<SteppedClock>>,
    /// The masters, then the replicas, one for each master or none.
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts masters, each with a replica if `replicated`. With `clock`, a test can step the clock of all nodes.
    ///
    /// # Errors
    /// The system's error, an error with a node's output if the node does not answer, or an error if the nodes do not
    /// form a cluster.
    pub fn start(
        masters: usize,
        replicated: bool,
        options: &[&str],
        clock: Option<SteppedClock>,
    ) -> io::Result<RedisCluster> {
        let clock = clock.map(Arc::new);
        let nodes = start_nodes(masters, replicated, options, clock.as_ref())?;
        let cluster = RedisCluster { clock, nodes };
        if let Some(clock) = &cluster.clock {
            clock.step_ms(WRITABLE_DELAY_MS)?;
        }
        cluster.wait_until_complete()?;
        if replicated {
            cluster.wait(|cluster| {
                let synced = |node: &Redis| Ok(node.ask(&["INFO", "replication"])?.contains("state=online"));
                cluster.all(&cluster.nodes[..masters], synced)
            })?;
        }
        Ok(cluster)
    }

    /// The URL of the cluster, which names all nodes.
    pub fn url(&self) -> String {
        self.url_of("")
    }

    /// The URL of the cluster with credentials, such as `ada:s3cr3t@`.
    pub fn url_of(&self, login: &str) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| node.address().to_string()).collect();
        format!("redis+cluster://{login}{}", hosts.join(","))
    }

    /// The clock of all nodes, if the test can step it.
    pub fn clock(&self) -> Option<&SteppedClock> {
        self.clock.as_deref()
    }

    /// The nodes: the masters, then the replicas.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// A node, to pause, kill or restart it.
    pub fn node_mut(&mut self, number: usize) -> &mut Redis {
        &mut self.nodes[number]
    }

    /// The slot of a key.
    ///
    /// # Errors
    /// The error of the system or the server.
    pub fn slot(&self, key: &str) -> io::Result<u16> {
        let slot = self.nodes[0].ask(&["CLUSTER", "KEYSLOT", key])?;
        slot.parse().map_err(io::Error::other)
    }

    /// Number of the node that serves a slot, as the first running node of the list knows it.
    ///
    /// # Errors
    /// An error if no node runs, or none serves the slot.
    pub fn owner(&self, slot: u16) -> io::Result<usize> {
        let map = self.maps().next();
        let map = map.ok_or_else(|| io::Error::other("no node runs"))?;
        let owner = owner_in(&map, slot).and_then(|(address, _)| {
            let is_there = |node: &Redis| node.address() == address;
            self.nodes.iter().position(is_there)
        });
        owner.ok_or_else(|| io::Error::other(format!("no node serves slot {slot}")))
    }

    /// What `CLUSTER NODES` tells at each running node.
    fn maps(&self) -> impl Iterator<Item = String> {
        let map = |node: &Redis| node.ask(&["CLUSTER", "NODES"]).ok();
        self.nodes.iter().filter(|node| !node.is_still()).filter_map(map)
    }

    /// Numbers of the running nodes that take themselves for masters.
    pub fn masters(&self) -> Vec<usize> {
        let is_master = |node: &Redis| node.ask(&["ROLE"]).is_ok_and(|role| role.starts_with("master"));
        let nodes = 0..self.nodes.len();
        nodes.filter(|number| is_master(&self.nodes[*number])).collect()
    }

    /// Returns whether the cluster is complete, no node takes another for dead, and half of the nodes are replicas in
    /// sync.
    ///
    /// # Errors
    /// The error of the system or the server.
    pub fn is_settled(&self) -> io::Result<bool> {
        let calm = |node: &Redis| {
            let role = node.ask(&["ROLE"])?;
            Ok(node.ask(&["CLUSTER", "INFO"])?.contains("cluster_state:ok")
                && !node.ask(&["CLUSTER", "NODES"])?.contains("fail")
                && (role.starts_with("master") || role.lines().nth(3) == Some("connected")))
        };
        Ok(self.all(&self.nodes, calm)? && self.masters().len() * 2 == self.nodes.len())
    }

    /// Starts a copy of a replica that knows the cluster as it is, and exchanges no message with any node, so it does
    /// not learn of later changes.
    ///
    /// # Errors
    /// The error of the system or the server.
    pub fn start_cut_off(&self, number: usize) -> io::Result<Redis> {
        let node = &self.nodes[number];
        let map = node.ask(&["CLUSTER", "NODES"])?;
        // No node listens for others at port 1.
        let cut_off = |line: &str| {
            let (address, rest) = line.split_once('@')?;
            let (_, rest) = rest.split_once(' ')?;
            Some(format!("{address}@1 {rest}\n"))
        };
        let map: Option<String> = map.lines().map(cut_off).collect();
        let map = map.ok_or_else(|| io::Error::other("a line of `CLUSTER NODES` has no address"))?;
        let folder = tempfile::tempdir()?;
        std::fs::write(
            folder.path().join("nodes.conf"),
            map + "vars currentEpoch 0 lastVoteEpoch 0\n",
        )?;
        Redis::start_at(Port::reserve()?, folder, &node.options(), None)
    }

    /// Begins to move a slot to another node. `move_keys` then moves its keys.
    ///
    /// # Errors
    /// The error of the system or the server.
    pub fn begin_move(&self, slot: u16, to: usize) -> io::Result<()> {
        let (from, number) = (self.owner(slot)?, slot.to_string());
        self.nodes[to].ask(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &self.id(from)?])?;
        self.nodes[from].ask(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &self.id(to)?])?;
        Ok(())
    }

    /// Moves those keys of a slot, up to 100,000, for which `chosen` is true. Returns the number of moved keys.
    ///
    /// # Errors
    /// The error of the system or the server.
    pub fn move_keys(&self, slot: u16, to: usize, chosen: impl Fn(&str) -> bool) -> io::Result<usize> {
        let from = &self.nodes[self.owner(slot)?];
        let target = self.nodes[to].address();
        let [ip, port] = [target.ip().to_string(), target.port().to_string()];
        let keys = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100000"])?;
        let keys: Vec<_> = keys
            .lines()
            .filter(|key| !key.is_empty() && chosen(key))
            .collect();
        if !keys.is_empty() {
            let migrate = ["MIGRATE", &ip, &port, "", "0", "5000", "KEYS"];
            from.ask(&[&migrate[..], &keys].concat())?;
        }
        Ok(keys.len())
    }

    /// Gives a slot, whose keys were all moved, to its new node, and waits until all running nodes know it.
    ///
    /// Without the wait, a second move could give two nodes the same epoch. Each would then name the other as the owner of
    /// the slot, for ever.
    ///
    /// # Errors
    /// The error of the system or the server, or an error if the nodes do not agree after 30 s.
    pub fn end_move(&self, slot: u16, to: usize) -> io::Result<()> {
        let (from, number, id) = (self.owner(slot)?, slot.to_string(), self.id(to)?);
        for node in [to, from] {
            self.nodes[node].ask(&["CLUSTER", "SETSLOT", &number, "NODE", &id])?;
        }
        self.wait(|cluster| {
            let owners: HashSet<_> = cluster.maps().map(|map| owner_in(&map, slot)).collect();
            Ok(owners.len() == 1 && cluster.owner(slot)? == to)
        })
    }

    /// Moves a slot with all its keys to another node.
    ///
    /// # Errors
    /// The error of the system or the server.
    pub fn move_slot(&self, slot: u16, to: usize) -> io::Result<()> {
        self.begin_move(slot, to)?;
        while self.move_keys(slot, to, |_| true)? > 0 {}
        self.end_move(slot, to)
    }

    /// Waits until every node counts the cluster as complete.
    ///
    /// # Errors
    /// The error of a node that does not answer, or an error if the cluster is not complete after 30 s.
    pub fn wait_until_complete(&self) -> io::Result<()> {
        self.wait(|cluster| {
            let complete = |node: &Redis| Ok(node.ask(&["CLUSTER", "INFO"])?.contains("cluster_state:ok"));
            cluster.all(&cluster.nodes, complete)
        })
    }

    fn all(&self, nodes: &[Redis], is: impl Fn(&Redis) -> io::Result<bool>) -> io::Result<bool> {
        for node in nodes {
            if !is(node)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn wait(&self, until: impl Fn(&RedisCluster) -> io::Result<bool>) -> io::Result<()> {
        let end = Instant::now() + PATIENCE;
        while !until(self)? {
            if end <= Instant::now() {
                return Err(io::Error::other("the nodes do not form a complete cluster"));
            }
            // sleep: a node sends no event when it has learned of another.
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn id(&self, node: usize) -> io::Result<String> {
        self.nodes[node].ask(&["CLUSTER", "MYID"])
    }
}

/// Starts the nodes with a map of the cluster on their disks, as if they had formed it before.
fn start_nodes(
    masters: usize,
    replicated: bool,
    options: &[&str],
    clock: Option<&Arc<SteppedClock>>,
) -> io::Result<Vec<Redis>> {
    let count = masters * (1 + usize::from(replicated));
    let mut lines = Vec::new();
    let mut ports = Vec::new();
    let chance = RandomState::new().hash_one(0);
    let id = |number: usize| format!("{chance:016x}{number:024x}");
    for number in 0..count {
        let port = Port::reserve()?;
        let address = port.address();
        let bus = address.port() + BUS;
        let (own, master) = (id(number), number % masters);
        let (first, last) = (SLOTS * master / masters, SLOTS * (master + 1) / masters - 1);
        lines.push(match number < masters {
            true => format!(
                "{own} {address}@{bus} master - 0 0 {} connected {first}-{last}",
                master + 1
            ),
            false => format!(
                "{own} {address}@{bus} slave {} 0 0 {} connected",
                id(master),
                master + 1
            ),
        });
        ports.push(port);
    }
    let start = |(number, port): (usize, Port)| {
        let folder = tempfile::tempdir()?;
        let mut map = lines.clone();
        for role in ["master", "slave"] {
            map[number] = map[number].replacen(&format!(" {role} "), &format!(" myself,{role} "), 1);
        }
        let map = format!(
            "{}\nvars currentEpoch {masters} lastVoteEpoch 0\n",
            map.join("\n")
        );
        std::fs::write(folder.path().join("nodes.conf"), map)?;
        let options = [&["--cluster-enabled", "yes"], options].concat();
        Redis::start_at(port, folder, &options, clock.cloned())
    };
    ports.into_iter().enumerate().map(start).collect()
}

/// Returns whether a line of `CLUSTER NODES` is that of the slot's master.
fn serves(line: &str, slot: u16) -> bool {
    let ranges = line.split(' ').skip(8).filter(|range| !range.starts_with('['));
    let mut ranges = ranges.map(|range| range.split_once('-').unwrap_or((range, range)));
    ranges.any(
        |(first, last)| match (first.parse::<u16>(), last.parse::<u16>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&slot),
            _ => false,
        },
    )
}

/// Address and epoch of the slot's master in an answer to `CLUSTER NODES`.
fn owner_in(map: &str, slot: u16) -> Option<(SocketAddr, u64)> {
    let line = map.lines().find(|line| serves(line, slot))?;
    let word = |number| line.split(' ').nth(number);
    let address = word(1)?.split('@').next()?;
    Some((address.parse().ok()?, word(6)?.parse().ok()?))
}
