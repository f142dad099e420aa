//! Redis behind Sentinel: what the client does while a replica is promoted.

use std::time::{Duration, Instant};

use futures_util::StreamExt;

use crate::fixture::{
    acquire, assert_error, claim, config, connect, granted, replicate, stays_alive, subscribed, wait_until,
    within_a_minute,
};
use tenure_backend::{Backend, Effect, Fault, Invalidation};
use tenure_redis::RedisStore;
use tenure_servers::{MASTER, Proxy, Redis, Replicated, Way, start_sentinel};

/// Lets one sentinel begin a failover that does not end: the replica that it chooses refuses to be promoted. Returns
/// once the sentinel waits for the promotion. The other sentinels know nothing of that.
fn begin_promotion(group: &mut Replicated, leader: usize, chosen: usize) {
    choose(group, chosen);
    begin_promotion_of_chosen(&group.sentinels()[leader]);
}

/// Makes a replica the only one that a sentinel would promote, and makes it refuse that.
fn choose(group: &mut Replicated, chosen: usize) {
    for replica in [1, 2].into_iter().filter(|replica| *replica != chosen) {
        let unwanted = group.servers()[replica].ask(&["CONFIG", "SET", "replica-priority", "0"]);
        unwanted.expect("it obeys");
    }
    let refuses = group.servers()[chosen].ask(&["ACL", "SETUSER", "default", "-slaveof"]);
    refuses.expect("it obeys");
}

fn begin_promotion_of_chosen(sentinel: &Redis) {
    let ask = |question: &[&str]| sentinel.ask(question).expect("it answers");
    ask(&["SENTINEL", "SET", MASTER, "failover-timeout", "60000"]);
    let wait_for = |question, pair: &str| wait_until(|| ask(&["SENTINEL", question, MASTER]).contains(pair));
    wait_for("REPLICAS", "slave-priority\n0\n");
    ask(&["SENTINEL", "FAILOVER", MASTER]);
    wait_for("MASTER", "failover-state\nwait_promotion\n");
}

/// Ends a failover that `begin_promotion` began.
fn promote(group: &mut Replicated, chosen: usize) {
    let obeys = group.servers()[chosen].ask(&["REPLICAOF", "NO", "ONE"]);
    obeys.expect("it obeys");
}

/// Waits until the client has left the server: only the sentinels, the replicas and this test are connected to it.
fn wait_until_left(server: &Redis) {
    wait_until(|| {
        let clients = server
            .ask(&["CLIENT", "LIST", "TYPE", "NORMAL"])
            .expect("it answers");
        let is_sentinel = |client: &&str| client.contains("name=sentinel-") || client.contains("cmd=client");
        clients.lines().all(|client| is_sentinel(&client))
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_is_left_before_a_replica_is_promoted() {
    let mut group = Replicated::start(&[]).expect("all start");
    let store = connect(&group.url()).await.expect("the master is found");
    let held = claim("held", 1);
    granted(&store, &held).await;
    replicate(&mut group, 0);
    begin_promotion(&mut group, 2, 1);
    wait_until_left(&group.servers()[0]);
    promote(&mut group, 1);
    granted(&store, &claim("later", 2)).await;
    let [before, after] = [0, 1].map(|server| group.servers()[server].ask(&["EXISTS", "held", "later"]));
    assert_eq!(before.expect("it answers"), "1");
    assert_eq!(after.expect("it answers"), "2");
    stays_alive(&store, &held).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_set_up_again_still_warns_of_a_promotion() {
    let mut group = Replicated::start_servers(&[]).expect("all start");
    let master = group.servers()[0].address();
    let epoch = format!("sentinel config-epoch {MASTER} 5");
    let sentinel = start_sentinel(master, 1, &epoch).expect("it starts");
    let url = format!("redis+sentinel://{}/{MASTER}", sentinel.address());
    let store = connect(&url).await.expect("the master is found");
    wait_until(|| is_heard(&sentinel));
    let [ip, port] = [master.ip().to_string(), master.port().to_string()];
    for command in [&["REMOVE", MASTER][..], &["MONITOR", MASTER, &ip, &port, "1"]] {
        let obeys = sentinel.ask(&[&["SENTINEL"], command].concat());
        obeys.expect("it obeys");
    }
    let state = sentinel.ask(&["SENTINEL", "MASTER", MASTER]).expect("it answers");
    assert!(state.contains("config-epoch\n0\n"), "{state}");
    choose(&mut group, 1);
    begin_promotion_of_chosen(&sentinel);
    wait_until_left(&group.servers()[0]);
    promote(&mut group, 1);
    granted(&store, &claim("k", 1)).await;
    assert_eq!(group.servers()[1].ask(&["EXISTS", "k"]).expect("it answers"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn connecting_waits_while_a_replica_is_promoted() {
    let mut group = Replicated::start(&[]).expect("all start");
    begin_promotion(&mut group, 2, 1);
    // The client cannot listen to this sentinel, so it learns of the promotion only if it asks all sentinels.
    let deaf = group.sentinels()[2].ask(&["ACL", "SETUSER", "default", "-subscribe"]);
    deaf.expect("it obeys");
    // The replica leaves its master, as a promoted one does. If a master has fewer replicas than its sentinels count,
    // a client that connects asks all sentinels.
    let leaves = group.servers()[1].ask(&["REPLICAOF", "127.0.0.1", "1"]);
    leaves.expect("it obeys");
    wait_until(|| {
        let role = group.servers()[0].ask(&["ROLE"]).expect("it answers");
        !role.contains(&group.servers()[1].address().port().to_string())
    });
    let url = group.url();
    let mut connecting = tokio::spawn(async move { connect(&url).await });
    let early = tokio::time::timeout(Duration::from_millis(500), &mut connecting).await;
    assert!(
        early.is_err(),
        "the sentinel that is asked first names the old master: {early:?}"
    );
    promote(&mut group, 1);
    let store = within_a_minute(connecting).await.expect("no panic");
    granted(&store.expect("the new master is found"), &claim("k", 1)).await;
    assert_eq!(group.servers()[1].ask(&["EXISTS", "k"]).expect("it answers"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_master_is_used_again_if_none_is_promoted() {
    let mut group = Replicated::start(&[]).expect("all start");
    let store = connect(&group.url()).await.expect("the master is found");
    begin_promotion(&mut group, 0, 1);
    wait_until_left(&group.servers()[0]);
    let leader = &group.sentinels()[0];
    let gives_up = leader.ask(&["SENTINEL", "SET", MASTER, "failover-timeout", "1000"]);
    gives_up.expect("it obeys");
    granted(&store, &claim("k", 1)).await;
    assert_eq!(group.servers()[0].ask(&["EXISTS", "k"]).expect("it answers"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_master_is_used_again_if_the_leader_dies() {
    let mut group = Replicated::start(&[]).expect("all start");
    // Each attempt to connect is shorter than the promotion that it waits for.
    let config = config(&group.url()).expect("a URL");
    let config = config.connect_timeout(Duration::from_secs(1));
    let store = RedisStore::connect(config).await.expect("the master is found");
    begin_promotion(&mut group, 2, 1);
    wait_until_left(&group.servers()[0]);
    let refused = acquire(&store, &claim("k", 1)).await.expect_err("it waits");
    assert_error(
        &refused,
        (Fault::Unavailable, Effect::None),
        "a replica is being promoted",
    );
    group.sentinels()[2].process().kill();
    granted(&store, &claim("k", 1)).await;
    assert_eq!(group.servers()[0].ask(&["EXISTS", "k"]).expect("it answers"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_connection_waits_longer_than_its_limit() {
    let mut group = Replicated::start(&[]).expect("all start");
    begin_promotion(&mut group, 0, 1);
    let config = config(&group.url()).expect("a URL");
    let config = config.connect_timeout(Duration::from_secs(1));
    let mut connecting = tokio::spawn(RedisStore::connect(config));
    let early = tokio::time::timeout(Duration::from_secs(2), &mut connecting).await;
    assert!(early.is_err(), "the replica is not promoted yet: {early:?}");
    promote(&mut group, 1);
    let store = within_a_minute(connecting).await.expect("no panic");
    granted(&store.expect("the new master is found"), &claim("k", 1)).await;
    assert_eq!(group.servers()[1].ask(&["EXISTS", "k"]).expect("it answers"), "1");
}

/// Returns whether a client of this test listens to the sentinel, and has asked it since.
fn is_heard(sentinel: &Redis) -> bool {
    let clients = sentinel.ask(&["CLIENT", "LIST"]).expect("it answers");
    let mut clients = clients.lines();
    clients.any(|client| client.contains(" sub=4 ") && client.contains(" cmd=sentinel"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_master_is_not_used_while_the_promotion_lasts() {
    let mut group = Replicated::start(&[]).expect("all start");
    let store = connect(&group.url()).await.expect("the master is found");
    begin_promotion(&mut group, 0, 1);
    wait_until_left(&group.servers()[0]);
    // The client asks again a sentinel that knows nothing of the promotion.
    let closed = group.sentinels()[1].ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    closed.expect("it obeys");
    let acquiring = claim("k", 1);
    let early = tokio::time::timeout(Duration::from_secs(8), granted(&store, &acquiring)).await;
    assert!(early.is_err(), "the old master was used");
    promote(&mut group, 1);
    granted(&store, &acquiring).await;
    let [before, after] = [0, 1].map(|server| group.servers()[server].ask(&["EXISTS", "k"]));
    assert_eq!(before.expect("it answers"), "0");
    assert_eq!(after.expect("it answers"), "1");
}

/// A sentinel may announce a step while the client does not listen.
#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_is_listened_to_again_soon_after_a_lost_connection() {
    let mut group = Replicated::start(&[]).expect("all start");
    let _store = connect(&group.url()).await.expect("the master is found");
    let sentinel = &group.sentinels()[0];
    wait_until(|| is_heard(sentinel));
    let begun = Instant::now();
    for _ in 0..10 {
        let closed = sentinel.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        closed.expect("it obeys");
        wait_until(|| is_heard(sentinel));
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?} for ten connections");
}

#[tokio::test(flavor = "multi_thread")]
async fn failovers_of_many_masters_cost_few_questions() {
    let mut group = Replicated::start_servers(&[]).expect("all start");
    let master = group.servers()[0].address();
    let sentinel = start_sentinel(master, 1, "").expect("it starts");
    let ask = |question: &[&str]| sentinel.ask(question).expect("it answers");
    let proxy = Proxy::start(sentinel.address()).await.expect("it starts");
    let url = format!("redis+sentinel://{}/{MASTER}", proxy.address());
    let _store = connect(&url).await.expect("the master is found");
    wait_until(|| is_heard(&sentinel));
    choose(&mut group, 1);
    let others: Vec<_> = (0..20).map(|number| format!("other-{number}")).collect();
    let [ip, port] = [master.ip().to_string(), master.port().to_string()];
    for other in &others {
        ask(&["SENTINEL", "MONITOR", other, &ip, &port, "1"]);
    }
    for other in &others {
        wait_until(|| ask(&["SENTINEL", "REPLICAS", other]).contains("slave-priority\n0\n"));
    }
    let commands = || {
        let stats = ask(&["INFO", "stats"]);
        let mut lines = stats.lines();
        let count = lines.find_map(|line| line.strip_prefix("total_commands_processed:"));
        count
            .and_then(|count| count.trim().parse::<u64>().ok())
            .expect("a number")
    };
    proxy.hold(Way::ToClient);
    for other in &others {
        ask(&["SENTINEL", "FAILOVER", other]);
    }
    for other in &others {
        wait_until(|| ask(&["SENTINEL", "MASTER", other]).contains("failover-state\nwait_promotion\n"));
    }
    let before = commands();
    proxy.heal();
    // sleep: no event tells that the client asks nothing more.
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Asking the sentinel once takes at least three commands.
    let commands = commands() - before;
    assert!((3..30).contains(&commands), "{commands} commands");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_cannot_be_listened_to_are_asked() {
    let mut group = Replicated::start(&[]).expect("all start");
    for sentinel in group.sentinels() {
        let refuses = sentinel.ask(&["ACL", "SETUSER", "default", "-subscribe"]);
        refuses.expect("it obeys");
    }
    // The master does not answer, and the time limit is long: only a sentinel's answer can end the connection.
    let config = config(&group.url()).expect("a URL");
    let config = config.command_timeout(Duration::from_secs(600));
    let store = RedisStore::connect(config).await.expect("the master is found");
    let mut invalidations = subscribed(&store).await;
    group.servers()[0].process().pause();
    assert_eq!(
        within_a_minute(invalidations.next()).await,
        Some(Invalidation::All)
    );
    granted(&store, &claim("k", 1)).await;
}

/// The client connects on one runtime, which ends, and is then used on another.
#[test]
fn sentinels_are_listened_to_after_the_first_runtime_ended() {
    let mut group = Replicated::start(&[]).expect("all start");
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let store = runtime().block_on(connect(&group.url()));
    let store = store.expect("the master is found");
    runtime().block_on(async {
        granted(&store, &claim("k", 1)).await;
        for sentinel in group.sentinels() {
            wait_until(|| is_heard(sentinel));
        }
        store.clone().close().await.expect("it closes");
        for sentinel in group.sentinels() {
            wait_until(|| !is_heard(sentinel));
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_disagree_do_not_keep_a_client_busy() {
    let mut urls = Vec::new();
    let mut kept = Vec::new();
    for delay in [0, 20] {
        let mut group = Replicated::start_servers(&[]).expect("all start");
        let sentinel = start_sentinel(group.servers()[0].address(), 3, "").expect("it starts");
        let ask = || sentinel.ask(&["SENTINEL", "MASTER", MASTER]).expect("it answers");
        wait_until(|| ask().contains("num-slaves\n2\n"));
        // The master shows fewer replicas than its sentinel counts, so the client asks all sentinels again.
        group.servers()[1].process().kill();
        let mut info = || group.servers()[0].ask(&["INFO", "replication"]);
        wait_until(|| info().expect("it answers").contains("connected_slaves:1"));
        let proxy = Proxy::start(sentinel.address()).await.expect("it starts");
        proxy.delay(Way::ToClient, Duration::from_millis(delay));
        urls.push(proxy.address().to_string());
        kept.push((group, sentinel, proxy));
    }
    let url = format!("redis+sentinel://{}/{MASTER}", urls.join(","));
    let store = connect(&url).await.expect("one of the masters is found");
    granted(&store, &claim("k", 1)).await;
}
