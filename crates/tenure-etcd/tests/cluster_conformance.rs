//! Runs the groups of the conformance suite that depend on the members on a cluster of three.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{Backend, Call, Clock};
use tenure_etcd::{Config, EtcdStore, StoreUrl};
use tenure_servers::EtcdCluster;
use tenure_testkit::{SlowClient, Subject};

tenure_testkit::conformance!(of_three, groups: [mutual, claim]);

/// The other groups, whose rules do not depend on the number of members.
mod long {
    use super::of_three;

    tenure_testkit::conformance!(of_three, groups: [lease, fifo, watch, turn, successor, refuse]);
}

/// A prefix of its own on a cluster that cases share.
struct OfThree {
    cluster: Arc<EtcdCluster>,
    prefix: u64,
}

/// A case on the cluster that ends with the last case that uses it.
async fn of_three() -> OfThree {
    static CLUSTER: Mutex<Weak<EtcdCluster>> = Mutex::new(Weak::new());
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut shared = CLUSTER.lock();
    let cluster = shared.upgrade().unwrap_or_else(|| {
        let started = Arc::new(EtcdCluster::start(&[]).expect("the members start"));
        *shared = Arc::downgrade(&started);
        started
    });
    let prefix = NUMBER.fetch_add(1, Ordering::Relaxed);
    OfThree { cluster, prefix }
}

impl Subject for OfThree {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        let url = format!("{}/{}", self.cluster.url(), self.prefix);
        let config = Config::from_url(&StoreUrl::parse(&url).expect("a URL"));
        Call::new(EtcdStore::open(config.expect("settings")))
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // sleep: etcd's clock cannot be moved.
        Box::pin(tokio::time::sleep(time))
    }

    fn client_on(&self, _: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        None
    }

    fn restart(&self) -> Option<Call<()>> {
        None
    }

    fn slow_client(&self) -> Option<Call<SlowClient>> {
        None
    }
}
