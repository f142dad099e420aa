//! Clients on Redis Cluster: a multi-lock whose slots are at several nodes, and a lock whose slot moves while it is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure_servers::RedisCluster;

const LIMIT: Duration = Duration::from_secs(60);

fn cluster() -> RedisCluster {
    RedisCluster::start(3, false, &["--save", ""], None).expect("a cluster starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_multi_lock_spans_slots_of_all_nodes() {
    let cluster = cluster();
    let [one, two] = [cluster.url(), cluster.url()].map(async |url| tenure::connect(&url).await);
    let (one, two) = (one.await.expect("it answers"), two.await.expect("it answers"));
    let keys: Vec<_> = (0..9).map(|number| format!("account:{number}")).collect();
    let owners = keys
        .iter()
        .map(|key| cluster.owner(cluster.slot(key).expect("a slot")).expect("a node"));
    assert_eq!(owners.collect::<std::collections::BTreeSet<_>>().len(), 3);
    let inside = Arc::new(AtomicU32::new(0));
    let tasks = [one, two].map(|client| {
        let (keys, inside) = (keys.clone(), inside.clone());
        tokio::spawn(async move {
            for _ in 0..20 {
                let all = tenure::multi(keys.iter().map(|key| client.mutex(key)));
                let guards = all.lock_within(LIMIT).await.expect("it is granted");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guards.unlock().await.expect("it is released");
            }
        })
    });
    for task in tasks {
        tokio::time::timeout(LIMIT, task)
            .await
            .expect("it ends")
            .expect("it does not panic");
    }
}

/// Four clients count under one lock, whose slot moves around all the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_counter_stays_exact_while_its_slot_moves() {
    let cluster = Arc::new(cluster());
    let counter = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (url, counter) = (cluster.url(), counter.clone());
            tokio::spawn(async move {
                let client = tenure::connect(&url).await.expect("it answers");
                let lock = client.mutex("counter");
                let mut last = None;
                for _ in 0..50 {
                    let guard = lock.lock_within(LIMIT).await.expect("it is granted");
                    let token = guard.token().expect("a token");
                    assert!(last < Some(token), "{last:?}, {token:?}");
                    last = Some(token);
                    let read = counter.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    counter.store(read + 1, Ordering::SeqCst);
                    guard.unlock().await.expect("it is released");
                }
            })
        })
        .collect();
    let counting = async {
        for task in tasks {
            task.await.expect("it does not panic");
        }
    };
    let moving = tokio::task::spawn_blocking({
        let (cluster, counter) = (cluster.clone(), counter.clone());
        move || {
            let slot = cluster.slot("counter").expect("a slot");
            let mut moves = 0;
            while counter.load(Ordering::SeqCst) < 200 {
                let to = (cluster.owner(slot).expect("a node") + 1) % 3;
                cluster.move_slot(slot, to).expect("it moves");
                moves += 1;
            }
            moves
        }
    });
    tokio::time::timeout(LIMIT, counting).await.expect("it ends");
    assert!(moving.await.expect("it does not panic") > 0);
    assert_eq!(counter.load(Ordering::SeqCst), 200);
}
