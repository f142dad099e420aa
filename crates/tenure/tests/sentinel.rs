//! Behind Sentinel, a holder keeps its lock when a replica takes over, and a waiter gets it afterwards.
#![cfg(feature = "redis")]

use std::time::Duration;

use tenure_servers::Replicated;

/// More than a failover takes, and less than it takes the engine to renew a lease of 5 minutes.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_gets_the_lock_after_a_failover() {
    let mut group = Replicated::start(&[]).expect("all start");
    // Both replicas acknowledge the grant, so the one that takes over has the lock.
    let url = format!("{}?replicas=2&replica_wait=10s", group.url());
    let [holder, waiter] = [tenure::connect(&url).await, tenure::connect(&url).await];
    let [holder, waiter] = [holder, waiter].map(|client| client.expect("the master is found"));
    let lock = holder.mutex("k").lease(Duration::from_secs(300));
    let held = lock.lock().await.expect("the key is free");
    let first = held.token().expect("Redis gives tokens");
    let waiting = tokio::spawn(async move { waiter.mutex("k").lock().await });

    group.servers()[0].process().kill();
    group.wait_for_failover(0).expect("a replica takes over");
    // Only one replica is left, but a renewal needs two. The dead master comes back as the second one.
    group.servers()[0]
        .restart(tenure_servers::Data::Lost)
        .expect("it starts again");
    let verified = async {
        while held.verify().await.is_err() {
            // sleep: no event shows when the client is connected again.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(SOON, verified)
        .await
        .expect("the new master has the lock");
    assert!(held.is_held());
    held.unlock().await.expect("it is released");
    let next = tokio::time::timeout(SOON, waiting)
        .await
        .expect("the waiter is served");
    let next = next.expect("no panic").expect("it has the lock");
    assert!(next.token().expect("Redis gives tokens") > first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_without_acknowledgement_is_refused_and_withdrawn() {
    let mut group = Replicated::start_servers(&[]).expect("all start");
    let url = format!("{}?replicas=1&replica_wait=50ms", group.servers()[0].url());
    let client = tenure::connect(&url).await.expect("the server answers");
    for replica in &mut group.servers()[1..] {
        replica.process().pause();
    }
    let refused = client.mutex("k").try_lock().await.map(drop);
    let refused = refused.expect_err("no replica acknowledges the lock");
    assert!(matches!(refused, tenure::Error::Backend(_)), "{refused:?}");
    let withdrawn = async {
        while group.servers()[0].ask(&["EXISTS", "k"]).expect("it answers") != "0" {
            // sleep: the withdrawal runs in the background and sends no event.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, withdrawn)
        .await
        .expect("the claim is withdrawn");
}
