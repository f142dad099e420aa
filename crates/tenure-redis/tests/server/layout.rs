//! The keys, fields, expiry times, scores and messages of a lock in Redis.

use std::sync::Arc;
use std::time::Duration;

use crate::fixture::*;
use tenure_backend::{
    AcquireReply, Claim, Effect, Fault, Kind, LockKey, Mode, Phase, Query, ReleaseRequest, ReleaseTarget,
    RenewReply, RenewRequest, Successor, TURN,
};
use tenure_testkit::suite::TestClient;

#[tokio::test(flavor = "multi_thread")]
async fn a_mutex_is_a_hash_field_that_expires_with_the_lease() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = client.claim(&key, Mode::Exclusive);
    let grant = client.granted(&claim).await;
    let (name, owner) = (key.as_str(), claim.at.id.to_string());
    assert_eq!(fixture.text(&["HGETALL", name]), format!("{owner} 1"));
    fixture.assert_expires_after(name, 60);
    let known = format!("tenure_client:{}", claim.at.id.client());
    assert_eq!(
        fixture.text(&["HGETALL", &known]),
        format!("label {}", claim.label)
    );
    fixture.assert_expires_after(&known, 102);
    let run = grant.tokens.expect("tokens");
    assert_eq!(fixture.keys(), [name, known.as_str(), "tenure_tokens"]);
    assert_eq!(fixture.text(&["GET", "tenure_tokens"]), run.last().to_string());
    client.release(&claim).await.freed_it(&claim);
    assert_eq!(fixture.keys(), [known.as_str(), "tenure_tokens"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_newcomer_waits_behind_a_queue() {
    let (_stage, [holder, waiter, newcomer], key) = Fixture::three().await;
    let held = hold(&holder, &key).await;
    enqueue(&waiter, &key).await;
    holder.release(&held).await.freed_it(&held);
    newcomer.waits(&newcomer.claim(&key, Mode::Exclusive)).await;
}

/// R30: the keys and channels of a lock have the hash tag that Redisson gives them.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_publishes_zero_to_redissons_channel() {
    let fixture = Fixture::new().await;
    let client = fixture.store.client().await;
    let mut listening = subscriber(&fixture).await;
    for (name, channel) in [
        ("k", "redisson_lock__channel:{k}"),
        ("{a}b", "redisson_lock__channel:{a}b"),
        ("a{b", "redisson_lock__channel:a{b"),
        ("a}b", "redisson_lock__channel:{a}b}"),
    ] {
        listening.subscribe(channel).await.expect("the server answers");
        let claim = hold(&client, &LockKey::new(name).expect("a key")).await;
        client.release(&claim).await;
        assert_eq!(next_channel(&mut listening).await, channel);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fair_waiter_is_in_redissons_list_and_zset() {
    let (fixture, [holder, waiter], key) = Fixture::two().await;
    let held = hold(&holder, &key).await;
    let waiting = enqueue(&waiter, &key).await;
    let owner = waiting.at.id.to_string();
    let [queue, timeouts, waiters] = ["redisson_lock_queue", "redisson_lock_timeout", "tenure_waiters"]
        .map(|kind| format!("{kind}:{{{key}}}"));
    assert_eq!(fixture.text(&["LRANGE", &queue, "0", "-1"]), owner);
    assert_eq!(fixture.text(&["ZRANGE", &timeouts, "0", "-1"]), owner);
    let ahead = fixture.score(&key, &owner);
    assert!(
        (59_000..=60_000).contains(&ahead),
        "{ahead} ms, for a lease of 60 s"
    );
    for key in [&queue, &timeouts, &waiters] {
        fixture.assert_expires_after(key, 61);
    }
    holder.release(&held).await;
    waiter.granted_soon(&waiting).await;
    for key in [&queue, &timeouts, &waiters] {
        assert!(!fixture.exists(key), "{key}");
    }
}

/// R32: 103 s after the last call, all leases and records have ended, and only the token counter is left, however the
/// claims ended.
#[tokio::test(flavor = "multi_thread")]
async fn no_key_of_a_lock_remains_after_all_leases() {
    let (fixture, [a, b, c], _) = Fixture::three().await;
    let brief = fixture.store.short_lease();
    // In one case all waiters die. In the other a further one withdraws, which sets the queue's expiry again.
    for withdraws in [false, true] {
        let key = fixture.store.key();
        hold_for(&a, &key, brief).await;
        for client in [&b, &c] {
            enqueue_for(client, &key, brief).await;
        }
        if withdraws {
            let withdrawn = enqueue(&c, &key).await;
            c.withdraw(&withdrawn).await;
        }
        let evicted = hold(&a, &fixture.store.key()).await;
        b.evict(&evicted, "alice").await;
        let released = a.fair(&fixture.store.key(), Mode::Exclusive);
        a.granted(&released).await;
        a.release(&released).await;
    }
    fixture.store.pass(Duration::from_secs(103)).await;
    assert_eq!(fixture.keys(), ["tenure_tokens"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cooldown_holds_the_key_for_no_client() {
    let (fixture, [holder, operator], key) = Fixture::two().await;
    let claim = hold(&holder, &key).await;
    let cooldown = Duration::from_secs(20);
    let evicted = ReleaseRequest {
        cooldown,
        ..eviction_of(ReleaseTarget::Claim(claim.at.clone()))
    };
    operator.send_release(evicted).await.freed_it(&claim);
    assert_eq!(fixture.text(&["HGETALL", key.as_str()]), "tenure:cooldown 1");
    fixture.assert_expires_after(key.as_str(), 20);
    assert_eq!(operator.status(&key).await, None, "no holder is shown");
    operator.finds_busy(&key, Mode::Exclusive).await;
    fixture.store.pass(cooldown).await;
    operator.finds_free(&key, Mode::Exclusive).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutex_claim_leaves_a_read_write_lock_unchanged() {
    let (fixture, client, key) = Fixture::one().await;
    fixture.command(&["HSET", key.as_str(), "mode", "read", JAVA, "1"]);
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
            successor: successor.clone().map(|claim| Successor { claim, not_after }),
            ..eviction_of(ReleaseTarget::Claim(claim().at.clone()))
        };
        let outcome = client.send_release(eviction).await;
        outcome.freed_nothing();
        let Some(successor) = successor else {
            assert!(outcome.successor.is_none(), "{outcome:?}");
            continue;
        };
        let Some(AcquireReply::Waiting {
            ahead: None,
            poll_after: TURN,
        }) = outcome.successor
        else {
            panic!("the successor polls again soon: {outcome:?}");
        };
        let refusal = client.try_acquire(&successor).await;
        assert_eq!(refusal.expect_err("its poll is refused").fault(), fault);
    }
    assert_eq!(fixture.number(&["HLEN", key.as_str()]), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_no_lock_is_refused_and_unchanged() {
    let (fixture, client, key) = Fixture::one().await;
    fixture.command(&["SET", key.as_str(), "foreign data"]);
    for claim in both(&client, &key) {
        let refusal = client.try_acquire(&claim).await.expect_err("it is refused");
        assert_eq!(refusal.fault(), Fault::Store, "{refusal}");
        is_no_mutex(&client, &key).await;
        client.withdraw(&claim).await.freed_nothing();
        let answer = client.renew(&claim).await;
        assert!(matches!(answer, RenewReply::Gone(_)), "{answer:?}");
    }
    assert_eq!(fixture.text(&["GET", key.as_str()]), "foreign data");
}

/// Claims on the hash fail instead of waiting, because no release will free the key.
#[tokio::test(flavor = "multi_thread")]
async fn a_hash_of_another_program_is_refused() {
    for server in [Server::start(), Server::batching()] {
        let fixture = Fixture::on(server).await;
        let client = fixture.store.client().await;
        for fields in [&["name", "ada"][..], &[JAVA, "1", "name", "ada"]] {
            let key = fixture.store.key();
            fixture.command(&[&["HSET", key.as_str()], fields].concat());
            for claim in both(&client, &key) {
                let refusal = client.try_acquire(&claim).await.expect_err("it is refused");
                assert_error(&refusal, (Fault::Store, Effect::None), "");
                client.withdraw(&claim).await.freed_nothing();
            }
            assert_eq!(fixture.number(&["HLEN", key.as_str()]), fields.len() as i64 / 2);
            assert_eq!(fixture.left(key.as_str()), -1);
        }
        // But a claim waits for a lock that Java left without expiry, after it asked for a lease that Redis refuses.
        let key = fixture.store.key();
        fixture.command(&["HSET", key.as_str(), JAVA, "1"]);
        let waiting = client.claim(&key, Mode::Exclusive);
        client.waits(&waiting).await;
    }
}

/// An unfair claim and a fair one.
fn both(client: &TestClient, key: &LockKey) -> [Arc<Claim>; 2] {
    [
        client.claim(key, Mode::Exclusive),
        client.fair(key, Mode::Exclusive),
    ]
}

/// Asserts that inspecting the key fails instead of showing it as free.
async fn is_no_mutex(client: &TestClient, key: &LockKey) {
    let look = client.backend().clone().inspect(Query::Key(key.clone()));
    let refusal = look.await.expect_err("it is no mutex");
    assert_error(&refusal, (Fault::UnknownKind, Effect::None), "");
}

/// With an empty owner, the release script would release all holders.
#[tokio::test(flavor = "multi_thread")]
async fn evicting_an_empty_id_frees_no_holder() {
    let (_stage, client, key) = Fixture::one().await;
    let claim = hold(&client, &key).await;
    let nameless = ReleaseTarget::Foreign { key, id: "".into() };
    client.send_release(eviction_of(nameless)).await.freed_nothing();
    client.stays_alive(&claim, Phase::Granted).await;
}

/// Evicting and inspecting touch neither other programs' hashes nor a read-write lock whose readers are dead.
#[tokio::test(flavor = "multi_thread")]
async fn a_hash_that_is_no_lock_is_neither_shown_nor_evicted() {
    let fixture = Fixture::new().await;
    let client = fixture.store.client().await;
    let owners: Vec<String> = (0..200).map(|n| format!("{JAVA}{n}")).collect();
    let many: Vec<&str> = owners.iter().flat_map(|owner| [owner, "1"]).collect();
    for (fields, lives) in [
        (&["name", "ada", "home:visits", "7"][..], false),
        (&["name", "ada", "home", "seven"][..], true),
        (&["cart:17", "2"][..], true),
        (&[JAVA, "1", "name", "ada"][..], true),
        (&many[..], true),
        (&["mode", "read", JAVA, "1"][..], true),
        (&["mode", "dark", "name", "ada"][..], true),
    ] {
        let key = fixture.store.key();
        let name = key.as_str();
        fixture.command(&[&["HSET", name], fields].concat());
        if lives {
            fixture.command(&["PEXPIRE", name, "60000"]);
        }
        is_no_mutex(&client, &key).await;
        let foreign = ReleaseTarget::Foreign {
            key: key.clone(),
            id: fields[0].into(),
        };
        for who in [ReleaseTarget::All(key.clone()), foreign] {
            client.send_release(eviction_of(who)).await.freed_nothing();
        }
        let left = fixture.number(&["HLEN", name]);
        assert_eq!(left as usize, fields.len() / 2, "{fields:?}");
    }
}

/// If a release that the server refuses counted as done, the lock would stay for its whole lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_release_fails_and_can_be_repeated() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = hold(&client, &key).await;
    fixture.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let error = release_error(client.backend(), unlock_of(&claim)).await;
    assert_eq!(error.fault(), Fault::Unavailable, "{error:?}");
    assert_eq!(fixture.number(&["HLEN", key.as_str()]), 1, "it is held");
    fixture.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    client.release(&claim).await.freed_it(&claim);
}

/// R17: a lock with the name of another lock's queue would break that queue.
#[tokio::test(flavor = "multi_thread")]
async fn reserved_names_are_refused() {
    let fixture = Fixture::new().await;
    let client = fixture.store.client().await;
    for name in [
        "tenure_tokens",
        "tenure_claim:{k}:x",
        "tenure_client:x",
        "tenure_in_flight:x",
        "redisson_lock_queue:{k}",
        "redisson_lock_timeout:{k}",
    ] {
        let key = LockKey::new(name).expect("a key");
        let refusal = client.try_acquire(&client.claim(&key, Mode::Exclusive)).await;
        assert_eq!(refusal.expect_err("it is refused").fault(), Fault::Invalid);
        assert_eq!(fixture.keys(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_claims_are_renewed_in_one_call() {
    let fixture = Fixture::new().await;
    let client = fixture.store.client().await;
    let mut claims = Vec::new();
    for _ in 0..500 {
        claims.push(hold(&client, &fixture.store.key()).await);
    }
    fixture.command(&["CONFIG", "RESETSTAT"]);
    let renewals = claims.iter().map(|claim| RenewRequest::of(claim));
    let answers = client.send_renewals(renewals.collect()).await;
    let is_alive = |answer: &RenewReply| matches!(answer, RenewReply::Alive { .. });
    assert!(answers.iter().all(is_alive));
    assert_eq!(fixture.script_calls(), 1);
    let records = "return #redis.call('KEYS', 'tenure_claim:*')";
    assert_eq!(fixture.number(&["EVAL", records, "0"]), 500);
}
