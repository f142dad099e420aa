//! `redlock://` URLs, on real Redis servers.

use std::time::Duration;

use tenure::{Client, Error, Guarantee, connect};
use tenure_servers::{Data, Disk, Redis};

/// Servers that sync every write to disk. They forget no claim in a restart, so they grant claims as soon as they
/// run.
fn servers() -> [Redis; 3] {
    [0; 3].map(|_| Redis::start_on(Disk::EveryWrite, None).expect("redis-server starts"))
}

fn url(servers: &[Redis], options: &str) -> String {
    let hosts: Vec<_> = servers
        .iter()
        .map(|server| server.address().to_string())
        .collect();
    format!("redlock://{}{options}", hosts.join(","))
}

async fn open(servers: &[Redis]) -> Client {
    connect(&url(servers, "")).await.expect("a majority answers")
}

/// R9: one of three servers is dead when the client connects. It takes part once it runs.
#[tokio::test]
async fn a_quorum_opens_while_one_server_is_dead() {
    let mut servers = servers();
    servers[0].process().kill();
    let client = open(&servers).await;
    assert!(client.profile().offers(Guarantee::Fencing));
    assert_eq!(client.profile().layout, "plain");
    let first = client.mutex("k").lock().await.expect("two servers grant");
    let token = first.token().expect("a quorum has tokens");
    first.unlock().await.expect("two servers release");
    servers[0].restart(Data::Kept).expect("the server starts again");
    servers[1].process().kill();
    let second = client.mutex("k").lock_within(Duration::from_secs(20)).await;
    assert!(
        token
            < second
                .expect("two servers grant")
                .token()
                .expect("a quorum has tokens")
    );
}

#[tokio::test]
async fn a_quorum_without_a_majority_is_not_opened() {
    let mut servers = servers();
    servers[0].process().kill();
    servers[2].process().kill();
    let error = connect(&url(&servers, ""))
        .await
        .expect_err("one server is no majority");
    assert!(error.is_transient(), "{error:?}");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    assert!(
        cause.is_some_and(|cause| cause.contains("fewer than 2 of the 3 servers")),
        "{error:?}"
    );
}

/// Two clients compete for a lock while a server is killed and comes back.
#[tokio::test]
async fn a_lock_is_kept_and_handed_over_while_a_server_is_down() {
    let mut servers = servers();
    let (one, other) = (open(&servers).await, open(&servers).await);
    let held = one.mutex("k").lock().await.expect("the key is free");
    servers[1].process().kill();
    held.verify().await.expect("two servers know the claim");
    assert!(
        other
            .mutex("k")
            .try_lock()
            .await
            .expect("two servers answer")
            .is_none()
    );
    let waiter = other.mutex("k");
    let (waited, released) = tokio::join!(waiter.lock_within(Duration::from_secs(20)), held.unlock());
    released.expect("two servers release");
    let next = waited.expect("the key is free");
    servers[1].restart(Data::Lost).expect("the server starts again");
    next.verify().await.expect("two servers know the claim");
}

/// R9: servers that have just started may have forgotten claims, and grant none for the longest lease.
#[tokio::test]
async fn fresh_servers_grant_nothing_for_the_longest_lease() {
    let fresh = [0; 3].map(|_| Redis::start().expect("redis-server starts"));
    let client = connect(&url(&fresh, "?max_lease=3s")).await.expect("all answer");
    let began = std::time::Instant::now();
    let mutex = client.mutex("k").lease(Duration::from_secs(2));
    assert!(!matches!(mutex.try_lock().await, Ok(Some(_))));
    // At `began`, the servers had run for at most about 1 s of the 3 s in which they grant nothing, so the grant comes
    // more than 1 s later.
    let granted = mutex.lock_within(Duration::from_secs(30)).await;
    let _guard = granted.expect("the longest lease has passed");
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_redlock_url_is_checked() {
    for (url, word) in [
        ("redlock://a,b,a", "once"),
        ("redlock://a,b?max_lease=0s", "max_lease"),
        ("redlock://a,b?member_timeout=5", "member_timeout"),
        ("redlock://a,b?wibble=1", "wibble"),
        ("redlock://u:s3cr3t@a,b?ca=/x", "ca"),
    ] {
        let error = connect(url).await.expect_err(url);
        let Error::Invalid(message) = &error else {
            panic!("{url}: {error:?}")
        };
        assert!(
            message.contains(word) && !message.contains("s3cr3t"),
            "{url}: {message}"
        );
    }
    let refused = connect("redis://a?max_lease=1m").await.expect_err("no quorum");
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
}
