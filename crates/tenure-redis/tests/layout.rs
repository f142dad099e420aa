//! What stands in Redis of a lock: keys, fields, times to live, scores and messages, looked at with bare commands.
//! What stands there of clients and of ended claims is in `remembered.rs`, what Java does with it in `java.rs` and
//! `java_queue.rs`, and with real Redisson in the interoperability tests.

mod stage;

use std::time::Duration;

use futures_util::StreamExt;
use stage::{Server, Stage, soon};
use tenure_backend::{
    Batch, Cause, Departure, Effect, Fairness, Fault, Heir, Holder, Kind, LockKey, Mode, Phase, Query,
    Released, Renewed,
};
use tenure_testkit::suite::Client;

const JAVA: &str = "00000000-0000-4000-8000-000000000000:7";

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
    let known = format!("tenure_claims:{}", claim.at.id.client());
    assert_eq!(stage.text(&["HGETALL", &known]), format!("label {}", claim.label));
    let left = stage.number(&["PTTL", &known]);
    assert!(
        (101_000..=102_000).contains(&left),
        "{left} ms for a lease of 60 s"
    );
    let run = grant.tokens.expect("tokens");
    assert_eq!(stage.keys(), [name, known.as_str(), "tenure_tokens"]);
    assert_eq!(stage.text(&["GET", "tenure_tokens"]), run.last().to_string());
    client.release(&claim).await.freed_it(&claim);
    assert_eq!(stage.keys(), [known.as_str(), "tenure_tokens"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_of_whom_nothing_is_known_waits_behind_a_queue() {
    let stage = Stage::new().await;
    let ([holder, waiter, newcomer], key) = (stage.trial.three().await, stage.trial.key());
    let held = holder.claim(&key, Mode::Exclusive);
    holder.granted(&held).await;
    waiter.waits(&waiter.fair(&key, Mode::Exclusive)).await;
    holder.release(&held).await.freed_it(&held);
    newcomer.waits(&newcomer.claim(&key, Mode::Exclusive)).await;
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
    // Whoever leaves a queue puts it in order, so one is left to the dead alone.
    for withdraws in [false, true] {
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
        if withdraws {
            let withdrawn = c.fair(&key, Mode::Exclusive);
            c.waits(&withdrawn).await;
            c.withdraw(&withdrawn).await;
        }
        let other = stage.trial.key();
        let evicted = a.claim(&other, Mode::Exclusive);
        a.granted(&evicted).await;
        b.evict(&evicted, "alice").await;
        let released = a.fair(&stage.trial.key(), Mode::Exclusive);
        a.granted(&released).await;
        a.release(&released).await;
    }
    stage.trial.pass(Duration::from_secs(103)).await;
    assert_eq!(stage.keys(), ["tenure_tokens"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bar_is_a_holder_that_is_nobody() {
    let stage = Stage::new().await;
    let ([holder, operator], key) = (stage.trial.two().await, stage.trial.key());
    let (claim, bar) = (holder.claim(&key, Mode::Exclusive), Duration::from_secs(20));
    holder.granted(&claim).await;
    let departure = Departure {
        who: Holder::Claim(claim.at.clone()),
        cause: Cause::Evicted { by: None },
        heir: None,
        bar,
    };
    operator.depart(departure).await.freed_it(&claim);
    assert_eq!(stage.text(&["HGETALL", key.as_str()]), "tenure:bar 1");
    let left = stage.number(&["PTTL", key.as_str()]);
    assert!((19_000..=20_000).contains(&left), "{left} ms");
    assert_eq!(operator.status(&key).await, None, "nobody is shown");
    operator.finds_busy(&key, Mode::Exclusive).await;
    stage.trial.pass(bar).await;
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
    for heir in [false, true] {
        let heir = heir.then(|| Heir {
            claim: client.claim(&key, Mode::Exclusive),
            place_by: client.now() + Duration::from_secs(5),
        });
        let eviction = Departure {
            who: Holder::Claim(client.claim(&key, Mode::Exclusive).at.clone()),
            cause: Cause::Evicted { by: None },
            heir,
            bar: Duration::ZERO,
        };
        let batch = Batch::from_iter([eviction]);
        let answer = client.backend().clone().release(batch).await.pop();
        let Some(Released::Unknown(error)) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(error.fault(), fault);
    }
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
        is_no_mutex(&client, &key).await;
        client.withdraw(&claim).await.freed_nobody();
        let answer = client.renew(&claim).await;
        assert!(matches!(answer, Renewed::Gone(_)), "{answer:?}");
    }
    assert_eq!(stage.text(&["GET", key.as_str()]), "somebody's");
}

/// Nobody waits for what no lock's end will free.
#[tokio::test(flavor = "multi_thread")]
async fn a_hash_of_another_program_is_refused_as_such() {
    for server in [Server::start(), Server::gathering()] {
        let stage = Stage::on(server).await;
        let client = stage.trial.client().await;
        for fields in [&["name", "ada"][..], &[JAVA, "1", "name", "ada"]] {
            let key = stage.trial.key();
            stage.ask(&[&["HSET", key.as_str()], fields].concat());
            for claim in [
                client.claim(&key, Mode::Exclusive),
                client.fair(&key, Mode::Exclusive),
            ] {
                let refusal = client.try_acquire(&claim).await.expect_err("it is refused");
                assert_eq!(
                    (refusal.fault(), refusal.effect()),
                    (Fault::Store, Effect::None),
                    "{refusal}"
                );
                client.withdraw(&claim).await.freed_nobody();
            }
            assert_eq!(stage.number(&["HLEN", key.as_str()]), fields.len() as i64 / 2);
            assert_eq!(stage.number(&["PTTL", key.as_str()]), -1);
        }
        // Java leaves one without an end behind where it asks for a lease that Redis refuses: that is a lock.
        let key = stage.trial.key();
        stage.ask(&["HSET", key.as_str(), JAVA, "1"]);
        let waiting = client.claim(&key, Mode::Exclusive);
        client.waits(&waiting).await;
    }
}

/// What is there and is no mutex is not said to be free.
async fn is_no_mutex(client: &Client, key: &LockKey) {
    let look = client.backend().clone().inspect(Query::Key(key.clone()));
    let refusal = look.await.expect_err("it is no mutex");
    assert_eq!(
        (refusal.fault(), refusal.effect()),
        (Fault::UnknownKind, Effect::None),
        "{refusal}"
    );
}

/// To a script a holder without a name is all of them.
#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_of_a_holder_without_a_name_frees_nobody() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let claim = client.claim(&key, Mode::Exclusive);
    client.granted(&claim).await;
    let nameless = Holder::Foreign { key, id: "".into() };
    let evicted = Departure {
        who: nameless,
        cause: Cause::Evicted { by: None },
        heir: None,
        bar: Duration::ZERO,
    };
    client.depart(evicted).await.freed_nobody();
    client.stays_alive(&claim, Phase::Granted).await;
}

/// An eviction and a look touch mutexes alone: not Java's read-write locks, and not what a program keeps in its hashes.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_mutex_is_neither_shown_nor_evicted() {
    let stage = Stage::new().await;
    let client = stage.trial.client().await;
    let evicted = |who| Departure {
        who,
        cause: Cause::Evicted { by: None },
        heir: None,
        bar: Duration::ZERO,
    };
    let many: Vec<String> = (0..200)
        .flat_map(|n| {
            [
                format!("00000000-0000-4000-8000-000000000000:{n}"),
                "1".to_owned(),
            ]
        })
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (fields, lives, is_read_write) in [
        (&["name", "ada", "home:visits", "7"][..], false, false),
        (&["name", "ada", "home", "seven"][..], true, false),
        (&["cart:17", "2"][..], true, false),
        (&[JAVA, "1", "name", "ada"][..], true, false),
        (&many[..], true, false),
        (
            &["mode", "read", "00000000-0000-4000-8000-000000000000:7", "1"][..],
            true,
            true,
        ),
    ] {
        let key = stage.trial.key();
        let name = key.as_str();
        stage.ask(&[&["HSET", name], fields].concat());
        if lives {
            stage.ask(&["PEXPIRE", name, "60000"]);
        }
        is_no_mutex(&client, &key).await;
        let foreign = Holder::Foreign {
            key: key.clone(),
            id: fields[0].into(),
        };
        for who in [Holder::All(key.clone()), foreign] {
            let batch = Batch::from_iter([evicted(who)]);
            let answer = client.backend().clone().release(batch).await.pop();
            match answer {
                Some(Released::Unknown(error)) => assert!(is_read_write, "{error:?}"),
                Some(Released::Done { freed, .. }) => {
                    assert!(!is_read_write && freed.is_empty(), "{freed:?}")
                }
                None => panic!("no answer"),
            }
        }
        let left = stage.number(&["HLEN", name]);
        assert_eq!(left as usize, fields.len() / 2, "{fields:?}");
    }
}

/// Or the lock would stay for its whole lease, and its holder be told that nobody held it.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_the_server_refuses_is_an_error_and_frees_later() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let claim = client.claim(&key, Mode::Exclusive);
    client.granted(&claim).await;
    stage.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let departure = Departure {
        who: Holder::Claim(claim.at.clone()),
        cause: Cause::Unlocked,
        heir: None,
        bar: Duration::ZERO,
    };
    let batch = Batch::from_iter([departure]);
    match client.backend().clone().release(batch).await.pop() {
        Some(Released::Unknown(error)) => assert_eq!(error.fault(), Fault::Unavailable, "{error:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(stage.number(&["HLEN", key.as_str()]), 1, "it is held");
    stage.ask(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    client.release(&claim).await.freed_it(&claim);
}

/// R17: a lock whose name is that of another lock's queue would break it.
#[tokio::test(flavor = "multi_thread")]
async fn the_names_of_other_locks_queues_and_records_are_refused() {
    let stage = Stage::new().await;
    let client = stage.trial.client().await;
    for name in [
        "tenure_tokens",
        "tenure_claim:{k}:x",
        "tenure_claims:x",
        "tenure_doubts:x",
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
        shorten_only: false,
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
    let records = "return #redis.call('KEYS', 'tenure_claim:*')";
    assert_eq!(stage.number(&["EVAL", records, "0"]), 1_200);
}
