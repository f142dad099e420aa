//! Servers of a store, and how each topology recovers from faults.

use std::io;
use std::time::Duration;

use tenure::Instant;
use tenure::backend::Hazard;
use tenure_servers::{
    Data, EtcdCluster, MASTER, MariaDb, Postgres, Process, Redis, RedisCluster, Replicated, SteppedClock,
    ZooKeeperEnsemble,
};
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::fault::{Allowed, InjectedFault, REPLACED, Scope, StoreFault, Target};
use crate::keys::KEYS;
use crate::log::now;

/// Time limit for a replica to take over, and for all servers to agree and be in sync after a fault. A sentinel that
/// was paused for 2 s, or delayed as long by a busy machine, does nothing for the next 30 s (TILT mode).
const PATIENCE: Duration = Duration::from_secs(180);

/// Interval of checks of the servers.
const PACE: Duration = Duration::from_millis(50);

/// Time for which a master that was replaced during its pause acts as a second master, before `settle` demotes it.
const SECOND_MASTER_TIME: Duration = Duration::from_secs(1);

/// Pause before each of the two steps that move the keys of a slot to another node. During the second pause, the keys
/// are divided between both nodes.
const STEP: Duration = Duration::from_millis(300);

/// Time for which a member of etcd or a server of ZooKeeper is cut off from the others: longer than an election takes.
const CUT_OFF_TIME: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(6)];

/// Ends the sessions of all clients but this one.
const END_SESSIONS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

/// Lists the sessions of all clients but this one.
const SESSIONS: &str =
    "SELECT id FROM information_schema.processlist WHERE user <> 'system user' AND id <> CONNECTION_ID()";

#[derive(Debug)]
pub(crate) enum Group {
    /// Servers that know nothing of each other.
    Members(Vec<Redis>),
    /// A master, its replicas and sentinels. The sentinels have the last server numbers.
    Sentinel(Replicated),
    Cluster(RedisCluster),
    Etcd(EtcdCluster),
    ZooKeeper(ZooKeeperEnsemble),
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Group {
    /// The Redis server with this number; `None` for another kind of server.
    fn redis(&mut self, number: usize) -> Option<&mut Redis> {
        match self {
            Group::Members(members) => members.get_mut(number),
            Group::Sentinel(group) => Some(match number.checked_sub(group.servers().len()) {
                Some(sentinel) => &mut group.sentinels()[sentinel],
                None => &mut group.servers()[number],
            }),
            Group::Cluster(cluster) => Some(cluster.node_mut(number)),
            Group::Etcd(_) | Group::ZooKeeper(_) | Group::Postgres(_) | Group::MariaDb(_) => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) group: Group,
    pub(crate) allowed: Allowed,
    /// The masters when the servers last settled, and that time. Set after each fault and by `unexpected_failover`.
    /// `None` until it is first set.
    settled: Option<(Vec<usize>, Instant)>,
}

impl Servers {
    pub(crate) fn new(group: Group, allowed: Allowed) -> Servers {
        Servers {
            group,
            allowed,
            settled: None,
        }
    }

    fn count(&mut self) -> usize {
        match &mut self.group {
            Group::Members(members) => members.len(),
            Group::Sentinel(group) => group.servers().len() + group.sentinels().len(),
            Group::Cluster(cluster) => cluster.nodes().len(),
            Group::Etcd(cluster) => cluster.members().len(),
            Group::ZooKeeper(ensemble) => ensemble.servers().len(),
            Group::Postgres(_) | Group::MariaDb(_) => 1,
        }
    }

    /// The Redis server with this number; `None` for another kind of server.
    pub(crate) fn redis(&mut self, number: usize) -> Option<&mut Redis> {
        self.group.redis(number)
    }

    fn process(&mut self, number: usize) -> io::Result<&mut Process> {
        match &mut self.group {
            Group::Etcd(cluster) => Ok(cluster.member_mut(number).process()),
            Group::ZooKeeper(ensemble) => Ok(ensemble.server_mut(number).process()),
            Group::Postgres(server) => Ok(server.process()),
            Group::MariaDb(server) => Ok(server.process()),
            redis => Ok(redis.redis(number).ok_or_else(no_server)?.process()),
        }
    }

    fn restart(&mut self, number: usize, data: Data) -> io::Result<()> {
        block_in_place(|| match &mut self.group {
            Group::Etcd(cluster) => cluster.restart(number, data),
            Group::ZooKeeper(ensemble) => ensemble.restart(number, data),
            Group::Postgres(server) => server.restart(data),
            Group::MariaDb(server) => server.restart(data),
            redis => redis.redis(number).ok_or_else(no_server)?.restart(data),
        })
    }

    /// Ends the connections of all clients. Cuts a member of etcd or a server of ZooKeeper off from the others for a time.
    async fn disconnect(&mut self, number: usize) -> io::Result<()> {
        let [etcd, zookeeper] = CUT_OFF_TIME;
        match &self.group {
            Group::Etcd(cluster) => {
                cluster.cut_off(number);
                sleep(etcd).await;
                cluster.heal();
                return Ok(());
            }
            Group::ZooKeeper(ensemble) => {
                ensemble.cut_off(number);
                sleep(zookeeper).await;
                ensemble.heal();
                return Ok(());
            }
            _ => {}
        }
        block_in_place(|| match &mut self.group {
            Group::Postgres(server) => server.ask(END_SESSIONS).map(drop),
            Group::MariaDb(server) => {
                for session in server.ask(SESSIONS)?.lines() {
                    // Fails if the session has just ended.
                    let _ = server.ask(&format!("KILL {session}"));
                }
                Ok(())
            }
            redis => {
                let server = redis.redis(number).ok_or_else(no_server)?;
                for kind in ["normal", "pubsub"] {
                    server.ask(&["CLIENT", "KILL", "TYPE", kind])?;
                }
                Ok(())
            }
        })
    }

    fn clock(&mut self) -> Option<&SteppedClock> {
        match &mut self.group {
            Group::Postgres(server) => server.clock(),
            Group::MariaDb(server) => server.clock(),
            redis => redis.redis(0)?.clock(),
        }
    }

    /// Numbers of the servers that grant locks. Fails while the sentinels do not agree on the master.
    pub(crate) fn masters(&mut self) -> io::Result<Vec<usize>> {
        block_in_place(|| match &self.group {
            Group::Members(members) => Ok((0..members.len()).collect()),
            Group::Sentinel(group) => Ok(vec![group.master()?]),
            Group::Cluster(cluster) => Ok(cluster.masters()),
            Group::Etcd(cluster) => Ok(vec![cluster.leader()?]),
            Group::ZooKeeper(ensemble) => Ok(vec![ensemble.leader()?]),
            Group::Postgres(_) | Group::MariaDb(_) => Ok(vec![0]),
        })
    }

    /// Waits until all servers agree and all replicas are in sync. Returns the masters.
    async fn settle(&mut self) -> io::Result<Vec<usize>> {
        let end = now() + PATIENCE;
        loop {
            let settled = block_in_place(|| match &self.group {
                Group::Members(_) | Group::Postgres(_) | Group::MariaDb(_) => Ok(true),
                Group::Sentinel(group) => group.settle(),
                Group::Cluster(cluster) => cluster.is_settled(),
                Group::Etcd(cluster) => Ok(cluster.is_settled()),
                Group::ZooKeeper(ensemble) => Ok(ensemble.is_settled()),
            });
            if let (Ok(true), Ok(masters)) = (&settled, self.masters()) {
                return Ok(masters);
            }
            if now() > end {
                return Err(io::Error::other(format!(
                    "the servers do not settle: {settled:?}"
                )));
            }
            sleep(PACE).await;
        }
    }

    /// Returns the failover that happened without a fault since the last fault, or since the last call of this
    /// function, if there was one. On a busy machine, a master may answer so late that a replica takes over.
    pub(crate) async fn unexpected_failover(&mut self) -> io::Result<Option<InjectedFault>> {
        let masters = self.settle().await?;
        let before = self.settled.replace((masters.clone(), now()));
        Ok(before
            .filter(|(before, _)| *before != masters)
            .map(|(_, from)| InjectedFault {
                from,
                to: now(),
                scope: Scope::AllWaiters,
                hazard: self.hazard(Hazard::Failover),
                what: format!("Failover without a fault, {REPLACED}"),
            }))
    }

    fn hazard(&self, hazard: Hazard) -> Option<Hazard> {
        (!self.allowed.withstands_all).then_some(hazard)
    }

    fn choose(&mut self, target: Target, masters: &[usize]) -> usize {
        let mut chosen: Vec<usize> = (0..self.count()).collect();
        chosen.retain(|number| masters.contains(number) == target.master);
        match &chosen[..] {
            [] => masters[target.number % masters.len()],
            chosen => chosen[target.number % chosen.len()],
        }
    }

    /// Injects a fault, and waits until the servers have recovered. Returns the fault's hazard, if it can make two
    /// clients hold a key at the same time, and a description.
    ///
    /// Unless a replica takes over, a pause, a restart that loses no data and a clock that is set back have no hazard:
    /// they only make leases last longer.
    pub(crate) async fn inject(&mut self, fault: StoreFault) -> io::Result<(Option<Hazard>, String)> {
        let masters = self.settle().await?;
        let mut what = format!("{fault:?}");
        let mut hazard = None;
        match fault {
            StoreFault::Pause(target, time) => {
                let number = self.choose(target, &masters);
                self.process(number)?.pause();
                sleep(time).await;
                self.process(number)?.resume();
                if self.allowed.replicated {
                    sleep(SECOND_MASTER_TIME).await;
                }
            }
            StoreFault::Restart(target, data, down) => {
                let number = self.choose(target, &masters);
                self.process(number)?.kill();
                sleep(down).await;
                self.restart(number, data)?;
                hazard = match data {
                    Data::Lost => Some(Hazard::DataLoss),
                    Data::Kept if self.allowed.forgets && masters.contains(&number) => Some(Hazard::Restart),
                    Data::Kept => None,
                };
            }
            StoreFault::Replace(number) => {
                let number = masters[number % masters.len()];
                self.process(number)?.kill();
                self.wait_for_takeover(number, masters.len()).await?;
                self.restart(number, Data::Kept)?;
            }
            StoreFault::Move(number) => what += &self.rearrange(number, &masters).await?,
            StoreFault::Cut(target) => {
                let number = self.choose(target, &masters);
                self.disconnect(number).await?;
            }
            StoreFault::Step(by) => {
                let none = || io::Error::other("the server has no clock that steps");
                self.clock().ok_or_else(none)?.step_ms(by)?;
                hazard = (by > 0).then_some(Hazard::ClockSet);
            }
        }
        let after = self.settle().await?;
        if masters != after {
            hazard = Some(Hazard::Failover);
            what += &format!(", {REPLACED} {masters:?} then {after:?}");
        }
        self.settled = Some((after, now()));
        Ok((hazard.and_then(|hazard| self.hazard(hazard)), what))
    }

    /// Waits until a replica has taken over from a killed master.
    async fn wait_for_takeover(&mut self, master: usize, masters: usize) -> io::Result<()> {
        let end = now() + PATIENCE;
        loop {
            let taken_over = block_in_place(|| match &self.group {
                Group::Members(_) | Group::Postgres(_) | Group::MariaDb(_) => Ok(true),
                Group::Sentinel(group) => group.master().map(|other| other != master),
                Group::Cluster(cluster) => Ok(cluster.masters().len() == masters),
                Group::Etcd(cluster) => cluster.leader().map(|other| other != master),
                Group::ZooKeeper(ensemble) => ensemble.leader().map(|other| other != master),
            });
            if let Ok(true) = taken_over {
                return Ok(());
            }
            if now() > end {
                return Err(io::Error::other(format!("no replica takes over: {taken_over:?}")));
            }
            sleep(PACE).await;
        }
    }

    /// Lets a replica take over in an orderly way, or moves the slot of a key to another node of a cluster.
    async fn rearrange(&mut self, number: usize, masters: &[usize]) -> io::Result<String> {
        match &mut self.group {
            Group::Members(_)
            | Group::Etcd(_)
            | Group::ZooKeeper(_)
            | Group::Postgres(_)
            | Group::MariaDb(_) => Ok(String::new()),
            Group::Sentinel(group) => {
                let ordered = block_in_place(|| group.sentinels()[0].ask(&["SENTINEL", "FAILOVER", MASTER]));
                // The command fails if the sentinel does not know a replica that can take over.
                Ok(ordered.map_or_else(|error| format!(", refused: {error}"), |_| String::new()))
            }
            Group::Cluster(cluster) => {
                let key = KEYS[number % KEYS.len()].name;
                let slot = block_in_place(|| cluster.slot(key))?;
                let from = block_in_place(|| cluster.owner(slot))?;
                let others: Vec<usize> = masters.iter().copied().filter(|other| *other != from).collect();
                let to = others[number / KEYS.len() % others.len()];
                block_in_place(|| cluster.begin_move(slot, to))?;
                sleep(STEP).await;
                block_in_place(|| cluster.move_keys(slot, to, |key| key.len() % 2 == 0))?;
                sleep(STEP).await;
                while block_in_place(|| cluster.move_keys(slot, to, |_| true))? > 0 {}
                block_in_place(|| cluster.end_move(slot, to))?;
                Ok(format!(", slot of {key} from {from} to {to}"))
            }
        }
    }
}

fn no_server() -> io::Error {
    io::Error::other("no server has this number")
}
