//! A waiting unfair claim that is polled as rarely as the engine polls it.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{AcquireReply, Claim, LockKey, Mode, Wakes};

use super::client::{TestClient, is_woken, is_woken_within};

/// Time that passes between two checks for a wake-up.
const STEP: Duration = Duration::from_millis(50);

/// Real time in which a wake-up usually arrives.
const WAKE_UP_TIME: Duration = Duration::from_millis(20);

/// An unfair claim that waits, and that is polled only after a wake-up or when its last `poll_after` has passed.
pub(super) struct Sleeper<'a> {
    client: &'a TestClient,
    claim: Arc<Claim>,
    /// `None` if the store has no wake-ups, or the fixture loses them on purpose. The claim is then polled every
    /// `STEP`.
    wakes: Option<Wakes>,
    poll_after: Duration,
}

impl TestClient {
    /// Watches a new claim with a long lease, and polls it until no further wake-up comes. Asserts that it has to wait.
    pub(super) async fn sleeps(&self, key: &LockKey, mode: Mode) -> Sleeper<'_> {
        let claim = self.claim(key, mode);
        let loses_wake_ups = self.fixture.loses_wake_ups;
        let mut sleeper = Sleeper {
            client: self,
            wakes: self.watch(&claim).await.filter(|_| !loses_wake_ups),
            claim,
            poll_after: Duration::ZERO,
        };
        sleeper.still_waits().await;
        // A store may wake a waiter when it has confirmed the subscription.
        sleeper.waits_if_woken().await;
        sleeper
    }
}

impl Sleeper<'_> {
    /// Lets time pass until the claim is polled and granted, at most `limit`.
    pub(super) async fn granted_within(mut self, limit: Duration) {
        let mut passed = Duration::ZERO;
        loop {
            passed += self.sleep(limit.saturating_sub(passed)).await;
            if self.is_granted().await {
                return;
            }
        }
    }

    /// Polls the claim until no further wake-up comes. Asserts that it still waits.
    pub(super) async fn waits_if_woken(&mut self) {
        while self.is_woken_soon().await {
            self.still_waits().await;
        }
    }

    /// Lets time pass until the claim is to be polled. Returns how much. If more than `limit` has passed, waits for a
    /// wake-up in real time, because a store on a test's clock may need that. Asserts that one comes.
    async fn sleep(&mut self, limit: Duration) -> Duration {
        let (mut passed, mut left) = (Duration::ZERO, self.poll_after);
        if self.wakes.is_none() {
            left = left.min(STEP);
        }
        while !left.is_zero() && !self.is_woken_soon().await {
            if let Some(wakes) = self.wakes.as_mut().filter(|_| passed > limit) {
                let Claim { at, mode, .. } = &*self.claim;
                assert!(is_woken(wakes).await, "{at:?} ({mode}) has slept for {passed:?}");
                break;
            }
            let step = left.min(STEP);
            self.client.fixture.pass(step).await;
            (passed, left) = (passed + step, left - step);
        }
        passed
    }

    async fn is_woken_soon(&mut self) -> bool {
        match &mut self.wakes {
            Some(wakes) => is_woken_within(wakes, WAKE_UP_TIME).await,
            None => false,
        }
    }

    async fn still_waits(&mut self) {
        assert!(!self.is_granted().await, "{:?} must wait", self.claim.at);
    }

    /// Polls the claim. Returns whether it is granted.
    async fn is_granted(&mut self) -> bool {
        match self.client.acquire(&self.claim).await {
            AcquireReply::Granted(_) => true,
            AcquireReply::Waiting { poll_after, .. } => {
                self.poll_after = poll_after;
                false
            }
            other => panic!("{:?} must wait or be granted, but is {other:?}", self.claim.at),
        }
    }
}
