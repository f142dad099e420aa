//! Redis behind Sentinel: the conformance suite, failover, and what the errors say.

use std::time::Duration;

use futures_util::StreamExt;

use crate::fixture::{
    acquire, assert_error, assert_finding, assert_tokens_rise, behind_a_sentinel, claim, config, connect,
    examine, granted, release, replicate, stays_alive, subscribed, unlock_of, wait_for_wake, wait_until,
    within_a_minute,
};
use tenure_backend::{AcquireReply, Backend, Effect, Fault, Invalidation, Severity};
use tenure_redis::RedisStore;
use tenure_servers::{MASTER, Redis, Replicated, start_sentinel};

tenure_testkit::conformance!(behind_a_sentinel);

#[tokio::test(flavor = "multi_thread")]
async fn holders_and_waiters_survive_failovers() {
    let mut group = Replicated::start(&[]).expect("all start");
    let [holder, waiter] = [connect(&group.url()).await, connect(&group.url()).await];
    let [holder, waiter] = [holder, waiter].map(|store| store.expect("the master is found"));
    let mut before = 0;
    for (key, is_orderly, clients) in [("orderly", true, [1, 2]), ("killed", false, [3, 4])] {
        let [held, waiting] = clients.map(|client| claim(key, client));
        let first = granted(&holder, &held).await;
        let mut wakes = waiter
            .clone()
            .watch(waiting.clone())
            .await
            .expect("a subscription");
        let polled = acquire(&waiter, &waiting).await;
        assert!(matches!(polled, Ok(AcquireReply::Waiting { .. })), "{polled:?}");
        wait_for_wake(&mut wakes).await;
        let mut invalidations = subscribed(&holder).await;
        replicate(&mut group, before);
        let master = if is_orderly {
            group.fail_over().expect("a replica takes over")
        } else {
            group.servers()[before].process().kill();
            group.wait_for_failover(before).expect("a replica takes over")
        };
        assert_eq!(
            within_a_minute(invalidations.next()).await,
            Some(Invalidation::All)
        );
        stays_alive(&holder, &held).await;
        // The waiter has subscribed again, to the new master.
        assert_eq!(within_a_minute(wakes.next()).await, Some(()));
        release(&holder, unlock_of(&held)).await;
        wait_for_wake(&mut wakes).await;
        assert_tokens_rise(&first, &granted(&waiter, &waiting).await);
        let keys = group.servers()[master].ask(&["EXISTS", key]).expect("it answers");
        assert_eq!(keys, "1", "the new master has the lock");
        before = master;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_master_is_left_when_another_is_announced() {
    let mut group = Replicated::start(&[]).expect("all start");
    // The master does not answer, and the time limit is long: only a sentinel that names another ends the connection.
    let config = config(&group.url()).expect("a URL");
    let config = config.command_timeout(Duration::from_secs(600));
    let store = RedisStore::connect(config).await.expect("the master is found");
    let mut invalidations = subscribed(&store).await;
    group.servers()[0].process().pause();
    let unanswered = tokio::spawn({
        let store = store.clone();
        async move { acquire(&store, &claim("unanswered", 1)).await }
    });
    group.wait_for_failover(0).expect("a replica takes over");
    assert_eq!(
        within_a_minute(invalidations.next()).await,
        Some(Invalidation::All)
    );
    granted(&store, &claim("k", 1)).await;
    let refused = unanswered
        .await
        .expect("no panic")
        .expect_err("the master is paused");
    assert_eq!(
        (refused.fault(), refused.effect()),
        (Fault::Unavailable, Effect::Unknown)
    );
}

#[tokio::test]
async fn a_replica_that_a_sentinel_names_is_refused_until_promoted() {
    let mut group = Replicated::start_servers(&[]).expect("all start");
    let replica = group.servers()[1].address();
    let sentinel = start_sentinel(replica, 3, "").expect("it starts");
    let url = format!("redis+sentinel://{}/{MASTER}", sentinel.address());
    let refused = connect(&url).await.map(drop).expect_err("it is a replica");
    let words = format!("{replica} is not the master now");
    assert_error(&refused, (Fault::Unavailable, Effect::None), &words);
}

#[tokio::test]
async fn errors_say_what_is_wrong_with_the_sentinels() {
    let server = Redis::start().expect("it starts");
    let sentinel = start_sentinel(server.address(), 1, "requirepass s3cr3t").expect("it starts");
    let gone = Redis::start().expect("it starts").address();
    let limited = start_sentinel(
        server.address(),
        1,
        "user default on nopass ~* &* +@all -sentinel|sentinels",
    );
    let limited = limited.expect("it starts");
    let (sentinel, limited, server) = (sentinel.address(), limited.address(), server.address());
    for (hosts, fault, words) in [
        (
            gone.to_string(),
            Fault::Unavailable,
            format!("no sentinel names the master `{MASTER}`: see whether they run at {gone}"),
        ),
        (
            server.to_string(),
            Fault::Invalid,
            format!("{server} is no sentinel: name the sentinels, which usually listen at port 26379"),
        ),
        (
            sentinel.to_string(),
            Fault::Denied,
            "name their user in `sentinel_user` and the file of their password".to_owned(),
        ),
        (
            limited.to_string(),
            Fault::Denied,
            "the sentinels refuse the login or the command `SENTINEL`".to_owned(),
        ),
        (
            format!("{gone},{sentinel}"),
            Fault::Unavailable,
            format!("see whether they run at {gone}, {sentinel}"),
        ),
    ] {
        let url = format!("redis+sentinel://:for-servers-only@{hosts}/{MASTER}");
        let refused = connect(&url).await.map(drop).expect_err(&hosts);
        assert_error(&refused, (fault, Effect::None), &words);
    }
}

#[tokio::test]
async fn sentinels_have_a_password_of_their_own() {
    let server = Redis::start_with(&["--requirepass", "for-servers"], None).expect("it starts");
    let sentinel = start_sentinel(server.address(), 1, "requirepass for-sentinels").expect("it starts");
    let gone = Redis::start().expect("it starts").address();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    std::fs::write(&file, "for-sentinels").expect("a file");
    let url = |master| {
        let (hosts, file) = (format!("{gone},{}", sentinel.address()), file.display());
        format!("redis+sentinel://:for-servers@{hosts}/{master}?sentinel_password_file={file}")
    };
    let store = connect(&url(MASTER)).await.expect("both passwords are right");
    granted(&store, &claim("k", 1)).await;
    let refused = connect(&url("others"))
        .await
        .map(drop)
        .expect_err("no such master");
    assert_error(
        &refused,
        (Fault::Unavailable, Effect::None),
        "no sentinel names the master `others`",
    );
}

/// Some findings appear in a healthy group too: its servers write nothing to disk, and some defaults of Redis are
/// unsafe.
#[tokio::test(flavor = "multi_thread")]
async fn examining_reports_sentinels_and_replicas() {
    let mut group = Replicated::start(&[]).expect("all start");
    let store = connect(&format!("{}?replicas=2", group.url()))
        .await
        .expect("the master is found");
    let found = examine(&store).await;
    assert_finding(&found, "`min-replicas-to-write 0`", Severity::Warning);
    let unhealthy = |word: &str| found.iter().any(|finding| finding.what.contains(word));
    let words = ["sentinel", "keep up", "the replica"];
    assert!(!words.into_iter().any(unhealthy), "{found:?}");

    let replicas = [1, 2].map(|index| group.servers()[index].address());
    let evicts = group.servers()[1].ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    evicts.expect("it obeys");
    let refuses = group.servers()[2].ask(&["CONFIG", "SET", "requirepass", "other"]);
    refuses.expect("it obeys");
    let found = examine(&store).await;
    let policy = format!(
        "the replica {}: the eviction policy is `allkeys-lru`",
        replicas[0]
    );
    assert_finding(&found, &policy, Severity::Note);
    let refusal = format!("the replica {}: it cannot be examined: ", replicas[1]);
    assert_finding(&found, &refusal, Severity::Warning);

    let cut_off = group.servers()[1].ask(&["REPLICAOF", "127.0.0.1", "1"]);
    cut_off.expect("it obeys");
    let lost = group.sentinels()[2].address();
    group.sentinels()[2].process().kill();
    let quorum = group.sentinels()[0].ask(&["SENTINEL", "SET", MASTER, "quorum", "1"]);
    quorum.expect("it obeys");
    let quorum = group.sentinels()[1].ask(&["SENTINEL", "SET", MASTER, "quorum", "1"]);
    quorum.expect("it obeys");
    let found = examine(&store).await;
    assert_finding(
        &found,
        "`replicas=2` asks for more replicas than the 1 that keep up",
        Severity::Danger,
    );
    assert_finding(
        &found,
        &format!("the sentinel {lost} does not answer"),
        Severity::Warning,
    );
    assert_finding(&found, "1 of 3 sentinels suffice", Severity::Note);

    let moved = group.sentinels()[1].ask(&["SENTINEL", "REMOVE", MASTER]);
    moved.expect("it obeys");
    let found = examine(&store).await;
    assert_finding(
        &found,
        "1 of 3 sentinels answer, and a failover needs 2",
        Severity::Danger,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn examining_counts_a_sentinel_with_two_names_once() {
    let mut group = Replicated::start(&[]).expect("all start");
    let by_name = |sentinel: &Redis| format!("localhost:{}", sentinel.address().port());
    let hosts: Vec<_> = group.sentinels().iter().map(by_name).collect();
    let url = format!("redis+sentinel://{}/{MASTER}", hosts.join(","));
    let store = connect(&url).await.expect("the master is found");
    group.sentinels()[2].process().kill();
    let found = examine(&store).await;
    let of_sentinels = found.iter().filter(|finding| finding.what.contains("sentinel"));
    let of_sentinels: Vec<_> = of_sentinels.collect();
    let lost = format!("the sentinel {} does not answer", group.sentinels()[2].address());
    assert_finding(&found, &lost, Severity::Warning);
    assert_eq!(of_sentinels.len(), 1, "{of_sentinels:?}");
}

#[tokio::test]
async fn examining_reports_a_sentinel_without_channels() {
    let server = Redis::start().expect("it starts");
    // No channels (`resetchannels`): since Redis 7 the default of a user whose rules name none.
    let rights = "user default on nopass ~* resetchannels +@all";
    let sentinel = start_sentinel(server.address(), 1, rights).expect("it starts");
    let url = format!("redis+sentinel://{}/{MASTER}", sentinel.address());
    let found = examine(&connect(&url).await.expect("the master is found")).await;
    let words = format!("the client cannot listen to the sentinel {}", sentinel.address());
    assert_finding(&found, &words, Severity::Warning);
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_set_up_again_are_believed_while_one_is_silent() {
    let [before, after] = [Redis::start(), Redis::start()].map(|server| server.expect("it starts"));
    let newest = format!("sentinel config-epoch {MASTER} 5");
    let newest = start_sentinel(before.address(), 3, &newest);
    let again = start_sentinel(after.address(), 3, "");
    let [mut newest, again] = [newest, again].map(|sentinel| sentinel.expect("it starts"));
    let (newest_address, again_address) = (newest.address(), again.address());
    let url = format!("redis+sentinel://{newest_address},{again_address}/{MASTER}");
    let store = connect(&url).await.expect("the master is found");
    newest.process().pause();
    drop(before);
    granted(&store, &claim("k", 1)).await;
    assert_eq!(after.ask(&["EXISTS", "k"]).expect("it answers"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_behind_the_others_is_not_believed() {
    let [current, demoted] = [Redis::start(), Redis::start()].map(|server| server.expect("it starts"));
    let epoch = |epoch| format!("sentinel config-epoch {MASTER} {epoch}");
    let newest = start_sentinel(current.address(), 3, &epoch(5));
    let stale = start_sentinel(demoted.address(), 3, &epoch(3));
    let [mut newest, stale] = [newest, stale].map(|sentinel| sentinel.expect("it starts"));
    let url = format!(
        "redis+sentinel://{},{}/{MASTER}",
        newest.address(),
        stale.address()
    );
    let store = connect(&url).await.expect("the master is found");
    // The client has subscribed, and asks nothing now.
    wait_until(|| {
        let clients = newest.ask(&["CLIENT", "LIST"]).expect("it answers");
        let mut clients = clients.lines();
        clients.clone().count() == 2 && clients.any(|client| client.contains(" sub=4 "))
    });
    newest.process().pause();
    current
        .ask(&["CLIENT", "KILL", "TYPE", "normal"])
        .expect("it obeys");
    // sleep: after 250 ms the client asks the stale sentinel too. No event shows that it ignores the answer.
    tokio::time::sleep(Duration::from_secs(1)).await;
    newest.process().resume();
    granted(&store, &claim("k", 1)).await;
    assert_eq!(current.ask(&["EXISTS", "k"]).expect("it answers"), "1");
}
