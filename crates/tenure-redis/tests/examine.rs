//! What `doctor` finds of a server, and what a token counter does that was set too high.

mod stage;

use std::sync::Arc;
use std::time::Duration;

use stage::{Scene, Server, Stage, connect};
use tenure_backend::{
    Backend, Batch, Cause, Claim, ClaimRef, Departure, Effect, Fairness, Finding, Heir, Holder, Mode,
    Released, Severity, Standing,
};
use tenure_redis::RedisStore;
use tenure_servers::Redis;

async fn findings(options: &[&str]) -> (Redis, Vec<Finding>) {
    let server = Redis::start_with(options, None).expect("it starts");
    let store = connect(&server.url()).await.expect("it answers");
    let found = store.examine().await.expect("it can be examined");
    (server, found)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_keeps_everything_has_nothing_to_find() {
    let (_server, found) = findings(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"]).await;
    assert_eq!(found, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_of_the_machine_can_take_is_told() {
    for (policy, severity) in [("everysec", Severity::Note), ("no", Severity::Warning)] {
        let (_server, found) =
            findings(&["--save", "", "--appendonly", "yes", "--appendfsync", policy]).await;
        let [finding] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(finding.severity, severity);
        assert!(finding.what.contains(policy), "{finding:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_say_how_it_is_set_up_is_not_taken_for_sound() {
    let options = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"];
    let server = Redis::start_with(&options, None).expect("it starts");
    let store = connect(&server.url()).await.expect("it answers");
    server
        .ask(&["ACL", "SETUSER", "default", "-config|get"])
        .expect("it obeys");
    let found = store.examine().await.expect("it can be examined");
    let [finding] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(finding.severity, Severity::Warning);
    assert!(
        finding
            .what
            .contains("append-only file is on the disk could not be asked"),
        "{finding:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn several_who_look_at_once_are_each_woken() {
    let options = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"];
    let server = Redis::start_with(&options, None).expect("it starts");
    let store = connect(&server.url()).await.expect("it answers");
    let looks = (0..8).map(|_| store.clone().examine());
    for found in futures_util::future::join_all(looks).await {
        let found = found.expect("it can be examined");
        assert!(
            !found.iter().any(|one| one.what.contains("no wake-up came")),
            "{found:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_writes_for_want_of_replicas_is_found() {
    let usual = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"];
    let server = Redis::start_with(&usual, None).expect("it starts");
    let store = connect(&server.url()).await.expect("it answers");
    server
        .ask(&["CONFIG", "SET", "min-replicas-to-write", "2"])
        .expect("it obeys");
    for may_ask in [true, false] {
        if !may_ask {
            server
                .ask(&["ACL", "SETUSER", "default", "-config|get"])
                .expect("it obeys");
        }
        let found = store.clone().examine().await.expect("it can be examined");
        let finding = found
            .iter()
            .find(|one| one.what.contains("min-replicas-to-write"));
        let finding = finding.unwrap_or_else(|| panic!("{found:?}"));
        assert_eq!(finding.severity, Severity::Danger);
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
    let (server, found) = findings(&options).await;
    let one = |words: &str| {
        let finding = found.iter().find(|finding| finding.what.contains(words));
        finding.unwrap_or_else(|| panic!("{words} in {found:?}"))
    };
    assert_eq!(one("append-only").severity, Severity::Warning);
    assert_eq!(one("allkeys-lru").severity, Severity::Danger);
    assert!(found.iter().all(|finding| !finding.consequence.is_empty()));
    // A replica grants nothing, and says so.
    server.ask(&["REPLICAOF", "127.0.0.1", "1"]).expect("it obeys");
    let store = connect(&server.url()).await;
    if let Ok(store) = store {
        let found = store.examine().await.expect("it can be examined");
        assert!(
            found
                .iter()
                .any(|finding| finding.what.contains("replica of another")),
            "{found:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_knows_no_info_is_examined_all_the_same() {
    let (_server, found) = findings(&["--save", "", "--rename-command", "INFO", ""]).await;
    let [finding] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.what.contains("INFO"), "{finding:?}");
}

/// The largest number of Redis, one that it would show by its exponent, and the last that a script can count up to.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_counter_that_was_set_too_high_is_told_and_nothing_is_granted() {
    for stands in ["9223372036854775807", "1e+18", "9007199254740991"] {
        let scene = Scene::new().await;
        let [held, heir] = <[Arc<Claim>; 2]>::try_from(scene.claims(2)).expect("two");
        scene.granted(&held).await;
        scene.stage.ask(&["SET", "tenure_tokens", stands]);
        let found = scene.store.clone().examine().await.expect("it can be examined");
        let finding = found
            .iter()
            .find(|finding| finding.what.contains("token counter"));
        let finding = finding.unwrap_or_else(|| panic!("{found:?}"));
        assert_eq!(finding.severity, Severity::Danger);
        // Some are asked for by themselves, and the others together.
        let mut claims = scene.claims(40);
        let mut fair = Claim::clone(&claims[0]);
        fair.at.id = heir.at.id;
        fair.fairness = Fairness::Fifo;
        claims.push(Arc::new(fair));
        let calls = scene.ask(&claims).await;
        scene.proxy.heal();
        for (claim, answer) in claims.iter().zip(calls.await) {
            let error = answer.expect_err("no token can be had");
            assert!(error.to_string().contains("tenure_tokens"), "{error}");
            let queues = claim.fairness == Fairness::Fifo;
            assert_eq!(error.effect() == Effect::Unknown, queues);
            assert_eq!(scene.stage.number(&["EXISTS", claim.at.key.as_str()]), 0);
        }
        let place_by = scene.client.now() + Duration::from_secs(5);
        let mut heir = Claim::clone(&heir);
        heir.at = ClaimRef {
            key: held.at.key.clone(),
            id: scene.claims(1)[0].at.id,
        };
        let departure = Departure {
            who: Holder::Claim(held.at.clone()),
            cause: Cause::Unlocked,
            heir: Some(Heir {
                claim: Arc::new(heir),
                place_by,
            }),
            bar: Duration::ZERO,
        };
        let released = scene
            .store
            .clone()
            .release(Batch::from_iter([departure]))
            .await
            .pop();
        let Some(Released::Done { freed, heir, .. }) = released else {
            panic!("{released:?}")
        };
        assert_eq!(freed.len(), 1, "its heir is no matter of the holder's");
        assert!(matches!(heir, Some(Standing::Waiting { .. })), "{heir:?}");
        assert_eq!(scene.stage.number(&["EXISTS", held.at.key.as_str()]), 0);
        assert_eq!(scene.stage.text(&["GET", "tenure_tokens"]), stands);
    }
}

/// One more than the largest number that is counted exactly, less one, is that number again.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_claim_in_a_call_for_many_has_no_token_beyond_the_last() {
    let server = Server::gathering();
    let store = RedisStore::connect(server.config()).await.expect("it answers");
    let stage = Stage::on(server).await;
    let client = stage.trial.client().await;
    for (stands, is_granted) in [("9007199254740990", true), ("9007199254740991", false)] {
        stage.ask(&["SET", "tenure_tokens", stands]);
        let claim = client.claim(&stage.trial.key(), Mode::Exclusive);
        let place_by = client.now() + Duration::from_secs(5);
        let answer = store.clone().acquire(claim.clone(), place_by).await;
        assert_eq!(answer.is_ok(), is_granted, "{answer:?}");
        let there = stage.number(&["EXISTS", claim.at.key.as_str()]);
        assert_eq!(there == 1, is_granted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_counter_that_is_none_is_found() {
    let stage = Stage::new().await;
    stage.ask(&["RPUSH", "tenure_tokens", "1"]);
    let url = stage.redis.lock().url();
    let found = connect(&url).await.expect("it answers").examine().await;
    let found = found.expect("it can be examined");
    let counter = found
        .iter()
        .find(|finding| finding.what.contains("token counter"));
    let counter = counter.unwrap_or_else(|| panic!("{found:?}"));
    assert_eq!(counter.severity, Severity::Warning);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_counter_ahead_of_the_clock_is_found() {
    let stage = Stage::new().await;
    let url = stage.redis.lock().url();
    let store = connect(&url).await.expect("it answers");
    for (ahead_ms, is_found) in [(3_600_000, true), (1_000, false)] {
        let stands = (stage.now_ms() + ahead_ms) * 1000;
        stage.ask(&["SET", "tenure_tokens", &stands.to_string()]);
        let found = store.clone().examine().await.expect("it can be examined");
        let ahead = found
            .iter()
            .find(|finding| finding.what.contains("ahead of the server's clock"));
        assert_eq!(ahead.is_some(), is_found, "{found:?}");
        assert!(
            ahead.is_none_or(|ahead| ahead.severity == Severity::Warning),
            "{found:?}"
        );
    }
}
