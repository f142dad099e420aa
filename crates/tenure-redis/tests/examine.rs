//! What `doctor` finds of a server, and what a token counter does that was set too high.

mod stage;

use std::sync::Arc;
use std::time::Duration;

use stage::*;
use tenure_backend::{
    AcquireReply, Claim, ClaimRef, Effect, Fairness, Finding, Mode, ReleaseReply, ReleaseRequest, Severity,
    Successor,
};
use tenure_redis::RedisStore;
use tenure_servers::Redis;

/// Options with which nothing is lost.
const SOUND: &[&str] = &["--save", "", "--appendonly", "yes", "--appendfsync", "always"];

async fn findings(options: &[&str]) -> (Redis, Arc<RedisStore>, Vec<Finding>) {
    let server = Redis::start_with(options, None).expect("it starts");
    let store = connect(&server.url()).await.expect("it answers");
    let found = examined(&store).await;
    (server, store, found)
}

/// Asserts that nothing else is found.
#[track_caller]
fn finds_alone(found: &[Finding], words: &str, severity: Severity) {
    assert_eq!(found.len(), 1, "{found:?}");
    finds(found, words, severity);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_keeps_everything_has_nothing_to_find() {
    assert_eq!(findings(SOUND).await.2, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_of_the_machine_can_take_is_told() {
    for (policy, severity) in [("everysec", Severity::Note), ("no", Severity::Warning)] {
        let (.., found) = findings(&[&SOUND[..5], &[policy]].concat()).await;
        finds_alone(&found, policy, severity);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_say_how_it_is_set_up_is_not_taken_for_sound() {
    let (server, store, _) = findings(SOUND).await;
    server
        .ask(&["ACL", "SETUSER", "default", "-config|get"])
        .expect("it obeys");
    let words = "append-only file is on the disk could not be asked";
    finds_alone(&examined(&store).await, words, Severity::Warning);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_who_look_at_once_are_each_woken() {
    let (_server, store, _) = findings(SOUND).await;
    let looks = (0..8).map(|_| examined(&store));
    for found in futures_util::future::join_all(looks).await {
        let missed = found.iter().any(|one| one.what.contains("no wake-up came"));
        assert!(!missed, "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_writes_for_want_of_replicas_is_found() {
    let (server, store, _) = findings(SOUND).await;
    for command in [
        ["CONFIG", "SET", "min-replicas-to-write", "2"],
        ["ACL", "SETUSER", "default", "-config|get"],
    ] {
        server.ask(&command).expect("it obeys");
        finds(&examined(&store).await, "min-replicas-to-write", Severity::Danger);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_weakens_locks_is_found_with_what_follows() {
    let options = [
        "--save",
        "",
        "--maxmemory",
        "100mb",
        "--maxmemory-policy",
        "allkeys-lru",
    ];
    let (server, _, found) = findings(&options).await;
    finds(&found, "append-only", Severity::Warning);
    finds(&found, "allkeys-lru", Severity::Danger);
    assert!(found.iter().all(|finding| !finding.consequence.is_empty()));
    // A replica grants nothing, and says so.
    server.ask(&["REPLICAOF", "127.0.0.1", "1"]).expect("it obeys");
    if let Ok(store) = connect(&server.url()).await {
        finds(&examined(&store).await, "replica of another", Severity::Danger);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_knows_no_info_is_examined_all_the_same() {
    let (.., found) = findings(&["--save", "", "--rename-command", "INFO", ""]).await;
    finds_alone(&found, "INFO", Severity::Warning);
}

/// The largest number of Redis, one that it would show by its exponent, and the last that a script can count up to.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_counter_that_was_set_too_high_is_told_and_nothing_is_granted() {
    for stands in ["9223372036854775807", "1e+18", "9007199254740991"] {
        let scene = Scene::new().await;
        let [held, successor] = <[Arc<Claim>; 2]>::try_from(scene.claims(2)).expect("two");
        scene.granted(&held).await;
        scene.stage.ask(&["SET", "tenure_tokens", stands]);
        finds(&examined(&scene.store).await, "token counter", Severity::Danger);
        // Some are asked for by themselves, and the others together.
        let mut claims = scene.claims(40);
        let mut fair = Claim::clone(&claims[0]);
        fair.at.id = successor.at.id;
        fair.fairness = Fairness::Fifo;
        claims.push(Arc::new(fair));
        for (claim, answer) in claims.iter().zip(scene.answers(&claims).await) {
            let error = answer.expect_err("no token can be had");
            assert!(error.to_string().contains("tenure_tokens"), "{error}");
            let queues = claim.fairness == Fairness::Fifo;
            assert_eq!(error.effect() == Effect::Unknown, queues);
            assert!(!scene.stage.exists(claim.at.key.as_str()));
        }
        let mut successor = Claim::clone(&successor);
        successor.at = ClaimRef {
            key: held.at.key.clone(),
            id: scene.claims(1)[0].at.id,
        };
        let handed_over = ReleaseRequest {
            successor: Some(Successor {
                claim: Arc::new(successor),
                not_after: scene.client.now() + Duration::from_secs(5),
            }),
            ..departure(&held)
        };
        let ReleaseReply::Done { freed, successor, .. } = released(&scene.store, handed_over).await else {
            panic!("the holder is gone");
        };
        assert_eq!(freed.len(), 1, "its successor is no matter of the holder's");
        assert!(
            matches!(successor, Some(AcquireReply::Waiting { .. })),
            "{successor:?}"
        );
        assert!(!scene.stage.exists(held.at.key.as_str()));
        assert_eq!(scene.stage.text(&["GET", "tenure_tokens"]), stands);
    }
}

/// One more than the largest number that is counted exactly, less one, is that number again.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_claim_in_a_call_for_many_has_no_token_beyond_the_last() {
    let (stage, client, _) = Stage::one_on(Server::gathering()).await;
    for (stands, is_last) in [("9007199254740990", true), ("9007199254740991", false)] {
        stage.ask(&["SET", "tenure_tokens", stands]);
        let claim = client.claim(&stage.trial.key(), Mode::Exclusive);
        let answer = placed(client.backend(), &claim).await;
        assert_eq!(is_granted(&answer), is_last, "{answer:?}");
        assert_eq!(stage.exists(claim.at.key.as_str()), is_last);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_counter_that_is_none_is_found() {
    let (stage, client, _) = Stage::one().await;
    stage.ask(&["RPUSH", "tenure_tokens", "1"]);
    finds(
        &examined(client.backend()).await,
        "token counter",
        Severity::Warning,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_counter_ahead_of_the_clock_is_found() {
    let (stage, client, _) = Stage::one().await;
    let words = "ahead of the server's clock";
    for (ahead_ms, is_found) in [(3_600_000, true), (1_000, false)] {
        let stands = (stage.now_ms() + ahead_ms) * 1000;
        stage.ask(&["SET", "tenure_tokens", &stands.to_string()]);
        let found = examined(client.backend()).await;
        match is_found {
            true => finds(&found, words, Severity::Warning),
            false => assert!(found.iter().all(|one| !one.what.contains(words)), "{found:?}"),
        }
    }
}
