//! Counts the scans that the watchers of one client run on a Redis server.

use std::time::Duration;

use futures_util::future::join_all;
use tenure::{Change, Changes, Client};
use tenure_servers::Redis;

use crate::calls::calls;

/// Number of times that a lock is acquired and released.
const ROUNDS: usize = 10;

/// Returns the next change of each watcher; fails after 20 s.
async fn next_of_all(watchers: &mut [Changes]) -> Vec<Change> {
    let all = join_all(watchers.iter_mut().map(Changes::next));
    let changes = tokio::time::timeout(Duration::from_secs(20), all).await;
    let changes = changes.expect("each sees the change");
    changes
        .into_iter()
        .map(|change| change.expect("no error"))
        .collect()
}

/// Number of scans until all watchers have seen a lock acquired and released [`ROUNDS`] times.
async fn scans_of(server: &Redis, client: &Client, watchers: &mut [Changes]) -> usize {
    server.ask(&["CONFIG", "RESETSTAT"]).expect("the server obeys");
    for _ in 0..ROUNDS {
        let guard = client
            .mutex("jobs:mail:7")
            .lock()
            .await
            .expect("the lock is free");
        let changes = next_of_all(watchers).await;
        assert!(
            changes.iter().all(|change| matches!(change, Change::Held(_))),
            "{changes:?}"
        );
        guard.unlock().await.expect("it was held");
        let changes = next_of_all(watchers).await;
        assert!(
            changes.iter().all(|change| matches!(change, Change::Freed(_))),
            "{changes:?}"
        );
    }
    calls(server, "scan")
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_of_one_client_share_their_scans() {
    let server = Redis::start().expect("redis-server starts");
    let client = tenure::connect(&format!("redis://{}", server.address()))
        .await
        .expect("the server answers");
    let watch = |prefix: &str| client.watch(prefix).every(Duration::from_millis(200));
    let alone = scans_of(&server, &client, &mut [watch("jobs:")]).await;

    let prefixes = ["jobs:", "jobs:mail:", "jobs:mail:7"];
    let mut watchers: Vec<Changes> = prefixes
        .iter()
        .cycle()
        .take(30)
        .map(|prefix| watch(prefix))
        .collect();
    let together = scans_of(&server, &client, &mut watchers).await;
    assert!(
        (1..=2 * alone).contains(&together),
        "{together} scans for 30 watchers, {alone} for one"
    );
}
