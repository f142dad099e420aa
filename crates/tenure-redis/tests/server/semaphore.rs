//! Semaphores in the format of Redisson's RPermitExpirableSemaphore, alone and together with Java's permits. Plain
//! Redis commands play Java, with the effects of Redisson's scripts.

use std::fmt::Write;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::fixture::*;
use futures_util::StreamExt;
use tenure_backend::{
    Claim, Effect, Fault, HANDOVER_WINDOW, HolderId, Kind, LockKey, Loss, Mode, Phase, Query, ReleaseRequest,
    ReleaseTarget, RenewReply,
};
use tenure_testkit::suite::TestClient;

/// Two of Java's permits, `PERMIT` and `OTHER_PERMIT`, each of 16 bytes as Redisson draws them.
const PERMIT: &str = "permit-of-java-1";
const OTHER_PERMIT: &str = "permit-of-java-2";

/// The score that Redisson gives to a permit whose lease never ends.
const PERMANENT: i64 = 922_337_203_685_477;

fn permits(take: u32, of: u32) -> Mode {
    let number = |n| NonZeroU32::new(n).expect("not zero");
    Mode::Permits {
        take: number(take),
        of: number(of),
    }
}

/// Key of the zset of taken permits, by Redisson's rule for names with and without a brace.
fn taken(key: &LockKey) -> String {
    match key.as_str().contains('{') {
        true => format!("{key}:timeout"),
        false => format!("{{{key}}}:timeout"),
    }
}

/// Name of a permit as Redisson's API shows it.
fn in_hex(permit: &str) -> String {
    permit.bytes().fold(String::new(), |mut hex, byte| {
        // Writing to a `String` never fails.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Takes a permit as Java does, until `ends`.
fn java_takes(fixture: &Fixture, key: &LockKey, permit: &str, ends: i64) {
    fixture.command(&["DECRBY", key.as_str(), "1"]);
    fixture.command(&["ZADD", &taken(key), &ends.to_string(), permit]);
}

/// Releases a permit as Java does.
fn java_releases(fixture: &Fixture, key: &LockKey, permit: &str) {
    assert_eq!(fixture.number(&["ZREM", &taken(key), permit]), 1);
    let free = fixture.number(&["INCRBY", key.as_str(), "1"]).to_string();
    fixture.command(&["PUBLISH", &tagged("redisson_sc", key), &free]);
}

/// Number of permits that can be taken, and number of those that are taken.
fn counts(fixture: &Fixture, key: &LockKey) -> (i64, i64) {
    let free = fixture.number(&["GET", key.as_str()]);
    (free, fixture.number(&["ZCARD", &taken(key)]))
}

async fn mismatches(client: &TestClient, key: &LockKey, mode: Mode, held: Kind) {
    let claim = client.claim(key, mode);
    let refusal = client.try_acquire(&claim).await.expect_err("another kind");
    let asked = mode.kind();
    assert_eq!(refusal.fault(), Fault::Mismatch { held, asked }, "{refusal}");
    assert_eq!(refusal.effect(), Effect::None, "{refusal}");
}

fn semaphore_of(of: u32) -> Kind {
    permits(1, of).kind()
}

/// Each permit is one member of 16 bytes with a whole number as score: Redisson reads them as `byte[16]` and `long`.
#[tokio::test(flavor = "multi_thread")]
async fn permits_are_members_of_redissons_zset() {
    let fixture = Fixture::new().await;
    let client = fixture.store.client().await;
    for (name, zset) in [
        ("k", "{k}:timeout"),
        ("{a}b", "{a}b:timeout"),
        ("a{b", "a{b:timeout"),
    ] {
        let key = LockKey::new(name).expect("a key");
        let before = fixture.now_ms();
        let claim = client.holds(&key, permits(2, 5)).await;
        assert_eq!(counts(&fixture, &key), (3, 2));
        let redis::Value::Array(members) = fixture.command(&["ZRANGE", zset, "0", "-1", "WITHSCORES"]) else {
            panic!("{zset} is no zset")
        };
        for pair in members.chunks(2) {
            let [redis::Value::BulkString(id), redis::Value::BulkString(score)] = pair else {
                panic!("{pair:?}")
            };
            assert_eq!(id.len(), 16);
            let score: i64 = String::from_utf8_lossy(score).parse().expect("a whole number");
            assert!(
                (before + 60_000..=fixture.now_ms() + 60_001).contains(&score),
                "{score}"
            );
        }
        let holders = tagged("tenure_holders", &key);
        assert_eq!(
            fixture.text(&["ZRANGE", &holders, "0", "-1"]),
            claim.at.id.to_string()
        );
        fixture.assert_expires_after(&holders, 60);
        client.release(&claim).await.freed_it(&claim);
        assert_eq!(counts(&fixture, &key), (5, 0));
    }
    let known = |key: &String| key.starts_with("tenure_client:") || key == "tenure_tokens";
    let rest: Vec<String> = fixture.keys().into_iter().filter(|key| !known(key)).collect();
    assert_eq!(rest, ["a{b", "k", "{a}b"], "only the number of permits stays");
}

/// As in Redisson, the zset gets the expiry of a semaphore that `trySetPermits` made with a time to live.
#[tokio::test(flavor = "multi_thread")]
async fn taken_permits_expire_with_a_semaphore_that_expires() {
    let (fixture, client, key) = Fixture::one().await;
    fixture.command(&["SET", key.as_str(), "3", "PX", "30000"]);
    client.holds(&key, permits(1, 3)).await;
    fixture.assert_expires_after(&taken(&key), 30);
    fixture.assert_expires_after(key.as_str(), 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_permits_are_waited_for_until_their_lease_ends() {
    let (fixture, [a, b], key) = Fixture::two().await;
    fixture.command(&["SET", key.as_str(), "2"]);
    java_takes(&fixture, &key, PERMIT, fixture.now_ms() + 5_000);
    let claim = a.claim(&key, permits(2, 2));
    let poll_after = poll_after(&a, &claim).await;
    assert!(
        (4_000..=5_000).contains(&poll_after.as_millis()),
        "{poll_after:?}"
    );
    b.finds_free(&key, permits(1, 2)).await;
    fixture.store.pass(Duration::from_secs(5)).await;
    a.granted(&claim).await;
    assert_eq!(counts(&fixture, &key), (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_by_java_wakes_our_waiter() {
    let (fixture, client, key) = Fixture::one().await;
    fixture.command(&["SET", key.as_str(), "1"]);
    java_takes(&fixture, &key, PERMIT, PERMANENT);
    let claim = client.claim(&key, permits(1, 1));
    let poll_after = poll_after(&client, &claim).await;
    assert_eq!(
        poll_after,
        Duration::from_secs(60),
        "its own lease: Java's has no end"
    );
    let mut wakes = client.watch(&claim).await.expect("it watches");
    // The confirmed subscription wakes once.
    wait_for_wake(&mut wakes).await;
    java_releases(&fixture, &key, PERMIT);
    wait_for_wake(&mut wakes).await;
    client.granted(&claim).await;
}

/// The first waiter polls every second, because a release by Java does not wake it.
#[tokio::test(flavor = "multi_thread")]
async fn fair_claims_for_permits_are_granted_beside_java() {
    let (fixture, [a, b], key) = Fixture::two().await;
    fixture.command(&["SET", key.as_str(), "2"]);
    java_takes(&fixture, &key, PERMIT, PERMANENT);
    let two = a.fair(&key, permits(2, 2));
    let one = b.fair(&key, permits(1, 2));
    assert_eq!(poll_after(&a, &two).await, Duration::from_secs(1));
    assert_eq!(b.waits(&one).await, Some(1));
    b.finds_busy(&key, permits(1, 2)).await;
    let mut wakes = b.watch(&one).await.expect("it watches");
    wait_for_wake(&mut wakes).await;
    java_releases(&fixture, &key, PERMIT);
    a.granted(&two).await;
    a.release(&two).await.freed_it(&two);
    wait_for_wake(&mut wakes).await;
    b.granted(&one).await;
}

/// Redisson wakes as many waiters as the message says, and fails at a number below zero.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_publishes_the_number_of_free_permits() {
    let (fixture, client, key) = Fixture::one().await;
    let mut listening = subscriber(&fixture).await;
    let channel = tagged("redisson_sc", &key);
    listening.subscribe(&channel).await.expect("the server answers");
    let mut messages = listening.on_message();
    let mut next = async || {
        let message = soon(messages.next()).await.expect("the connection lasts");
        String::from_utf8_lossy(message.get_payload_bytes()).into_owned()
    };
    let [two, one] = [permits(2, 4), permits(1, 4)];
    let (first, second) = (client.holds(&key, two).await, client.holds(&key, one).await);
    client.release(&first).await.freed_it(&first);
    assert_eq!(next().await, "3");
    let cooling = ReleaseRequest {
        cooldown: HANDOVER_WINDOW,
        ..eviction_of(ReleaseTarget::Claim(second.at.clone()))
    };
    client.send_release(cooling).await.freed_it(&second);
    assert_eq!(next().await, "1", "permits that are barred wake their number");
    fixture.store.pass(HANDOVER_WINDOW * 2).await;
    client.holds(&key, one).await;
    assert_eq!(next().await, "4", "and those that ended the number of free ones");
}

/// Java's `setPermits` may make the number of free permits negative.
#[tokio::test(flavor = "multi_thread")]
async fn a_shrunk_semaphore_publishes_no_negative_number() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = client.holds(&key, permits(1, 3)).await;
    java_takes(&fixture, &key, PERMIT, PERMANENT);
    fixture.command(&["SET", key.as_str(), "-2"]);
    let mut listening = subscriber(&fixture).await;
    listening
        .subscribe(tagged("redisson_sc", &key))
        .await
        .expect("the server answers");
    client.release(&claim).await.freed_it(&claim);
    assert_eq!(counts(&fixture, &key), (-1, 1));
    java_releases(&fixture, &key, PERMIT);
    let message = soon(listening.on_message().next())
        .await
        .expect("the connection lasts");
    assert_eq!(
        message.get_payload_bytes(),
        b"0",
        "Java's own message is the first"
    );
}

/// The size is the number of free permits plus that of taken ones, and it stays when all are free.
#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_that_java_made_keeps_its_size() {
    let (fixture, client, key) = Fixture::one().await;
    fixture.command(&["SET", key.as_str(), "5"]);
    for mode in [permits(1, 3), Mode::Exclusive] {
        mismatches(&client, &key, mode, semaphore_of(5)).await;
    }
    java_takes(&fixture, &key, PERMIT, fixture.now_ms() + 1_000);
    mismatches(&client, &key, permits(1, 4), semaphore_of(5)).await;
    let claim = client.holds(&key, permits(4, 5)).await;
    client.release(&claim).await.freed_it(&claim);
    fixture.store.pass(Duration::from_secs(1)).await;
    mismatches(&client, &key, permits(1, 4), semaphore_of(5)).await;
    assert_eq!(fixture.left(key.as_str()), -1, "it does not expire");
}

/// The permits of dead holders stay in Redis until the next claim, also one of another size or kind, removes them.
#[tokio::test(flavor = "multi_thread")]
async fn our_free_semaphore_may_become_another_lock() {
    let (fixture, client, key) = Fixture::one().await;
    for mode in [permits(1, 3), Mode::Exclusive, permits(2, 2)] {
        let dead = client.claim_as(&key, permits(1, 2), |claim| claim.lease = Duration::from_secs(1));
        client.granted(&dead).await;
        fixture.store.pass(Duration::from_millis(1_001)).await;
        let claim = client.holds(&key, mode).await;
        client.release(&claim).await.freed_it(&claim);
        fixture.command(&["DEL", key.as_str()]);
    }
    assert!(!fixture.exists(&taken(&key)));
}

/// R29: a reclaim of all permits in one call would fail once there are thousands.
#[tokio::test(flavor = "multi_thread")]
async fn ended_permits_are_reclaimed_a_thousand_at_a_time() {
    let (fixture, client, key) = Fixture::one().await;
    fixture.command(&["SET", key.as_str(), "0"]);
    let fill = "for i = 1, 9000 do redis.call('ZADD', KEYS[1], 1000, string.format('%016d', i)) end";
    fixture.command(&["EVAL", fill, "1", &taken(&key)]);
    let one = client.holds(&key, permits(1, 9_000)).await;
    assert_eq!(counts(&fixture, &key), (999, 8_001));
    let many = client.holds(&key, permits(1_000, 9_000)).await;
    assert_eq!(
        counts(&fixture, &key),
        (999, 8_001),
        "a claim gets what its call reclaims"
    );
    for claim in [one, many] {
        client.release(&claim).await.freed_it(&claim);
    }
    assert_eq!(counts(&fixture, &key), (2_000, 7_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_permit_stays_taken_in_the_cooldown() {
    let (fixture, [a, b], key) = Fixture::two().await;
    let two = a.holds(&key, permits(2, 4)).await;
    let one = a.holds(&key, permits(1, 4)).await;
    // Longer than a busy machine pauses a test.
    let cooldown = Duration::from_secs(10);
    let cooling = ReleaseRequest {
        cooldown,
        ..eviction_of(ReleaseTarget::Claim(two.at.clone()))
    };
    assert_eq!(b.send_release(cooling).await.freed, [HolderId::Claim(two.at.id)]);
    assert_eq!(counts(&fixture, &key), (1, 3), "the two permits are barred");
    let waits = b.claim(&key, permits(1, 4));
    let poll_after = poll_after(&b, &waits).await;
    assert!(
        poll_after <= cooldown + Duration::from_millis(1),
        "{poll_after:?}: one permit is free, but the key cools"
    );
    let shown = b.status(&key).await.expect("it is held");
    assert_eq!(shown.holders.len(), 1, "{shown:?}");
    fixture.store.pass(cooldown * 2).await;
    b.granted(&waits).await;
    assert_eq!(counts(&fixture, &key), (2, 2));
    a.stays_alive(&one, Phase::Granted).await;
}

/// Lua passes fewer values in a call than this eviction frees permits.
#[tokio::test(flavor = "multi_thread")]
async fn all_holders_of_a_large_semaphore_can_be_evicted() {
    let (fixture, [a, b], key) = Fixture::two().await;
    for _ in 0..5 {
        a.holds(&key, permits(1_000, 5_000)).await;
    }
    let cooldown = Duration::from_secs(10);
    let evicted = ReleaseRequest {
        cooldown,
        ..eviction_of(ReleaseTarget::All(key.clone()))
    };
    assert_eq!(b.send_release(evicted).await.freed.len(), 5);
    assert_eq!(counts(&fixture, &key), (0, 5_000), "all are barred");
    fixture.store.pass(cooldown * 2).await;
    let next = b.claim(&key, permits(1_000, 5_000));
    b.granted_soon(&next).await;
    b.release(&next).await.freed_it(&next);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_holder_of_permits_learns_the_evictor() {
    let (fixture, [a, b], key) = Fixture::two().await;
    let claim = a.holds(&key, permits(2, 2)).await;
    let shown = b.status(&key).await.expect("it is held").holders[0].id.clone();
    let mut request = eviction_of(shown.on(key.clone()));
    request.cause = tenure_backend::Cause::Evicted {
        by: Some("ada".into()),
    };
    b.send_release(request).await.freed_it(&claim);
    assert_evicted_by(&a.renew(&claim).await, "ada");
    assert_eq!(counts(&fixture, &key), (2, 0));
    b.finds_free(&key, permits(2, 2)).await;
}

/// A permit of Java's is a holder, under the name that Redisson's API gives it.
#[tokio::test(flavor = "multi_thread")]
async fn java_permits_are_shown_and_evicted_by_their_name() {
    let (fixture, client, key) = Fixture::one().await;
    fixture.command(&["SET", key.as_str(), "4"]);
    java_takes(&fixture, &key, PERMIT, PERMANENT);
    java_takes(&fixture, &key, OTHER_PERMIT, fixture.now_ms() + 60_000);
    let claim = client.holds(&key, permits(2, 4)).await;
    for status in [
        client.status(&key).await.expect("it is held"),
        client.list("", 10).await.pop().expect("it is listed"),
    ] {
        assert_eq!((&status.key, status.kind), (&key, semaphore_of(4)));
        let shown = status.holders.iter();
        let mut shown: Vec<_> = shown
            .map(|holder| (holder.id.to_string(), holder.mode, holder.remaining.is_some()))
            .collect();
        shown.sort_by_key(|(id, ..)| id.clone());
        let mut expected = [
            (in_hex(PERMIT), permits(1, 4), false),
            (in_hex(OTHER_PERMIT), permits(1, 4), true),
            (claim.at.id.to_string(), permits(2, 4), true),
        ];
        expected.sort_by_key(|(id, ..)| id.clone());
        assert_eq!(shown, expected);
    }
    let one = ReleaseTarget::Foreign {
        key: key.clone(),
        id: in_hex(PERMIT).into(),
    };
    let evicted = client.send_release(eviction_of(one)).await;
    assert_eq!(evicted.freed, [HolderId::Foreign(in_hex(PERMIT).into())]);
    assert_eq!(counts(&fixture, &key), (1, 3));
    let evicted = client
        .send_release(eviction_of(ReleaseTarget::All(key.clone())))
        .await;
    let mut freed: Vec<String> = evicted.freed.iter().map(ToString::to_string).collect();
    freed.sort();
    let mut expected = [in_hex(OTHER_PERMIT), claim.at.id.to_string()];
    expected.sort();
    assert_eq!(freed, expected);
    assert_eq!(counts(&fixture, &key), (4, 0));
    assert_eq!(
        client.is_gone(&claim, Phase::Granted).await,
        Loss::Evicted { by: None }
    );
}

/// Java's `release(id)` takes one permit of a claim away. The claim has then ended, and its other permits are freed
/// when its lease ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_without_one_of_its_permits_has_ended() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = client.holds(&key, permits(3, 3)).await;
    let last = [
        "EVAL",
        "return redis.call('ZREM', KEYS[1], redis.call('ZRANGE', KEYS[1], -1, -1)[1])",
        "1",
    ];
    let zset = taken(&key);
    assert_eq!(fixture.number(&[&last[..], &[&zset]].concat()), 1);
    fixture.command(&["INCRBY", key.as_str(), "1"]);
    let answer = client.renew(&claim).await;
    assert!(matches!(answer, RenewReply::Gone(Loss::Missing)), "{answer:?}");
    client.release(&claim).await.freed_nothing();
    client.finds_free(&key, permits(1, 3)).await;
    client.finds_busy(&key, permits(3, 3)).await;
    fixture.store.pass(Duration::from_secs(60)).await;
    client.finds_free(&key, permits(3, 3)).await;
}

/// Redis may evict the key with the number of free permits from its memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_number_is_restored_from_what_is_taken() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = client.holds(&key, permits(2, 3)).await;
    fixture.command(&["DEL", key.as_str()]);
    client.stays_alive(&claim, Phase::Granted).await;
    client.holds(&key, permits(1, 3)).await;
    client.finds_busy(&key, permits(1, 3)).await;
    assert_eq!(counts(&fixture, &key), (0, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_prolongs_every_permit_of_a_claim() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = client.claim_as(&key, permits(3, 3), |claim| claim.lease = Duration::from_secs(1));
    client.granted(&claim).await;
    fixture.store.pass(Duration::from_millis(600)).await;
    client.stays_alive(&claim, Phase::Granted).await;
    fixture.store.pass(Duration::from_millis(600)).await;
    client.finds_busy(&key, permits(1, 3)).await;
    let status = client.status(&key).await.expect("it is held");
    let holder = &status.holders[0];
    assert_eq!(
        (holder.mode, holder.label.as_ref()),
        (permits(3, 3), Some(&claim.label))
    );
    assert!(holder.token.is_some(), "the renewal wrote the tokens: {holder:?}");
    fixture.store.pass(Duration::from_millis(400)).await;
    client.finds_free(&key, permits(3, 3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_grants_no_permits_and_renews_held_ones() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = client.holds(&key, permits(2, 3)).await;
    fixture.command(&["CONFIG", "SET", "maxmemory", "1"]);
    client.stays_alive(&claim, Phase::Granted).await;
    let refused = acquire(client.backend(), &client.claim(&key, permits(1, 3))).await;
    assert_error(
        &refused.expect_err("it is full"),
        (Fault::Unavailable, Effect::None),
        "`maxmemory`",
    );
    client.release(&claim).await.freed_it(&claim);
    assert_eq!(counts(&fixture, &key), (3, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn strings_of_other_programs_are_no_semaphores() {
    let (fixture, client, key) = Fixture::one().await;
    for value in ["hello", "1.5", "1e3", ""] {
        fixture.command(&["SET", key.as_str(), value]);
        for mode in [permits(1, 3), Mode::Exclusive] {
            let claim = client.claim(&key, mode);
            let refusal = client.try_acquire(&claim).await.expect_err("no semaphore");
            assert_error(&refusal, (Fault::Store, Effect::None), "no lock");
        }
        let query = client.backend().clone().inspect(Query::Key(key.clone())).await;
        assert_eq!(query.expect_err("no semaphore").fault(), Fault::UnknownKind);
        client
            .send_release(eviction_of(ReleaseTarget::All(key.clone())))
            .await
            .freed_nothing();
        assert_eq!(fixture.text(&["GET", key.as_str()]), value);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn huge_claims_for_permits_are_refused() {
    let (_fixture, client, key) = Fixture::one().await;
    let huge = client.claim(&key, permits(1_001, 2_000));
    let refusal = client.try_acquire(&huge).await.expect_err("it is refused");
    assert_error(&refusal, (Fault::Limit, Effect::None), "1000");
    client.finds_free(&key, permits(1_000, 2_000)).await;
}

/// Claims of two clients, with consecutive numbers, never get the same permit.
#[tokio::test(flavor = "multi_thread")]
async fn neighbouring_claims_share_no_permits() {
    let (fixture, [a, b], key) = Fixture::two().await;
    let mut held: Vec<(TestClient, Arc<Claim>)> = Vec::new();
    for round in 1..=20 {
        for client in [&a, &b] {
            let take = 1 + round % 3;
            held.push((client.clone(), client.holds(&key, permits(take, 200)).await));
        }
    }
    let count: i64 = (1..=20).map(|round| 2 * (1 + round % 3)).sum();
    assert_eq!(counts(&fixture, &key), (200 - count, count));
    for (client, claim) in held {
        client.release(&claim).await.freed_it(&claim);
    }
    assert_eq!(counts(&fixture, &key), (200, 0));
}
