//! One ZooKeeper for all tests. Each test has a node of its own, and a file with a number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_interop::Lock;
use tenure_servers::{ZooKeeper, needs};

use crate::shared::fixture::Store;
use crate::shared::number::NumberFile;
use crate::shared::subject::Subject;

/// The server's unit of time, which lets sessions last 3 s.
const TICK: Duration = Duration::from_millis(500);

/// Lets sessions last as long as the leases of the tests.
const SESSIONS: &str = "maxSessionTimeout=60000\n";

/// The folder in which Tenure keeps its own nodes.
const OURS: &str = "%tenure/";

static ZOOKEEPER: Mutex<Option<Arc<ZooKeeper>>> = Mutex::new(None);

/// Stops the server if it runs.
pub(crate) fn stop() {
    drop(ZOOKEEPER.lock().unwrap().take());
}

/// A node of the server, below which the locks are.
pub(crate) fn node(_: &Subject) -> Option<Arc<dyn Store>> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    if !needs("zookeeper", "zookeeper") {
        return None;
    }
    let mut server = ZOOKEEPER.lock().unwrap();
    let server = server.get_or_insert_with(|| Arc::new(ZooKeeper::start_with(TICK, SESSIONS).unwrap()));
    Some(Arc::new(Node {
        server: server.clone(),
        name: format!("case_{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
        number: NumberFile::new(),
    }))
}

struct Node {
    server: Arc<ZooKeeper>,
    name: String,
    number: NumberFile,
}

impl Store for Node {
    fn url(&self) -> String {
        format!("{}/{}", self.server.url(), self.name)
    }

    /// The path of each ephemeral node, in which `UUID` and `HEX` stand for ids, and `N` for the number at its end.
    fn data(&self) -> Vec<String> {
        let folder = format!("/{}/", self.name);
        let all = self.server.ask("dump").unwrap();
        let paths = all.lines().filter_map(|line| line.trim().strip_prefix(&folder));
        let mut paths: Vec<String> = paths
            .filter(|path| !path.starts_with(OURS))
            .map(without_ids)
            .collect();
        paths.sort();
        paths
    }

    fn queued(&self) -> usize {
        self.data().len().saturating_sub(1)
    }

    fn number(&self) -> String {
        self.number.name()
    }

    fn counter(&self, _: &Lock) -> Box<dyn FnMut() + Send> {
        self.number.counter()
    }

    fn counted(&self) -> u32 {
        self.number.read()
    }
}

fn without_ids(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let end = name.trim_end_matches(|digit: char| digit.is_ascii_digit());
    let number = if end.len() < name.len() { "N" } else { "" };
    let name = match end.strip_prefix("_c_") {
        Some(curator) => format!("_c_UUID{}", &curator[36..]),
        None if end.len() > 32 => format!("HEX{}", &end[32..]),
        None => end.to_owned(),
    };
    match folder {
        "" => name + number,
        folder => format!("{folder}/{name}{number}"),
    }
}
