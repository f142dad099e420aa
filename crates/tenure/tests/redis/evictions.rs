//! A holder learns at once that it was evicted, on real servers: its lease is 30 s, so its renewals would tell it only after
//! seconds.

use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tenure::inspect::Query;
use tenure::{Client, Guard, LockKey, ReleaseTarget, connect};
use tenure_servers::{Redis, RedisCluster, Replicated};

/// Time after which a client has surely subscribed.
const A_WHILE: Duration = Duration::from_millis(400);

async fn held(client: &Client, key: &str) -> Guard {
    client.mutex(key).lock().await.expect("the key is free")
}

async fn evict(operator: &Client, guard: &Guard) {
    let claim = ReleaseTarget::Claim(guard.claim().clone());
    let freed = operator.evict(claim).await.expect("the store answers");
    assert_eq!(freed.len(), 1);
}

/// Waits for something that comes at once, or is late by seconds.
async fn soon<T>(coming: impl Future<Output = T>) -> T {
    let came = tokio::time::timeout(Duration::from_secs(5), coming).await;
    came.expect("the holder has not learned of its eviction")
}

/// Evicts a holder again and again, and prints how long it takes until the holder knows.
async fn learns_at_once(url: &str) {
    let (holder, operator) = (connect(url).await, connect(url).await);
    let (holder, operator) = (holder.expect("it answers"), operator.expect("it answers"));
    let _other = held(&holder, "other").await;
    // sleep: a client subscribes once it has held a lock for a while, and no event tells a test so.
    tokio::time::sleep(A_WHILE).await;
    let mut guards = Vec::new();
    for number in 0..50 {
        guards.push(held(&holder, &format!("k{number}")).await);
    }
    // sleep: each hold is renewed once soon after its grant, and that renewal would find the eviction as well.
    tokio::time::sleep(A_WHILE).await;
    let mut times = Vec::new();
    for guard in guards {
        let evicted = Instant::now();
        evict(&operator, &guard).await;
        soon(guard.lost()).await;
        times.push(evicted.elapsed());
    }
    times.sort();
    println!("{url}: median {:?}, slowest {:?}", times[25], times[49]);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_one_server() {
    let server = Redis::start().expect("redis-server starts");
    for options in ["", "?layout=plain", "?layout=spring&registry=r"] {
        learns_at_once(&format!("{}{options}", server.url())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_sentinel() {
    let group = Replicated::start(&[]).expect("all start");
    learns_at_once(&group.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_cluster() {
    let cluster = RedisCluster::start(3, false, &["--save", ""], None).expect("a cluster starts");
    learns_at_once(&cluster.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_quorum() {
    let servers = [0; 3].map(|_| {
        let server = Redis::start().expect("redis-server starts");
        server.ask(&["SET", "tenure_tokens", "1"]).expect("it is written");
        server
    });
    let hosts = servers.each_ref().map(|server| server.address().to_string());
    learns_at_once(&format!(
        "redlock://{}?durable=true&member_timeout=10s",
        hosts.join(",")
    ))
    .await;
}

/// None of ten thousand evictions at once is missed, though the client's queue of hints holds far fewer.
#[tokio::test(flavor = "multi_thread")]
async fn of_ten_thousand_locks() {
    let server = Redis::start().expect("redis-server starts");
    let (holder, operator) = (connect(&server.url()).await, connect(&server.url()).await);
    let (holder, operator) = (holder.expect("it answers"), operator.expect("it answers"));
    let mut guards = Vec::new();
    for number in 0..10_000 {
        guards.push(held(&holder, &format!("k{number}")).await);
    }
    // sleep: as above.
    tokio::time::sleep(A_WHILE).await;
    let begun = Instant::now();
    join_all(guards.iter().map(|guard| evict(&operator, guard))).await;
    let evicted = begun.elapsed();
    for guard in &guards {
        soon(guard.lost()).await;
    }
    println!("evicted in {evicted:?}, all known in {:?}", begun.elapsed());
    let key = LockKey::new("k7").expect("a key");
    let status = operator
        .inspect(Query::Key(key))
        .await
        .expect("the store answers");
    assert!(status.items.is_empty());
}
