//! Read-write locks: their keys, fields, expiry times and messages, next to Java's RReadWriteLock. Plain Redis commands
//! play Java.

use std::sync::Arc;
use std::time::Duration;

use crate::fixture::*;
use futures_util::StreamExt;
use tenure_backend::{
    Claim, Effect, Fairness, Fault, HolderId, Kind, LockKey, Loss, Mode, Phase, ReleaseRequest,
    ReleaseTarget, RenewReply, RenewRequest,
};
use tenure_testkit::suite::TestClient;

/// Redisson 4.7's format: the hash with `mode`, and a key for each hold of a reader.
#[tokio::test(flavor = "multi_thread")]
async fn readers_share_a_hash_and_have_a_key_for_each_lease() {
    let (fixture, [a, b], _) = Fixture::two().await;
    for (name, tag) in [("k", "{k}"), ("{a}b", "{a}b"), ("a{b", "a{b"), ("a}b", "{a}b}")] {
        let key = LockKey::new(name).expect("a key");
        let brief = a.claim_as(&key, Mode::Read, |claim| claim.lease = Duration::from_secs(5));
        let long = b.claim(&key, Mode::Read);
        a.granted(&brief).await;
        assert_eq!(
            fixture.text(&["HGETALL", name]),
            fields("read", &[&owner(&brief)])
        );
        fixture.assert_expires_after(name, 5);
        b.granted(&long).await;
        let [first, second] = [&brief, &long].map(|claim| format!("{tag}:{}:rwlock_timeout:1", owner(claim)));
        assert_eq!(
            fixture.text(&["HGETALL", name]),
            fields("read", &[&owner(&brief), &owner(&long)])
        );
        assert_eq!(fixture.text(&["MGET", &first, &second]), "1 1");
        for (key, seconds) in [(&*first, 5), (&second, 60), (name, 60)] {
            fixture.assert_expires_after(key, seconds);
        }
        b.release(&long).await.freed_it(&long);
        assert_eq!(
            fixture.text(&["HGETALL", name]),
            fields("read", &[&owner(&brief)])
        );
        fixture.assert_expires_after(name, 5);
        a.release(&brief).await.freed_it(&brief);
        let left = fixture.keys();
        assert!(left.iter().all(|key| key.starts_with("tenure_")), "{left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_is_a_field_with_write_behind_its_owner() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = client.claim(&key, Mode::Write);
    let grant = client.granted(&claim).await;
    let (name, writer) = (key.as_str(), format!("{}:write", owner(&claim)));
    assert_eq!(fixture.text(&["HGETALL", name]), fields("write", &[&writer]));
    fixture.assert_expires_after(name, 60);
    let known = format!("tenure_client:{}", claim.at.id.client());
    assert_eq!(fixture.keys(), [name, &known, "tenure_tokens"]);
    let last = grant.tokens.expect("tokens").last().to_string();
    assert_eq!(fixture.text(&["GET", "tenure_tokens"]), last);
    client.release(&claim).await.freed_it(&claim);
    assert_eq!(fixture.keys(), [&*known, "tenure_tokens"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downgraded_writer_has_the_keys_of_a_reader() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = client.holds(&key, Mode::Write).await;
    client.downgrades(&claim).await;
    let name = key.as_str();
    let hold = format!("{{{key}}}:{}:rwlock_timeout:1", owner(&claim));
    assert_eq!(
        fixture.text(&["HGETALL", name]),
        fields("read", &[&owner(&claim)])
    );
    assert_eq!(fixture.text(&["GET", &hold]), "1");
    for key in [name, &hold] {
        fixture.assert_expires_after(key, 60);
    }
    client.release(&claim).await.freed_it(&claim);
    assert!(!fixture.exists(name) && !fixture.exists(&hold));
}

/// A holder's renewal needs only expiry times, which a server with full memory still sets. A downgrade writes: the
/// server refuses it, and the claim stays a writer.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_renews_holders_and_refuses_downgrades() {
    let (fixture, client, key) = Fixture::one().await;
    let reader = client.holds(&fixture.store.key(), Mode::Read).await;
    let writer = client.holds(&key, Mode::Write).await;
    fixture.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for claim in [&reader, &writer] {
        client.stays_alive(claim, Phase::Granted).await;
    }
    match renew(client.backend(), RenewRequest::downgrading(&writer)).await {
        RenewReply::Unknown(error) => assert_error(&error, (Fault::Unavailable, Effect::None), ""),
        other => panic!("{other:?}"),
    }
    let status = client.status(&key).await.expect("it is held");
    assert_eq!(status.holders[0].mode, Mode::Write);
    client.release(&writer).await.freed_it(&writer);
}

/// Redisson's writers and readers listen on one channel. A read unlock sends `0`, a write unlock `1`, each only when
/// the lock becomes free. Our downgrade sends `1`; Redisson's sends nothing.
#[tokio::test(flavor = "multi_thread")]
async fn releases_publish_to_redissons_read_write_channel() {
    let (fixture, [a, b], key) = Fixture::two().await;
    let mut listening = subscriber(&fixture).await;
    let channel = tagged("redisson_rwlock", &key);
    listening.subscribe(&channel).await.expect("the server answers");
    let mut messages = listening.on_message();
    let mut next = async || {
        let message = soon(messages.next()).await.expect("the connection lasts");
        message.get_payload::<String>().expect("text")
    };
    let [one, two] = [a.claim(&key, Mode::Read), b.claim(&key, Mode::Read)];
    a.granted(&one).await;
    b.granted(&two).await;
    a.release(&one).await;
    b.release(&two).await;
    assert_eq!(next().await, "0", "for the second release, not for the first");
    let writer = a.holds(&key, Mode::Write).await;
    a.release(&writer).await;
    assert_eq!(next().await, "1");
    let writer = a.holds(&key, Mode::Write).await;
    a.downgrades(&writer).await;
    assert_eq!(next().await, "1");
    a.downgrades(&writer).await;
    a.release(&writer).await;
    assert_eq!(next().await, "0", "a repeated downgrade sends nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_woken_by_javas_release() {
    let (fixture, client, key) = Fixture::one().await;
    java_write(&fixture, &key, 60_000);
    let waiting = client.claim(&key, Mode::Read);
    let mut wakes = client.watch(&waiting).await.expect("wake-ups");
    client.waits(&waiting).await;
    wait_for_wake(&mut wakes).await;
    fixture.command(&["DEL", key.as_str()]);
    fixture.command(&["PUBLISH", &tagged("redisson_rwlock", &key), "1"]);
    wait_for_wake(&mut wakes).await;
    client.granted(&waiting).await;
}

/// Java's downgrade publishes nothing, so waiters behind a Java writer poll every second.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_look_again_within_a_second_behind_java() {
    let (fixture, client, key) = Fixture::one().await;
    java_write(&fixture, &key, 60_000);
    let readers = [client.claim(&key, Mode::Read), client.fair(&key, Mode::Read)];
    for reader in &readers {
        assert_eq!(poll_after(&client, reader).await, Duration::from_secs(1));
    }
    fixture.command(&["HDEL", key.as_str(), &format!("{JAVA}:write")]);
    java_read(&fixture, &key, &[60_000]);
    for reader in readers.iter().rev() {
        client.granted(reader).await;
    }
    client.waits(&client.claim(&key, Mode::Write)).await;
}

/// Redisson's own read unlock does shorten the writer's lease: a flaw that we do not share.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_unlock_never_shortens_a_writers_lease() {
    let (fixture, client, key) = Fixture::one().await;
    let reader = client.holds(&key, Mode::Read).await;
    java_write(&fixture, &key, 120_000);
    client.release(&reader).await.freed_it(&reader);
    fixture.assert_expires_after(key.as_str(), 120);
    let writer = format!("{JAVA}:write");
    assert_eq!(
        fixture.text(&["HGETALL", key.as_str()]),
        fields("write", &[&writer])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_waits_for_the_last_of_javas_read_holds() {
    let (fixture, client, key) = Fixture::one().await;
    let reader = client.holds(&key, Mode::Read).await;
    java_read(&fixture, &key, &[2_000, 9_000, 4_000]);
    client.release(&reader).await.freed_it(&reader);
    fixture.assert_expires_after(key.as_str(), 9);
    let writer = client.claim(&key, Mode::Write);
    client.waits(&writer).await;
    fixture.store.pass(Duration::from_millis(8_001)).await;
    client.waits(&writer).await;
    fixture.store.pass(Duration::from_millis(1_000)).await;
    client.granted(&writer).await;
}

/// A dead reader's field may stay while others read. It neither holds, nor is it shown or renewed.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_reader_holds_nothing_while_others_read() {
    let (fixture, [a, b, c], key) = Fixture::three().await;
    let brief = a.claim_as(&key, Mode::Read, |claim| claim.lease = Duration::from_secs(2));
    a.granted(&brief).await;
    let long = b.holds(&key, Mode::Read).await;
    fixture.store.pass(Duration::from_millis(2_001)).await;
    assert_eq!(fixture.number(&["HLEN", key.as_str()]), 3);
    let status = c.status(&key).await.expect("it is held");
    let shown: Vec<_> = status.holders.iter().map(|holder| holder.id.clone()).collect();
    assert_eq!(shown, [HolderId::Claim(long.at.id)]);
    assert_eq!(a.is_gone(&brief, Phase::Granted).await, Loss::Expired);
    a.release(&brief).await.freed_nothing();
    b.release(&long).await.freed_it(&long);
    c.finds_free(&key, Mode::Write).await;
}

/// If a renewal shortens a reader's lease, the hash must not outlive the last reader. The hash may expire a millisecond
/// after the reader's key, because the server's clock may advance between the two commands that set them.
#[tokio::test(flavor = "multi_thread")]
async fn the_hash_lives_as_long_as_its_last_reader() {
    let (fixture, [a, b], key) = Fixture::two().await;
    let (first, second) = (a.holds(&key, Mode::Read).await, b.holds(&key, Mode::Read).await);
    for (client, claim, seconds, expected) in [
        (&a, &first, 90, 90),
        (&a, &first, 20, 60),
        (&b, &second, 10, 20),
        (&b, &second, 30, 30),
    ] {
        let lease = Duration::from_secs(seconds);
        let ends = fixture.number(&["PEXPIRETIME", key.as_str()]);
        fixture.number(&["PEXPIREAT", key.as_str(), &(ends + 1).to_string()]);
        client
            .stays_alive_as(claim, Phase::Granted, |renewal| renewal.lease = lease)
            .await;
        fixture.assert_expires_after(key.as_str(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_writers_are_evicted_by_another_client() {
    let (_fixture, [holder, operator, next], key) = Fixture::three().await;
    for mode in [Mode::Read, Mode::Write] {
        let (held, waiting) = (holder.holds(&key, mode).await, holder.fair(&key, Mode::Write));
        holder.waits(&waiting).await;
        operator.evict(&waiting, "ada").await.freed_it(&waiting);
        holder.has_ended(&waiting).await;
        operator.evict(&held, "ada").await.freed_it(&held);
        assert_evicted_by(&holder.renew(&held).await, "ada");
        next.finds_free(&key, Mode::Write).await;
    }
    let both = [
        holder.holds(&key, Mode::Read).await,
        next.holds(&key, Mode::Read).await,
    ];
    let all = operator.send_release(eviction_of(ReleaseTarget::All(key.clone())));
    assert_eq!(all.await.freed.len(), 2);
    for (client, claim) in [&holder, &next].into_iter().zip(&both) {
        assert!(matches!(client.renew(claim).await, RenewReply::Gone(_)));
    }
}

/// During the cooldown the hash contains a holder that is no client, in the mode of the evicted holder, so Java's
/// writers wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_cooldown_is_a_holder_that_java_respects() {
    let (fixture, [holder, operator], key) = Fixture::two().await;
    let cooldown = Duration::from_secs(20);
    let bar_key = format!("{{{key}}}:tenure:cooldown:rwlock_timeout:1");
    for (mode, expected) in [
        (Mode::Read, "mode read tenure:cooldown 1"),
        (Mode::Write, "mode write tenure:cooldown:write 1"),
    ] {
        let claim = holder.holds(&key, mode).await;
        let evicted = ReleaseRequest {
            cooldown,
            ..eviction_of(ReleaseTarget::Claim(claim.at.clone()))
        };
        operator.send_release(evicted).await.freed_it(&claim);
        assert_eq!(fixture.text(&["HGETALL", key.as_str()]), expected);
        fixture.assert_expires_after(key.as_str(), 20);
        assert_eq!(fixture.exists(&bar_key), mode == Mode::Read);
        assert_eq!(operator.status(&key).await, None, "no holder is shown");
        for mode in [Mode::Read, Mode::Write, Mode::Exclusive] {
            operator.finds_busy(&key, mode).await;
        }
        fixture.store.pass(cooldown).await;
        operator.finds_free(&key, Mode::Write).await;
    }
}

/// A thread that writes and reads is one holder, and its eviction frees the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_java_writer_is_shown_and_evicted_with_its_reads() {
    let (fixture, client, key) = Fixture::one().await;
    java_read(&fixture, &key, &[5_000, 5_000]);
    java_write(&fixture, &key, 60_000);
    let status = client.status(&key).await.expect("it is held");
    let java = HolderId::Foreign(Arc::from(JAVA));
    let holders: Vec<_> = status.holders.iter().map(|one| (&one.id, one.mode)).collect();
    assert_eq!(
        (status.kind, holders),
        (Kind::ReadWrite, vec![(&java, Mode::Write)])
    );
    let evicted = client
        .send_release(eviction_of(java.clone().on(key.clone())))
        .await;
    assert_eq!(&evicted.freed[..], [java]);
    assert_eq!(fixture.keys(), [""; 0]);
}

/// Java's readers are shown. A claim of either kind is refused on a key of the other kind.
#[tokio::test(flavor = "multi_thread")]
async fn mutexes_and_read_write_locks_refuse_each_others_keys() {
    let (fixture, client, key) = Fixture::one().await;
    java_read(&fixture, &key, &[60_000]);
    let (mutex, rw) = (Kind::Mutex, Kind::ReadWrite);
    mismatches(&client, &key, Mode::Exclusive, (rw, mutex)).await;
    client.holds(&key, Mode::Read).await;
    let status = client.status(&key).await.expect("it is held");
    assert_eq!((status.kind, status.holders.len()), (rw, 2));
    let other = fixture.store.key();
    java_hold(&fixture, &other, 60_000);
    for mode in [Mode::Read, Mode::Write] {
        mismatches(&client, &other, mode, (mutex, rw)).await;
    }
    // A key with waiters and no holder has a kind too.
    let queued = fixture.store.key();
    let held = client.holds(&queued, Mode::Write).await;
    let waiting = client.fair(&queued, Mode::Read);
    client.waits(&waiting).await;
    client.release(&held).await;
    mismatches(&client, &queued, Mode::Exclusive, (rw, mutex)).await;
    client.granted(&waiting).await;
}

/// Each granted reader wakes the next waiter, so that readers behind a writer need not wait for their next poll.
#[tokio::test(flavor = "multi_thread")]
async fn queued_readers_wake_one_after_the_other() {
    let (_fixture, [holder, first, second], key) = Fixture::three().await;
    let held = holder.fair(&key, Mode::Write);
    holder.granted(&held).await;
    let mut readers = Vec::new();
    for client in [&first, &second] {
        let claim = client.fair(&key, Mode::Read);
        client.waits(&claim).await;
        let mut wakes = client.watch(&claim).await.expect("wake-ups");
        wait_for_wake(&mut wakes).await;
        readers.push((client, claim, wakes));
    }
    holder.release(&held).await;
    for (client, claim, mut wakes) in readers {
        wait_for_wake(&mut wakes).await;
        client.granted(&claim).await;
    }
}

/// Renewals of the two kinds of lock are sent in separate calls, and the replies are in the order of the requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_renewals_is_split_by_the_kind_of_lock() {
    let fixture = Fixture::new().await;
    let client = fixture.store.client().await;
    let modes = [Mode::Write, Mode::Exclusive, Mode::Read, Mode::Exclusive];
    let mut renewals = Vec::new();
    for (number, mode) in (0..).zip(modes) {
        let claim = client.holds(&fixture.store.key(), mode).await;
        let mut renewal = RenewRequest::of(&claim);
        renewal.lease = Duration::from_secs(100 + number);
        renewals.push(renewal);
    }
    renewals[3].claim.id = client.claim(&renewals[3].claim.key, Mode::Exclusive).at.id;
    fixture.command(&["CONFIG", "RESETSTAT"]);
    let replies = client.send_renewals(renewals).await;
    let leases: Vec<Option<u64>> = replies
        .iter()
        .map(|reply| match reply {
            RenewReply::Alive { lease, .. } => Some(lease.as_secs()),
            _ => None,
        })
        .collect();
    assert_eq!(leases, [Some(100), Some(101), Some(102), None]);
    assert_eq!(fixture.script_calls(), 2);
}

/// One downgrade in a call does not make readers of the other writers.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_downgrades_only_the_claims_that_ask_for_it() {
    let fixture = Fixture::new().await;
    let client = fixture.store.client().await;
    let mut renewals = Vec::new();
    for downgrade in [false, true, false] {
        let claim = client.holds(&fixture.store.key(), Mode::Write).await;
        renewals.push(RenewRequest {
            downgrade,
            ..RenewRequest::of(&claim)
        });
    }
    client.send_renewals(renewals.clone()).await;
    let mut modes = Vec::new();
    for renewal in &renewals {
        let status = client.status(&renewal.claim.key).await.expect("it is held");
        modes.push(status.holders[0].mode);
    }
    assert_eq!(modes, [Mode::Write, Mode::Read, Mode::Write]);
}

/// R32: 103 s after the last call, all leases and records have ended, and only the token counter is left, however the
/// claims ended.
#[tokio::test(flavor = "multi_thread")]
async fn no_key_of_a_read_write_lock_remains_after_all_leases() {
    let (fixture, [a, b, c], key) = Fixture::three().await;
    let brief = |client: &TestClient, mode, fairness| {
        client.claim_as(&key, mode, |claim| {
            (claim.lease, claim.fairness) = (Duration::from_secs(1), fairness);
        })
    };
    for client in [&a, &b] {
        let claim = brief(client, Mode::Read, Fairness::Fifo);
        client.granted(&claim).await;
        client.stays_alive(&claim, Phase::Granted).await;
    }
    for mode in [Mode::Write, Mode::Read] {
        c.waits(&brief(&c, mode, Fairness::Fifo)).await;
    }
    let evicted = a.holds(&fixture.store.key(), Mode::Read).await;
    b.evict(&evicted, "alice").await;
    fixture.store.pass(Duration::from_secs(103)).await;
    assert_eq!(fixture.keys(), ["tenure_tokens"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_hold_is_reserved() {
    let (_fixture, client, _) = Fixture::one().await;
    let key = LockKey::new("{k}:x:rwlock_timeout:1").expect("a key");
    let refusal = client.try_acquire(&client.claim(&key, Mode::Exclusive)).await;
    assert_eq!(refusal.expect_err("it is refused").fault(), Fault::Invalid);
}

fn owner(claim: &Claim) -> String {
    claim.at.id.to_string()
}

/// The text of a hash with this mode, and these owners with one hold each.
fn fields(mode: &str, owners: &[&str]) -> String {
    let holders = owners.iter().map(|owner| format!(" {owner} 1"));
    format!("mode {mode}{}", holders.collect::<String>())
}

/// Makes a Java thread hold the lock as writer, with a lease of `milliseconds`.
fn java_write(fixture: &Fixture, key: &LockKey, milliseconds: i64) {
    let writer = format!("{JAVA}:write");
    fixture.command(&["HSET", key.as_str(), "mode", "write", &writer, "1"]);
    fixture.command(&["PEXPIRE", key.as_str(), &milliseconds.to_string()]);
}

/// Makes a Java thread hold the lock as reader, with a hold for each lease (in milliseconds).
fn java_read(fixture: &Fixture, key: &LockKey, leases: &[i64]) {
    let holds = leases.len().to_string();
    fixture.command(&["HSET", key.as_str(), "mode", "read", JAVA, &holds]);
    for (number, lease) in (1..).zip(leases) {
        let hold = format!("{{{key}}}:{JAVA}:rwlock_timeout:{number}");
        fixture.command(&["SET", &hold, "1", "PX", &lease.to_string()]);
    }
    let longest = fixture
        .left(key.as_str())
        .max(leases.iter().copied().max().unwrap_or(0));
    fixture.command(&["PEXPIRE", key.as_str(), &longest.to_string()]);
}

async fn mismatches(client: &TestClient, key: &LockKey, mode: Mode, (held, asked): (Kind, Kind)) {
    for fairness in [Fairness::Unfair, Fairness::Fifo] {
        let claim = client.claim_as(key, mode, |claim| claim.fairness = fairness);
        let refusal = client.try_acquire(&claim).await.expect_err("it is refused");
        assert_eq!(refusal.fault(), Fault::Mismatch { held, asked });
    }
}
