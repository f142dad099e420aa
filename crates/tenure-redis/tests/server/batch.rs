//! Batched calls: few calls to the server for many claims, and a reply of its own for each claim.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::fixture::*;
use futures_util::future::join_all;
use tenure_backend::{
    AcquireReply, Backend, Claim, Effect, Fault, LockKey, Mode, ReleaseReply, RenewRequest, TokenRange,
};

/// Number of claims that a test sends at once: the first few are sent alone, the others in batches.
const MANY: usize = 300;

/// Asserts that no token is in two ranges.
fn are_apart(mut runs: Vec<TokenRange>) {
    runs.sort_by_key(|run| run.first());
    assert!(
        runs.is_sorted_by(|one, next| one.last() < next.first()),
        "each token is one claim's"
    );
}

/// Asserts fewer than 64 script calls since the statistics were reset: so claims were batched.
fn few_calls(fixture: &Fixture) {
    let calls = fixture.script_calls();
    assert!(calls < 64, "{calls} calls: they have travelled together");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_claims_share_calls_but_no_tokens() {
    let fixture = Fixture::new().await;
    let client = fixture.store.client().await;
    let keys: Vec<LockKey> = (0..256).map(|_| fixture.store.key()).collect();
    let seven = |claim: &mut Claim| claim.grants = NonZeroU32::new(7).expect("not zero");
    let mut turns: Vec<Vec<TokenRange>> = Vec::new();
    for _ in 0..3 {
        fixture.command(&["CONFIG", "RESETSTAT"]);
        let claims = keys
            .iter()
            .map(|key| client.claim_as(key, Mode::Exclusive, seven));
        let claims: Vec<_> = claims.collect();
        let grants = join_all(claims.iter().map(|claim| client.granted(claim))).await;
        turns.push(grants.iter().map(|grant| grant.tokens.expect("tokens")).collect());
        let greatest = turns.iter().flatten().map(|run| run.last()).max();
        assert_eq!(
            fixture.text(&["GET", "tenure_tokens"]),
            greatest.expect("there are many").to_string(),
            "every token that was given out is counted"
        );
        let departed = join_all(claims.iter().map(|claim| client.release(claim))).await;
        for (claim, departed) in claims.iter().zip(departed) {
            departed.freed_it(claim);
            assert_eq!(departed.others, Some(0));
        }
        let calls = fixture.script_calls();
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
async fn a_lone_caller_is_not_batched() {
    let (fixture, client, key) = Fixture::one().await;
    // These calls load the scripts.
    let first = hold(&client, &fixture.store.key()).await;
    client.release(&first).await.freed_it(&first);
    fixture.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let claims = [(); 5].map(|()| client.claim(&key, Mode::Exclusive));
    for claim in &claims {
        client.granted(claim).await;
        client.release(claim).await.freed_it(claim);
    }
    // The batch script has the lock's name behind three other keys; the scripts for single claims have it first.
    let calls = fixture.text(&["SLOWLOG", "GET", "100"]);
    let ways = [
        format!(" 4 {key} tenure_tokens "),
        format!(" 1 {key} "),
        format!(" tenure_in_flight:{} {key} ", claims[0].at.id.client()),
    ];
    assert_eq!(ways.map(|keys| calls.matches(&*keys).count()), [5, 5, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusual_claim_does_not_affect_its_batch() {
    let proxied = ProxiedFixture::new().await;
    let (fixture, client) = (&proxied.fixture, &proxied.client);
    let mut claims = proxied.claims(MANY);
    let own = |key: LockKey| client.claim(&key, Mode::Exclusive);
    let [text, javas, read_write, queued, twice] = [(); 5].map(|()| proxied.key());
    fixture.command(&["SET", text.as_str(), "foreign data"]);
    java_hold(fixture, &javas, 20_000);
    fixture.command(&["HSET", read_write.as_str(), "mode", "read", JAVA, "1"]);
    java_enqueue(fixture, &queued, JAVA, Some(60_000));
    let ended = own(proxied.key());
    proxied.granted(&ended).await;
    release(&proxied.store, unlock_of(&ended)).await;
    java_hold(fixture, &ended.at.key, 20_000);
    // The claim's release has overtaken its acquire request. Only the record in Redis shows that.
    let overtaken = own(proxied.key());
    let in_flight = format!("tenure_in_flight:{}", overtaken.at.id.client());
    fixture.command(&["SET", &record(&overtaken), "E", "PX", "20000"]);
    fixture.command(&["SET", &in_flight, "1", "PX", "20000"]);
    let again = own(proxied.key());
    let grant = proxied.granted(&again).await;
    let fair = client.fair(&javas, Mode::Exclusive);
    let unusual = [text, javas, read_write, queued.clone(), twice.clone(), twice];
    claims.extend(unusual.map(own));
    claims.extend([fair, ended, overtaken, again]);
    claims.extend(proxied.claims(20));
    fixture.command(&["CONFIG", "RESETSTAT"]);
    let mut answers = proxied.acquire_batched(&claims).await.into_iter();
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
    assert!(!fixture.exists(queued.as_str()));
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
    few_calls(fixture);
}

/// Redis checks key permissions before it runs the script, and refuses the whole batch. The client then sends each
/// claim alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_without_permission_does_not_affect_its_batch() {
    let proxied = ProxiedFixture::new().await;
    let mut claims = proxied.claims(MANY);
    proxied.fixture.permit_only(&claims);
    let denied = proxied.client.claim(&proxied.key(), Mode::Exclusive);
    claims.insert(MANY - 5, denied.clone());
    for (claim, answer) in claims.iter().zip(proxied.acquire_batched(&claims).await) {
        if claim.at == denied.at {
            assert_eq!(answer.expect_err("it has no right").fault(), Fault::Denied);
        } else {
            assert!(is_granted(&answer), "{answer:?}");
        }
    }
}

/// A holder that dies, or whose lease Java shortens, publishes nothing. So a waiter polls at least once in its own
/// lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_batched_claim_polls_within_its_own_lease() {
    let (fixture, client, key) = Fixture::one_on(Server::batching()).await;
    java_hold(&fixture, &key, 600_000);
    let claim = client.claim_as(&key, Mode::Exclusive, |claim| {
        claim.lease = Duration::from_millis(500);
    });
    assert_eq!(poll_after(&client, &claim).await, claim.lease);
}

#[tokio::test(flavor = "multi_thread")]
async fn batched_claims_keep_their_own_lease_tokens_and_queue() {
    let proxied = ProxiedFixture::new().await;
    let claims: Vec<_> = (0..MANY)
        .map(|i| {
            let key = LockKey::new(format!("{}{{{i}}}", proxied.key())).expect("a key");
            proxied.client.claim_as(&key, Mode::Exclusive, |claim| {
                claim.lease = Duration::from_secs(10 * (1 + i as u64 % 3));
                claim.grants = NonZeroU32::new(1 + i as u32 % 5).expect("not zero");
            })
        })
        .collect();
    // Java queues for the last key. Since the key has a hash tag, the queue's name has no further braces.
    let fixture = &proxied.fixture;
    java_enqueue(fixture, &claims[MANY - 1].at.key, JAVA, Some(60_000));
    fixture.command(&["CONFIG", "RESETSTAT"]);
    let mut answers = proxied.acquire_batched(&claims).await;
    assert!(answers.pop().is_some_and(|last| is_waiting(&last)), "Java queues");
    let mut runs = Vec::new();
    for (claim, answer) in claims.iter().zip(answers) {
        let Ok(AcquireReply::Granted(grant)) = answer else {
            panic!("{answer:?}")
        };
        let left = fixture.left(claim.at.key.as_str());
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
    few_calls(fixture);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_claim_is_declined_and_its_batch_is_placed() {
    let proxied = ProxiedFixture::new().await;
    let claims = proxied.claims(MANY);
    let hurried = |i| i % 3 == 2;
    let asked = proxied
        .acquire_all_within(&claims, |i| Duration::from_secs(if hurried(i) { 1 } else { 5 }))
        .await;
    proxied.fixture.store.pass(Duration::from_secs(2)).await;
    proxied.proxy.heal();
    for (i, answer) in soon(asked).await.iter().enumerate() {
        let key = claims[i].at.key.as_str();
        if hurried(i) {
            assert!(matches!(answer, Ok(AcquireReply::TooLate)), "{answer:?}");
            assert!(!proxied.fixture.exists(key));
        } else {
            assert!(is_granted(answer), "{answer:?}");
        }
    }
}

/// The client converts `not_after` to server time by a lower bound of the server's clock. If the bound was too low,
/// the server refuses the claim as late, and the client sends it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_only_seems_late_is_sent_again_and_placed() {
    for server in [Server::start(), Server::batching()] {
        let (fixture, client, key) = Fixture::one_on(server).await;
        fixture.step_ms(60_000);
        let claim = client.claim(&key, Mode::Exclusive);
        let answer = acquire(client.backend(), &claim).await;
        assert!(is_granted(&answer), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batched_release_wakes_the_head_of_its_queue() {
    let proxied = ProxiedFixture::new().await;
    let (fixture, store) = (&proxied.fixture, &proxied.store);
    let claims = proxied.claims(MANY);
    join_all(claims.iter().map(|claim| proxied.granted(claim))).await;
    let renewals = claims.iter().map(|claim| RenewRequest::of(claim));
    store.clone().renew(renewals.collect()).await;
    // The keys of the last claims are unusual. In the order of the names below: Redisson has forced the lock open and
    // holds it; the key is no lock any more; the claim was evicted; Redisson listens to the channel; Redisson waits.
    let [.., robbed, text, evicted, heard, queued] = &claims[..] else {
        unreachable!("there are many");
    };
    java_enqueue(fixture, &queued.at.key, JAVA, Some(60_000));
    proxied.client.evict(evicted, "alice").await;
    fixture.command(&["SET", text.at.key.as_str(), "foreign data"]);
    fixture.command(&["DEL", robbed.at.key.as_str()]);
    java_hold(fixture, &robbed.at.key, 60_000);
    let mut listening = subscribe_to_head(fixture, &queued.at.key, JAVA).await;
    let free = channel(&heard.at.key);
    listening.subscribe(&free).await.expect("it answers");
    fixture.command(&["CONFIG", "RESETSTAT"]);
    let calls = claims.iter().map(|claim| release(store, unlock_of(claim)));
    let answers = soon(join_all(calls)).await;
    few_calls(fixture);
    for (claim, answer) in claims.iter().zip(answers) {
        let ReleaseReply::Done { freed, others, .. } = answer else {
            panic!("{:?} was not released", claim.at);
        };
        let left = ![text, evicted, robbed].iter().any(|lost| lost.at == claim.at);
        let waiting = u32::from(claim.at == queued.at || claim.at == heard.at);
        let told = (freed.len(), others);
        assert_eq!(told, (usize::from(left), Some(waiting)), "{:?}", claim.at);
    }
    let mut heard = [
        next_channel(&mut listening).await,
        next_channel(&mut listening).await,
    ];
    heard.sort();
    let mut told = [head_channel(&queued.at.key, JAVA), free];
    told.sort();
    assert_eq!(heard, told);
    assert_eq!(fixture.text(&["GET", text.at.key.as_str()]), "foreign data");
    let taken = fixture.text(&["HGETALL", robbed.at.key.as_str()]);
    assert_eq!(taken, format!("{JAVA} 1"));
    // The releases deleted the records that the renewals wrote. Only the record of the eviction is left.
    assert_eq!(fixture.text(&["KEYS", "tenure_claim:*"]), record(evicted));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_ends_all_batched_calls() {
    let proxied = ProxiedFixture::new().await;
    let asked = proxied.acquire_all(&proxied.claims(MANY)).await;
    proxied.proxy.cut();
    for answer in soon(asked).await {
        let error = answer.expect_err("it is cut");
        assert_error(&error, (Fault::Unavailable, Effect::Unknown), "");
    }
    proxied.proxy.heal();
    soon(proxied.granted(&proxied.claims(1)[0])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_ends_all_batched_calls() {
    let proxied = ProxiedFixture::new().await;
    let asked = proxied.acquire_all(&proxied.claims(MANY)).await;
    for answer in soon(asked).await {
        assert_eq!(answer.expect_err("it is silent").effect(), Effect::Unknown);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_the_store_completes_queued_calls_then_disconnects() {
    let proxied = ProxiedFixture::new().await;
    let connections = || proxied.fixture.text(&["CLIENT", "LIST"]).lines().count();
    let all = connections();
    let asked = proxied.acquire_all(&proxied.claims(MANY)).await;
    proxied.store.clone().close().await.expect("it closes");
    proxied.proxy.heal();
    assert!(soon(asked).await.iter().all(is_granted));
    wait_until(|| connections() < all);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_call_is_removed_from_its_batch() {
    let proxied = ProxiedFixture::new().await;
    let claims = proxied.claims(MANY);
    drop(proxied.acquire_all(&claims).await);
    proxied.proxy.heal();
    // Requests reach the server in order: once this one is answered, no request of a dropped call is in flight.
    soon(proxied.granted(&proxied.claims(1)[0])).await;
    for claim in &claims[MANY - 100..] {
        assert!(!proxied.fixture.exists(claim.at.key.as_str()));
    }
}

/// Calls whose runtime has ended must fail instead of hanging.
#[test]
fn a_runtime_that_ends_fails_all_batched_calls() {
    let [theirs, ours] = [(); 2].map(|()| tokio::runtime::Runtime::new().expect("a runtime can be made"));
    let proxied = theirs.block_on(ProxiedFixture::new());
    let asked = ours.block_on(proxied.acquire_all(&proxied.claims(MANY)));
    theirs.shutdown_background();
    for answer in ours.block_on(soon(asked)) {
        let error = answer.expect_err("its runtime has ended");
        assert_eq!(error.fault(), Fault::Unavailable);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_refuses_batched_claims_but_not_releases() {
    let proxied = ProxiedFixture::new().await;
    let held = proxied.claims(MANY);
    join_all(held.iter().map(|claim| proxied.client.granted(claim))).await;
    proxied.fixture.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let departures = held.iter().map(|claim| [unlock_of(claim)].into_iter().collect());
    let leaving = departures.map(|departure| proxied.store.clone().release(departure));
    let leaving = tokio::spawn(join_all(leaving));
    for answer in proxied.acquire_batched(&proxied.claims(MANY)).await {
        let refusal = answer.expect_err("it is full");
        assert_error(&refusal, (Fault::Unavailable, Effect::None), "");
    }
    for answer in soon(leaving).await.expect("no task fails") {
        let is_freed = matches!(&answer[..], [ReleaseReply::Done { freed, .. }] if freed.len() == 1);
        assert!(is_freed, "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_scripts_are_loaded_again_for_a_batch() {
    let proxied = ProxiedFixture::new().await;
    proxied.fixture.command(&["SCRIPT", "FLUSH"]);
    assert!(
        proxied
            .acquire_batched(&proxied.claims(MANY))
            .await
            .iter()
            .all(is_granted)
    );
}
