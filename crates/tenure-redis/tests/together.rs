//! Claims of many callers in one call: few calls, and nobody's trouble is another's.
//! That such claims keep every rule of the contract is in `conformance.rs`.

mod stage;

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::future::join_all;
use stage::*;
use tenure_backend::{
    AcquireReply, Backend, Claim, Effect, Fault, LockKey, Mode, ReleaseReply, RenewRequest, TokenRange,
};

/// More than travel alone or wait for two calls under way: the last of them are gathered.
const MANY: usize = 300;

/// Asserts that no two runs have a token in common.
fn are_apart(mut runs: Vec<TokenRange>) {
    runs.sort_by_key(|run| run.first());
    assert!(
        runs.is_sorted_by(|one, next| one.last() < next.first()),
        "each token is one claim's"
    );
}

/// Asserts that claims have travelled together since the statistics were reset.
fn few_calls(stage: &Stage) {
    let calls = stage.scripts_called();
    assert!(calls < 64, "{calls} calls: they have travelled together");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_claims_at_once_travel_in_few_calls_and_each_has_tokens_of_its_own() {
    let stage = Stage::new().await;
    let client = stage.trial.client().await;
    let keys: Vec<LockKey> = (0..256).map(|_| stage.trial.key()).collect();
    let seven = |claim: &mut Claim| claim.grants = NonZeroU32::new(7).expect("not zero");
    let mut turns: Vec<Vec<TokenRange>> = Vec::new();
    for _ in 0..3 {
        stage.ask(&["CONFIG", "RESETSTAT"]);
        let claims = keys
            .iter()
            .map(|key| client.claim_as(key, Mode::Exclusive, seven));
        let claims: Vec<_> = claims.collect();
        let grants = join_all(claims.iter().map(|claim| client.granted(claim))).await;
        turns.push(grants.iter().map(|grant| grant.tokens.expect("tokens")).collect());
        let greatest = turns.iter().flatten().map(|run| run.last()).max();
        assert_eq!(
            stage.text(&["GET", "tenure_tokens"]),
            greatest.expect("there are many").to_string(),
            "every token that was given out is counted"
        );
        let departed = join_all(claims.iter().map(|claim| client.release(claim))).await;
        for (claim, departed) in claims.iter().zip(departed) {
            departed.freed_it(claim);
            assert_eq!(departed.others, Some(0));
        }
        let calls = stage.scripts_called();
        assert!(calls < 128, "{calls} calls for 256 claims that came and went");
    }
    for turns in turns.windows(2) {
        for (before, after) in turns[0].iter().zip(&turns[1]) {
            assert!(before.last() < after.first(), "{after:?} after {before:?}");
        }
    }
    assert!(turns.iter().flatten().all(|run| run.count().get() == 7));
    are_apart(turns.concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_caller_is_not_gathered() {
    let (stage, client, key) = Stage::one().await;
    stage.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let claims = [(); 5].map(|()| client.claim(&key, Mode::Exclusive));
    for claim in &claims {
        client.granted(claim).await;
        client.release(claim).await.freed_it(claim);
    }
    // The script for many has the lock's name behind other keys, those for one have it first.
    let calls = stage.text(&["SLOWLOG", "GET", "100"]);
    let ways = [
        format!(" 4 {key} tenure_tokens "),
        format!(" 1 {key} "),
        format!(" tenure_doubts:{} {key} ", claims[0].at.id.client()),
    ];
    assert_eq!(ways.map(|keys| calls.matches(&*keys).count()), [5, 5, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_unusual_about_one_claim_is_no_trouble_of_those_beside_it() {
    let scene = Scene::new().await;
    let (stage, client) = (&scene.stage, &scene.client);
    let mut claims = scene.claims(MANY);
    let own = |key: LockKey| client.claim(&key, Mode::Exclusive);
    let [text, javas, read_write, queued, twice] = [(); 5].map(|()| scene.key());
    stage.ask(&["SET", text.as_str(), "somebody's"]);
    java_holds(stage, &javas, 20_000);
    stage.ask(&["HSET", read_write.as_str(), "mode", "read", JAVA, "1"]);
    java_queues(stage, &queued, JAVA, Some(60_000));
    let ended = own(scene.key());
    scene.granted(&ended).await;
    released(&scene.store, departure(&ended)).await;
    java_holds(stage, &ended.at.key, 20_000);
    // Its end overtook it, which only the record says.
    let overtaken = own(scene.key());
    let doubts = format!("tenure_doubts:{}", overtaken.at.id.client());
    stage.ask(&["SET", &record(&overtaken), "E", "PX", "20000"]);
    stage.ask(&["SET", &doubts, "1", "PX", "20000"]);
    let again = own(scene.key());
    let grant = scene.granted(&again).await;
    let fair = client.fair(&javas, Mode::Exclusive);
    let unusual = [text, javas, read_write, queued.clone(), twice.clone(), twice];
    claims.extend(unusual.map(own));
    claims.extend([fair, ended, overtaken, again]);
    claims.extend(scene.claims(20));
    stage.ask(&["CONFIG", "RESETSTAT"]);
    let mut answers = scene.answers(&claims).await.into_iter();
    assert!(answers.by_ref().take(MANY).all(|answer| is_granted(&answer)));
    let mut next = || answers.next().expect("each is answered");
    assert_eq!(next().expect_err("it is no lock").fault(), Fault::Store);
    match next() {
        Ok(AcquireReply::Waiting { ahead, poll_after }) => {
            assert_eq!((ahead, poll_after), (None, Duration::from_secs(1)));
        }
        java => panic!("{java:?}"),
    }
    let read_write = next().expect_err("it is another kind").fault();
    assert!(matches!(read_write, Fault::Mismatch { .. }), "{read_write:?}");
    assert!(is_waiting(&next()), "Java queues");
    assert!(!stage.exists(queued.as_str()));
    assert!(is_granted(&next()) && is_waiting(&next()), "two for one key");
    let fair = next();
    assert!(
        matches!(fair, Ok(AcquireReply::Waiting { ahead: Some(0), .. })),
        "{fair:?}"
    );
    for what in ["ended", "overtaken"] {
        let answer = next();
        assert!(matches!(answer, Ok(AcquireReply::Ended)), "{what}: {answer:?}");
    }
    match next() {
        Ok(AcquireReply::Granted(same)) => assert_eq!(same.tokens, grant.tokens),
        again => panic!("{again:?}"),
    }
    assert!(answers.all(|answer| is_granted(&answer)));
    few_calls(stage);
}

/// Which keys a user may touch is looked at before a script begins, and refuses all that travel in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_without_a_right_to_it_is_no_trouble_of_those_beside_it() {
    let scene = Scene::new().await;
    let mut claims = scene.claims(MANY);
    scene.stage.allow_only(&claims);
    let denied = scene.client.claim(&scene.key(), Mode::Exclusive);
    claims.insert(MANY - 5, denied.clone());
    for (claim, answer) in claims.iter().zip(scene.answers(&claims).await) {
        if claim.at == denied.at {
            assert_eq!(answer.expect_err("it has no right").fault(), Fault::Denied);
        } else {
            assert!(is_granted(&answer), "{answer:?}");
        }
    }
}

/// Whoever shortens a lease or dies calls nobody.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_java_polls_within_its_own_lease_also_among_others() {
    let (stage, client, key) = Stage::one_on(Server::gathering()).await;
    java_holds(&stage, &key, 600_000);
    let claim = client.claim_as(&key, Mode::Exclusive, |claim| {
        claim.lease = Duration::from_millis(500);
    });
    assert_eq!(poll_after(&client, &claim).await, claim.lease);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_travel_together_keep_a_lease_a_run_and_a_queue_of_their_own() {
    let scene = Scene::new().await;
    let claims: Vec<_> = (0..MANY)
        .map(|i| {
            let key = LockKey::new(format!("{}{{{i}}}", scene.key())).expect("a key");
            scene.client.claim_as(&key, Mode::Exclusive, |claim| {
                claim.lease = Duration::from_secs(10 * (1 + i as u64 % 3));
                claim.grants = NonZeroU32::new(1 + i as u32 % 5).expect("not zero");
            })
        })
        .collect();
    // On a name that has a hash tag the queue is the name's own: the last ones travel together.
    let stage = &scene.stage;
    java_queues(stage, &claims[MANY - 1].at.key, JAVA, Some(60_000));
    stage.ask(&["CONFIG", "RESETSTAT"]);
    let mut answers = scene.answers(&claims).await;
    assert!(answers.pop().is_some_and(|last| is_waiting(&last)), "Java queues");
    let mut runs = Vec::new();
    for (claim, answer) in claims.iter().zip(answers) {
        let Ok(AcquireReply::Granted(grant)) = answer else {
            panic!("{answer:?}")
        };
        let left = stage.left(claim.at.key.as_str());
        let lease_ms = claim.lease.as_millis() as i64;
        assert!(
            (lease_ms - 5000..=lease_ms).contains(&left),
            "{left} ms of {lease_ms}"
        );
        let run = grant.tokens.expect("tokens");
        assert_eq!(run.count(), claim.grants);
        runs.push(run);
    }
    are_apart(runs);
    few_calls(stage);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_comes_too_late_among_others_is_not_placed_and_they_are() {
    let scene = Scene::new().await;
    let claims = scene.claims(MANY);
    let hurried = |i| i % 3 == 2;
    let asked = scene
        .ask_within(&claims, |i| Duration::from_secs(if hurried(i) { 1 } else { 5 }))
        .await;
    scene.stage.trial.pass(Duration::from_secs(2)).await;
    scene.proxy.heal();
    for (i, answer) in soon(asked).await.iter().enumerate() {
        let key = claims[i].at.key.as_str();
        if hurried(i) {
            assert!(matches!(answer, Ok(AcquireReply::TooLate)), "{answer:?}");
            assert!(!scene.stage.exists(key));
        } else {
            assert!(is_granted(answer), "{answer:?}");
        }
    }
}

/// Ours is a lower bound of the server's clock. Where it was too strict, the server is asked anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_too_late_only_by_what_we_knew_of_the_servers_clock_is_placed() {
    for server in [Server::start(), Server::gathering()] {
        let (stage, client, key) = Stage::one_on(server).await;
        stage.step_ms(60_000);
        let claim = client.claim(&key, Mode::Exclusive);
        let answer = placed(client.backend(), &claim).await;
        assert!(is_granted(&answer), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_leaves_among_others_calls_the_head_of_its_queue() {
    let scene = Scene::new().await;
    let (stage, store) = (&scene.stage, &scene.store);
    let claims = scene.claims(MANY);
    join_all(claims.iter().map(|claim| scene.granted(claim))).await;
    let renewals = claims.iter().map(|claim| RenewRequest::of(claim));
    store.clone().renew(renewals.collect()).await;
    // Java queues for the last, and listens for another; a third was evicted meanwhile,
    // a fourth is no lock any more, and a fifth was forced open and taken by Java.
    let [.., robbed, text, evicted, heard, queued] = &claims[..] else {
        unreachable!("there are many");
    };
    java_queues(stage, &queued.at.key, JAVA, Some(60_000));
    scene.client.evict(evicted, "alice").await;
    stage.ask(&["SET", text.at.key.as_str(), "somebody's"]);
    stage.ask(&["DEL", robbed.at.key.as_str()]);
    java_holds(stage, &robbed.at.key, 60_000);
    let mut listening = listening_to(stage, &queued.at.key, JAVA).await;
    let free = channel(&heard.at.key);
    listening.subscribe(&free).await.expect("it answers");
    stage.ask(&["CONFIG", "RESETSTAT"]);
    let calls = claims.iter().map(|claim| released(store, departure(claim)));
    let answers = soon(join_all(calls)).await;
    few_calls(stage);
    for (claim, answer) in claims.iter().zip(answers) {
        let ReleaseReply::Done { freed, others, .. } = answer else {
            panic!("{:?} was not released", claim.at);
        };
        let left = ![text, evicted, robbed].iter().any(|lost| lost.at == claim.at);
        let waiting = u32::from(claim.at == queued.at || claim.at == heard.at);
        let told = (freed.len(), others);
        assert_eq!(told, (usize::from(left), Some(waiting)), "{:?}", claim.at);
    }
    let mut heard = [called_on(&mut listening).await, called_on(&mut listening).await];
    heard.sort();
    let mut told = [head_channel(&queued.at.key, JAVA), free];
    told.sort();
    assert_eq!(heard, told);
    assert_eq!(stage.text(&["GET", text.at.key.as_str()]), "somebody's");
    let taken = stage.text(&["HGETALL", robbed.at.key.as_str()]);
    assert_eq!(taken, format!("{JAVA} 1"));
    // What the renewal wrote went with its hold.
    assert_eq!(stage.text(&["KEYS", "tenure_claim:*"]), record(evicted));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_answers_all_who_were_gathered() {
    let scene = Scene::new().await;
    let asked = scene.ask(&scene.claims(MANY)).await;
    scene.proxy.cut();
    for answer in soon(asked).await {
        let error = answer.expect_err("it is cut");
        is_error(&error, (Fault::Unavailable, Effect::Unknown), "");
    }
    scene.proxy.heal();
    soon(scene.granted(&scene.claims(1)[0])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_silent_is_given_up_by_all_who_were_gathered() {
    let scene = Scene::new().await;
    let asked = scene.ask(&scene.claims(MANY)).await;
    for answer in soon(asked).await {
        assert_eq!(answer.expect_err("it is silent").effect(), Effect::Unknown);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_gathered_before_the_store_was_closed_is_answered_and_no_connection_is_left() {
    let scene = Scene::new().await;
    let connections = || scene.stage.text(&["CLIENT", "LIST"]).lines().count();
    let all = connections();
    let asked = scene.ask(&scene.claims(MANY)).await;
    scene.store.clone().close().await.expect("it closes");
    scene.proxy.heal();
    assert!(soon(asked).await.iter().all(is_granted));
    wait_until(|| connections() < all);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_gone_before_the_call_was_sent_is_not_placed() {
    let scene = Scene::new().await;
    let claims = scene.claims(MANY);
    drop(scene.ask(&claims).await);
    scene.proxy.heal();
    // What was on its way arrives before this.
    soon(scene.granted(&scene.claims(1)[0])).await;
    for claim in &claims[MANY - 100..] {
        assert!(!scene.stage.exists(claim.at.key.as_str()));
    }
}

/// Nobody hangs whose answer was to come on a runtime that is no more.
#[test]
fn a_runtime_that_ends_answers_all_who_were_gathered() {
    let [theirs, ours] = [(); 2].map(|()| tokio::runtime::Runtime::new().expect("a runtime can be made"));
    let scene = theirs.block_on(Scene::new());
    let asked = ours.block_on(scene.ask(&scene.claims(MANY)));
    theirs.shutdown_background();
    for answer in ours.block_on(soon(asked)) {
        let error = answer.expect_err("its runtime has ended");
        assert_eq!(error.fault(), Fault::Unavailable);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_refuses_those_who_come_and_keeps_nobody_from_leaving() {
    let scene = Scene::new().await;
    let held = scene.claims(MANY);
    join_all(held.iter().map(|claim| scene.client.granted(claim))).await;
    scene.stage.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let departures = held.iter().map(|claim| [departure(claim)].into_iter().collect());
    let leaving = departures.map(|departure| scene.store.clone().release(departure));
    let leaving = tokio::spawn(join_all(leaving));
    for answer in scene.answers(&scene.claims(MANY)).await {
        let refusal = answer.expect_err("it is full");
        is_error(&refusal, (Fault::Unavailable, Effect::None), "");
    }
    for answer in soon(leaving).await.expect("no task fails") {
        let is_freed = matches!(&answer[..], [ReleaseReply::Done { freed, .. }] if freed.len() == 1);
        assert!(is_freed, "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_the_server_forgot_are_taught_again_to_all_who_were_gathered() {
    let scene = Scene::new().await;
    scene.stage.ask(&["SCRIPT", "FLUSH"]);
    assert!(scene.answers(&scene.claims(MANY)).await.iter().all(is_granted));
}
