//! Refusals: a store refuses invalid and unsupported requests without effect.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    Backend, BackendError, Cause, Claim, Effect, Fairness, Fault, Liveness, Mode, Phase, Query, ReleaseReply,
    RenewReply, Successor,
};

use super::{Fixture, TestClient, permits, release_request, renew_request};
use crate::StoreFailure;

/// The store serves each mode and fairness that its profile lists, and refuses the others without effect.
pub async fn unlisted_modes_are_refused_without_effect(fixture: Fixture) {
    for mode in [Mode::Exclusive, Mode::Read, Mode::Write, permits(1, 2)] {
        for fairness in [Fairness::Unfair, Fairness::Fifo] {
            if !fixture.refuses(mode, fairness).await {
                let (client, key) = (fixture.client().await, fixture.key());
                let claim = client.claim_as(&key, mode, |claim| claim.fairness = fairness);
                client.granted(&claim).await;
            }
        }
    }
}

/// While a key is held as one kind of lock, such as a mutex, a claim of another kind, such as a semaphore, is refused
/// with `Mismatch`, which names both kinds.
pub async fn a_kind_other_than_the_holders_is_a_mismatch(fixture: Fixture) {
    let modes = served(
        &fixture,
        [Mode::Exclusive, Mode::Read, permits(1, 2), permits(1, 3)],
    )
    .await;
    for &held_as in &modes {
        let ([holder, other], key) = (fixture.two().await, fixture.key());
        let held = holder.holds(&key, held_as).await;
        for &asked_as in modes.iter().filter(|mode| mode.kind() != held_as.kind()) {
            mismatches(&other, &other.claim(&key, asked_as), held_as).await;
        }
        holder.stays_alive(&held, Phase::Granted).await;
        holder.release(&held).await.freed_it(&held);
        assert_eq!(other.status(&key).await, None);
        for &mode in &modes {
            other.finds_free(&key, mode).await;
        }
    }
}

/// Only a claim of a read-write lock can be downgraded, and only while it holds the key (B20).
pub async fn a_downgrade_of_another_kind_is_refused_without_effect(fixture: Fixture) {
    let modes = [Mode::Exclusive, Mode::Write, permits(1, 2)];
    let serves_writers = !fixture.refuses_mode(Mode::Write).await;
    for mode in served(&fixture, modes).await {
        let (client, key) = (fixture.client().await, fixture.key());
        let held = client.holds(&key, mode).await;
        let only = if mode == Mode::Write {
            Phase::Either
        } else {
            Phase::Granted
        };
        let mut renewal = renew_request(&held, only);
        renewal.downgrade = true;
        let fault = if serves_writers {
            Fault::Invalid
        } else {
            Fault::Unsupported
        };
        match client.renewal_replies(vec![renewal]).await.pop() {
            Some(RenewReply::Unknown(error)) => {
                assert_eq!((error.fault(), error.effect()), (fault, Effect::None), "{error}")
            }
            other => panic!("the downgrade of a claim of mode {mode} must be refused, but is {other:?}"),
        }
        client.stays_alive(&held, Phase::Granted).await;
        let status = client.status(&key).await.expect("the key is held");
        assert_eq!(status.holders[0].mode, mode);
    }
}

/// While claims wait for a mutex, a claim of another kind of lock is refused with `Mismatch`, even if the key has no
/// holder.
pub async fn a_kind_other_than_the_queues_is_a_mismatch(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let ([holder, waiter, other], key) = (fixture.three().await, fixture.key());
    let held = holder.fair(&key, Mode::Exclusive);
    holder.granted(&held).await;
    let waiting = waiter.queues(&key, Mode::Exclusive).await;
    holder.release(&held).await.freed_it(&held);
    for mode in served(&fixture, [Mode::Read, permits(1, 2)]).await {
        mismatches(&other, &other.claim(&key, mode), Mode::Exclusive).await;
    }
    waiter.granted_soon(&waiting).await;
}

/// A claim for more permits than the semaphore has is refused, because it could never be granted.
pub async fn too_many_permits_are_refused_without_effect(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(permits(1, 2)).await);
    let (client, key) = (fixture.client().await, fixture.key());
    let too_many = client.claim(&key, permits(3, 2));
    refused(&client, &too_many, &[Fault::Invalid, Fault::Limit]).await;
}

/// A lease above the store's maximum is refused with `Limit`.
pub async fn a_lease_above_the_maximum_is_refused_without_effect(fixture: Fixture) {
    let (client, key) = (fixture.client().await, fixture.key());
    let longest = fixture.profile().limits.max_lease;
    let Some(longer) = longest.checked_add(Duration::from_secs(1)) else {
        return;
    };
    let claim = client.claim_as(&key, Mode::Exclusive, |claim| claim.lease = longer);
    refused(&client, &claim, &[Fault::Limit]).await;
}

/// A release names as its successor the claim that it releases, or one on another lock: it is refused, and the claim stays.
pub async fn a_release_names_another_claim_on_the_lock_as_its_successor(fixture: Fixture) {
    let (client, key) = (fixture.client().await, fixture.key());
    let held = client.holds(&key, Mode::Exclusive).await;
    let elsewhere = client.claim(&fixture.key(), Mode::Exclusive);
    for claim in [held.clone(), elsewhere] {
        let mut request = release_request(&held, Cause::Unlocked);
        let not_after = client.now() + Duration::from_secs(10);
        request.successor = Some(Successor { claim, not_after });
        match &client.release_replies(&[request]).await[..] {
            [(ReleaseReply::Unknown(error), _)] => {
                assert_eq!((error.fault(), error.effect()), (Fault::Invalid, Effect::None));
            }
            other => panic!("it must be refused, but is answered {other:?}"),
        }
        client.stays_alive(&held, Phase::Granted).await;
    }
}

/// Every call of a closed client fails with `Closed`. Its claims stay until their leases end.
pub async fn a_closed_client_refuses_calls_and_keeps_its_claims(fixture: Fixture) {
    let ([client, other], key) = (fixture.two().await, fixture.key());
    let claim = client.holds(&key, Mode::Exclusive).await;
    client.backend().clone().close().await.expect("a client closes");
    let free = fixture.key();
    let [late, early] = [&key, &free].map(|key| client.claim(key, Mode::Exclusive));
    closed(client.try_acquire(&late).await.map(drop));
    closed(client.try_acquire(&early).await.map(drop));
    let inspected = |backend: Arc<dyn Backend>| backend.inspect(Query::Key(free.clone()));
    closed(client.retry(inspected).await.map(drop));
    closed(client.retry(|backend| backend.examine()).await.map(drop));
    match client.retry(|backend| backend.watch(late.clone())).await {
        // A store without wake-ups refuses every watch.
        Err(error) if error.fault() == Fault::Unsupported => {}
        listening => closed(listening.map(drop)),
    }
    closed(Err(renewal_fails(&client, &claim).await));
    closed(Err(release_fails(&client, &claim).await));
    if fixture.profile().liveness != Liveness::Session {
        other.finds_busy(&key, Mode::Exclusive).await;
    }
    other.finds_free(&free, Mode::Exclusive).await;
}

/// A client that is closed may be closed again.
pub async fn closing_may_be_repeated(fixture: Fixture) {
    let [client, other] = fixture.two().await;
    for _ in 0..2 {
        client.backend().clone().close().await.expect("a client closes");
    }
    other.finds_free(&fixture.key(), Mode::Exclusive).await;
}

/// `examine` returns findings, which `tenure doctor` prints.
pub async fn the_store_can_be_examined(fixture: Fixture) {
    let client = fixture.client().await;
    let findings = client.retry(|backend| backend.examine()).await;
    let findings = findings.expect("a store that is in order can be examined");
    assert!(findings.iter().all(|found| !found.what.is_empty()));
}

/// While a store denies access or cannot work, every call fails with a fault that is not transient, and no claim is
/// reported as gone. After the store has recovered, its claims are in the state that the replies described.
pub async fn a_failing_store_reports_it_and_loses_no_claim(fixture: Fixture) {
    for failure in [StoreFailure::AccessDenied, StoreFailure::Broken] {
        let (client, [key, free]) = (fixture.client().await, [fixture.key(), fixture.key()]);
        let [held, late] = [&key, &free].map(|key| client.claim(key, Mode::Exclusive));
        client.granted(&held).await;
        let Some(fails) = fixture.subject().set_failure(Some(failure)) else {
            // The subject cannot make its store fail in this way, so the store still works.
            client.stays_alive(&held, Phase::Granted).await;
            continue;
        };
        fails.await.expect("the subject can make the store fail");
        let refusal = client.try_acquire(&late).await;
        let refusal = refusal.expect_err("a failing store grants nothing");
        assert_eq!(refusal.fault(), failure.fault(), "{refusal}");
        let unplaced = client.claim(&free, Mode::Exclusive);
        for error in [
            renewal_fails(&client, &held).await,
            release_fails(&client, &unplaced).await,
        ] {
            assert_eq!(error.fault(), failure.fault(), "{error}");
        }
        let recovers = fixture
            .subject()
            .set_failure(None)
            .expect("a store that was made to fail can recover");
        recovers.await.expect("the store recovers");
        client.stays_alive(&held, Phase::Granted).await;
        if refusal.effect() == Effect::None {
            assert_eq!(client.status(&free).await, None, "{refusal}");
        }
        client.withdraw(&late).await;
        client.finds_free(&free, Mode::Exclusive).await;
    }
}

async fn renewal_fails(client: &TestClient, claim: &Claim) -> BackendError {
    let renewals = vec![renew_request(claim, Phase::Granted)];
    match client.renewal_replies(renewals).await.pop() {
        Some(RenewReply::Unknown(error)) => error,
        other => panic!("the renewal must fail, but is {other:?}"),
    }
}

async fn release_fails(client: &TestClient, claim: &Claim) -> BackendError {
    let releases = [release_request(claim, Cause::Unlocked)];
    match client.release_replies(&releases).await.pop() {
        Some((ReleaseReply::Unknown(error), _)) => error,
        other => panic!("the release must fail, but is {other:?}"),
    }
}

/// Returns those of the modes that the store serves, after asserting that it refuses the others.
async fn served<const N: usize>(fixture: &Fixture, modes: [Mode; N]) -> Vec<Mode> {
    let mut served = Vec::new();
    for mode in modes {
        if !fixture.refuses_mode(mode).await {
            served.push(mode);
        }
    }
    served
}

async fn mismatches(client: &TestClient, claim: &Arc<Claim>, held_as: Mode) {
    let fault = Fault::Mismatch {
        held: held_as.kind(),
        asked: claim.mode.kind(),
    };
    let refusal = client
        .try_acquire(claim)
        .await
        .expect_err("another kind is a mismatch");
    assert_eq!(
        (refusal.fault(), refusal.effect()),
        (fault, Effect::None),
        "{refusal}"
    );
}

async fn refused(client: &TestClient, claim: &Arc<Claim>, faults: &[Fault]) {
    let refusal = client.try_acquire(claim).await.expect_err("it is refused");
    assert!(faults.contains(&refusal.fault()), "{refusal:?}");
    assert_eq!(refusal.effect(), Effect::None, "{refusal}");
    assert_eq!(
        client.status(&claim.at.key).await,
        None,
        "a refusal leaves nothing behind"
    );
}

#[track_caller]
fn closed(answer: Result<(), BackendError>) {
    let error = answer.expect_err("every call of a closed client fails");
    assert_eq!(
        (error.fault(), error.effect()),
        (Fault::Closed, Effect::None),
        "{error}"
    );
}
