//! Claims of many callers in one call: few calls, and nobody's trouble is another's.
//! That such claims keep every rule of the contract is in `conformance.rs`.

mod stage;

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use stage::{Scene, Server, Stage, USER, soon, wait_until};
use tenure_backend::{
    Backend, BackendError, Batch, Cause, Claim, Departure, Effect, Fault, Holder, LockKey, Mode, Phase,
    Released, Renewal, Standing,
};

const JAVA: &str = "00000000-0000-4000-8000-000000000000:7";

/// More than travel alone or wait for two calls under way: the last of them are gathered.
const MANY: usize = 300;

fn is_granted(answer: &Result<Standing, BackendError>) -> bool {
    matches!(answer, Ok(Standing::Granted(_)))
}

fn departure(claim: &Claim) -> Batch<Departure> {
    Batch::from_iter([Departure {
        who: Holder::Claim(claim.at.clone()),
        cause: Cause::Unlocked,
        heir: None,
        bar: Duration::ZERO,
    }])
}

#[tokio::test(flavor = "multi_thread")]
async fn many_claims_at_once_travel_in_few_calls_and_each_has_tokens_of_its_own() {
    let stage = Stage::new().await;
    let client = stage.trial.client().await;
    let keys: Vec<LockKey> = (0..256).map(|_| stage.trial.key()).collect();
    let mut runs = Vec::new();
    for _ in 0..3 {
        stage.ask(&["CONFIG", "RESETSTAT"]);
        let claims: Vec<_> = keys
            .iter()
            .map(|key| {
                client.claim_as(key, Mode::Exclusive, |claim| {
                    claim.grants = NonZeroU32::new(7).expect("not zero");
                })
            })
            .collect();
        let grants = join_all(claims.iter().map(|claim| client.granted(claim))).await;
        runs.push(
            grants
                .iter()
                .map(|grant| grant.tokens.expect("tokens"))
                .collect::<Vec<_>>(),
        );
        let greatest = runs.concat().into_iter().map(|run| run.last()).max();
        assert_eq!(
            stage.text(&["GET", "tenure_tokens"]),
            greatest.expect("there are many").to_string(),
            "every token that was given out is counted"
        );
        for (claim, departed) in claims
            .iter()
            .zip(join_all(claims.iter().map(|claim| client.release(claim))).await)
        {
            departed.freed_it(claim);
            assert_eq!(departed.others, Some(0));
        }
        let calls = stage.scripts_called();
        assert!(calls < 128, "{calls} calls for 256 claims that came and went");
    }
    for turns in runs.windows(2) {
        for (before, after) in turns[0].iter().zip(&turns[1]) {
            assert!(before.last() < after.first(), "{after:?} after {before:?}");
        }
    }
    let mut runs = runs.concat();
    runs.sort_by_key(|run| run.first());
    assert!(runs.iter().all(|run| run.count().get() == 7));
    assert!(
        runs.windows(2).all(|runs| runs[0].last() < runs[1].first()),
        "each token is one claim's"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_caller_is_not_gathered() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
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
    stage.ask(&["HSET", javas.as_str(), JAVA, "1"]);
    stage.ask(&["PEXPIRE", javas.as_str(), "20000"]);
    stage.ask(&["HSET", read_write.as_str(), "mode", "read", JAVA, "1"]);
    stage.ask(&["RPUSH", &format!("redisson_lock_queue:{{{queued}}}"), JAVA]);
    let alive = (stage.now_ms() + 60_000).to_string();
    stage.ask(&[
        "ZADD",
        &format!("redisson_lock_timeout:{{{queued}}}"),
        &alive,
        JAVA,
    ]);
    let ended = own(scene.key());
    scene.granted(&ended).await;
    scene.store.clone().release(departure(&ended)).await;
    stage.ask(&["HSET", ended.at.key.as_str(), JAVA, "1"]);
    stage.ask(&["PEXPIRE", ended.at.key.as_str(), "20000"]);
    // Its end overtook it, which only the record says.
    let overtaken = own(scene.key());
    let record = format!("tenure_claim:{{{}}}:{}", overtaken.at.key, overtaken.at.id);
    stage.ask(&["SET", &record, "E", "PX", "20000"]);
    stage.ask(&[
        "SET",
        &format!("tenure_doubts:{}", overtaken.at.id.client()),
        "1",
        "PX",
        "20000",
    ]);
    let again = own(scene.key());
    let grant = scene.granted(&again).await;
    let fair = client.fair(&javas, Mode::Exclusive);
    let unusual = [
        text,
        javas.clone(),
        read_write,
        queued.clone(),
        twice.clone(),
        twice,
    ]
    .map(own);
    claims.extend(unusual);
    claims.extend([fair, ended, overtaken, again]);
    let plain = scene.claims(20);
    claims.extend(plain.iter().cloned());
    stage.ask(&["CONFIG", "RESETSTAT"]);
    let asked = scene.ask(&claims).await;
    scene.proxy.heal();
    let answers = soon(asked).await;
    let [
        usual @ ..,
        text,
        java,
        read_write,
        behind,
        first,
        second,
        fair,
        ended,
        overtaken,
        again,
    ] = &answers[..MANY + 10]
    else {
        unreachable!("so many were asked for");
    };
    assert!(usual.iter().chain(&answers[MANY + 10..]).all(is_granted));
    assert_eq!(text.as_ref().expect_err("it is no lock").fault(), Fault::Store);
    assert!(matches!(
        read_write.as_ref().expect_err("it is another kind").fault(),
        Fault::Mismatch { .. }
    ));
    let Ok(Standing::Waiting {
        ahead: None,
        poll_after,
    }) = java
    else {
        panic!("{java:?}")
    };
    assert_eq!(*poll_after, Duration::from_secs(1));
    assert!(
        matches!(behind, Ok(Standing::Waiting { .. })),
        "Java queues: {behind:?}"
    );
    assert_eq!(stage.number(&["EXISTS", queued.as_str()]), 0);
    assert!(
        is_granted(first) && matches!(second, Ok(Standing::Waiting { .. })),
        "{first:?} {second:?}"
    );
    assert!(
        matches!(fair, Ok(Standing::Waiting { ahead: Some(0), .. })),
        "{fair:?}"
    );
    assert!(matches!(ended, Ok(Standing::Ended)), "{ended:?}");
    assert!(matches!(overtaken, Ok(Standing::Ended)), "{overtaken:?}");
    let Ok(Standing::Granted(same)) = again else {
        panic!("{again:?}")
    };
    assert_eq!(same.tokens, grant.tokens);
    let calls = stage.scripts_called();
    assert!(calls < 64, "{calls} calls: they have travelled together");
}

/// Which keys a user may touch is looked at before a script begins, and refuses all that travel in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_without_a_right_to_it_is_no_trouble_of_those_beside_it() {
    let scene = Scene::new().await;
    let (stage, client) = (&scene.stage, &scene.client);
    let mut claims = scene.claims(MANY);
    stage.ask(&["ACL", "SETUSER", USER, "resetkeys", "~tenure_*", "~redisson_*"]);
    for claim in &claims {
        stage.ask(&["ACL", "SETUSER", USER, &format!("~{}", claim.at.key)]);
    }
    let denied = client.claim(&scene.key(), Mode::Exclusive);
    claims.insert(MANY - 5, denied.clone());
    let all = scene.ask(&claims).await;
    scene.proxy.heal();
    let answers = all.await;
    for (claim, answer) in claims.iter().zip(&answers) {
        match answer {
            Err(error) => assert!(
                claim.at == denied.at && error.fault() == Fault::Denied,
                "{error:?}"
            ),
            granted => assert!(claim.at != denied.at && is_granted(granted), "{granted:?}"),
        }
    }
}

/// Whoever shortens a lease or dies calls nobody.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_java_polls_within_its_own_lease_also_among_others() {
    let stage = Stage::on(Server::gathering()).await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    stage.ask(&["HSET", key.as_str(), JAVA, "1"]);
    stage.ask(&["PEXPIRE", key.as_str(), "600000"]);
    let claim = client.claim_as(&key, Mode::Exclusive, |claim| {
        claim.lease = Duration::from_millis(500);
    });
    match client.try_acquire(&claim).await {
        Ok(Standing::Waiting { poll_after, .. }) => assert_eq!(poll_after, claim.lease),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_travel_together_keep_a_lease_a_run_and_a_queue_of_their_own() {
    let scene = Scene::new().await;
    let lease = |i: usize| Duration::from_secs(10 * (1 + i as u64 % 3));
    let grants = |i: usize| 1 + i as u32 % 5;
    let claims: Vec<_> = (0..MANY)
        .map(|i| {
            let key = LockKey::new(format!("{}{{{i}}}", scene.key())).expect("a key");
            scene.client.claim_as(&key, Mode::Exclusive, |claim| {
                claim.lease = lease(i);
                claim.grants = NonZeroU32::new(grants(i)).expect("not zero");
            })
        })
        .collect();
    // On a name that has a hash tag the queue is the name's own: the last ones travel together.
    let queued = &claims[MANY - 1].at.key;
    let stage = &scene.stage;
    stage.ask(&["RPUSH", &format!("redisson_lock_queue:{queued}"), JAVA]);
    let alive = (stage.now_ms() + 60_000).to_string();
    stage.ask(&["ZADD", &format!("redisson_lock_timeout:{queued}"), &alive, JAVA]);
    stage.ask(&["CONFIG", "RESETSTAT"]);
    let asked = scene.ask(&claims).await;
    scene.proxy.heal();
    let answers = soon(asked).await;
    let behind = answers.last();
    assert!(
        matches!(behind, Some(Ok(Standing::Waiting { .. }))),
        "Java queues: {behind:?}"
    );
    let mut runs = Vec::new();
    for (i, answer) in answers.iter().enumerate().take(MANY - 1) {
        let Ok(Standing::Granted(grant)) = answer else {
            panic!("{answer:?}")
        };
        let left = stage.number(&["PTTL", claims[i].at.key.as_str()]);
        let lease_ms = lease(i).as_millis() as i64;
        assert!(
            (lease_ms - 5000..=lease_ms).contains(&left),
            "{left} ms of {lease_ms}"
        );
        let run = grant.tokens.expect("tokens");
        assert_eq!(run.count().get(), grants(i));
        runs.push(run);
    }
    runs.sort_by_key(|run| run.first());
    assert!(
        runs.windows(2).all(|runs| runs[0].last() < runs[1].first()),
        "each token is one claim's"
    );
    let calls = stage.scripts_called();
    assert!(calls < 64, "{calls} calls: they have travelled together");
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
            assert!(matches!(answer, Ok(Standing::TooLate)), "{answer:?}");
            assert_eq!(scene.stage.number(&["EXISTS", key]), 0);
        } else {
            assert!(is_granted(answer), "{answer:?}");
        }
    }
}

/// Ours is a lower bound of the server's clock. Where it was too strict, the server is asked anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_too_late_only_by_what_we_knew_of_the_servers_clock_is_placed() {
    for server in [Server::start(), Server::gathering()] {
        let stage = Stage::on(server).await;
        let (client, key) = (stage.trial.client().await, stage.trial.key());
        let step = |ms| stage.redis.lock().clock().expect("it steps").step_ms(ms);
        step(60_000).expect("it steps");
        let claim = client.claim(&key, Mode::Exclusive);
        let place_by = client.now() + Duration::from_secs(5);
        let answer = client.acquire_by(&claim, place_by).await;
        assert!(is_granted(&answer), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_leaves_among_others_calls_the_head_of_its_queue() {
    let scene = Scene::new().await;
    let (stage, store) = (&scene.stage, &scene.store);
    let claims = scene.claims(MANY);
    join_all(claims.iter().map(|claim| scene.granted(claim))).await;
    let renewals = claims.iter().map(|claim| Renewal {
        who: claim.at.clone(),
        lease: claim.lease,
        only: Phase::Granted,
        shorten_only: false,
        raise: None,
    });
    store.clone().renew(renewals.collect()).await;
    // Java queues for the last, and listens for another; a third was evicted meanwhile,
    // a fourth is no lock any more, and a fifth was forced open and taken by Java.
    let [.., robbed, text, evicted, heard, queued] = &claims[..] else {
        unreachable!("there are many");
    };
    let queue = format!("{{{}}}", queued.at.key);
    stage.ask(&["RPUSH", &format!("redisson_lock_queue:{queue}"), JAVA]);
    let alive = (stage.now_ms() + 60_000).to_string();
    stage.ask(&["ZADD", &format!("redisson_lock_timeout:{queue}"), &alive, JAVA]);
    scene.client.evict(evicted, "alice").await;
    stage.ask(&["SET", text.at.key.as_str(), "somebody's"]);
    stage.ask(&["DEL", robbed.at.key.as_str()]);
    stage.ask(&["HSET", robbed.at.key.as_str(), JAVA, "1"]);
    let listening = redis::Client::open(stage.redis.lock().url()).expect("a URL");
    let mut listening = listening.get_async_pubsub().await.expect("the server answers");
    let head = format!("redisson_lock__channel:{queue}:{JAVA}");
    let free = format!("redisson_lock__channel:{{{}}}", heard.at.key);
    listening.subscribe(&head).await.expect("it answers");
    listening.subscribe(&free).await.expect("it answers");
    stage.ask(&["CONFIG", "RESETSTAT"]);
    let calls = claims.iter().map(|claim| store.clone().release(departure(claim)));
    let answers = soon(join_all(calls)).await;
    let calls = stage.scripts_called();
    assert!(calls < 64, "{calls} calls: they have travelled together");
    for (claim, answer) in claims.iter().zip(answers) {
        let Some(Released::Done { freed, others, .. }) = answer.into_iter().next() else {
            panic!("{:?} was not released", claim.at);
        };
        let left = ![text, evicted, robbed].iter().any(|lost| lost.at == claim.at);
        let waiting = u32::from(claim.at == queued.at || claim.at == heard.at);
        assert_eq!(
            (freed.len(), others),
            (usize::from(left), Some(waiting)),
            "{:?}",
            claim.at
        );
    }
    let mut messages = listening.on_message();
    let mut heard = Vec::new();
    for _ in 0..2 {
        heard.push(
            soon(messages.next())
                .await
                .expect("it lasts")
                .get_channel_name()
                .to_owned(),
        );
    }
    heard.sort();
    let mut told = [head, free];
    told.sort();
    assert_eq!(heard, told);
    assert_eq!(stage.text(&["GET", text.at.key.as_str()]), "somebody's");
    assert_eq!(
        stage.text(&["HGETALL", robbed.at.key.as_str()]),
        format!("{JAVA} 1")
    );
    assert_eq!(
        stage.text(&["KEYS", "tenure_claim:*"]),
        format!("tenure_claim:{{{}}}:{}", evicted.at.key, evicted.at.id),
        "what the renewal wrote went with its hold"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_answers_all_who_were_gathered() {
    let scene = Scene::new().await;
    let asked = scene.ask(&scene.claims(MANY)).await;
    scene.proxy.cut();
    for answer in soon(asked).await {
        let error = answer.expect_err("it is cut");
        assert_eq!(
            (error.fault(), error.effect()),
            (Fault::Unavailable, Effect::Unknown),
            "{error}"
        );
    }
    scene.proxy.heal();
    let claim = scene.client.claim(&scene.key(), Mode::Exclusive);
    let place_by = scene.client.now() + Duration::from_secs(5);
    let answer = soon(scene.store.clone().acquire(claim, place_by)).await;
    assert!(is_granted(&answer), "{answer:?}");
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
    let place_by = scene.client.now() + Duration::from_secs(5);
    let last = scene.client.claim(&scene.key(), Mode::Exclusive);
    let answer = soon(scene.store.clone().acquire(last, place_by)).await;
    assert!(is_granted(&answer), "{answer:?}");
    for claim in &claims[MANY - 100..] {
        assert_eq!(scene.stage.number(&["EXISTS", claim.at.key.as_str()]), 0);
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
        assert_eq!(
            answer.expect_err("its runtime has ended").fault(),
            Fault::Unavailable
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_refuses_those_who_come_and_keeps_nobody_from_leaving() {
    let scene = Scene::new().await;
    let held = scene.claims(MANY);
    join_all(held.iter().map(|claim| scene.client.granted(claim))).await;
    scene.stage.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let leaving = held
        .iter()
        .map(|claim| scene.store.clone().release(departure(claim)));
    let leaving = tokio::spawn(join_all(leaving));
    let coming = scene.ask(&scene.claims(MANY)).await;
    scene.proxy.heal();
    for answer in soon(coming).await {
        let refusal = answer.expect_err("it is full");
        assert_eq!(
            (refusal.fault(), refusal.effect()),
            (Fault::Unavailable, Effect::None),
            "{refusal}"
        );
    }
    for answer in soon(leaving).await.expect("no task fails") {
        assert!(
            matches!(&answer[..], [Released::Done { freed, .. }] if freed.len() == 1),
            "{answer:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_the_server_forgot_are_taught_again_to_all_who_were_gathered() {
    let scene = Scene::new().await;
    scene.stage.ask(&["SCRIPT", "FLUSH"]);
    let asked = scene.ask(&scene.claims(MANY)).await;
    scene.proxy.heal();
    assert!(soon(asked).await.iter().all(is_granted));
}
