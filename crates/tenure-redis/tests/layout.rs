//! What stands in Redis of a lock: keys, fields, times to live, scores and messages, looked at with bare commands.
//! What stands there of clients and of ended claims is in `remembered.rs`, what Java does with it in `java.rs` and
//! `java_queue.rs`, and with real Redisson in the interoperability tests.

mod stage;

use std::sync::Arc;
use std::time::Duration;

use stage::*;
use tenure_backend::{
    Claim, Effect, Fault, Kind, LockKey, Mode, Phase, Query, ReleaseReply, ReleaseRequest, ReleaseTarget,
    RenewReply, RenewRequest, Successor,
};
use tenure_testkit::suite::Client;

#[tokio::test(flavor = "multi_thread")]
async fn a_mutex_is_one_field_in_a_hash_with_the_lease_as_its_time_to_live() {
    let (stage, client, key) = Stage::one().await;
    let claim = client.claim(&key, Mode::Exclusive);
    let grant = client.granted(&claim).await;
    let (name, owner) = (key.as_str(), claim.at.id.to_string());
    assert_eq!(stage.text(&["HGETALL", name]), format!("{owner} 1"));
    stage.ends_after(name, 60);
    let known = format!("tenure_claims:{}", claim.at.id.client());
    assert_eq!(stage.text(&["HGETALL", &known]), format!("label {}", claim.label));
    stage.ends_after(&known, 102);
    let run = grant.tokens.expect("tokens");
    assert_eq!(stage.keys(), [name, known.as_str(), "tenure_tokens"]);
    assert_eq!(stage.text(&["GET", "tenure_tokens"]), run.last().to_string());
    client.release(&claim).await.freed_it(&claim);
    assert_eq!(stage.keys(), [known.as_str(), "tenure_tokens"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_of_whom_nothing_is_known_waits_behind_a_queue() {
    let (_stage, [holder, waiter, newcomer], key) = Stage::three().await;
    let held = holds(&holder, &key).await;
    queues(&waiter, &key).await;
    holder.release(&held).await.freed_it(&held);
    newcomer.waits(&newcomer.claim(&key, Mode::Exclusive)).await;
}

/// R30: the names of all keys and channels of a lock have the hash tag that Redisson gives them.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_told_with_a_zero_on_redissons_channel() {
    let stage = Stage::new().await;
    let client = stage.trial.client().await;
    let mut listening = listening(&stage).await;
    for (name, channel) in [
        ("k", "redisson_lock__channel:{k}"),
        ("{a}b", "redisson_lock__channel:{a}b"),
        ("a{b", "redisson_lock__channel:a{b"),
        ("a}b", "redisson_lock__channel:{a}b}"),
    ] {
        listening.subscribe(channel).await.expect("the server answers");
        let claim = holds(&client, &LockKey::new(name).expect("a key")).await;
        client.release(&claim).await;
        assert_eq!(called_on(&mut listening).await, channel);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fair_waiter_stands_in_redissons_list_and_zset_with_a_whole_number() {
    let (stage, [holder, waiter], key) = Stage::two().await;
    let held = holds(&holder, &key).await;
    let waiting = queues(&waiter, &key).await;
    let owner = waiting.at.id.to_string();
    let [queue, timeouts, waiters] = ["redisson_lock_queue", "redisson_lock_timeout", "tenure_waiters"]
        .map(|kind| format!("{kind}:{{{key}}}"));
    assert_eq!(stage.text(&["LRANGE", &queue, "0", "-1"]), owner);
    assert_eq!(stage.text(&["ZRANGE", &timeouts, "0", "-1"]), owner);
    let ahead = stage.score(&key, &owner);
    assert!(
        (59_000..=60_000).contains(&ahead),
        "{ahead} ms, for a lease of 60 s"
    );
    for key in [&queue, &timeouts, &waiters] {
        stage.ends_after(key, 61);
    }
    holder.release(&held).await;
    waiter.granted_soon(&waiting).await;
    for key in [&queue, &timeouts, &waiters] {
        assert!(!stage.exists(key), "{key}");
    }
}

/// R32: whoever ended how, some seconds after the last lease only the counter is left.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_behind_per_name_once_all_leases_have_ended() {
    let (stage, [a, b, c], _) = Stage::three().await;
    let brief = stage.trial.brief();
    // Whoever leaves a queue puts it in order, so one is left to the dead alone.
    for withdraws in [false, true] {
        let key = stage.trial.key();
        holds_for(&a, &key, brief).await;
        for client in [&b, &c] {
            queues_for(client, &key, brief).await;
        }
        if withdraws {
            let withdrawn = queues(&c, &key).await;
            c.withdraw(&withdrawn).await;
        }
        let evicted = holds(&a, &stage.trial.key()).await;
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
    let (stage, [holder, operator], key) = Stage::two().await;
    let claim = holds(&holder, &key).await;
    let cooldown = Duration::from_secs(20);
    let barred = ReleaseRequest {
        cooldown,
        ..eviction(ReleaseTarget::Claim(claim.at.clone()))
    };
    operator.depart(barred).await.freed_it(&claim);
    assert_eq!(stage.text(&["HGETALL", key.as_str()]), "tenure:cooldown 1");
    stage.ends_after(key.as_str(), 20);
    assert_eq!(operator.status(&key).await, None, "nobody is shown");
    operator.finds_busy(&key, Mode::Exclusive).await;
    stage.trial.pass(cooldown).await;
    operator.finds_free(&key, Mode::Exclusive).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_write_lock_of_java_is_a_mismatch_and_is_left_alone() {
    let (stage, client, key) = Stage::one().await;
    stage.ask(&["HSET", key.as_str(), "mode", "read", JAVA, "1"]);
    let claim = || client.claim(&key, Mode::Exclusive);
    let refusal = client.try_acquire(&claim()).await;
    let fault = Fault::Mismatch {
        held: Kind::ReadWrite,
        asked: Kind::Mutex,
    };
    assert_eq!(refusal.expect_err("it is refused").fault(), fault);
    let not_after = client.now() + Duration::from_secs(5);
    for successor in [None, Some(claim())] {
        let eviction = ReleaseRequest {
            successor: successor.map(|claim| Successor { claim, not_after }),
            ..eviction(ReleaseTarget::Claim(claim().at.clone()))
        };
        let refusal = not_released(client.backend(), eviction).await;
        assert_eq!(refusal.fault(), fault);
    }
    assert_eq!(stage.number(&["HLEN", key.as_str()]), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_no_lock_is_an_error_and_is_left_alone() {
    let (stage, client, key) = Stage::one().await;
    stage.ask(&["SET", key.as_str(), "somebody's"]);
    for claim in both(&client, &key) {
        let refusal = client.try_acquire(&claim).await.expect_err("it is refused");
        assert_eq!(refusal.fault(), Fault::Store, "{refusal}");
        is_no_mutex(&client, &key).await;
        client.withdraw(&claim).await.freed_nobody();
        let answer = client.renew(&claim).await;
        assert!(matches!(answer, RenewReply::Gone(_)), "{answer:?}");
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
            for claim in both(&client, &key) {
                let refusal = client.try_acquire(&claim).await.expect_err("it is refused");
                is_error(&refusal, (Fault::Store, Effect::None), "");
                client.withdraw(&claim).await.freed_nobody();
            }
            assert_eq!(stage.number(&["HLEN", key.as_str()]), fields.len() as i64 / 2);
            assert_eq!(stage.left(key.as_str()), -1);
        }
        // Java leaves one without an end behind where it asks for a lease that Redis refuses: that is a lock.
        let key = stage.trial.key();
        stage.ask(&["HSET", key.as_str(), JAVA, "1"]);
        let waiting = client.claim(&key, Mode::Exclusive);
        client.waits(&waiting).await;
    }
}

/// An unfair claim and a fair one.
fn both(client: &Client, key: &LockKey) -> [Arc<Claim>; 2] {
    [
        client.claim(key, Mode::Exclusive),
        client.fair(key, Mode::Exclusive),
    ]
}

/// What is there and is no mutex is not said to be free.
async fn is_no_mutex(client: &Client, key: &LockKey) {
    let look = client.backend().clone().inspect(Query::Key(key.clone()));
    let refusal = look.await.expect_err("it is no mutex");
    is_error(&refusal, (Fault::UnknownKind, Effect::None), "");
}

/// To a script a holder without a name is all of them.
#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_of_a_holder_without_a_name_frees_nobody() {
    let (_stage, client, key) = Stage::one().await;
    let claim = holds(&client, &key).await;
    let nameless = ReleaseTarget::Foreign { key, id: "".into() };
    client.depart(eviction(nameless)).await.freed_nobody();
    client.stays_alive(&claim, Phase::Granted).await;
}

/// An eviction and a look touch mutexes alone: not Java's read-write locks, and not what a program keeps in its hashes.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_mutex_is_neither_shown_nor_evicted() {
    let stage = Stage::new().await;
    let client = stage.trial.client().await;
    let owners: Vec<String> = (0..200).map(|n| format!("{JAVA}{n}")).collect();
    let many: Vec<&str> = owners.iter().flat_map(|owner| [owner, "1"]).collect();
    for (fields, lives, is_read_write) in [
        (&["name", "ada", "home:visits", "7"][..], false, false),
        (&["name", "ada", "home", "seven"][..], true, false),
        (&["cart:17", "2"][..], true, false),
        (&[JAVA, "1", "name", "ada"][..], true, false),
        (&many[..], true, false),
        (&["mode", "read", JAVA, "1"][..], true, true),
    ] {
        let key = stage.trial.key();
        let name = key.as_str();
        stage.ask(&[&["HSET", name], fields].concat());
        if lives {
            stage.ask(&["PEXPIRE", name, "60000"]);
        }
        is_no_mutex(&client, &key).await;
        let foreign = ReleaseTarget::Foreign {
            key: key.clone(),
            id: fields[0].into(),
        };
        for who in [ReleaseTarget::All(key.clone()), foreign] {
            match released(client.backend(), eviction(who)).await {
                ReleaseReply::Unknown(error) => assert!(is_read_write, "{error:?}"),
                ReleaseReply::Done { freed, .. } => assert!(!is_read_write && freed.is_empty(), "{freed:?}"),
            }
        }
        let left = stage.number(&["HLEN", name]);
        assert_eq!(left as usize, fields.len() / 2, "{fields:?}");
    }
}

/// Or the lock would stay for its whole lease, and its holder be told that nobody held it.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_the_server_refuses_is_an_error_and_frees_later() {
    let (stage, client, key) = Stage::one().await;
    let claim = holds(&client, &key).await;
    stage.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let error = not_released(client.backend(), departure(&claim)).await;
    assert_eq!(error.fault(), Fault::Unavailable, "{error:?}");
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
        let key = LockKey::new(name).expect("a key");
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
        claims.push(holds(&client, &stage.trial.key()).await);
    }
    stage.ask(&["CONFIG", "RESETSTAT"]);
    let renewals = claims.iter().map(|claim| RenewRequest::of(claim));
    let answers = client.renew_all(renewals.collect()).await;
    let is_alive = |answer: &RenewReply| matches!(answer, RenewReply::Alive { .. });
    assert!(answers.iter().all(is_alive));
    assert_eq!(stage.scripts_called(), 2);
    let records = "return #redis.call('KEYS', 'tenure_claim:*')";
    assert_eq!(stage.number(&["EVAL", records, "0"]), 1_200);
}
