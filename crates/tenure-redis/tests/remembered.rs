//! What is written down in Redis of clients and of their claims, when, and for how long: of what was renewed,
//! waits, or has ended while somebody may still ask. What a client knows by itself is in `src/known/tests.rs`.

mod stage;

use std::time::Duration;

use futures_util::future::join;
use stage::{Scene, Server, Stage, connect, soon, wait_until};
use tenure_backend::{
    Backend, Batch, Cause, Claim, Departure, Grant, Holder, HolderId, Loss, Mode, Phase, Renewal, Renewed,
    Standing, TokenRun,
};

/// The record of a claim in Redis, beside its lock.
fn record(claim: &Claim) -> String {
    format!("tenure_claim:{{{}}}:{}", claim.at.key, claim.at.id)
}

/// What the record of a claim holds that was granted that run and renewed.
fn written(run: TokenRun, label: &str) -> String {
    format!("G:{}:{}:{label}", run.first(), run.count())
}

/// A renewal of a holder that does not lengthen its lease.
fn shortening(claim: &Claim, lease: Duration) -> Renewal {
    Renewal {
        who: claim.at.clone(),
        lease,
        only: Phase::Granted,
        shorten_only: true,
        raise: None,
    }
}

/// A lock that is released before its first renewal writes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_writes_tokens_and_label_and_the_release_deletes_them() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let noted = |claim: &Claim| stage.text(&["GET", &record(claim)]);
    let brief = client.claim(&stage.trial.key(), Mode::Exclusive);
    client.granted(&brief).await;
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
    let heir = client.claim(&key, Mode::Exclusive);
    client.hand_over(&unusual, &heir).await.freed_it(&unusual);
    assert_eq!(noted(&unusual), "nil");
    let raise = Renewal {
        who: heir.at.clone(),
        lease: heir.lease,
        only: Phase::Granted,
        shorten_only: false,
        raise: Some(run),
    };
    client.renew_all(vec![raise]).await;
    assert_eq!(noted(&heir), written(run, &heir.label));
    client.release(&heir).await.freed_it(&heir);
    assert_eq!(stage.text(&["KEYS", "tenure_claim:*"]), "");
}

/// A client on a runtime of its own, while the one that connected it has ended.
#[test]
fn what_is_held_is_shown_though_the_runtime_that_connected_has_ended() {
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let server = Server::start();
    let store = runtime()
        .block_on(connect(&server.redis.lock().url()))
        .expect("it answers");
    runtime().block_on(async {
        let stage = Stage::on(server).await;
        let other = stage.trial.client().await;
        let claim = other.claim(&stage.trial.key(), Mode::Exclusive);
        let place_by = store.clock().now() + Duration::from_secs(5);
        let place = || store.clone().acquire(claim.clone(), place_by);
        // The first call may find out that the connection has ended.
        let granted = match place().await {
            Ok(granted) => granted,
            Err(_) => place().await.expect("it connects again"),
        };
        let Standing::Granted(Grant {
            tokens: Some(run), ..
        }) = granted
        else {
            panic!("{granted:?}")
        };
        let renewal = shortening(&claim, claim.lease);
        let renewed = store.clone().renew(Batch::from_iter([renewal])).await;
        assert!(matches!(renewed[..], [Renewed::Alive { .. }]), "{renewed:?}");
        let status = other.status(&claim.at.key).await.expect("it is held");
        assert_eq!(status.holders[0].token, Some(run.first()));
    });
}

/// What is written down ends with the lease, also if nobody releases the claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_ends_with_the_lease() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let claim = client.claim(&key, Mode::Exclusive);
    client.granted(&claim).await;
    client.stays_alive(&claim, Phase::Granted).await;
    let left = |key: &str| stage.number(&["PTTL", key]);
    let (of_lock, of_record) = (left(key.as_str()), left(&record(&claim)));
    assert!(
        (of_lock - 100..=of_lock + 5).contains(&of_record),
        "{of_record} ms of {of_lock} ms"
    );
    client
        .renew_all(vec![shortening(&claim, Duration::from_millis(200))])
        .await;
    wait_until(|| stage.number(&["EXISTS", key.as_str(), &record(&claim)]) == 0);
}

/// The server refuses to write the record, and the claim lives on.
#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_lease_is_confirmed_though_the_servers_memory_is_full() {
    let stage = Stage::new().await;
    let client = stage.trial.client().await;
    let claim = client.claim(&stage.trial.key(), Mode::Exclusive);
    client.granted(&claim).await;
    for (memory, is_written) in [("1", 0), ("0", 1)] {
        stage.ask(&["CONFIG", "SET", "maxmemory", memory]);
        let answers = client.renew_all(vec![shortening(&claim, claim.lease)]).await;
        assert!(matches!(answers[..], [Renewed::Alive { .. }]), "{answers:?}");
        assert_eq!(stage.number(&["EXISTS", &record(&claim)]), is_written);
    }
}

/// R4: where a request may still come there is a record; where none can, there is none.
#[tokio::test(flavor = "multi_thread")]
async fn only_an_end_that_a_request_may_outlive_is_remembered_in_redis() {
    let stage = Stage::new().await;
    let [client, elsewhere] = stage.trial.two().await;
    let records = || stage.text(&["KEYS", "tenure_claim:*"]);
    let doubts = format!(
        "tenure_doubts:{}",
        client.claim(&stage.trial.key(), Mode::Exclusive).at.id.client()
    );
    let released = client.claim(&stage.trial.key(), Mode::Exclusive);
    client.granted(&released).await;
    client.release(&released).await;
    client.release(&released).await;
    let withdrawn = client.fair(&released.at.key, Mode::Exclusive);
    let holder = elsewhere.claim(&released.at.key, Mode::Exclusive);
    elsewhere.granted(&holder).await;
    client.waits(&withdrawn).await;
    client.withdraw(&withdrawn).await;
    assert_eq!(
        (records(), stage.number(&["EXISTS", &doubts])),
        (String::new(), 0)
    );
    // Nobody here knows whether it was ever sent.
    let unseen = client.claim(&stage.trial.key(), Mode::Exclusive);
    client.withdraw(&unseen).await;
    let record = format!("tenure_claim:{{{}}}:{}", unseen.at.key, unseen.at.id);
    client.withdraw(&unseen).await;
    assert_eq!(
        (records(), stage.text(&["GET", &record])),
        (record.clone(), "E".to_owned())
    );
    for key in [&record, &doubts] {
        let left = stage.number(&["PTTL", key]);
        assert!((11_000..=12_000).contains(&left), "{key}: {left} ms");
    }
}

/// R4: a placement that was never answered, and one that is under way, may arrive after the release.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_remembered_in_redis_while_a_placement_is_in_doubt() {
    let scene = Scene::new().await;
    let (stage, store) = (&scene.stage, &scene.store);
    let release = async |claim: &Claim| {
        let departure = Departure {
            who: Holder::Claim(claim.at.clone()),
            cause: Cause::Withdrawn,
            heir: None,
            bar: Duration::ZERO,
        };
        store.clone().release(Batch::from_iter([departure])).await
    };
    let record = |claim: &Claim| {
        stage.text(&[
            "GET",
            &format!("tenure_claim:{{{}}}:{}", claim.at.key, claim.at.id),
        ])
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
    assert_eq!([0, 1, 2].map(|at| record(&claims[at])), ["nil", "E", "E"]);
    assert_eq!(stage.number(&["EXISTS", claims[2].at.key.as_str()]), 0);
}

/// Whatever became of what was known of a client, who holds is shown as ours, and nothing stays for ever.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_of_a_client_is_written_anew_where_it_was_lost() {
    let stage = Stage::new().await;
    let ([client, other], key) = (stage.trial.two().await, stage.trial.key());
    let claim = client.claim(&key, Mode::Exclusive);
    let run = client.granted(&claim).await.tokens.expect("tokens");
    let known = format!("tenure_claims:{}", claim.at.id.client());
    stage.ask(&["DEL", &known]);
    client.stays_alive(&claim, Phase::Granted).await;
    assert_eq!(stage.text(&["HGETALL", &known]), format!("label {}", claim.label));
    let left = stage.number(&["PTTL", &known]);
    assert!((71_000..=72_000).contains(&left), "{left} ms for a lease of 60 s");
    let status = other.status(&key).await.expect("it is held");
    assert_eq!(status.holders[0].id, HolderId::Claim(claim.at.id));
    assert_eq!(status.holders[0].token, Some(run.first()));
    assert_eq!(status.holders[0].label.as_deref(), Some(&*claim.label));
    // Right after, nothing is known of it: the eviction is told all the same.
    stage.ask(&["FLUSHALL"]);
    let young = client.claim(&key, Mode::Exclusive);
    client.granted(&young).await;
    other.evict(&young, "alice").await.freed_it(&young);
    let answer = client.renew(&young).await;
    assert!(
        matches!(&answer, Renewed::Gone(Loss::Evicted { by: Some(by) }) if &**by == "alice"),
        "{answer:?}"
    );
}

/// Whoever takes its record away takes it out of no queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_record_is_gone_leaves_the_queue_when_it_is_granted() {
    let stage = Stage::new().await;
    let ([holder, waiter, next], key) = (stage.trial.three().await, stage.trial.key());
    let held = holder.claim(&key, Mode::Exclusive);
    holder.granted(&held).await;
    let (waiting, behind) = (
        waiter.fair(&key, Mode::Exclusive),
        next.fair(&key, Mode::Exclusive),
    );
    waiter.waits(&waiting).await;
    stage.ask(&["DEL", &format!("tenure_claim:{{{key}}}:{}", waiting.at.id)]);
    holder.release(&held).await.freed_it(&held);
    waiter.granted(&waiting).await;
    waiter.release(&waiting).await.freed_it(&waiting);
    next.granted(&behind).await;
}

/// One that Java's scripts took out of the queue is granted as any that waits, and leaves nothing of its wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_java_took_out_of_the_queue_leaves_nothing_of_its_wait() {
    let stage = Stage::new().await;
    let ([holder, waiter], key) = (stage.trial.two().await, stage.trial.key());
    let (held, waiting) = (
        holder.claim(&key, Mode::Exclusive),
        waiter.fair(&key, Mode::Exclusive),
    );
    holder.granted(&held).await;
    waiter.waits(&waiting).await;
    stage.ask(&["DEL", &format!("redisson_lock_queue:{{{key}}}")]);
    stage.ask(&["DEL", &format!("redisson_lock_timeout:{{{key}}}")]);
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
    let is_missing = |answer: &Renewed| matches!(answer, Renewed::Gone(Loss::Missing));
    assert!(
        is_missing(&client.renew(robbed).await),
        "before its first renewal"
    );
    for claim in [robbed_later, evicted, evicted_by_key, held] {
        client.stays_alive(claim, Phase::Granted).await;
    }
    stage.ask(&["DEL", robbed_later.at.key.as_str()]);
    assert!(is_missing(&client.renew(robbed_later).await), "after it");
    operator.evict(evicted, "alice").await.freed_it(evicted);
    let known = format!("tenure_claims:{}", held.at.id.client());
    stage.ask(&["DEL", &known]);
    let all = Departure {
        who: Holder::All(evicted_by_key.at.key.clone()),
        cause: Cause::Evicted { by: None },
        heir: None,
        bar: Duration::ZERO,
    };
    operator.depart(all).await.freed_it(evicted_by_key);
    let noted = claims.each_ref().map(|claim| {
        let text = stage.text(&["GET", &record(claim)]);
        text.chars().next().expect("an answer")
    });
    assert_eq!(
        noted,
        ['n', 'n', 'V', 'V', 'G'],
        "nothing, nothing, evicted twice, held"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_claim_is_remembered_for_longer_than_one_that_left() {
    let stage = Stage::new().await;
    let ([holder, operator], key) = (stage.trial.two().await, stage.trial.key());
    let claim = holder.claim(&key, Mode::Exclusive);
    holder.granted(&claim).await;
    operator.evict(&claim, "alice").await.freed_it(&claim);
    // Whoever knows nothing of the claim takes it back.
    operator.release(&claim).await.freed_nobody();
    stage.trial.pass(Duration::from_secs(50)).await;
    let answer = holder.renew(&claim).await;
    assert!(
        matches!(&answer, Renewed::Gone(Loss::Evicted { by: Some(by) }) if &**by == "alice"),
        "{answer:?} after 50 s of a lease of 60 s"
    );
}
