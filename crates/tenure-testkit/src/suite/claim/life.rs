//! The life of a claim: it is placed once, granted, and ends for good. Every call may be repeated.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Effect, Fairness, Fault, HolderId, Liveness, LockKey, MAX_NOT_AFTER, Mode,
    Phase, RenewReply,
};

use crate::suite::{Fixture, TestClient};

/// Polling a granted claim again returns the same tokens, and one release is enough to free the key (R25).
pub async fn polling_a_granted_claim_returns_the_same_tokens(fixture: Fixture) {
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let claim = a.claim(&key, Mode::Exclusive);
    let first = a.granted(&claim).await;
    for _ in 0..3 {
        assert_eq!(a.granted(&claim).await.tokens, first.tokens);
    }
    a.release(&claim).await.freed_it(&claim);
    b.finds_free(&key, Mode::Exclusive).await;
}

/// A repeated release frees no claim, in particular not the next holder's (R23).
pub async fn a_repeated_release_frees_no_other_claim(fixture: Fixture) {
    let ([a, b, c], key) = (fixture.three().await, fixture.key());
    let first = a.holds(&key, Mode::Exclusive).await;
    let second = b.claim(&key, Mode::Exclusive);
    a.release(&first).await.freed_it(&first);
    a.release(&first).await.freed_nothing();
    b.granted_soon(&second).await;
    a.release(&first).await.freed_nothing();
    b.stays_alive(&second, Phase::Granted).await;
    c.finds_busy(&key, Mode::Exclusive).await;
}

/// A client's release frees only its own claim, not another client's claim with the same number (R23).
pub async fn a_release_by_another_client_frees_nothing(fixture: Fixture) {
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let held = a.holds(&key, Mode::Exclusive).await;
    let same_number = b.claim(&key, Mode::Exclusive);
    assert_eq!(same_number.at.id.number(), held.at.id.number());
    b.release(&same_number).await.freed_nothing();
    b.finds_busy(&key, Mode::Exclusive).await;
    a.stays_alive(&held, Phase::Granted).await;
}

/// A delayed `acquire` request does not grant a released claim again (R4).
pub async fn a_released_claim_is_never_granted_again(fixture: Fixture) {
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let claim = a.claim(&key, Mode::Exclusive);
    let not_after = a.now() + MAX_NOT_AFTER;
    a.granted(&claim).await;
    a.release(&claim).await;
    if fixture.profile().remembers_ended {
        a.has_ended(&claim).await;
        b.finds_free(&key, Mode::Exclusive).await;
        fixture.pass(MAX_NOT_AFTER - Duration::from_secs(1)).await;
        assert_ended(a.acquire_by(&claim, not_after).await);
    }
    fixture.pass(MAX_NOT_AFTER).await;
    assert_ended(a.acquire_by(&claim, not_after).await);
    b.finds_free(&key, Mode::Exclusive).await;
}

/// The store remembers an ended claim until the claim's `not_after`, however it ended, so that no delayed request
/// places it.
pub async fn an_ended_claim_is_remembered_until_its_not_after(fixture: Fixture) {
    if !fixture.profile().remembers_ended {
        return a_released_claim_is_never_granted_again(fixture).await;
    }
    let [a, b] = fixture.two().await;
    let not_after = a.now() + MAX_NOT_AFTER;
    let [released, withdrawn, evicted, expired] =
        [(); 4].map(|()| a.short_lease(&fixture.key(), Mode::Exclusive));
    a.withdraw(&withdrawn).await.freed_nothing();
    for claim in [&released, &evicted, &expired] {
        a.granted(claim).await;
    }
    a.release(&released).await.freed_it(&released);
    b.evict(&evicted, "alice").await.freed_it(&evicted);
    fixture.pass(MAX_NOT_AFTER - Duration::from_millis(100)).await;
    if fixture.profile().liveness == Liveness::Session {
        a.release(&expired).await;
    }
    for claim in [released, withdrawn, evicted, expired] {
        assert_ended(a.acquire_by(&claim, not_after).await);
        b.finds_free(&claim.at.key, Mode::Exclusive).await;
    }
}

/// A holder may be polled after its `not_after`, which limits only the placement.
pub async fn a_holder_may_be_polled_after_its_not_after(fixture: Fixture) {
    let (client, key) = (fixture.client().await, fixture.key());
    let claim = client.claim(&key, Mode::Exclusive);
    let not_after = client.now() + Duration::from_millis(50);
    let first = client.granted(&claim).await;
    fixture.pass(Duration::from_millis(100)).await;
    match client.polled_by(&claim, not_after).await {
        AcquireReply::Granted(grant) => assert_eq!(grant.tokens, first.tokens),
        other => panic!("the reply to a holder after its `not_after` is {other:?}"),
    }
}

/// Asserts that a late request for an ended claim was not granted: the reply is `Ended`, `TooLate` or a transient
/// error.
#[track_caller]
fn assert_ended(answer: Result<AcquireReply, BackendError>) {
    match answer {
        Ok(AcquireReply::Ended | AcquireReply::TooLate) => {}
        Err(error) if error.is_transient() => {}
        other => panic!("the reply to a late request of an ended claim is {other:?}"),
    }
}

/// The store remembers a withdrawal that arrives before the claim's own `acquire` request (R1, R2).
pub async fn a_claim_withdrawn_before_it_was_placed_is_never_granted(fixture: Fixture) {
    if !fixture.profile().remembers_ended {
        return a_released_claim_is_never_granted_again(fixture).await;
    }
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let claim = a.claim(&key, Mode::Exclusive);
    a.withdraw(&claim).await.freed_nothing();
    a.has_ended(&claim).await;
    b.finds_nothing(&key).await;
}

/// A request that arrives after its `not_after` gets `TooLate`, and leaves nothing in the store.
pub async fn a_claim_is_never_placed_after_its_not_after(fixture: Fixture) {
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let claim = a.claim(&key, Mode::Exclusive);
    let not_after = a.now() + Duration::from_millis(50);
    fixture.pass(Duration::from_millis(100)).await;
    let answer = a.polled_by(&claim, not_after).await;
    assert!(matches!(answer, AcquireReply::TooLate), "{answer:?}");
    b.finds_nothing(&key).await;
}

/// A renewal does not bring a released claim back (R4).
pub async fn renewing_a_released_claim_reports_it_gone(fixture: Fixture) {
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let claim = a.holds(&key, Mode::Exclusive).await;
    a.release(&claim).await;
    for phase in [Phase::Granted, Phase::Either] {
        a.is_gone(&claim, phase).await;
    }
    b.finds_free(&key, Mode::Exclusive).await;
}

/// A downgrade of an ended or unplaced claim reports it gone, and creates nothing (B6, B20).
pub async fn a_downgrade_brings_no_ended_claim_back(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Write).await);
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let released = a.holds(&key, Mode::Write).await;
    a.release(&released).await;
    for claim in [released, a.claim(&key, Mode::Write)] {
        let reply = a.renew_as(&claim, Phase::Granted, |renewal| renewal.downgrade = true);
        let reply = reply.await;
        assert!(matches!(reply, RenewReply::Gone(_)), "{reply:?}");
        b.finds_free(&key, Mode::Write).await;
    }
}

/// A renewal does not create an unplaced claim (R7).
pub async fn renewing_an_unplaced_claim_reports_it_gone(fixture: Fixture) {
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let claim = a.claim(&key, Mode::Exclusive);
    for phase in [Phase::Granted, Phase::Waiting, Phase::Either] {
        a.is_gone(&claim, phase).await;
    }
    b.finds_nothing(&key).await;
}

/// A refused unfair claim leaves nothing in the store.
pub async fn a_refused_unfair_claim_leaves_nothing_behind(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Unfair).await);
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let held = a.holds(&key, Mode::Exclusive).await;
    let refused = b.claim(&key, Mode::Exclusive);
    b.waits(&refused).await;
    let waiters = a.status(&key).await.and_then(|status| status.waiters);
    assert_eq!(waiters.map_or(0, |waiters| waiters.len()), 0);
    b.withdraw(&refused).await;
    a.release(&held).await;
    assert_eq!(a.status(&key).await, None);
}

/// A claim that was withdrawn while it waited is not granted later (R1).
pub async fn a_claim_withdrawn_while_waiting_is_never_granted(fixture: Fixture) {
    let ([a, b, c], key) = (fixture.three().await, fixture.key());
    let held = a.holds(&key, Mode::Exclusive).await;
    let waiting = b.claim(&key, Mode::Exclusive);
    b.waits(&waiting).await;
    b.withdraw(&waiting).await;
    a.release(&held).await;
    if fixture.profile().remembers_ended {
        b.has_ended(&waiting).await;
    }
    c.finds_free(&key, Mode::Exclusive).await;
}

/// After an `acquire` call was dropped, before or after its first poll, the claim can be withdrawn as usual (R2).
pub async fn a_dropped_call_leaves_a_withdrawable_claim(fixture: Fixture) {
    let ([a, b], key) = (fixture.two().await, fixture.key());
    for polled in [false, true] {
        let claim = a.claim(&key, Mode::Exclusive);
        let not_after = a.now() + Duration::from_secs(5);
        let mut call = a.backend().clone().acquire(claim.clone(), not_after);
        if polled {
            let _ = Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop()));
        }
        drop(call);
        a.withdraw(&claim).await;
        if fixture.profile().remembers_ended {
            a.has_ended(&claim).await;
        }
        b.finds_free(&key, Mode::Exclusive).await;
    }
}

/// A key with unusual characters can be locked, is shown exactly as given, and can be unlocked (R30). A store may
/// refuse stray braces only if its `Subject` announces this, and only without effect.
pub async fn unusual_key_names_work_like_any_other(fixture: Fixture) {
    let client = fixture.client().await;
    let with_spaces = [" ", "'; DROP TABLE claims; --", "a\u{a0}b"];
    let by_theme = [
        "{ } {} {a}b a{b }{",
        "\" ` \\ % _ * ? [a-z]",
        ".. ../x / // a/b : ::",
        "%s%n $1 ?1 # && NULL - --help",
        "ключ 鎖 🔒 \u{200b} \u{202e}x",
    ];
    let longest = [
        "k".repeat(LockKey::MAX_BYTES),
        "鎖".repeat(LockKey::MAX_BYTES / 3),
    ];
    let names = by_theme.iter().flat_map(|names| names.split(' '));
    for name in names.chain(with_spaces).chain(longest.iter().map(String::as_str)) {
        let key = LockKey::new(name).expect("a name without control characters");
        let first = client.claim(&key, Mode::Exclusive);
        let subject = fixture.subject();
        let may_be_refused = subject.refuses_stray_braces() && name.contains(['{', '}'])
            || name.chars().count() > subject.longest_key();
        if let Err(refusal) = client.try_acquire(&first).await
            && may_be_refused
            && refusal.fault() == Fault::Invalid
        {
            assert_eq!(refusal.effect(), Effect::None, "{name:?}: {refusal}");
            continue;
        }
        client.withdraw(&first).await;
        lock_see_unlock(&client, &key).await;
    }
}

async fn lock_see_unlock(client: &TestClient, key: &LockKey) {
    let claim = client.holds(key, Mode::Exclusive).await;
    let status = client
        .status(key)
        .await
        .unwrap_or_else(|| panic!("{key:?} is held, but not shown"));
    assert_eq!(&status.key, key);
    assert_eq!(status.holders[0].id, HolderId::Claim(claim.at.id));
    client.release(&claim).await.freed_it(&claim);
    assert_eq!(client.status(key).await, None, "{key:?} is free, but still shown");
}

/// Locking and unlocking a thousand keys leaves none of them in the store (R32).
pub async fn a_thousand_released_keys_leave_nothing_behind(fixture: Fixture) {
    let client = fixture.client().await;
    let locking = (0..1_000).map(|_| {
        let (client, key) = (client.clone(), fixture.key());
        async move {
            let claim = client.holds(&key, Mode::Exclusive).await;
            client.release(&claim).await.freed_it(&claim);
        }
    });
    let mut locking = locking.peekable();
    while locking.peek().is_some() {
        futures_util::future::join_all(locking.by_ref().take(16)).await;
    }
    if fixture.profile().inspection.lists {
        assert_eq!(client.list("", 100).await, [], "no key is held");
    }
}
