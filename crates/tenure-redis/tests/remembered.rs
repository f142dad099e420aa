//! What is written down in Redis of clients and of their claims, when, and for how long: of what was renewed,
//! waits, or has ended while somebody may still ask. What a client knows by itself is in `src/known/tests.rs`.

mod stage;

use std::time::Duration;

use futures_util::future::join;
use stage::*;
use tenure_backend::{
    AcquireReply, Cause, Claim, HolderId, Loss, Mode, Phase, ReleaseRequest, ReleaseTarget, RenewReply,
    RenewRequest, TokenRange,
};

/// What the record of a claim holds that was granted that run and renewed.
fn written(run: TokenRange, label: &str) -> String {
    format!("G:{}:{}:{label}", run.first(), run.count())
}

/// A renewal of a holder that does not lengthen its lease.
fn shortening(claim: &Claim, lease: Duration) -> RenewRequest {
    RenewRequest {
        lease,
        shorten_only: true,
        ..RenewRequest::of(claim)
    }
}

/// A lock that is released before its first renewal writes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_writes_tokens_and_label_and_the_release_deletes_them() {
    let (stage, client, key) = Stage::one().await;
    let noted = |claim: &Claim| stage.text(&["GET", &record(claim)]);
    let brief = holds(&client, &stage.trial.key()).await;
    client.release(&brief).await.freed_it(&brief);
    assert_eq!(stage.text(&["KEYS", "tenure_claim:*"]), "");
    let held = client.claim(&key, Mode::Exclusive);
    let run = client.granted(&held).await.tokens.expect("tokens");
    assert_eq!(noted(&held), "nil");
    client.stays_alive(&held, Phase::Granted).await;
    assert_eq!(noted(&held), written(run, &held.label));
    client.release(&held).await.freed_it(&held);
    assert_eq!(noted(&held), "nil");
    let unusual = client.claim_as(&key, Mode::Exclusive, |claim| claim.label = "another".into());
    let run = client.granted(&unusual).await.tokens.expect("tokens");
    client.stays_alive(&unusual, Phase::Granted).await;
    assert_eq!(noted(&unusual), written(run, "another"));
    let successor = client.claim(&key, Mode::Exclusive);
    client.hand_over(&unusual, &successor).await.freed_it(&unusual);
    assert_eq!(noted(&unusual), "nil");
    let raise = RenewRequest {
        raise: Some(run),
        ..RenewRequest::of(&successor)
    };
    client.renew_all(vec![raise]).await;
    assert_eq!(noted(&successor), written(run, &successor.label));
    client.release(&successor).await.freed_it(&successor);
    assert_eq!(stage.text(&["KEYS", "tenure_claim:*"]), "");
}

/// A client on a runtime of its own, while the one that connected it has ended.
#[test]
fn what_is_held_is_shown_though_the_runtime_that_connected_has_ended() {
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let server = Server::start();
    let url = server.redis.lock().url();
    let store = runtime().block_on(connect(&url)).expect("it answers");
    runtime().block_on(async {
        let (_stage, other, key) = Stage::one_on(server).await;
        let claim = other.claim(&key, Mode::Exclusive);
        // The first call may find out that the connection has ended.
        let granted = match placed(&store, &claim).await {
            Ok(granted) => granted,
            Err(_) => placed(&store, &claim).await.expect("it connects again"),
        };
        let AcquireReply::Granted(grant) = granted else {
            panic!("{granted:?}")
        };
        let answer = renewed(&store, shortening(&claim, claim.lease)).await;
        assert!(matches!(answer, RenewReply::Alive { .. }), "{answer:?}");
        let status = other.status(&key).await.expect("it is held");
        assert_eq!(status.holders[0].token, grant.tokens.map(|run| run.first()));
    });
}

/// What is written down ends with the lease, also if nobody releases the claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_ends_with_the_lease() {
    let (stage, client, key) = Stage::one().await;
    let claim = holds(&client, &key).await;
    client.stays_alive(&claim, Phase::Granted).await;
    let (of_lock, of_record) = (stage.left(key.as_str()), stage.left(&record(&claim)));
    let is_alike = (of_lock - 100..=of_lock + 5).contains(&of_record);
    assert!(is_alike, "{of_record} ms of {of_lock} ms");
    let brief = shortening(&claim, Duration::from_millis(200));
    client.renew_all(vec![brief]).await;
    wait_until(|| stage.number(&["EXISTS", key.as_str(), &record(&claim)]) == 0);
}

/// The server refuses to write the record, and the claim lives on.
#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_lease_is_confirmed_though_the_servers_memory_is_full() {
    let (stage, client, key) = Stage::one().await;
    let claim = holds(&client, &key).await;
    for (memory, is_written) in [("1", false), ("0", true)] {
        stage.ask(&["CONFIG", "SET", "maxmemory", memory]);
        let answers = client.renew_all(vec![shortening(&claim, claim.lease)]).await;
        assert!(matches!(answers[..], [RenewReply::Alive { .. }]), "{answers:?}");
        assert_eq!(stage.exists(&record(&claim)), is_written);
    }
}

/// R4: where a request may still come there is a record; where none can, there is none.
#[tokio::test(flavor = "multi_thread")]
async fn only_an_end_that_a_request_may_outlive_is_remembered_in_redis() {
    let (stage, [client, elsewhere], key) = Stage::two().await;
    let records = || stage.text(&["KEYS", "tenure_claim:*"]);
    let released = holds(&client, &key).await;
    let doubts = format!("tenure_doubts:{}", released.at.id.client());
    client.release(&released).await;
    client.release(&released).await;
    holds(&elsewhere, &key).await;
    let withdrawn = queues(&client, &key).await;
    client.withdraw(&withdrawn).await;
    assert_eq!((records().as_str(), stage.exists(&doubts)), ("", false));
    // Nobody here knows whether it was ever sent.
    let unseen = client.claim(&stage.trial.key(), Mode::Exclusive);
    client.withdraw(&unseen).await;
    client.withdraw(&unseen).await;
    let record = record(&unseen);
    assert_eq!(records(), record);
    assert_eq!(stage.text(&["GET", &record]), "E");
    for key in [&record, &doubts] {
        stage.ends_after(key, 12);
    }
}

/// R4: a placement that was never answered, and one that is under way, may arrive after the release.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_remembered_in_redis_while_a_placement_is_in_doubt() {
    let scene = Scene::new().await;
    let (stage, store) = (&scene.stage, &scene.store);
    let release = async |claim: &Claim| {
        let withdrawal = ReleaseRequest {
            cause: Cause::Withdrawn,
            ..departure(claim)
        };
        released(store, withdrawal).await
    };
    let claims = scene.claims(3);
    scene.granted(&claims[0]).await;
    release(&claims[0]).await;
    let asked = scene.ask(&claims[1..2]).await;
    assert!(asked.await[0].is_err(), "it is held up until it is given up");
    scene.proxy.heal();
    release(&claims[1]).await;
    let asked = scene.ask(&claims[2..]).await;
    let released = release(&claims[2]);
    let (answers, ()) = tokio::join!(soon(join(asked, released)), async { scene.proxy.heal() });
    assert!(answers.0[0].is_ok(), "{answers:?}");
    let records = [0, 1, 2].map(|at| stage.text(&["GET", &record(&claims[at])]));
    assert_eq!(records, ["nil", "E", "E"]);
    assert!(!stage.exists(claims[2].at.key.as_str()));
}

/// Whatever became of what was known of a client, who holds is shown as ours, and nothing stays for ever.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_of_a_client_is_written_anew_where_it_was_lost() {
    let (stage, [client, other], key) = Stage::two().await;
    let claim = client.claim(&key, Mode::Exclusive);
    let run = client.granted(&claim).await.tokens.expect("tokens");
    let known = format!("tenure_claims:{}", claim.at.id.client());
    stage.ask(&["DEL", &known]);
    client.stays_alive(&claim, Phase::Granted).await;
    assert_eq!(stage.text(&["HGETALL", &known]), format!("label {}", claim.label));
    stage.ends_after(&known, 72);
    let status = other.status(&key).await.expect("it is held");
    assert_eq!(status.holders[0].id, HolderId::Claim(claim.at.id));
    assert_eq!(status.holders[0].token, Some(run.first()));
    assert_eq!(status.holders[0].label.as_deref(), Some(&*claim.label));
    // Right after, nothing is known of it: the eviction is told all the same.
    stage.ask(&["FLUSHALL"]);
    let young = holds(&client, &key).await;
    other.evict(&young, "alice").await.freed_it(&young);
    is_evicted(&client.renew(&young).await, "alice");
}

/// Whoever takes its record away takes it out of no queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_record_is_gone_leaves_the_queue_when_it_is_granted() {
    let (stage, [holder, waiter, next], key) = Stage::three().await;
    let held = holds(&holder, &key).await;
    let waiting = queues(&waiter, &key).await;
    let behind = next.fair(&key, Mode::Exclusive);
    stage.ask(&["DEL", &record(&waiting)]);
    holder.release(&held).await.freed_it(&held);
    waiter.granted(&waiting).await;
    waiter.release(&waiting).await.freed_it(&waiting);
    next.granted(&behind).await;
}

/// One that Java's scripts took out of the queue is granted as any that waits, and leaves nothing of its wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_java_took_out_of_the_queue_leaves_nothing_of_its_wait() {
    let (stage, [holder, waiter], key) = Stage::two().await;
    let held = holds(&holder, &key).await;
    let waiting = queues(&waiter, &key).await;
    stage.ask(&["DEL", &queue(&key)]);
    stage.ask(&["DEL", &timeouts(&key)]);
    holder.release(&held).await.freed_it(&held);
    waiter.granted(&waiting).await;
    waiter.release(&waiting).await.freed_it(&waiting);
    assert_eq!(stage.text(&["KEYS", "*{*}*"]), "");
}

/// A claim that was robbed, evicted or has heard that it is gone has no tokens left in Redis.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_does_not_hold_leaves_no_tokens() {
    let stage = Stage::new().await;
    let [client, operator] = stage.trial.two().await;
    let claims = [(); 5].map(|()| client.claim(&stage.trial.key(), Mode::Exclusive));
    for claim in &claims {
        client.granted(claim).await;
    }
    let [robbed, robbed_later, evicted, evicted_by_key, held] = &claims;
    stage.ask(&["DEL", robbed.at.key.as_str()]);
    let is_missing = |answer: &RenewReply| matches!(answer, RenewReply::Gone(Loss::Missing));
    let before_its_first_renewal = client.renew(robbed).await;
    assert!(
        is_missing(&before_its_first_renewal),
        "{before_its_first_renewal:?}"
    );
    for claim in [robbed_later, evicted, evicted_by_key, held] {
        client.stays_alive(claim, Phase::Granted).await;
    }
    stage.ask(&["DEL", robbed_later.at.key.as_str()]);
    assert!(is_missing(&client.renew(robbed_later).await), "after it");
    operator.evict(evicted, "alice").await.freed_it(evicted);
    let known = format!("tenure_claims:{}", held.at.id.client());
    stage.ask(&["DEL", &known]);
    let all = eviction(ReleaseTarget::All(evicted_by_key.at.key.clone()));
    operator.depart(all).await.freed_it(evicted_by_key);
    let noted = claims.each_ref().map(|claim| {
        let text = stage.text(&["GET", &record(claim)]);
        text.chars().next().expect("an answer")
    });
    // Nothing, nothing, evicted twice, held.
    assert_eq!(noted, ['n', 'n', 'V', 'V', 'G']);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_claim_is_remembered_for_longer_than_one_that_left() {
    let (stage, [holder, operator], key) = Stage::two().await;
    let claim = holds(&holder, &key).await;
    operator.evict(&claim, "alice").await.freed_it(&claim);
    // Whoever knows nothing of the claim takes it back.
    operator.release(&claim).await.freed_nobody();
    stage.trial.pass(Duration::from_secs(50)).await;
    // Of a lease of 60 s.
    is_evicted(&holder.renew(&claim).await, "alice");
}
