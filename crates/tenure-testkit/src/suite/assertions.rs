//! Assertions of a client: a claim is granted, waits, is alive or has ended, or a key is free or busy.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Claim, Grant, Instant, LockKey, Loss, Mode, Phase, RenewReply, RenewRequest,
};

use super::client::TestClient;

/// Longest time between two polls of a waiting claim.
const STEP: Duration = Duration::from_millis(50);

impl TestClient {
    /// Creates a claim with a long lease. Asserts that it is granted at once.
    pub async fn holds(&self, key: &LockKey, mode: Mode) -> Arc<Claim> {
        let claim = self.claim(key, mode);
        self.granted(&claim).await;
        claim
    }

    /// Creates a first-come, first-served claim. Asserts that it has to wait.
    pub async fn queues(&self, key: &LockKey, mode: Mode) -> Arc<Claim> {
        let claim = self.fair(key, mode);
        self.waits(&claim).await;
        claim
    }

    /// Places or polls a claim. Asserts that it is granted at once.
    pub async fn granted(&self, claim: &Arc<Claim>) -> Grant {
        match self.acquire(claim).await {
            AcquireReply::Granted(grant) => grant,
            other => panic!(
                "{:?} ({}) must be granted, but is {other:?}",
                claim.at, claim.mode
            ),
        }
    }

    /// Places or polls a claim. Asserts that it waits. Returns the number of claims ahead of it, if reported.
    pub async fn waits(&self, claim: &Arc<Claim>) -> Option<u32> {
        match self.acquire(claim).await {
            AcquireReply::Waiting { ahead, .. } => ahead,
            other => panic!("{:?} ({}) must wait, but is {other:?}", claim.at, claim.mode),
        }
    }

    /// Places or polls a claim. Asserts that it waits, with a `poll_after` of at most `limit`.
    pub async fn polls_within(&self, claim: &Arc<Claim>, limit: Duration) {
        match self.acquire(claim).await {
            AcquireReply::Waiting { poll_after, .. } => assert!(
                (Duration::from_millis(1)..=limit).contains(&poll_after),
                "`poll_after` is {poll_after:?}, and must be at most {limit:?}"
            ),
            other => panic!("{:?} must wait, but is {other:?}", claim.at),
        }
    }

    /// Polls a claim until it has ended, for at most a second: a server that follows others may not know of it yet, and say that
    /// the claim waits.
    pub async fn has_ended(&self, claim: &Arc<Claim>) {
        let mut passed = Duration::ZERO;
        loop {
            match self.acquire(claim).await {
                AcquireReply::Ended => return,
                AcquireReply::Waiting { .. } if passed < Duration::from_secs(1) => {
                    self.fixture.pass(STEP).await;
                    passed += STEP;
                }
                other => panic!("{:?} must have ended, but is {other:?}", claim.at),
            }
        }
    }

    /// Polls a claim until it is granted, for at most `limit`. If the store ends the claim and may do so, goes on with a new
    /// one like it.
    pub async fn granted_within(&self, claim: &Arc<Claim>, limit: Duration) -> Grant {
        let (mut claim, mut passed) = (claim.clone(), Duration::ZERO);
        loop {
            let next = match self.acquire(&claim).await {
                AcquireReply::Granted(grant) => return grant,
                AcquireReply::Waiting { poll_after, .. } => poll_after.clamp(Duration::from_millis(1), STEP),
                AcquireReply::Recovering => STEP,
                AcquireReply::Ended if self.fixture.subject().may_end_waiting_claims() => {
                    claim = self.claim(&claim.at.key, claim.mode);
                    STEP
                }
                other => panic!("{:?} must be granted, but is {other:?}", claim.at),
            };
            assert!(
                passed <= limit,
                "{:?} ({}) still waits after {passed:?}",
                claim.at,
                claim.mode
            );
            self.fixture.pass(next).await;
            passed += next;
        }
    }

    /// Polls a claim until it is granted, for at most 200 ms. Until then, a cooldown or a reservation of the key for
    /// another waiter may delay the grant.
    pub async fn granted_soon(&self, claim: &Arc<Claim>) -> Grant {
        self.granted_within(claim, Duration::from_millis(200)).await
    }

    /// Asserts that a new claim of `mode` is granted, and releases it.
    pub async fn finds_free(&self, key: &LockKey, mode: Mode) {
        let claim = self.claim(key, mode);
        self.granted_soon(&claim).await;
        self.release(&claim).await;
    }

    /// Asserts that the store shows nothing of a key, and that it grants the key to an exclusive claim.
    pub async fn finds_nothing(&self, key: &LockKey) {
        assert_eq!(self.status(key).await, None, "nothing is left of a claim");
        self.finds_free(key, Mode::Exclusive).await;
    }

    /// Asserts that a new claim of `mode` must wait, and withdraws it.
    pub async fn finds_busy(&self, key: &LockKey, mode: Mode) {
        let claim = self.claim(key, mode);
        self.waits(&claim).await;
        self.withdraw(&claim).await;
    }

    /// Renews a claim. Asserts that it is alive. Returns `held_from` and the lease.
    pub async fn stays_alive(&self, claim: &Claim, phase: Phase) -> (Instant, Duration) {
        self.stays_alive_as(claim, phase, |_| {}).await
    }

    /// Renews a claim, after `change` has modified the request. Asserts that the claim is alive. Returns `held_from`
    /// and the lease.
    pub async fn stays_alive_as(
        &self,
        claim: &Claim,
        phase: Phase,
        change: impl FnOnce(&mut RenewRequest),
    ) -> (Instant, Duration) {
        match self.renew_as(claim, phase, change).await {
            RenewReply::Alive { held_from, lease } => (held_from, lease),
            other => panic!("{:?} must be alive, but is {other:?}", claim.at),
        }
    }

    /// Downgrades a write claim. Asserts that it is alive.
    pub async fn downgrades(&self, claim: &Claim) {
        self.stays_alive_as(claim, Phase::Granted, |renewal| renewal.downgrade = true)
            .await;
    }

    /// Renews a claim. Asserts that it is gone. Returns the reason.
    pub async fn is_gone(&self, claim: &Claim, phase: Phase) -> Loss {
        match self.renew_as(claim, phase, |_| {}).await {
            RenewReply::Gone(loss) => loss,
            other => panic!("{:?} must be gone, but is {other:?}", claim.at),
        }
    }
}
