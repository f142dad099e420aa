//! Servers and clients for the tests.

use std::future::Future;
use std::time::Duration;

use tenure_backend::{BackendError, Effect, Fault};
use tenure_servers::{ZooKeeper, ZooKeeperEnsemble, needs};
use tenure_zookeeper::client::{Acl, Client, Mode, State};
use tenure_zookeeper::{Config, StoreUrl};

/// Time limit for what a test waits for.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The servers' unit of time: they grant sessions of 1 to 10 s.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// The session timeout that most tests ask for.
pub(crate) const SESSION: Duration = Duration::from_secs(10);

/// A server alone; `None` if `TENURE_SKIP` names `zookeeper`.
pub(crate) fn start() -> Option<ZooKeeper> {
    needs("zookeeper", "zookeeper").then(|| ZooKeeper::start(TICK).expect("it starts"))
}

/// An ensemble of three; `None` if `TENURE_SKIP` names `zookeeper`.
pub(crate) async fn start_ensemble() -> Option<ZooKeeperEnsemble> {
    match needs("zookeeper", "zookeeper") {
        true => Some(ZooKeeperEnsemble::start(TICK).await.expect("it starts")),
        false => None,
    }
}

pub(crate) fn config(url: &str) -> Config {
    Config::from_url(&StoreUrl::parse(url).expect("a URL")).expect("settings")
}

/// A session of 10 s.
pub(crate) async fn client(url: &str) -> Client {
    Client::connect(config(url), SESSION).await.expect("a session")
}

/// Creates an open node without data that stays, and returns its path.
pub(crate) async fn node(client: &Client, path: &str) -> String {
    let created = client.create(path, b"", Mode::Persistent, Acl::Open).await;
    created.expect("a node").path
}

/// Waits until the session has this state.
pub(crate) async fn reach(client: &Client, state: State) {
    let mut info = client.info();
    soon(info.wait_for(|info| info.state == state))
        .await
        .expect("a state");
}

/// The result of a future that ends within 30 s.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future)
        .await
        .expect("it ends within 30 s")
}

/// Compares an error's fault, effect and words.
pub(crate) fn assert_error(error: &BackendError, expected: (Fault, Effect), words: &str) {
    let text = format!("{error}: {error:?}");
    assert_eq!((error.fault(), error.effect()), expected, "{text}");
    assert!(error.to_string().contains(words), "{text}");
}
