//! What is written down in Redis of clients and of their claims, when, and for how long: of what is held for a while,
//! waits, or has ended while somebody may still ask. What a client knows by itself is in `src/known/tests.rs`.

mod stage;

use std::time::Duration;

use futures_util::future::join;
use stage::{Scene, Stage, soon, wait_until};
use tenure_backend::{
    Backend, Batch, Cause, Claim, Departure, Holder, HolderId, Loss, Mode, Phase, Renewal, Renewed,
};

/// A lock that comes and goes costs nothing for those who never look.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_for_a_while_is_written_down_and_goes_with_its_hold() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let (brief, held) = (
        client.claim(&stage.trial.key(), Mode::Exclusive),
        client.claim(&key, Mode::Exclusive),
    );
    client.granted(&brief).await;
    client.release(&brief).await.freed_it(&brief);
    let run = client.granted(&held).await.tokens.expect("tokens");
    let known = format!("tenure_claims:{}", held.at.id.client());
    let noted = |claim: &Claim| stage.text(&["HGET", &known, &claim.at.id.to_string()]);
    let written = format!("{}:{}:{}", run.first(), run.count(), held.label);
    wait_until(|| noted(&held) == written);
    assert_eq!(noted(&brief), "nil");
    client.release(&held).await.freed_it(&held);
    assert_eq!(noted(&held), "nil");
    let unusual = client.claim_as(&key, Mode::Exclusive, |claim| claim.label = "another".into());
    let run = client.granted(&unusual).await.tokens.expect("tokens");
    let written = format!("{}:{}:another", run.first(), run.count());
    wait_until(|| noted(&unusual) == written);
    let heir = client.claim(&key, Mode::Exclusive);
    client.hand_over(&unusual, &heir).await.freed_it(&unusual);
    assert_eq!(noted(&unusual), "nil");
    // A raise writes it down at once.
    let raise = Renewal {
        who: heir.at.clone(),
        lease: heir.lease,
        only: Phase::Granted,
        shorten_only: false,
        raise: Some(run),
    };
    client.renew_all(vec![raise]).await;
    client.release(&heir).await.freed_it(&heir);
    assert_eq!(noted(&heir), "nil");
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
    wait_until(|| stage.number(&["HLEN", &known]) == 2);
    let left = stage.number(&["PTTL", &known]);
    assert!((71_000..=72_000).contains(&left), "{left} ms for a lease of 60 s");
    let status = other.status(&key).await.expect("it is held");
    assert_eq!(status.holders[0].id, HolderId::Claim(claim.at.id));
    assert_eq!(status.holders[0].token, Some(run.first()));
    assert_eq!(status.holders[0].label.as_deref(), Some(&*claim.label));
    stage.ask(&["DEL", &known]);
    client.stays_alive(&claim, Phase::Granted).await;
    wait_until(|| stage.number(&["HLEN", &known]) == 2);
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

/// What lost its lock before it was written down leaves nothing, nor does whoever is evicted, or hears that it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_written_down_of_who_does_not_hold() {
    let stage = Stage::new().await;
    let [client, operator] = stage.trial.two().await;
    let claims = [(); 4].map(|()| client.claim(&stage.trial.key(), Mode::Exclusive));
    let known = format!("tenure_claims:{}", claims[0].at.id.client());
    for claim in &claims {
        client.granted(claim).await;
    }
    let [robbed, evicted, robbed_later, held] = claims;
    stage.ask(&["DEL", robbed.at.key.as_str()]);
    wait_until(|| stage.number(&["HLEN", &known]) == 4);
    operator.evict(&evicted, "alice").await.freed_it(&evicted);
    stage.ask(&["DEL", robbed_later.at.key.as_str()]);
    let answer = client.renew(&robbed_later).await;
    assert!(matches!(answer, Renewed::Gone(Loss::Missing)), "{answer:?}");
    client.stays_alive(&held, Phase::Granted).await;
    let mut left: Vec<String> = stage
        .text(&["HKEYS", &known])
        .split(' ')
        .map(str::to_owned)
        .collect();
    left.sort();
    assert_eq!(left, [held.at.id.to_string(), "label".to_owned()]);
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
