//! `redlock://` URLs, on real Redis servers.

use std::time::{Duration, Instant};

use tenure::{Client, Error, Guarantee, Settings, connect, connect_with};
use tenure_servers::{Data, Disk, Redis};
use tokio::runtime::Handle;

use crate::calls::calls;

/// Options for servers that forget no claim in a restart, and whose disks may be slow.
const DURABLE: &str = "?durable=true&member_timeout=10s";

/// Servers that sync every write to disk, and that have granted claims: they have a token counter. So clients for which
/// they are durable get claims as soon as they run.
fn servers() -> [Redis; 3] {
    [0; 3].map(|_| {
        let server = Redis::start_on(Disk::EveryWrite, None).expect("redis-server starts");
        server.ask(&["SET", "tenure_tokens", "1"]).expect("it is written");
        server
    })
}

fn url(servers: &[Redis], options: &str) -> String {
    let hosts: Vec<_> = servers
        .iter()
        .map(|server| server.address().to_string())
        .collect();
    format!("redlock://{}{options}", hosts.join(","))
}

async fn open(servers: &[Redis]) -> Client {
    connect(&url(servers, DURABLE)).await.expect("a majority answers")
}

fn number_of_keys(server: &Redis) -> u64 {
    let keys = server.ask(&["DBSIZE"]).expect("it answers");
    keys.parse().expect("a number")
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
    let words = error.to_string();
    assert!(words.contains("fewer than 2 of the 3 servers"), "{words}");
}

/// An operator changes the password server by server. A majority that still accepts it is enough; when it is none any more,
/// an attempt to connect fails at once and says why.
#[tokio::test]
async fn a_quorum_opens_unless_a_majority_refuses_the_password() {
    let servers = servers();
    let change = |server: &Redis| server.ask(&["CONFIG", "SET", "requirepass", "new"]);
    change(&servers[1]).expect("the password is set");
    let client = open(&servers).await;
    let guard = client.mutex("k").lock().await.expect("two servers grant");
    guard.unlock().await.expect("two servers release");
    change(&servers[2]).expect("the password is set");
    let settings = Settings::default().connect_limit(Duration::from_mins(1));
    let error = connect_with(&url(&servers, DURABLE), settings).await;
    let error = error.expect_err("one server is no majority");
    assert!(!error.is_transient(), "{error:?}");
    let words = error.to_string();
    assert!(words.contains("fewer than 2 of the 3 servers"), "{words}");
    assert!(words.contains("password"), "{words}");
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
    let began = Instant::now();
    let mutex = client.mutex("k").lease(Duration::from_secs(2));
    assert!(!matches!(mutex.try_lock().await, Ok(Some(_))));
    // At `began`, the servers had run for at most about 1 s of the 3 s in which they grant nothing, so the grant comes
    // more than 1 s later.
    let granted = mutex.lock_within(Duration::from_secs(30)).await;
    let _guard = granted.expect("the longest lease has passed");
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
}

/// R9: the operator vouches for the servers, and yet two of three come back without their data. A client that could not
/// reach these two any more would go on to believe in its lock.
#[tokio::test]
async fn servers_that_lost_their_data_grant_nothing_though_durable() {
    let mut servers = servers();
    let one = open(&servers).await;
    let held = one.mutex("k").lock().await.expect("the key is free");
    for server in &mut servers[..2] {
        server.restart(Data::Lost).expect("the server starts again");
    }
    let other = open(&servers).await;
    let second = other.mutex("k").lock_within(Duration::from_secs(2)).await;
    assert!(matches!(second, Err(Error::Timeout)), "{second:?}");
    drop(held);
}

#[tokio::test]
async fn servers_that_sync_every_write_keep_out_unless_durable() {
    let servers = servers();
    let client = connect(&url(&servers, "")).await.expect("all answer");
    assert!(!matches!(client.mutex("k").try_lock().await, Ok(Some(_))));
    let durable = open(&servers).await;
    assert!(matches!(durable.mutex("k").try_lock().await, Ok(Some(_))));
}

/// A replica of another member has no vote of its own, also if it takes writes.
#[tokio::test]
async fn a_writable_replica_has_no_vote() {
    let mut servers = servers();
    let port = servers[0].address().port().to_string();
    for command in [
        ["CONFIG", "SET", "replica-read-only", "no"].as_slice(),
        &["REPLICAOF", "127.0.0.1", &port],
    ] {
        servers[1].ask(command).expect("it obeys");
    }
    let client = open(&servers).await;
    let guard = client.mutex("k").lock_within(Duration::from_secs(10)).await;
    guard
        .expect("two masters grant")
        .unlock()
        .await
        .expect("two masters release");
    servers[2].process().kill();
    let refused = client.mutex("k").try_lock().await;
    assert!(!matches!(refused, Ok(Some(_))), "{refused:?}");
}

/// The end of a program ends its connections, so closing waits for servers that have not confirmed a release.
#[tokio::test]
async fn closing_frees_the_key_at_a_slow_server() {
    let servers = servers();
    let client = open(&servers).await;
    let guard = client.mutex("k").lock().await.expect("the key is free");
    let began = Instant::now();
    servers[2].ask(&["CLIENT", "PAUSE", "300"]).expect("it obeys");
    guard.unlock().await.expect("two servers release");
    client
        .close(Duration::from_secs(20))
        .await
        .expect("it closes in time");
    assert!(
        began.elapsed() >= Duration::from_millis(250),
        "{:?}",
        began.elapsed()
    );
    // The record that the claim has ended, which its late placement would have met, may stay for 12 s.
    assert_eq!(servers[2].ask(&["EXISTS", "k"]).expect("it answers"), "0");
}

/// A server that lacks the holder's claim grants it to each waiter, which then withdraws it, as a majority refuses. A waiter
/// that has met this several times asks less often.
#[tokio::test]
async fn a_server_without_the_holders_claim_is_asked_less_and_less() {
    let servers = servers();
    let (one, other) = (open(&servers).await, open(&servers).await);
    let held = one.mutex("k").lock().await.expect("the key is free");
    assert_eq!(servers[0].ask(&["DEL", "k"]).expect("it obeys"), "1");
    let scripts = || calls(&servers[0], "evalsha") + calls(&servers[0], "eval");
    let before = scripts();
    let waited = other.mutex("k").lock_within(Duration::from_secs(4)).await;
    assert!(matches!(waited, Err(Error::Timeout)), "{waited:?}");
    let scripts = scripts() - before;
    assert!(scripts < 200, "{scripts} scripts in 4 s");
    held.unlock().await.expect("two servers release");
}

/// Sixteen tasks lock for two seconds while one of three servers is dead, silent or alive. Returns the number of locks,
/// and the number of tasks at the end.
async fn load(client: &Client) -> (u32, usize) {
    let until = Instant::now() + Duration::from_secs(2);
    let work = (0..16).map(|number| {
        let mutex = client.mutex(&*format!("k{number}"));
        async move {
            let mut locks = 0;
            while Instant::now() < until {
                let guard = mutex.lock().await.expect("two servers grant");
                // On a busy machine a second server may answer too late.
                locks += u32::from(guard.unlock().await.is_ok());
            }
            locks
        }
    });
    let locks = futures_util::future::join_all(work).await;
    (locks.iter().sum(), Handle::current().metrics().num_alive_tasks())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_server_costs_few_tasks_and_keys() {
    let mut servers = servers();
    let client = open(&servers).await;
    let (usual_locks, usual) = load(&client).await;
    // A server that answers later than the others keeps records of claims that were released before its answer.
    let usual_keys = number_of_keys(&servers[0]);
    servers[0].process().kill();
    let (locks, tasks) = load(&client).await;
    assert!(
        locks > usual_locks / 5,
        "{locks} locks, {usual_locks} without a dead server"
    );
    assert!(
        tasks <= usual + 100,
        "{tasks} tasks after {locks} locks, {usual} without a dead server"
    );
    servers[0].restart(Data::Kept).expect("the server starts again");
    // sleep: releases that failed at the server are repeated once a second, and would leave records there.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let keys = number_of_keys(&servers[0]);
    assert!(
        keys <= usual_keys + 100,
        "{keys} keys, {usual_keys} before its death"
    );
}

/// A restarted server places no claim while it recovers, so the releases of these claims leave no record there.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_recovers_keeps_few_keys() {
    let mut servers = servers();
    let settings = Settings::default().lease(Duration::from_secs(4));
    let client = connect_with(&url(&servers, "?max_lease=4s"), settings).await;
    let client = client.expect("all answer");
    let recovered = client.mutex("k").lock_within(Duration::from_secs(20)).await;
    recovered
        .expect("they have recovered")
        .unlock()
        .await
        .expect("all release");
    servers[0].restart(Data::Kept).expect("the server starts again");
    let (locks, _) = load(&client).await;
    assert!(locks > 200, "{locks} locks");
    let keys = number_of_keys(&servers[0]);
    assert!(keys <= 100, "{keys} keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_costs_few_tasks() {
    let mut servers = servers();
    let client = connect(&url(&servers, "?durable=true&member_timeout=100ms")).await;
    let client = client.expect("all answer");
    let (usual_locks, usual) = load(&client).await;
    servers[0].process().pause();
    for _ in 0..3 {
        load(&client).await;
    }
    let (locks, tasks) = load(&client).await;
    // A client that waits for the silent server has at most 20 locks a second and task.
    assert!(
        locks > usual_locks / 5,
        "{locks} locks, {usual_locks} without a silent server"
    );
    assert!(
        tasks <= usual + 100,
        "{tasks} tasks after {locks} locks, {usual} without a silent server"
    );
}

#[tokio::test]
async fn drift_is_taken_off_the_local_deadline() {
    let servers = servers();
    for (option, earliest, latest) in [("", 28, 30), ("&drift=0.1", 25, 27), ("&drift=0.5", 13, 15)] {
        let client = connect(&url(&servers, &format!("{DURABLE}{option}"))).await;
        let guard = client.expect("all answer").mutex("k").lock().await;
        let left = guard.expect("the key is free").remaining();
        let expected = Duration::from_secs(earliest)..Duration::from_secs(latest);
        assert!(expected.contains(&left), "{option}: {left:?}");
    }
}

#[tokio::test]
async fn a_redlock_url_is_checked() {
    for (url, word) in [
        ("redlock://a,b,a", "once"),
        ("redlock://a,b?max_lease=0s", "max_lease"),
        ("redlock://a,b?member_timeout=5", "member_timeout"),
        ("redlock://a,b?wibble=1", "wibble"),
        ("redlock://a,b?durable=perhaps", "durable"),
        ("redlock://a,b?drift=-0.1", "a number from 0 to 0.5, such as 0.01"),
        ("redlock://a,b?drift=1", "a number from 0 to 0.5, such as 0.01"),
        ("redlock://a,b?drift=NaN", "a number from 0 to 0.5, such as 0.01"),
        ("redlock://a,b?drift=1%25", "a number from 0 to 0.5, such as 0.01"),
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
