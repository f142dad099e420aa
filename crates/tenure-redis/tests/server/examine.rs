//! Examining: findings about the settings of a server and of replicas, and about a token counter that is too high.

use std::sync::Arc;
use std::time::Duration;

use crate::fixture::*;
use tenure_backend::{
    AcquireReply, Claim, ClaimRef, Effect, Fairness, Finding, Mode, ReleaseReply, ReleaseRequest, Severity,
    Successor,
};
use tenure_redis::RedisStore;
use tenure_servers::{MASTER, Redis, SteppedClock, start_sentinel};

/// Server options under which no write is lost.
const SOUND: &[&str] = &["--save", "", "--appendonly", "yes", "--appendfsync", "always"];

async fn findings(options: &[&str]) -> (Redis, Arc<RedisStore>, Vec<Finding>) {
    let server = Redis::start_with(options, None).expect("it starts");
    let store = connect(&server.url()).await.expect("it answers");
    let found = examine(&store).await;
    (server, store, found)
}

/// Asserts that there is exactly one finding, with these words and this severity.
#[track_caller]
fn finds_alone(found: &[Finding], words: &str, severity: Severity) {
    assert_eq!(found.len(), 1, "{found:?}");
    assert_finding(found, words, severity);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_server_has_no_findings() {
    assert_eq!(findings(SOUND).await.2, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fsync_policy_is_reported() {
    for (policy, severity) in [("everysec", Severity::Note), ("no", Severity::Warning)] {
        let (.., found) = findings(&[&SOUND[..5], &[policy]].concat()).await;
        finds_alone(&found, policy, severity);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_settings_are_reported() {
    let (server, store, _) = findings(SOUND).await;
    server
        .ask(&["ACL", "SETUSER", "default", "-config|get"])
        .expect("it obeys");
    let words = "append-only file is on the disk could not be read";
    finds_alone(&examine(&store).await, words, Severity::Warning);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_examinations_each_receive_their_wake_up() {
    let (_server, store, _) = findings(SOUND).await;
    let looks = (0..8).map(|_| examine(&store));
    for found in futures_util::future::join_all(looks).await {
        let missed = found.iter().any(|one| one.what.contains("no wake-up came"));
        assert!(!missed, "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_replicas_are_reported() {
    let (server, store, _) = findings(SOUND).await;
    for command in [
        ["CONFIG", "SET", "min-replicas-to-write", "2"],
        ["ACL", "SETUSER", "default", "-config|get"],
    ] {
        server.ask(&command).expect("it obeys");
        assert_finding(&examine(&store).await, "min-replicas-to-write", Severity::Danger);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn weaknesses_are_reported_with_their_consequences() {
    let options = [
        "--save",
        "",
        "--maxmemory",
        "100mb",
        "--maxmemory-policy",
        "allkeys-lru",
    ];
    let (server, _, found) = findings(&options).await;
    assert_finding(&found, "append-only", Severity::Warning);
    assert_finding(&found, "allkeys-lru", Severity::Danger);
    assert!(found.iter().all(|finding| !finding.consequence.is_empty()));
    // A replica grants no locks. If a client can connect at all, `examine` reports the replica.
    server.ask(&["REPLICAOF", "127.0.0.1", "1"]).expect("it obeys");
    if let Ok(store) = connect(&server.url()).await {
        assert_finding(&examine(&store).await, "replica of another", Severity::Danger);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_info_is_still_examined() {
    let (.., found) = findings(&["--save", "", "--rename-command", "INFO", ""]).await;
    finds_alone(&found, "INFO", Severity::Warning);
}

/// A replica judges leases by its own clock once it has taken over.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_clock_differs_is_reported() {
    let master = Redis::start_with(SOUND, None).expect("it starts");
    let port = master.address().port().to_string();
    let clock = SteppedClock::new().expect("a clock that steps can be made");
    let options = [&["--replicaof", "127.0.0.1", &port], SOUND].concat();
    let replica = Redis::start_with(&options, Some(clock)).expect("it starts");
    wait_until(|| {
        master
            .ask(&["INFO", "replication"])
            .is_ok_and(|info| info.contains("state=online"))
    });
    let sentinel = start_sentinel(master.address(), 1, "").expect("it starts");
    let by_sentinel = format!("redis+sentinel://{}/{MASTER}", sentinel.address());
    let store = connect(&by_sentinel).await.expect("the master is found");
    let direct = connect(&master.url()).await.expect("it answers");
    let says = async |words: &str| {
        for store in [&store, &direct] {
            let found = examine(store).await;
            let about = |finding: &&Finding| finding.what.contains("clock is");
            let found: Vec<_> = found.iter().filter(about).cloned().collect();
            finds_alone(&found, words, Severity::Warning);
            let address = replica.address().to_string();
            assert!(found[0].what.contains(&address), "{found:?}");
        }
    };
    let clock = replica.clock().expect("it steps");
    clock.step_ms(5_000).expect("it steps");
    says("s ahead of the master's").await;
    clock.step_ms(-10_000).expect("it steps");
    says("s behind the master's").await;
    clock.step_ms(5_000).expect("it steps");
    let found = examine(&store).await;
    assert!(
        !found.iter().any(|finding| finding.what.contains("clock is")),
        "{found:?}"
    );
}

/// Counter values: the largest integer of Redis; a number as Lua prints it, with an exponent; and 2^53 - 1, the last
/// that a script counts exactly.
#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_token_counter_is_reported_and_grants_nothing() {
    for stands in ["9223372036854775807", "1e+18", "9007199254740991"] {
        let proxied = ProxiedFixture::new().await;
        let [held, successor] = <[Arc<Claim>; 2]>::try_from(proxied.claims(2)).expect("two");
        proxied.granted(&held).await;
        proxied.fixture.command(&["SET", "tenure_tokens", stands]);
        assert_finding(&examine(&proxied.store).await, "token counter", Severity::Danger);
        // Some claims are sent alone, the others in batches.
        let mut claims = proxied.claims(40);
        let mut fair = Claim::clone(&claims[0]);
        fair.at.id = successor.at.id;
        fair.fairness = Fairness::Fifo;
        claims.push(Arc::new(fair));
        for (claim, answer) in claims.iter().zip(proxied.acquire_batched(&claims).await) {
            let error = answer.expect_err("no token can be had");
            assert!(error.to_string().contains("tenure_tokens"), "{error}");
            let queues = claim.fairness == Fairness::Fifo;
            assert_eq!(error.effect() == Effect::Unknown, queues);
            assert!(!proxied.fixture.exists(claim.at.key.as_str()));
        }
        let mut successor = Claim::clone(&successor);
        successor.at = ClaimRef {
            key: held.at.key.clone(),
            id: proxied.claims(1)[0].at.id,
        };
        let handed_over = ReleaseRequest {
            successor: Some(Successor {
                claim: Arc::new(successor),
                not_after: proxied.client.now() + Duration::from_secs(5),
            }),
            ..unlock_of(&held)
        };
        let ReleaseReply::Done { freed, successor, .. } = release(&proxied.store, handed_over).await else {
            panic!("the holder is gone");
        };
        assert_eq!(freed.len(), 1, "its successor is no matter of the holder's");
        assert!(
            matches!(successor, Some(AcquireReply::Waiting { .. })),
            "{successor:?}"
        );
        assert!(!proxied.fixture.exists(held.at.key.as_str()));
        assert_eq!(proxied.fixture.text(&["GET", "tenure_tokens"]), stands);
    }
}

/// The script must not add the count before it subtracts 1: in doubles, 2^53 + 1 - 1 is 2^53 - 1.
#[tokio::test(flavor = "multi_thread")]
async fn a_batched_claim_gets_no_token_beyond_the_last() {
    let (fixture, client, _) = Fixture::one_on(Server::batching()).await;
    for (stands, is_last) in [("9007199254740990", true), ("9007199254740991", false)] {
        fixture.command(&["SET", "tenure_tokens", stands]);
        let claim = client.claim(&fixture.store.key(), Mode::Exclusive);
        let answer = acquire(client.backend(), &claim).await;
        assert_eq!(is_granted(&answer), is_last, "{answer:?}");
        assert_eq!(fixture.exists(claim.at.key.as_str()), is_last);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_counter_that_cannot_be_read_is_reported() {
    let (fixture, client, _) = Fixture::one().await;
    fixture.command(&["RPUSH", "tenure_tokens", "1"]);
    assert_finding(
        &examine(client.backend()).await,
        "token counter",
        Severity::Warning,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_counter_ahead_of_the_clock_is_reported() {
    let (fixture, client, _) = Fixture::one().await;
    let words = "ahead of the server's clock";
    for (ahead_ms, is_found) in [(3_600_000, true), (1_000, false)] {
        let stands = (fixture.now_ms() + ahead_ms) * 1000;
        fixture.command(&["SET", "tenure_tokens", &stands.to_string()]);
        let found = examine(client.backend()).await;
        match is_found {
            true => assert_finding(&found, words, Severity::Warning),
            false => assert!(found.iter().all(|one| !one.what.contains(words)), "{found:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_replicas_of_a_cluster_are_examined() {
    let cluster = Cluster::replicated();
    let store = cluster.connect().await;
    let addresses = {
        let servers = cluster.servers.lock();
        let nodes = servers.nodes();
        let evicts = nodes[3].ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        evicts.expect("it obeys");
        let refuses = nodes[4].ask(&["ACL", "SETUSER", USER, "resetpass", ">other"]);
        refuses.expect("it obeys");
        // CLUSTER SLOTS lists a replica only after it has announced that it received a write.
        for master in &nodes[..3] {
            master.ask(&["FLUSHALL"]).expect("it obeys");
        }
        [3, 4].map(|index| nodes[index].address())
    };
    let [evicts, refuses] = addresses.map(|address| format!("the replica {address}: "));
    let reported = |found: &[Finding], words: &str| found.iter().any(|one| one.what.contains(words));
    let found = soon(async {
        loop {
            let found = examine(&store).await;
            if reported(&found, &evicts) && reported(&found, &refuses) {
                return found;
            }
            // sleep: no event tells the test that the replicas are listed.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let policy = evicts + "the eviction policy is `allkeys-lru`";
    assert_finding(&found, &policy, Severity::Note);
    let refusal = refuses + "it cannot be examined: ";
    assert_finding(&found, &refusal, Severity::Warning);
    assert!(!format!("{found:?}").contains(PASSWORD), "{found:?}");
}
