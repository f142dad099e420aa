//! Servers and clients for the tests.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{BackendError, Effect, Fault};
use tenure_etcd::client::{
    Client, GRANT, LeaseGrantRequest, PutRequest, Watch, WatchCreateRequest, WatchResponse,
};
use tenure_etcd::{Config, StoreUrl};
use tenure_servers::{Etcd, EtcdCluster, needs};

/// Time limit for what a test waits for.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A member alone; `None` if `TENURE_SKIP` names `etcd`.
pub(crate) fn start(options: &[&str]) -> Option<Etcd> {
    needs("etcd", "etcd-server").then(|| Etcd::start_with(options).expect("it starts"))
}

/// A cluster of three; `None` if `TENURE_SKIP` names `etcd`.
pub(crate) fn start_cluster() -> Option<EtcdCluster> {
    needs("etcd", "etcd-server").then(|| EtcdCluster::start(&[]).expect("it starts"))
}

pub(crate) fn config(url: &str) -> Config {
    Config::from_url(&StoreUrl::parse(url).expect("a URL")).expect("settings")
}

pub(crate) fn client(url: &str) -> Arc<Client> {
    Client::new(config(url)).expect("a client")
}

/// A write without a lease.
pub(crate) fn put(key: &str, value: &str) -> PutRequest {
    PutRequest {
        key: key.into(),
        value: value.into(),
        ..PutRequest::default()
    }
}

/// Grants a lease and returns its ID.
pub(crate) async fn lease(client: &Client, ttl: i64) -> i64 {
    let granted = client.call(GRANT, LeaseGrantRequest { ttl }).await;
    granted.expect("a lease").id
}

/// Watches a key from now on.
pub(crate) fn watch(client: &Arc<Client>, key: &str) -> Watch {
    client.watch(WatchCreateRequest {
        key: key.into(),
        ..WatchCreateRequest::default()
    })
}

/// Watches a key, and waits until etcd has created the watch.
pub(crate) async fn created(client: &Arc<Client>, key: &str) -> Watch {
    let mut watch = watch(client, key);
    let first = soon(watch.next()).await;
    assert!(
        matches!(first, Ok(WatchResponse { created: true, .. })),
        "{first:?}"
    );
    watch
}

/// The result of a future that ends within 30 s.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future)
        .await
        .expect("it ends within 30 s")
}

/// Compares an error's fault, effect and words. Returns the whole text.
pub(crate) fn assert_error(error: &BackendError, expected: (Fault, Effect), words: &str) {
    let text = format!("{error}: {error:?}");
    assert_eq!((error.fault(), error.effect()), expected, "{text}");
    assert!(error.to_string().contains(words), "{text}");
}
