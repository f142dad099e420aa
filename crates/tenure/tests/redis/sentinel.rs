//! Behind Sentinel, a holder keeps its lock when a replica takes over, and a waiter gets it afterwards.

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

/// Each claim of the first client is granted, and no replica acknowledges it. The second client needs no replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_without_acknowledgement_blocks_no_other_client() {
    let mut group = Replicated::start_servers(&[]).expect("all start");
    let plain = group.servers()[0].url();
    let url = format!("{plain}?replicas=1&replica_wait=50ms");
    let client = tenure::connect(&url).await.expect("the server answers");
    let other = tenure::connect(&plain).await.expect("the server answers");
    for replica in &mut group.servers()[1..] {
        replica.process().pause();
    }
    for fair in [false, true] {
        let key = format!("fair {fair}");
        let mutex = client.mutex(&key).lease(Duration::from_secs(3));
        let mutex = if fair { mutex.fair() } else { mutex };
        let waiting = tokio::spawn(mutex.lock());
        let granted = async {
            while group.servers()[0].ask(&["EXISTS", &key]).expect("it answers") == "0" {
                // sleep: no event shows that the server has granted the claim.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(SOON, granted)
            .await
            .expect("the waiter asks");
        let second = other
            .mutex(&key)
            .lock_within(SOON)
            .await
            .expect("the key becomes free");
        second.unlock().await.expect("it is released");
        assert!(!waiting.is_finished(), "it waits for a replica");
        waiting.abort();
    }
}

/// The server refuses `WAIT` for good, so callers and waiters get the error instead of asking again.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_wait_for_replicas_gets_an_error() {
    let mut group = Replicated::start_servers(&[]).expect("all start");
    let master = &group.servers()[0];
    for (user, rights) in [("limited", "+@all -wait"), ("able", "+@all")] {
        let rule = format!("ACL SETUSER {user} on >secret ~* &* {rights}");
        let words: Vec<_> = rule.split(' ').collect();
        master.ask(&words).expect("it obeys");
    }
    let connect = async |user| {
        let server = master
            .url()
            .replace("redis://", &format!("redis://{user}:secret@"));
        let client = tenure::connect(&format!("{server}?replicas=1&replica_wait=10s")).await;
        client.expect("the server answers")
    };
    let (limited, able) = (connect("limited").await, connect("able").await);
    for waits in [false, true] {
        let held = match waits {
            true => Some(able.mutex("k").lock_within(SOON).await.expect("the key is free")),
            false => None,
        };
        let (asking, mut asks) = tokio::sync::oneshot::channel();
        let locking = limited.mutex("k").lock_within(SOON);
        let locking = tokio::spawn(locking.on_waiting(|_| asking.send(()).expect("the test receives")));
        if let Some(held) = held {
            tokio::time::timeout(SOON, &mut asks)
                .await
                .expect("it waits")
                .expect("it waits");
            held.unlock().await.expect("it is released");
        }
        let refused = locking.await.expect("no panic").map(drop);
        let Err(tenure::Error::Backend(error)) = &refused else {
            panic!("{refused:?}");
        };
        assert_eq!(error.fault(), tenure::backend::Fault::Denied);
        assert!(error.to_string().contains("`+wait` (ACL SETUSER)"), "{error}");
    }
    let held = able.mutex("k").lock_within(SOON).await;
    held.expect("the claims were withdrawn")
        .unlock()
        .await
        .expect("it is released");
}
