//! What stands in Redis: keys, fields, times to live, scores and messages, looked at with bare commands.
//! What Java does with it is in `java.rs`, and with real Redisson in the interoperability tests.

mod stage;

use std::time::Duration;

use futures_util::StreamExt;
use stage::{Stage, soon};
use tenure_backend::{Cause, Departure, Fairness, Fault, Holder, Kind, Mode, PASS_WINDOW, Phase, Renewed};

#[tokio::test(flavor = "multi_thread")]
async fn a_mutex_is_one_field_in_a_hash_with_the_lease_as_its_time_to_live() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let claim = client.claim(&key, Mode::Exclusive);
    let grant = client.granted(&claim).await;
    let (name, owner) = (key.as_str(), claim.at.id.to_string());
    assert_eq!(stage.text(&["HGETALL", name]), format!("{owner} 1"));
    let left = stage.number(&["PTTL", name]);
    assert!((59_000..=60_000).contains(&left), "{left} ms of 60 s");
    let record = format!("tenure_claim:{{{name}}}:{owner}");
    let run = grant.tokens.expect("tokens");
    assert_eq!(
        stage.text(&["GET", &record]),
        format!("{}:{}:{}", run.first(), run.count(), claim.label)
    );
    assert_eq!(stage.keys(), [name, record.as_str(), "tenure_tokens"]);
    assert_eq!(stage.text(&["GET", "tenure_tokens"]), run.last().to_string());
    client.release(&claim).await.freed_it(&claim);
    assert_eq!(stage.keys(), [record.as_str(), "tenure_tokens"]);
    let left = stage.number(&["PTTL", &record]);
    assert!((11_000..=12_000).contains(&left), "{left} ms after the end");
}

/// R30: the names of all keys and channels of a lock have the hash tag that Redisson gives them.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_told_with_a_zero_on_redissons_channel() {
    let stage = Stage::new().await;
    let client = stage.trial.client().await;
    let url = stage.redis.lock().url();
    let listening = redis::Client::open(url).expect("a URL");
    let mut listening = listening.get_async_pubsub().await.expect("the server answers");
    for (name, channel) in [
        ("k", "redisson_lock__channel:{k}"),
        ("{a}b", "redisson_lock__channel:{a}b"),
        ("a{b", "redisson_lock__channel:a{b"),
        ("a}b", "redisson_lock__channel:{a}b}"),
    ] {
        listening.subscribe(channel).await.expect("the server answers");
        let key = tenure_backend::LockKey::new(name).expect("a key");
        let claim = client.claim(&key, Mode::Exclusive);
        client.granted(&claim).await;
        client.release(&claim).await;
        let mut messages = listening.on_message();
        let message = soon(messages.next()).await.expect("the connection lasts");
        assert_eq!(
            (message.get_channel_name(), message.get_payload_bytes()),
            (channel, &b"0"[..])
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fair_waiter_stands_in_redissons_list_and_zset_with_a_whole_number() {
    let stage = Stage::new().await;
    let ([holder, waiter], key) = (stage.trial.two().await, stage.trial.key());
    let name = key.as_str();
    let (held, waiting) = (
        holder.fair(&key, Mode::Exclusive),
        waiter.fair(&key, Mode::Exclusive),
    );
    holder.granted(&held).await;
    waiter.waits(&waiting).await;
    let owner = waiting.at.id.to_string();
    let [queue, timeouts, waiters] = ["redisson_lock_queue", "redisson_lock_timeout", "tenure_waiters"]
        .map(|kind| format!("{kind}:{{{name}}}"));
    assert_eq!(stage.text(&["LRANGE", &queue, "0", "-1"]), owner);
    assert_eq!(stage.text(&["ZRANGE", &timeouts, "0", "-1"]), owner);
    let score = stage.number(&["ZSCORE", &timeouts, &owner]);
    let ahead = score - stage.now_ms();
    assert!(
        (59_000..=60_000).contains(&ahead),
        "{ahead} ms, for a lease of 60 s"
    );
    for key in [&queue, &timeouts, &waiters] {
        let left = stage.number(&["PTTL", key]);
        assert!((59_000..=61_000).contains(&left), "{key} lives for {left} ms");
    }
    holder.release(&held).await;
    waiter.granted_soon(&waiting).await;
    for key in [&queue, &timeouts, &waiters] {
        assert_eq!(stage.number(&["EXISTS", key]), 0, "{key}");
    }
}

/// R32: whoever ended how, some seconds after the last lease only the counter is left.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_behind_per_name_once_all_leases_have_ended() {
    let stage = Stage::new().await;
    let [a, b, c] = stage.trial.three().await;
    for _ in 0..3 {
        let key = stage.trial.key();
        let held = a.claim_as(&key, Mode::Exclusive, |claim| claim.lease = stage.trial.brief());
        a.granted(&held).await;
        for client in [&b, &c] {
            let dies = client.claim_as(&key, Mode::Exclusive, |claim| {
                claim.fairness = Fairness::Fifo;
                claim.lease = stage.trial.brief();
            });
            client.waits(&dies).await;
        }
        let withdrawn = c.fair(&key, Mode::Exclusive);
        c.waits(&withdrawn).await;
        c.withdraw(&withdrawn).await;
        let other = stage.trial.key();
        let evicted = a.claim(&other, Mode::Exclusive);
        a.granted(&evicted).await;
        b.evict(&evicted, "alice").await;
        let released = a.fair(&stage.trial.key(), Mode::Exclusive);
        a.granted(&released).await;
        a.release(&released).await;
    }
    stage.trial.pass(Duration::from_secs(75)).await;
    assert_eq!(stage.keys(), ["tenure_tokens"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bar_is_a_holder_that_is_nobody() {
    let stage = Stage::new().await;
    let ([holder, operator], key) = (stage.trial.two().await, stage.trial.key());
    let claim = holder.claim(&key, Mode::Exclusive);
    holder.granted(&claim).await;
    let departure = Departure {
        who: Holder::Claim(claim.at.clone()),
        cause: Cause::Evicted { by: None },
        heir: None,
        bar: PASS_WINDOW,
    };
    operator.depart(departure).await.freed_it(&claim);
    // Its time passes meanwhile, or it is the only one there.
    let fields = stage.text(&["HKEYS", key.as_str()]);
    assert!(fields.is_empty() || fields == "tenure:bar", "{fields}");
    let left = stage.number(&["PTTL", key.as_str()]);
    assert!(left == -2 || (0..=10).contains(&left), "{left} ms");
    assert_eq!(operator.status(&key).await, None, "nobody is shown");
    operator.finds_free(&key, Mode::Exclusive).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_write_lock_of_java_is_a_mismatch_and_is_left_alone() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    stage.ask(&[
        "HSET",
        key.as_str(),
        "mode",
        "read",
        "00000000-0000-4000-8000-000000000000:7",
        "1",
    ]);
    let refusal = client.try_acquire(&client.claim(&key, Mode::Exclusive)).await;
    let fault = Fault::Mismatch {
        held: Kind::ReadWrite,
        asked: Kind::Mutex,
    };
    assert_eq!(refusal.expect_err("it is refused").fault(), fault);
    assert_eq!(stage.number(&["HLEN", key.as_str()]), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_no_lock_is_an_error_and_is_left_alone() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    stage.ask(&["SET", key.as_str(), "somebody's"]);
    for claim in [
        client.claim(&key, Mode::Exclusive),
        client.fair(&key, Mode::Exclusive),
    ] {
        let refusal = client.try_acquire(&claim).await.expect_err("it is refused");
        assert_eq!(refusal.fault(), Fault::Store, "{refusal}");
        assert_eq!(client.status(&key).await, None);
        client.withdraw(&claim).await.freed_nobody();
        let answer = client.renew(&claim).await;
        assert!(matches!(answer, Renewed::Gone(_)), "{answer:?}");
    }
    assert_eq!(stage.text(&["GET", key.as_str()]), "somebody's");
}

/// R17: a lock whose name is that of another lock's queue would break it.
#[tokio::test(flavor = "multi_thread")]
async fn the_names_of_other_locks_queues_and_records_are_refused() {
    let stage = Stage::new().await;
    let client = stage.trial.client().await;
    for name in [
        "tenure_tokens",
        "tenure_claim:{k}:x",
        "redisson_lock_queue:{k}",
        "redisson_lock_timeout:{k}",
    ] {
        let key = tenure_backend::LockKey::new(name).expect("a key");
        let refusal = client.try_acquire(&client.claim(&key, Mode::Exclusive)).await;
        assert_eq!(refusal.expect_err("it is refused").fault(), Fault::Invalid);
        assert_eq!(stage.keys(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_five_hundred_claims_are_renewed_by_one_command() {
    let stage = Stage::new().await;
    let client = stage.trial.client().await;
    let mut claims = Vec::new();
    for _ in 0..1_200 {
        let claim = client.claim(&stage.trial.key(), Mode::Exclusive);
        client.granted(&claim).await;
        claims.push(claim);
    }
    stage.ask(&["CONFIG", "RESETSTAT"]);
    let renewals = claims.iter().map(|claim| tenure_backend::Renewal {
        who: claim.at.clone(),
        lease: claim.lease,
        only: Phase::Granted,
        raise: None,
    });
    let answers = client.renew_all(renewals.collect()).await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Renewed::Alive { .. }))
    );
    let said = stage.text(&["INFO", "commandstats"]);
    assert!(said.contains("cmdstat_evalsha:calls=2,"), "{said}");
}
