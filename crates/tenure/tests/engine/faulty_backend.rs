//! A decorator that holds calls up before or after their effect, lets them fail, and counts them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{AcquireReply, Backend, BackendError, Effect, Fault, Profile, WakeSignal, Wakes};
use tenure_testkit::{Exchange, Faults, FaultyBackend, Reply, Request, When};
use tokio::sync::Notify;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Acquire,
    Renew,
    Release,
    Watch,
}

/// A store whose calls a test holds up, lets fail and counts.
pub(crate) type Stage = FaultyBackend<Script>;

/// Puts a store on stage.
pub(crate) fn stage(inner: Arc<dyn Backend>) -> Arc<Stage> {
    let profile = inner.profile().clone();
    stage_with_profile(inner, profile)
}

/// A stage that claims another profile than its store's.
pub(crate) fn stage_with_profile(inner: Arc<dyn Backend>, profile: Profile) -> Arc<Stage> {
    let script = Script {
        inner,
        acts: Mutex::default(),
        reconnects: WakeSignal::default(),
        least_lease: Mutex::default(),
        renewed_lease: Mutex::default(),
        placed: Mutex::default(),
        reserved: Mutex::default(),
    };
    Arc::new(FaultyBackend::new(script).with_profile(profile))
}

/// What a test wants to happen.
#[derive(Debug)]
pub(crate) struct Script {
    inner: Arc<dyn Backend>,
    acts: Mutex<HashMap<Verb, Arc<Act>>>,
    reconnects: WakeSignal,
    least_lease: Mutex<Duration>,
    renewed_lease: Mutex<Option<Duration>>,
    /// How many grants each claim reserved that was placed by itself.
    pub(crate) placed: Mutex<Vec<u32>>,
    /// How many grants each successor reserved.
    pub(crate) reserved: Mutex<Vec<u32>>,
}

/// What happens to the calls of one verb.
#[derive(Default)]
pub(crate) struct Act {
    /// Calls made.
    pub(crate) calls: AtomicUsize,
    /// Elements of all batches.
    pub(crate) elements: AtomicUsize,
    /// Yields before and after the effect of each call: await points.
    pub(crate) yields: AtomicU32,
    held_before: AtomicBool,
    held_after: AtomicBool,
    go: Notify,
    fail_before: AtomicUsize,
    fail_after: AtomicUsize,
    refuse: AtomicUsize,
    delay: Mutex<Duration>,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    panics: AtomicBool,
}

impl fmt::Debug for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Act")
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

impl Script {
    /// The store gives no shorter lease from here on.
    pub(crate) fn round_up_to(&self, lease: Duration) {
        *self.least_lease.lock() = lease;
    }

    /// Has the store keep what is renewed from here on for no longer than that.
    pub(crate) fn renew_for(&self, lease: Duration) {
        *self.renewed_lease.lock() = Some(lease);
    }

    /// Tells the engine that a connection was replaced.
    pub(crate) fn reconnect(&self) {
        self.reconnects.notify();
    }

    pub(crate) fn act(&self, verb: Verb) -> Arc<Act> {
        self.acts.lock().entry(verb).or_default().clone()
    }

    /// Has every call of every verb yield so often before and after its effect.
    pub(crate) fn yield_everywhere(&self, yields: u32) {
        for verb in [Verb::Acquire, Verb::Renew, Verb::Release, Verb::Watch] {
            self.act(verb).yields.store(yields, Ordering::Relaxed);
        }
    }
}

impl Script {
    fn act_of(&self, request: &Request) -> Option<Arc<Act>> {
        let verb = match request {
            Request::Acquire(..) => Verb::Acquire,
            Request::Renew(_) => Verb::Renew,
            Request::Release(_) => Verb::Release,
            Request::Watch(_) => Verb::Watch,
            Request::Inspect(_) => return None,
        };
        Some(self.act(verb))
    }

    /// Changes a request before it is sent, as the test wants it.
    fn change(&self, request: &mut Request) {
        match request {
            Request::Acquire(claim, _) => {
                self.placed.lock().push(claim.grants.get());
                let lease = claim.lease.max(*self.least_lease.lock());
                Arc::make_mut(claim).lease = lease;
            }
            Request::Renew(renewal) => {
                let most = *self.renewed_lease.lock();
                let lease = renewal.lease.max(*self.least_lease.lock());
                renewal.lease = lease.min(most.unwrap_or(Duration::MAX));
            }
            Request::Release(departure) => {
                let successor = departure.successor.as_ref();
                self.reserved
                    .lock()
                    .extend(successor.map(|successor| successor.claim.grants.get()));
            }
            Request::Watch(_) | Request::Inspect(_) => {}
        }
    }
}

impl Act {
    /// Calls from here on wait before they reach the store.
    pub(crate) fn hold_before(&self) {
        self.held_before.store(true, Ordering::Relaxed);
    }

    /// Calls from here on wait after the store has acted.
    pub(crate) fn hold_after(&self) {
        self.held_after.store(true, Ordering::Relaxed);
    }

    /// Lets all calls go on.
    pub(crate) fn go_on(&self) {
        self.held_before.store(false, Ordering::Relaxed);
        self.held_after.store(false, Ordering::Relaxed);
        self.go.notify_waiters();
    }

    /// The next calls fail without having reached the store.
    pub(crate) fn fail_before(&self, calls: usize) {
        self.fail_before.store(calls, Ordering::Relaxed);
    }

    /// The next calls fail though the store has acted.
    pub(crate) fn fail_after(&self, calls: usize) {
        self.fail_after.store(calls, Ordering::Relaxed);
    }

    /// The next calls are refused by the store, which does nothing.
    pub(crate) fn refuse(&self, calls: usize) {
        self.refuse.store(calls, Ordering::Relaxed);
    }

    /// Calls from here on take so long after their effect.
    pub(crate) fn delay(&self, time: Duration) {
        *self.delay.lock() = time;
    }

    /// Does this once, in the poll in which the store has acted on a call.
    pub(crate) fn meanwhile(&self, act: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock() = Some(Box::new(act));
    }

    /// The next call panics before it returns a future.
    pub(crate) fn panic_at_once(&self) {
        self.panics.store(true, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    async fn enter(&self, elements: usize) -> Result<(), BackendError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.elements.fetch_add(elements, Ordering::Relaxed);
        self.stop(&self.held_before).await;
        if take_one(&self.fail_before) {
            return Err(BackendError::new(
                Fault::Unavailable,
                Effect::None,
                "the test lets this call fail",
            ));
        }
        if take_one(&self.refuse) {
            return Err(BackendError::new(
                Fault::Store,
                Effect::None,
                "the test refuses this call",
            ));
        }
        Ok(())
    }

    async fn leave(&self) -> Result<(), BackendError> {
        let meanwhile = self.meanwhile.lock().take();
        if let Some(act) = meanwhile {
            act();
        }
        self.stop(&self.held_after).await;
        let delay = *self.delay.lock();
        if !delay.is_zero() {
            // sleep: time is paused, and this is the network's.
            tokio::time::sleep(delay).await;
        }
        if take_one(&self.fail_after) {
            return Err(BackendError::new(
                Fault::Unavailable,
                Effect::Unknown,
                "the test loses this reply",
            ));
        }
        Ok(())
    }

    async fn stop(&self, held: &AtomicBool) {
        for _ in 0..self.yields.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        loop {
            let go = self.go.notified();
            if !held.load(Ordering::Relaxed) {
                return;
            }
            go.await;
        }
    }
}

fn take_one(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
        .is_ok()
}

impl Faults for Script {
    fn store(&self) -> Arc<dyn Backend> {
        self.inner.clone()
    }

    fn reconnects(&self) -> Option<Wakes> {
        Some(Wakes::new(self.reconnects.clone()))
    }

    fn called(&self, requests: &[Request]) {
        let Some(act) = self.act_of(&requests[0]) else {
            return;
        };
        assert!(
            !act.panics.swap(false, Ordering::Relaxed),
            "the test lets this call panic at once"
        );
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        let Some(act) = self.act_of(&call[0].request) else {
            return;
        };
        let passed = match when {
            When::Before => {
                call.iter_mut()
                    .for_each(|element| self.change(&mut element.request));
                act.enter(call.len()).await
            }
            When::After if call[0].sent && !matches!(call[0].reply, Some(Err(_))) => act.leave().await,
            When::After => Ok(()),
        };
        for element in call {
            match (&passed, &mut element.reply) {
                (Err(error), _) => element.fail(error.clone()),
                // Held up before it was sent, it was asked for earlier than the store knows.
                (Ok(()), Some(Ok(Reply::Acquire(AcquireReply::Granted(grant))))) => {
                    grant.held_from = grant.held_from.min(element.asked);
                }
                (Ok(()), _) => {}
            }
        }
    }
}
