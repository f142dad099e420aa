//! One etcd for all tests. Each test has a prefix of its own, and a file with a number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tenure_interop::Lock;
use tenure_servers::{Etcd, needs};

use crate::shared::fixture::Store;
use crate::shared::number::NumberFile;
use crate::shared::subject::Subject;

static ETCD: Mutex<Option<Arc<Etcd>>> = Mutex::new(None);

/// Stops the server if it runs.
pub(crate) fn stop() {
    drop(ETCD.lock().unwrap().take());
}

/// A prefix of the server. Its locks are read with etcdctl.
pub(crate) fn prefix(_: &Subject) -> Option<Arc<dyn Store>> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    if !needs("etcd", "etcd-server") || !needs("etcdctl", "etcd-client") {
        return None;
    }
    let mut etcd = ETCD.lock().unwrap();
    let etcd = etcd.get_or_insert_with(|| Arc::new(Etcd::start().unwrap()));
    let prefix = Prefix {
        etcd: etcd.clone(),
        name: format!("case_{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
        number: NumberFile::new(),
    };
    Some(Arc::new(prefix))
}

struct Prefix {
    etcd: Arc<Etcd>,
    name: String,
    number: NumberFile,
}

impl Store for Prefix {
    fn url(&self) -> String {
        format!("{}/{}", self.etcd.url(), self.name)
    }

    /// A line for each key with its name, in which `LEASE` stands for the key's lease and `RECORD` for the claim
    /// that a key of Tenure's candidate names, and the first word of its value.
    fn data(&self) -> Vec<String> {
        let prefix = format!("{}/", self.name);
        let ask = [
            "get",
            &prefix,
            "--prefix",
            "--sort-by",
            "CREATE",
            "--order",
            "ASCEND",
            "--write-out",
            "fields",
        ];
        let fields = self.etcd.ask(&ask).unwrap();
        let values = |name: &str| {
            let name = format!("\"{name}\" : ");
            let values = fields.lines().filter_map(|line| line.strip_prefix(&name));
            values
                .map(|value| value.trim_matches('"').to_owned())
                .collect::<Vec<_>>()
        };
        let keys = values("Key")
            .into_iter()
            .zip(values("Lease"))
            .zip(values("Value"));
        keys.map(|((key, lease), value)| {
            let lease = format!("/{:x}", lease.parse::<i64>().unwrap());
            let key = key.strip_prefix(&prefix).unwrap().replace(&lease, "/LEASE");
            let key = key
                .split_once(':')
                .map_or(key.clone(), |(before, _)| format!("{before}:RECORD"));
            let word = value.split(' ').next().unwrap_or_default();
            format!("{key} {word}").trim_end().to_owned()
        })
        .collect()
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
