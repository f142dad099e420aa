//! One etcd for all cases that run at a time, and a prefix for each.
#![allow(dead_code, reason = "each test program uses a part")]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{Backend, BackendError, Call, Clock};
use tenure_etcd::{Config, EtcdStore, StoreUrl};
use tenure_servers::{Data, Etcd, Proxy, Way};
use tenure_testkit::{Link, SlowClient, Subject};

fn config(url: &str) -> Config {
    Config::from_url(&StoreUrl::parse(url).expect("a URL")).expect("settings")
}

/// A prefix of its own on a server that cases share.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) server: Arc<Mutex<Etcd>>,
    pub(crate) prefix: String,
    /// Whether the case is alone on its server.
    restarts: bool,
    /// `USER:PASSWORD@`, if the server has users.
    pub(crate) login: &'static str,
}

impl Case {
    fn on(server: Arc<Mutex<Etcd>>, restarts: bool) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("case-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Case {
            server,
            prefix,
            restarts,
            login: "",
        }
    }

    /// A case alone on this server.
    pub(crate) fn alone_on(server: Etcd) -> Self {
        Case::on(Arc::new(Mutex::new(server)), true)
    }

    pub(crate) fn url(&self) -> String {
        let address = self.server.lock().address();
        format!("etcd://{}{address}/{}", self.login, self.prefix)
    }
}

/// A case on the server that ends with the last case that uses it.
pub(crate) async fn shared() -> Case {
    static SERVER: Mutex<Weak<Mutex<Etcd>>> = Mutex::new(Weak::new());
    let mut shared = SERVER.lock();
    let server = shared.upgrade().unwrap_or_else(|| {
        let started = Arc::new(Mutex::new(Etcd::start().expect("etcd starts")));
        *shared = Arc::downgrade(&started);
        started
    });
    Case::on(server, false)
}

/// A case on a server of its own, which it may restart.
pub(crate) async fn alone() -> Case {
    Case::alone_on(Etcd::start().expect("etcd starts"))
}

impl Subject for Case {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        Call::new(EtcdStore::open(config(&self.url())))
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // sleep: etcd's clock cannot be moved.
        Box::pin(tokio::time::sleep(time))
    }

    fn client_on(&self, _: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        None
    }

    fn restart(&self) -> Option<Call<()>> {
        let server = self.server.clone();
        self.restarts.then(|| {
            Call::new(async move {
                server.lock().restart(Data::Kept).expect("etcd starts again");
                Ok(())
            })
        })
    }

    fn slow_client(&self) -> Option<Call<SlowClient>> {
        let (address, prefix) = (self.server.lock().address(), self.prefix.clone());
        Some(Call::new(async move {
            let proxy = Proxy::start(address).await.expect("a port is free");
            let url = format!("etcd://{}/{prefix}", proxy.address());
            let backend = EtcdStore::open(config(&url)).await?;
            let link = Arc::new(SlowProxy(proxy));
            Ok::<_, BackendError>(SlowClient { backend, link })
        }))
    }
}

#[derive(Debug)]
struct SlowProxy(Proxy);

impl Link for SlowProxy {
    fn delay(&self, requests: Duration, answers: Duration) {
        self.0.delay(Way::ToServer, requests);
        self.0.delay(Way::ToClient, answers);
    }
}
