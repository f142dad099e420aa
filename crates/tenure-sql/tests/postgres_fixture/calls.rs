//! Single calls to a store, and assertions about their replies.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, Cause, Claim, Effect, Fault, Finding, Grant, ReleaseReply,
    ReleaseRequest, ReleaseTarget, RenewReply, RenewRequest, Severity,
};

/// Time after which a test fails because it is stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// Acquires or polls a claim, with a `not_after` in five seconds.
pub(crate) async fn acquire(
    store: &Arc<dyn Backend>,
    claim: &Arc<Claim>,
) -> Result<AcquireReply, BackendError> {
    let not_after = store.clock().now() + Duration::from_secs(5);
    store.clone().acquire(claim.clone(), not_after).await
}

pub(crate) async fn renew(store: &Arc<dyn Backend>, claim: &Claim) -> RenewReply {
    let request = RenewRequest::of(claim);
    let answer = store.clone().renew(Batch::from_iter([request])).await.pop();
    answer.expect("one renewal has one answer")
}

/// Sends one renewal that must fail, and returns its error.
pub(crate) async fn renewal_error(store: &Arc<dyn Backend>, claim: &Claim) -> BackendError {
    match renew(store, claim).await {
        RenewReply::Unknown(error) => error,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn unlock_of(claim: &Claim) -> ReleaseRequest {
    ReleaseRequest::of(claim, Cause::Unlocked)
}

/// A request that evicts a holder in the name `alice`.
pub(crate) fn eviction_of(target: ReleaseTarget, cooldown: Duration) -> ReleaseRequest {
    ReleaseRequest {
        target,
        cause: Cause::Evicted {
            by: Some("alice".into()),
        },
        successor: None,
        cooldown,
    }
}

pub(crate) async fn release(store: &Arc<dyn Backend>, request: ReleaseRequest) -> ReleaseReply {
    let answer = store.clone().release(Batch::from_iter([request])).await.pop();
    answer.expect("one release has one answer")
}

/// Sends one release that must fail, and returns its error.
pub(crate) async fn release_error(store: &Arc<dyn Backend>, request: ReleaseRequest) -> BackendError {
    match release(store, request).await {
        ReleaseReply::Unknown(error) => error,
        done => panic!("{done:?}"),
    }
}

pub(crate) async fn examine(store: &Arc<dyn Backend>) -> Vec<Finding> {
    store.clone().examine().await.expect("it can be examined")
}

#[track_caller]
pub(crate) fn assert_finding(found: &[Finding], words: &str, severity: Severity) {
    let Some(finding) = found.iter().find(|finding| finding.what.contains(words)) else {
        panic!("{words:?} stands nowhere in {found:?}");
    };
    assert_eq!(finding.severity, severity, "{finding:?}");
    assert!(!finding.consequence.is_empty(), "{finding:?}");
}

#[track_caller]
pub(crate) fn assert_error(error: &BackendError, (fault, effect): (Fault, Effect), words: &str) {
    assert_eq!((error.fault(), error.effect()), (fault, effect), "{error:?}");
    assert!(error.to_string().contains(words), "{words:?} in {error}");
}

#[track_caller]
pub(crate) fn assert_waits(reply: &Result<AcquireReply, BackendError>) {
    assert!(matches!(reply, Ok(AcquireReply::Waiting { .. })), "{reply:?}");
}

#[track_caller]
pub(crate) fn assert_alive(reply: &RenewReply) {
    assert!(matches!(reply, RenewReply::Alive { .. }), "{reply:?}");
}

/// Asserts that the tokens of one grant are above those of an earlier one.
#[track_caller]
pub(crate) fn assert_tokens_rise(before: &Grant, after: &Grant) {
    let [before, after] = [before, after].map(|grant| grant.tokens.expect("tokens"));
    assert!(before.last() < after.first(), "{after:?} after {before:?}");
}

/// The `Display` and `Debug` texts of an error, and the texts of its sources.
pub(crate) fn printed(error: &BackendError) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    text
}

/// Waits for a future, for 30 s at most.
pub(crate) async fn soon<T>(coming: impl Future<Output = T>) -> T {
    let came = tokio::time::timeout(PATIENCE, coming).await;
    came.expect("it has not come within 30 s")
}

/// Polls a condition until it holds, for 30 s at most.
pub(crate) async fn wait_until(what: &str, mut happens: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !happens() {
        assert!(std::time::Instant::now() < end, "{what}: not within 30 s");
        // sleep: the server is another process, so the test polls it.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
