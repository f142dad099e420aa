//! Members that fail, and calls to a quorum.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, FencingToken,
    LockKey, Query, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, SystemClock, TokenRange,
};
use tenure_memory::MemoryStore;
use tenure_quorum::{Config, Quorum};
use tenure_testkit::{Exchange, Faults, Request, When};
use tokio::sync::Notify;

/// A member that never replies.
#[derive(Debug)]
pub(crate) struct Silent(pub(crate) Arc<dyn Backend>);

impl Faults for Silent {
    fn store(&self) -> Arc<dyn Backend> {
        self.0.clone()
    }

    async fn on(&self, _: When, _: &mut [Exchange]) {
        std::future::pending().await
    }
}

/// A member that withholds its reply to the first `acquire` until `send` is notified.
#[derive(Debug)]
pub(crate) struct LateOnce {
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) is_first: AtomicBool,
    pub(crate) send: Arc<Notify>,
}

impl Faults for LateOnce {
    fn store(&self) -> Arc<dyn Backend> {
        self.store.clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        let is_acquire = matches!(
            call,
            [Exchange {
                request: Request::Acquire(..),
                ..
            }]
        );
        if when == When::After && is_acquire && self.is_first.swap(false, Ordering::Relaxed) {
            self.send.notified().await;
        }
    }
}

pub(crate) fn stores() -> [MemoryStore; 3] {
    std::array::from_fn(|_| MemoryStore::new(Arc::new(SystemClock)))
}

pub(crate) fn member(store: &MemoryStore) -> Arc<dyn Backend> {
    store.client(Arc::new(SystemClock))
}

pub(crate) fn quorum(members: Vec<Arc<dyn Backend>>) -> Arc<Quorum> {
    let config = Config::default().member_timeout(Duration::from_millis(50));
    Quorum::new(members, config).unwrap()
}

pub(crate) fn key() -> LockKey {
    LockKey::new("k").unwrap()
}

/// A claim of the client with this number.
pub(crate) fn claim(client: u8) -> Arc<Claim> {
    let id = ClaimId::new(ClientId::from_random([client; 16]), 1);
    Arc::new(Claim::of(ClaimRef { key: key(), id }, Duration::from_secs(30)))
}

pub(crate) async fn acquire(quorum: &Arc<Quorum>, claim: &Arc<Claim>) -> Result<AcquireReply, BackendError> {
    let not_after = quorum.clock().now() + Duration::from_secs(5);
    quorum.clone().acquire(claim.clone(), not_after).await
}

pub(crate) async fn release(quorum: &Arc<Quorum>, claim: &Claim) -> ReleaseReply {
    let request = ReleaseRequest::of(claim, Cause::Unlocked);
    let mut replies = quorum.clone().release(Batch::from_iter([request])).await;
    replies.pop().expect("one reply")
}

/// Whether a store shows a holder of the key.
pub(crate) async fn is_held(store: &MemoryStore) -> bool {
    let page = member(store).inspect(Query::Key(key())).await.unwrap();
    !page.items.is_empty()
}

/// Lifts the token counter of one member far above those of the others.
pub(crate) async fn lift_counter(store: &MemoryStore) {
    let member = member(store);
    let claim = claim(9);
    let not_after = member.clock().now() + Duration::from_secs(5);
    let Ok(AcquireReply::Granted(grant)) = member.clone().acquire(claim.clone(), not_after).await else {
        panic!("the key is free");
    };
    let drawn = grant.tokens.expect("memory has tokens").first().get();
    let high = FencingToken::new(drawn + 1_000_000_000_000)
        .and_then(|token| TokenRange::new(token, NonZeroU32::MIN));
    let raise = RenewRequest {
        raise: high,
        ..RenewRequest::of(&claim)
    };
    let raised = member.clone().renew(Batch::from_iter([raise])).await;
    assert!(matches!(raised[..], [RenewReply::Alive { .. }]));
    let release = ReleaseRequest::of(&claim, Cause::Unlocked);
    let released = member.release(Batch::from_iter([release])).await;
    assert!(matches!(released[..], [ReleaseReply::Done { .. }]));
}
