//! Refusals: what a store cannot do, or must not, it refuses without effect.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    Backend, BackendError, Cause, Claim, Effect, Fairness, Fault, Liveness, Mode, Phase, Query, ReleaseReply,
    RenewReply,
};

use super::client::renewal;
use super::departed::departure;
use super::trial::permits;
use super::{Client, Trial};
use crate::Ailment;

/// Each mode in each fairness is served if the profile says so, and refused without effect if not.
pub async fn unlisted_modes_are_refused_without_effect(trial: Trial) {
    for mode in [Mode::Exclusive, Mode::Read, Mode::Write, permits(1, 2)] {
        for fairness in [Fairness::Unfair, Fairness::Fifo] {
            if !trial.lacks_so(mode, fairness).await {
                let (client, key) = (trial.client().await, trial.key());
                let claim = client.claim_as(&key, mode, |claim| claim.fairness = fairness);
                client.granted(&claim).await;
            }
        }
    }
}

/// A held key is of one kind: another is a mismatch, with both kinds, and without effect.
pub async fn a_kind_other_than_the_holders_is_a_mismatch(trial: Trial) {
    let modes = served(
        &trial,
        [Mode::Exclusive, Mode::Read, permits(1, 2), permits(1, 3)],
    )
    .await;
    for &held_as in &modes {
        let ([holder, other], key) = (trial.two().await, trial.key());
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

/// A key that is queued for is of the queue's kind, also when its holder has gone.
pub async fn a_kind_other_than_the_queues_is_a_mismatch(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let ([holder, waiter, other], key) = (trial.three().await, trial.key());
    let held = holder.fair(&key, Mode::Exclusive);
    holder.granted(&held).await;
    let waiting = waiter.queues(&key, Mode::Exclusive).await;
    holder.release(&held).await.freed_it(&held);
    for mode in served(&trial, [Mode::Read, permits(1, 2)]).await {
        mismatches(&other, &other.claim(&key, mode), Mode::Exclusive).await;
    }
    waiter.granted_soon(&waiting).await;
}

/// More permits than there are can never be granted, so they are not waited for.
pub async fn too_many_permits_are_refused_without_effect(trial: Trial) {
    skip_if!(trial.lacks(permits(1, 2)).await);
    let (client, key) = (trial.client().await, trial.key());
    let too_many = client.claim(&key, permits(3, 2));
    refused(&client, &too_many, &[Fault::Invalid, Fault::Limit]).await;
}

/// A lease longer than the store's longest is beyond its limits.
pub async fn a_lease_above_the_maximum_is_refused_without_effect(trial: Trial) {
    let (client, key) = (trial.client().await, trial.key());
    let longest = trial.profile().limits.max_lease;
    let Some(longer) = longest.checked_add(Duration::from_secs(1)) else {
        return;
    };
    let claim = client.claim_as(&key, Mode::Exclusive, |claim| claim.lease = longer);
    refused(&client, &claim, &[Fault::Limit]).await;
}

/// A closed client does nothing and says so; its claims are left to their leases.
pub async fn a_closed_client_refuses_calls_and_keeps_its_claims(trial: Trial) {
    let ([client, other], key) = (trial.two().await, trial.key());
    let claim = client.holds(&key, Mode::Exclusive).await;
    client.backend().clone().close().await.expect("a client closes");
    let free = trial.key();
    let [late, early] = [&key, &free].map(|key| client.claim(key, Mode::Exclusive));
    closed(client.try_acquire(&late).await.map(drop));
    closed(client.try_acquire(&early).await.map(drop));
    let inspected = |backend: Arc<dyn Backend>| backend.inspect(Query::Key(free.clone()));
    closed(client.in_all_weathers(inspected).await.map(drop));
    closed(
        client
            .in_all_weathers(|backend| backend.examine())
            .await
            .map(drop),
    );
    match client
        .in_all_weathers(|backend| backend.watch(late.clone()))
        .await
    {
        // A store that is polled has nobody to wake.
        Err(error) if error.fault() == Fault::Unsupported => {}
        listening => closed(listening.map(drop)),
    }
    closed(Err(renewal_fails(&client, &claim).await));
    closed(Err(release_fails(&client, &claim).await));
    if trial.profile().liveness != Liveness::Session {
        other.finds_busy(&key, Mode::Exclusive).await;
    }
    other.finds_free(&free, Mode::Exclusive).await;
}

/// A client may be closed again.
pub async fn closing_may_be_repeated(trial: Trial) {
    let [client, other] = trial.two().await;
    for _ in 0..2 {
        client.backend().clone().close().await.expect("a client closes");
    }
    other.finds_free(&trial.key(), Mode::Exclusive).await;
}

/// `doctor` has an answer.
pub async fn the_store_can_be_examined(trial: Trial) {
    let client = trial.client().await;
    let findings = client.in_all_weathers(|backend| backend.examine()).await;
    let findings = findings.expect("a store that is in order can be examined");
    assert!(findings.iter().all(|found| !found.what.is_empty()));
}

/// A store that denies its clients' rights, or is out of order, says which to every call, and that is no weather. No
/// claim is said to be gone by it; once the store is well again, all is as its answers told.
pub async fn a_failing_store_reports_it_and_loses_no_claim(trial: Trial) {
    for ailment in [Ailment::Denies, Ailment::OutOfOrder] {
        let (client, [key, free]) = (trial.client().await, [trial.key(), trial.key()]);
        let [held, late] = [&key, &free].map(|key| client.claim(key, Mode::Exclusive));
        client.granted(&held).await;
        let Some(falls_ill) = trial.subject().ail(Some(ailment)) else {
            // Where it cannot be tried, the store is well, and shows it.
            client.stays_alive(&held, Phase::Granted).await;
            continue;
        };
        falls_ill.await.expect("the store can be made unwell");
        let refusal = client.try_acquire(&late).await;
        let refusal = refusal.expect_err("a store that is unwell grants nothing");
        assert_eq!(refusal.fault(), ailment.fault(), "{refusal}");
        let unplaced = client.claim(&free, Mode::Exclusive);
        for error in [
            renewal_fails(&client, &held).await,
            release_fails(&client, &unplaced).await,
        ] {
            assert_eq!(error.fault(), ailment.fault(), "{error}");
        }
        let recovers = trial.subject().ail(None).expect("what fell ill can recover");
        recovers.await.expect("the store can be made well again");
        client.stays_alive(&held, Phase::Granted).await;
        if refusal.effect() == Effect::None {
            assert_eq!(client.status(&free).await, None, "{refusal}");
        }
        client.withdraw(&late).await;
        client.finds_free(&free, Mode::Exclusive).await;
    }
}

async fn renewal_fails(client: &Client, claim: &Claim) -> BackendError {
    let renewals = vec![renewal(claim, Phase::Granted)];
    match client.answers_to_renewals(renewals).await.pop() {
        Some(RenewReply::Unknown(error)) => error,
        other => panic!("the renewal must fail, and is {other:?}"),
    }
}

async fn release_fails(client: &Client, claim: &Claim) -> BackendError {
    let departures = [departure(claim, Cause::Unlocked)];
    match client.answers_to_departures(&departures).await.pop() {
        Some((ReleaseReply::Unknown(error), _)) => error,
        other => panic!("the release must fail, and is {other:?}"),
    }
}

/// Those of the modes that the store serves; the others it has refused.
async fn served<const N: usize>(trial: &Trial, modes: [Mode; N]) -> Vec<Mode> {
    let mut served = Vec::new();
    for mode in modes {
        if !trial.lacks(mode).await {
            served.push(mode);
        }
    }
    served
}

async fn mismatches(client: &Client, claim: &Arc<Claim>, held_as: Mode) {
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

async fn refused(client: &Client, claim: &Arc<Claim>, faults: &[Fault]) {
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
    let error = answer.expect_err("a closed client answers no call");
    assert_eq!(
        (error.fault(), error.effect()),
        (Fault::Closed, Effect::None),
        "{error}"
    );
}
