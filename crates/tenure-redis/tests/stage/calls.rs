//! Calls that are made once, whatever the store answers, and what tests look for in the answers.
//! Those that are repeated while the weather is bad are the testkit's.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, Cause, Claim, Effect, Fairness, Fault, Finding, Grant,
    LockKey, Loss, Mode, Phase, ReleaseReply, ReleaseRequest, ReleaseTarget, RenewReply, RenewRequest,
    Severity,
};
use tenure_testkit::suite::Client;

/// An unfair claim that is granted at once.
pub(crate) async fn holds(client: &Client, key: &LockKey) -> Arc<Claim> {
    holds_for(client, key, Duration::from_secs(60)).await
}

/// One with a lease of its own.
pub(crate) async fn holds_for(client: &Client, key: &LockKey, lease: Duration) -> Arc<Claim> {
    let claim = client.claim_as(key, Mode::Exclusive, |claim| claim.lease = lease);
    client.granted(&claim).await;
    claim
}

/// A fair claim that has to wait.
pub(crate) async fn queues(client: &Client, key: &LockKey) -> Arc<Claim> {
    queues_for(client, key, Duration::from_secs(60)).await
}

/// One with a lease of its own.
pub(crate) async fn queues_for(client: &Client, key: &LockKey, lease: Duration) -> Arc<Claim> {
    let claim = client.claim_as(key, Mode::Exclusive, |claim| {
        claim.fairness = Fairness::Fifo;
        claim.lease = lease;
    });
    client.waits(&claim).await;
    claim
}

/// How soon a claim that waits is to poll again.
pub(crate) async fn poll_after(client: &Client, claim: &Arc<Claim>) -> Duration {
    match client.acquire(claim).await {
        AcquireReply::Waiting { poll_after, .. } => poll_after,
        other => panic!("{other:?}"),
    }
}

/// What the store answers to a claim that is to be placed within five seconds.
pub(crate) async fn placed<B: Backend + ?Sized>(
    store: &Arc<B>,
    claim: &Arc<Claim>,
) -> Result<AcquireReply, BackendError> {
    let not_after = store.clock().now() + Duration::from_secs(5);
    store.clone().acquire(claim.clone(), not_after).await
}

/// What the store answers to a renewal.
pub(crate) async fn renewed<B: Backend + ?Sized>(store: &Arc<B>, renewal: RenewRequest) -> RenewReply {
    let answer = store.clone().renew(Batch::from_iter([renewal])).await.pop();
    answer.expect("one renewal has one answer")
}

/// The plain end of a claim.
pub(crate) fn departure(claim: &Claim) -> ReleaseRequest {
    ReleaseRequest::of(claim, Cause::Unlocked)
}

/// An eviction by nobody in particular, which leaves no cooldown.
pub(crate) fn eviction(who: ReleaseTarget) -> ReleaseRequest {
    ReleaseRequest {
        target: who,
        cause: Cause::Evicted { by: None },
        successor: None,
        cooldown: Duration::ZERO,
    }
}

/// What the store answers to a departure.
pub(crate) async fn released<B: Backend + ?Sized>(store: &Arc<B>, departure: ReleaseRequest) -> ReleaseReply {
    let answer = store.clone().release(Batch::from_iter([departure])).await.pop();
    answer.expect("one departure has one answer")
}

/// Why the store did not carry a departure out.
pub(crate) async fn not_released<B: Backend + ?Sized>(
    store: &Arc<B>,
    departure: ReleaseRequest,
) -> BackendError {
    match released(store, departure).await {
        ReleaseReply::Unknown(error) => error,
        done => panic!("{done:?}"),
    }
}

pub(crate) async fn examined<B: Backend + ?Sized>(store: &Arc<B>) -> Vec<Finding> {
    store.clone().examine().await.expect("it can be examined")
}

/// The finding in which these words stand, and how bad it is.
#[track_caller]
pub(crate) fn finds(found: &[Finding], words: &str, severity: Severity) {
    let Some(finding) = found.iter().find(|finding| finding.what.contains(words)) else {
        panic!("{words:?} stands nowhere in {found:?}");
    };
    assert_eq!(finding.severity, severity, "{finding:?}");
    assert!(!finding.consequence.is_empty(), "{finding:?}");
}

/// Asserts what an error says: what went wrong, what was done, and in which words.
#[track_caller]
pub(crate) fn is_error(error: &BackendError, (fault, effect): (Fault, Effect), words: &str) {
    assert_eq!((error.fault(), error.effect()), (fault, effect), "{error:?}");
    assert!(error.to_string().contains(words), "{words:?} in {error}");
}

/// Asserts that a renewal is told who has evicted its claim.
#[track_caller]
pub(crate) fn is_evicted(answer: &RenewReply, who: &str) {
    let said = matches!(answer, RenewReply::Gone(Loss::Evicted { by: Some(by) }) if **by == *who);
    assert!(said, "{answer:?} and not by {who:?}");
}

pub(crate) fn is_granted(answer: &Result<AcquireReply, BackendError>) -> bool {
    matches!(answer, Ok(AcquireReply::Granted(_)))
}

pub(crate) fn is_waiting(answer: &Result<AcquireReply, BackendError>) -> bool {
    matches!(answer, Ok(AcquireReply::Waiting { .. }))
}

/// Asserts that a grant's tokens come after another's.
#[track_caller]
pub(crate) fn rises(before: &Grant, after: &Grant) {
    let [before, after] = [before, after].map(|grant| grant.tokens.expect("tokens"));
    assert!(before.last() < after.first(), "{after:?} after {before:?}");
}
