//! The comparisons: workloads, stores, and the clients that compete on them.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What the workers do, and in how many processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// One task locks and unlocks one key
    Solo,
    /// 256 tasks, each with a key of its own
    Many,
    /// 64 tasks on one key
    Hot,
    /// 2 processes with one task each, on one key
    Pair,
    /// 8 processes with one task each, on one key
    Eight,
    /// 64 processes with one task each, on one key
    SixtyFour,
    /// 8 processes with 8 tasks each, on one key
    HotProcesses,
    /// 64 tasks of one process on one key, and one task of another process that pauses after each unlock
    LoneWaiter,
    /// 64 tasks on one read-write lock: 8 write, the others read
    Readers,
    /// 64 tasks on one semaphore of 8 permits, each with one permit
    Permits,
}

/// The store of the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Store {
    Memory,
    Sqlite,
    Redis,
    /// The layout `version`, on a server without `fsync`
    Postgres,
    /// One member, on the machine's disk
    Etcd,
    /// One server, on the machine's disk
    Zookeeper,
}

/// Distance between the clients and the store's server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distance {
    /// On this machine; the system chooses the core
    #[default]
    Near,
    /// On this machine, on a core that the clients do not use
    Apart,
    /// One or two milliseconds away in each direction
    Away,
}

/// The lock library under test, or `Bare` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Client {
    /// Tenure with default settings
    Tenure,
    /// Tenure with `Settings::local_handover` off: every hand-over goes through the store
    TenureNoLocalHandover,
    /// Tenure with `Settings::linger`: the client keeps the key for up to 10 ms after an unlock
    TenureLinger,
    /// Tenure with default settings on a Redis Cluster of 3 masters
    TenureCluster,
    /// Tenure with a lease of 1 s on a quorum of 3 Redis servers (RedLock)
    TenureQuorum,
    /// The library `rslock` on Redis, for comparison
    Rslock,
    /// The library `rlock` on Redis, for comparison
    Rlock,
    /// Java's Redisson on Redis, for comparison; each process is a JVM, and each task a thread
    Redisson,
    /// `concurrency.Mutex` of etcd's client for Go, for comparison; each task is a goroutine
    Go,
    /// Java's Curator on ZooKeeper, for comparison; each process is a JVM, and each task a thread
    Curator,
    /// The upper bound of the store: its own statements or scripts, without a library
    Bare,
}

/// One comparison: clients that take turns on one workload and store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pairing {
    pub(crate) workload: Workload,
    pub(crate) store: Store,
    pub(crate) clients: Vec<Client>,
}

impl Workload {
    /// Number of tasks in each process.
    pub(crate) fn tasks(self) -> &'static [u32] {
        match self {
            Workload::Solo => &[1],
            Workload::Many => &[256],
            Workload::Hot | Workload::Readers | Workload::Permits => &[64],
            Workload::Pair => &[1, 1],
            Workload::Eight => &[1; 8],
            Workload::SixtyFour => &[1; 64],
            Workload::HotProcesses => &[8; 8],
            Workload::LoneWaiter => &[64, 1],
        }
    }

    pub(crate) fn has_one_key(self) -> bool {
        self != Workload::Many
    }

    /// Returns whether the workload is measured on this store if no workload is named: many processes cost much time.
    fn is_usual_on(self, store: Store) -> bool {
        store == Store::Zookeeper || !matches!(self, Workload::Eight | Workload::SixtyFour)
    }

    /// Returns whether the workload's lock has one holder at a time.
    pub(crate) fn is_exclusive(self) -> bool {
        !matches!(self, Workload::Readers | Workload::Permits)
    }

    /// Returns whether the process is that of the lone waiter.
    pub(crate) fn is_lone(self, process: usize) -> bool {
        self == Workload::LoneWaiter && process == 1
    }
}

impl Store {
    /// Returns whether the store can be at this distance: only one with a server can be elsewhere than `Near`.
    fn can_be(self, distance: Distance) -> bool {
        distance == Distance::Near || self == Store::Redis
    }
}

impl Pairing {
    /// Keeps only these clients; an empty list keeps all.
    pub(crate) fn only(&mut self, clients: &[Client]) {
        if !clients.is_empty() {
            self.clients.retain(|client| clients.contains(client));
        }
    }
}

/// Name of a variant, as on the command line and in JSON.
pub(crate) fn name(value: impl ValueEnum) -> String {
    // Every variant has a name, because none is hidden from the command line.
    value
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

/// The note on a comparison that cannot be made.
pub(crate) fn left_out(workload: Workload, store: Store, why: &str) -> String {
    format!("{} on {} is left out: {why}.", name(workload), name(store))
}

/// All comparisons of these workloads and stores, and notes on those that cannot be made. An empty list means the usual
/// workloads of each store, or all stores that can be at that distance.
pub(crate) fn pairings(
    workloads: &[Workload],
    stores: &[Store],
    distance: Distance,
) -> (Vec<Pairing>, Vec<String>) {
    let (mut made, mut notes) = (Vec::new(), Vec::new());
    for &store in Store::value_variants() {
        for &workload in Workload::value_variants() {
            let wanted = (workloads.is_empty() && workload.is_usual_on(store)
                || workloads.contains(&workload))
                && (stores.contains(&store) || stores.is_empty() && store.can_be(distance));
            match impossible(workload, store, distance) {
                _ if !wanted => {}
                Some(why) => notes.push(left_out(workload, store, why)),
                None => made.push(Pairing {
                    workload,
                    store,
                    clients: clients(workload, store, distance),
                }),
            }
        }
    }
    (made, notes)
}

/// The clients of a workload. `Bare`, if it is one of them, is last.
fn clients(workload: Workload, store: Store, distance: Distance) -> Vec<Client> {
    let mut clients = vec![Client::Tenure];
    if store == Store::Redis && workload.is_exclusive() && workload != Workload::LoneWaiter {
        // The nodes of a cluster tell clients where to connect. So clients would bypass the proxy of `Away`.
        if distance != Distance::Away {
            clients.push(Client::TenureCluster);
        }
        clients.push(Client::TenureQuorum);
    }
    // Of the workloads on a mutex, only in `Hot` do all tasks share one process and one key, so every hand-over can
    // be local.
    if workload == Workload::Hot {
        clients.push(Client::TenureNoLocalHandover);
    }
    if workload == Workload::Solo {
        clients.push(Client::TenureLinger);
    }
    if store == Store::Redis && workload.is_exclusive() {
        clients.extend([Client::Rslock, Client::Rlock]);
    }
    if store == Store::Redis && !matches!(workload, Workload::Many | Workload::LoneWaiter) {
        clients.push(Client::Redisson);
    }
    if store == Store::Etcd {
        clients.push(Client::Go);
    }
    if store == Store::Zookeeper && workload != Workload::LoneWaiter {
        clients.push(Client::Curator);
    }
    // The databases and Redis have no well-known statements for read-write locks and semaphores.
    if store == Store::Memory || workload.is_exclusive() {
        clients.push(Client::Bare);
    }
    clients
}

fn impossible(workload: Workload, store: Store, distance: Distance) -> Option<&'static str> {
    if !store.can_be(distance) {
        return Some("it has no server that could be elsewhere");
    }
    if matches!(store, Store::Sqlite | Store::Postgres | Store::Etcd) && !workload.is_exclusive() {
        return Some("no other client has such a lock there to compare with");
    }
    (store == Store::Memory && workload.tasks().len() > 1).then_some("memory is not shared between processes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_paired_with_every_store_and_bare() {
        let (made, notes) = pairings(&[], &[], Distance::Near);
        assert_eq!(made.len(), 41);
        let processes = ["pair", "hot-processes", "lone-waiter"];
        let left_out = |store: &'static str, why: &'static str| {
            move |workload| format!("{workload} on {store} is left out: {why}.")
        };
        let unshared = processes.map(left_out("memory", "memory is not shared between processes"));
        let no_peer = "no other client has such a lock there to compare with";
        let shared =
            ["sqlite", "postgres", "etcd"].map(|store| ["readers", "permits"].map(left_out(store, no_peer)));
        assert_eq!(notes, [&unshared[..], shared.as_flattened()].concat());
        for pairing in &made {
            assert_eq!(pairing.clients.first(), Some(&Client::Tenure));
            let has_bare = pairing.store == Store::Memory || pairing.workload.is_exclusive();
            assert_eq!(pairing.clients.contains(&Client::Bare), has_bare);
            let has_handover_off = pairing.clients.contains(&Client::TenureNoLocalHandover);
            assert_eq!(has_handover_off, pairing.workload == Workload::Hot);
            let lingers = pairing.clients.contains(&Client::TenureLinger);
            assert_eq!(lingers, pairing.workload == Workload::Solo);
            assert_eq!(
                pairing.clients.contains(&Client::Go),
                pairing.store == Store::Etcd
            );
            let has_curator = pairing.store == Store::Zookeeper && pairing.workload != Workload::LoneWaiter;
            assert_eq!(pairing.clients.contains(&Client::Curator), has_curator);
            for peer in [Client::Rslock, Client::Rlock] {
                let has_peer = pairing.store == Store::Redis && pairing.workload.is_exclusive();
                assert_eq!(pairing.clients.contains(&peer), has_peer);
            }
        }
    }

    #[test]
    fn a_filter_keeps_the_named_items() {
        let workloads = [Workload::Hot, Workload::Solo];
        let (mut made, notes) = pairings(&workloads, &[Store::Redis], Distance::Near);
        let kept: Vec<_> = made.iter().map(|pairing| pairing.workload).collect();
        assert_eq!((kept, notes), (vec![Workload::Solo, Workload::Hot], vec![]));
        made[1].only(&[]);
        assert_eq!(made[1].clients.len(), 8);
        made[1].only(&[Client::Bare, Client::Rslock]);
        assert_eq!(made[1].clients, [Client::Rslock, Client::Bare]);
    }

    #[test]
    fn many_processes_are_measured_where_they_are_usual_or_named() {
        let stores = |workloads: &[Workload]| -> Vec<Store> {
            let (made, _) = pairings(workloads, &[Store::Redis, Store::Zookeeper], Distance::Near);
            let eight = made.iter().filter(|pairing| pairing.workload == Workload::Eight);
            eight.map(|pairing| pairing.store).collect()
        };
        assert_eq!(stores(&[]), [Store::Zookeeper]);
        assert_eq!(stores(&[Workload::Eight]), [Store::Redis, Store::Zookeeper]);
    }

    #[test]
    fn only_a_store_with_a_server_can_be_elsewhere() {
        for distance in [Distance::Apart, Distance::Away] {
            let (made, notes) = pairings(&[], &[], distance);
            assert!(made.iter().all(|pairing| pairing.store == Store::Redis));
            assert_eq!((made.len(), notes.len()), (8, 0));
            let clusters = |pairing: &Pairing| pairing.clients.contains(&Client::TenureCluster);
            assert_eq!(made.iter().any(clusters), distance == Distance::Apart);
            let (made, notes) = pairings(&[Workload::Solo], &[Store::Memory, Store::Redis], distance);
            let why = "solo on memory is left out: it has no server that could be elsewhere.";
            assert_eq!((made.len(), notes), (1, vec![why.to_owned()]));
        }
    }

    #[test]
    fn names_are_the_same_on_the_command_line_and_in_json() {
        fn check<T: ValueEnum + Serialize>() {
            let mut values = T::value_variants().iter();
            assert!(values.all(|value| serde_json::json!(value) == name(value.clone())));
        }
        check::<Workload>();
        check::<Store>();
        check::<Client>();
    }
}
