//! Records in Redis: of clients, and of claims that were renewed, wait, or have ended while a request may be in
//! flight.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::fixture::*;
use futures_util::StreamExt;
use futures_util::future::join;
use tenure_backend::{
    AcquireReply, Cause, Claim, Fault, FencingToken, HolderId, Loss, Mode, Phase, ReleaseRequest,
    ReleaseTarget, RenewReply, RenewRequest, TokenRange,
};

/// The text of a granted claim's record, with these tokens and this label.
fn written(run: TokenRange, label: &str) -> String {
    format!("G:{}:{}:{label}", run.first(), run.count())
}

/// A renewal of a holder that may only shorten its lease.
fn shortening(claim: &Claim, lease: Duration) -> RenewRequest {
    RenewRequest {
        lease,
        shorten_only: true,
        ..RenewRequest::of(claim)
    }
}

/// A lock that is released before its first renewal writes no record.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_writes_a_record_that_the_release_deletes() {
    let (fixture, client, key) = Fixture::one().await;
    let noted = |claim: &Claim| fixture.text(&["GET", &record(claim)]);
    let brief = hold(&client, &fixture.store.key()).await;
    client.release(&brief).await.freed_it(&brief);
    assert_eq!(fixture.text(&["KEYS", "tenure_claim:*"]), "");
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
    client.send_renewals(vec![raise]).await;
    assert_eq!(noted(&successor), written(run, &successor.label));
    client.release(&successor).await.freed_it(&successor);
    assert_eq!(fixture.text(&["KEYS", "tenure_claim:*"]), "");
}

/// A renewal sends once what consecutive claims have in common. Here each claim between two plain ones differs from them in
/// one thing.
#[tokio::test(flavor = "multi_thread")]
async fn each_claim_of_a_call_is_renewed_on_its_own_terms() {
    let (fixture, client, _) = Fixture::one().await;
    let token = |number| FencingToken::new(number).expect("a token");
    let raised = TokenRange::new(token(1 << 52), NonZeroU32::MIN);
    let plain: fn(&mut Claim) = |_| {};
    let as_is = |_: &mut RenewRequest| {};
    let mut batch = Vec::new();
    let mut add = async |change: fn(&mut Claim), ask: &dyn Fn(&mut RenewRequest), seconds: Option<i64>| {
        let claim = client.claim_as(&fixture.store.key(), Mode::Exclusive, change);
        let run = client.granted(&claim).await.tokens.expect("tokens");
        fixture.command(&["PEXPIRE", claim.at.key.as_str(), "30000"]);
        let mut renewal = RenewRequest::of(&claim);
        ask(&mut renewal);
        let record = seconds.map(|_| written(renewal.raise.unwrap_or(run), &claim.label));
        batch.push((claim, renewal, seconds, record));
    };
    add(plain, &as_is, Some(60)).await;
    add(|claim| claim.label = "another".into(), &as_is, Some(60)).await;
    add(plain, &as_is, Some(60)).await;
    add(|claim| claim.lease *= 2, &as_is, Some(120)).await;
    add(plain, &as_is, Some(60)).await;
    add(
        |claim| claim.grants = NonZeroU32::new(3).expect("not zero"),
        &as_is,
        Some(60),
    )
    .await;
    add(plain, &as_is, Some(60)).await;
    add(plain, &|renewal| renewal.raise = raised, Some(60)).await;
    add(plain, &as_is, Some(60)).await;
    add(plain, &|renewal| renewal.shorten_only = true, Some(30)).await;
    add(plain, &as_is, Some(60)).await;
    add(plain, &|renewal| renewal.only = Phase::Waiting, None).await;
    add(plain, &as_is, Some(60)).await;
    let answers = client
        .send_renewals(batch.iter().map(|(_, renewal, ..)| renewal.clone()).collect())
        .await;
    for (number, ((claim, _, seconds, record), answer)) in batch.iter().zip(&answers).enumerate() {
        let is_alive = matches!(answer, RenewReply::Alive { .. });
        assert_eq!(is_alive, seconds.is_some(), "{number}: {answer:?}");
        fixture.assert_expires_after(claim.at.key.as_str(), seconds.unwrap_or(30));
        let found = fixture.text(&["GET", &self::record(claim)]);
        assert_eq!(found, record.as_deref().unwrap_or("nil"), "{number}");
    }
    assert_eq!(fixture.number(&["GET", "tenure_tokens"]), 1 << 52);
}

/// In doubles, 2^53 + 1 - 1 is 2^53 - 1, which is still valid.
#[tokio::test(flavor = "multi_thread")]
async fn no_renewal_raises_the_tokens_beyond_the_last() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = hold(&client, &key).await;
    let counter = || fixture.text(&["GET", "tenure_tokens"]);
    let before = counter();
    for (first, count) in [(1 << 53, 1), ((1 << 53) - 1, 2), ((1 << 53) - 255, 256)] {
        let first = FencingToken::new(first).expect("a token");
        let raise = RenewRequest {
            raise: TokenRange::new(first, NonZeroU32::new(count).expect("not zero")),
            ..RenewRequest::of(&claim)
        };
        let answer = renew(client.backend(), raise).await;
        let RenewReply::Unknown(error) = &answer else {
            panic!("{answer:?}")
        };
        assert_eq!(error.fault(), Fault::Limit, "{error}");
        assert_eq!(counter(), before);
    }
}

/// The client connects on one runtime, which ends, and then makes its calls on another.
#[test]
fn held_locks_are_shown_after_the_first_runtime_ended() {
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let server = Server::start();
    let url = server.redis.lock().url();
    let store = runtime().block_on(connect(&url)).expect("it answers");
    runtime().block_on(async {
        let (_stage, other, key) = Fixture::one_on(server).await;
        let claim = other.claim(&key, Mode::Exclusive);
        // This call may fail, because the connection has ended with the first runtime.
        let granted = match acquire(&store, &claim).await {
            Ok(granted) => granted,
            Err(_) => acquire(&store, &claim).await.expect("it connects again"),
        };
        let AcquireReply::Granted(grant) = granted else {
            panic!("{granted:?}")
        };
        let answer = renew(&store, shortening(&claim, claim.lease)).await;
        assert!(matches!(answer, RenewReply::Alive { .. }), "{answer:?}");
        let status = other.status(&key).await.expect("it is held");
        assert_eq!(status.holders[0].token, grant.tokens.map(|run| run.first()));
    });
}

/// The record expires with the lease if the claim is never released.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_expires_with_the_lease() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = hold(&client, &key).await;
    client.stays_alive(&claim, Phase::Granted).await;
    let end = |key: &str| fixture.number(&["PEXPIRETIME", key]);
    let (of_lock, of_record) = (end(key.as_str()), end(&record(&claim)));
    let is_alike = (of_lock - 100..=of_lock + 5).contains(&of_record);
    assert!(is_alike, "{of_record}, and the lock until {of_lock}");
    let brief = shortening(&claim, Duration::from_millis(200));
    client.send_renewals(vec![brief]).await;
    wait_until(|| fixture.number(&["EXISTS", key.as_str(), &record(&claim)]) == 0);
}

/// Two estimates of one end of a lease differ by less than a millisecond or two, which is no reason to wake waiters.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_confirmed_wakes_no_waiter() {
    let (_fixture, [holder, other], key) = Fixture::two().await;
    let claim = hold(&holder, &key).await;
    let waiting = other.claim(&key, Mode::Exclusive);
    let mut wakes = other.watch(&waiting).await.expect("wake-ups");
    other.waits(&waiting).await;
    // The confirmed subscription wakes once.
    wait_for_wake(&mut wakes).await;
    for _ in 0..20 {
        holder.send_renewals(vec![shortening(&claim, claim.lease)]).await;
    }
    let woken = tokio::time::timeout(Duration::from_millis(300), wakes.next()).await;
    assert!(woken.is_err(), "it was woken");
}

/// The renewal of a fixed lease writes the claim's record. With full memory the server refuses to write it, but the
/// renewal still confirms the claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_lease_is_confirmed_when_the_memory_is_full() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = hold(&client, &key).await;
    for (memory, is_written) in [("1", false), ("0", true)] {
        fixture.command(&["CONFIG", "SET", "maxmemory", memory]);
        let answers = client.send_renewals(vec![shortening(&claim, claim.lease)]).await;
        assert!(matches!(answers[..], [RenewReply::Alive { .. }]), "{answers:?}");
        assert_eq!(fixture.exists(&record(&claim)), is_written);
    }
}

/// R4: a release leaves a record if a request may still arrive, and none otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_leaves_a_record_only_for_requests_in_flight() {
    let (fixture, [client, elsewhere], key) = Fixture::two().await;
    let records = || fixture.text(&["KEYS", "tenure_claim:*"]);
    let released = hold(&client, &key).await;
    let in_flight = |claim: &Claim| format!("tenure_in_flight:{}", claim.at.id.client());
    client.release(&released).await;
    client.release(&released).await;
    hold(&elsewhere, &key).await;
    let withdrawn = enqueue(&client, &key).await;
    client.withdraw(&withdrawn).await;
    let never_sent = client.claim(&fixture.store.key(), Mode::Exclusive);
    client.withdraw(&never_sent).await;
    assert_eq!(
        (records().as_str(), fixture.exists(&in_flight(&released))),
        ("", false)
    );
    // The store has placed no claim of this client, so another program may have sent an acquire request of it.
    let unseen = client.with_new_id().claim(&fixture.store.key(), Mode::Exclusive);
    client.withdraw(&unseen).await;
    client.withdraw(&unseen).await;
    let record = record(&unseen);
    assert_eq!(records(), record);
    assert_eq!(fixture.text(&["GET", &record]), "E");
    for key in [&record, &in_flight(&unseen)] {
        fixture.assert_expires_after(key, 12);
    }
}

/// R4: an acquire request that got no reply, or is in flight, may arrive after the release.
#[tokio::test(flavor = "multi_thread")]
async fn an_unanswered_placement_leaves_a_record_of_the_release() {
    let proxied = ProxiedFixture::new().await;
    let (fixture, store) = (&proxied.fixture, &proxied.store);
    let release = async |claim: &Claim| {
        let withdrawal = ReleaseRequest {
            cause: Cause::Withdrawn,
            ..unlock_of(claim)
        };
        release(store, withdrawal).await
    };
    let claims = proxied.claims(3);
    proxied.granted(&claims[0]).await;
    release(&claims[0]).await;
    let asked = proxied.acquire_all(&claims[1..2]).await;
    assert!(asked.await[0].is_err(), "it is held up until it is given up");
    proxied.proxy.heal();
    release(&claims[1]).await;
    let asked = proxied.acquire_all(&claims[2..]).await;
    let released = release(&claims[2]);
    let (answers, ()) = tokio::join!(soon(join(asked, released)), async { proxied.proxy.heal() });
    assert!(answers.0[0].is_ok(), "{answers:?}");
    let records = [0, 1, 2].map(|at| fixture.text(&["GET", &record(&claims[at])]));
    assert_eq!(records, ["nil", "E", "E"]);
    assert!(!fixture.exists(claims[2].at.key.as_str()));
}

/// A renewal writes the client's lost record again, with an expiry. The client's holders are still shown as claims.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_client_record_is_written_again() {
    let (fixture, [client, other], key) = Fixture::two().await;
    let claim = client.claim(&key, Mode::Exclusive);
    let run = client.granted(&claim).await.tokens.expect("tokens");
    let known = format!("tenure_client:{}", claim.at.id.client());
    fixture.command(&["DEL", &known]);
    client.stays_alive(&claim, Phase::Granted).await;
    assert_eq!(
        fixture.text(&["HGETALL", &known]),
        format!("label {}", claim.label)
    );
    fixture.assert_expires_after(&known, 72);
    let status = other.status(&key).await.expect("it is held");
    assert_eq!(status.holders[0].id, HolderId::Claim(claim.at.id));
    assert_eq!(status.holders[0].token, Some(run.first()));
    assert_eq!(status.holders[0].label.as_deref(), Some(&*claim.label));
    // A grant right after another loss does not write the client's record again. The claim's eviction is reported
    // nevertheless.
    fixture.command(&["FLUSHALL"]);
    let young = hold(&client, &key).await;
    other.evict(&young, "alice").await.freed_it(&young);
    assert_evicted_by(&client.renew(&young).await, "alice");
}

/// A waiter whose record was deleted stays in the queue until it is granted.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_without_a_record_leaves_the_queue_when_granted() {
    let (fixture, [holder, waiter, next], key) = Fixture::three().await;
    let held = hold(&holder, &key).await;
    let waiting = enqueue(&waiter, &key).await;
    let behind = next.fair(&key, Mode::Exclusive);
    fixture.command(&["DEL", &record(&waiting)]);
    holder.release(&held).await.freed_it(&held);
    waiter.granted(&waiting).await;
    waiter.release(&waiting).await.freed_it(&waiting);
    next.granted(&behind).await;
}

/// A claim that Java's scripts removed from the queue is granted like any waiter, and its record is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_removed_by_java_leaves_no_record() {
    let (fixture, [holder, waiter], key) = Fixture::two().await;
    let held = hold(&holder, &key).await;
    let waiting = enqueue(&waiter, &key).await;
    fixture.command(&["DEL", &queue(&key)]);
    fixture.command(&["DEL", &timeouts(&key)]);
    holder.release(&held).await.freed_it(&held);
    waiter.granted(&waiting).await;
    waiter.release(&waiting).await.freed_it(&waiting);
    assert_eq!(fixture.text(&["KEYS", "*{*}*"]), "");
}

/// A claim whose lock was deleted has no record after its next renewal. An evicted claim has only the record of its
/// eviction.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_does_not_hold_leaves_no_record() {
    let fixture = Fixture::new().await;
    let [client, operator] = fixture.store.two().await;
    let claims = [(); 5].map(|()| client.claim(&fixture.store.key(), Mode::Exclusive));
    for claim in &claims {
        client.granted(claim).await;
    }
    let [robbed, robbed_later, evicted, evicted_by_key, held] = &claims;
    fixture.command(&["DEL", robbed.at.key.as_str()]);
    let is_missing = |answer: &RenewReply| matches!(answer, RenewReply::Gone(Loss::Missing));
    let before_its_first_renewal = client.renew(robbed).await;
    assert!(
        is_missing(&before_its_first_renewal),
        "{before_its_first_renewal:?}"
    );
    for claim in [robbed_later, evicted, evicted_by_key, held] {
        client.stays_alive(claim, Phase::Granted).await;
    }
    fixture.command(&["DEL", robbed_later.at.key.as_str()]);
    assert!(is_missing(&client.renew(robbed_later).await), "after it");
    operator.evict(evicted, "alice").await.freed_it(evicted);
    let known = format!("tenure_client:{}", held.at.id.client());
    fixture.command(&["DEL", &known]);
    let all = eviction_of(ReleaseTarget::All(evicted_by_key.at.key.clone()));
    operator.send_release(all).await.freed_it(evicted_by_key);
    let noted = claims.each_ref().map(|claim| {
        let text = fixture.text(&["GET", &record(claim)]);
        text.chars().next().expect("an answer")
    });
    // In the order of `claims`: twice no record, twice the record of an eviction, once a holder's record.
    assert_eq!(noted, ['n', 'n', 'V', 'V', 'G']);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_an_eviction_outlives_the_lease() {
    let (fixture, [holder, operator], key) = Fixture::two().await;
    let claim = hold(&holder, &key).await;
    operator.evict(&claim, "alice").await.freed_it(&claim);
    // Another client, which does not know the claim, releases it.
    operator.release(&claim).await.freed_nothing();
    fixture.store.pass(Duration::from_secs(50)).await;
    // After 50 s of a lease of 60 s, the record of the eviction still exists.
    assert_evicted_by(&holder.renew(&claim).await, "alice");
}
