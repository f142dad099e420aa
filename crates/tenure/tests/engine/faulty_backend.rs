//! A backend for tests that delays calls before or after their effect, makes them fail, and counts them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, ClaimId, ClientId, Effect, Fault, Invalidation, InvalidationQueue,
    Invalidations, Profile,
};
use tenure_testkit::{Exchange, Faults, Reply, Request, When};
use tokio::sync::Notify;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Acquire,
    Renew,
    Release,
    Watch,
}

/// A store whose calls a test can hold, fail and count.
pub(crate) type FaultyBackend = tenure_testkit::FaultyBackend<CallControls>;

pub(crate) fn faulty(inner: Arc<dyn Backend>) -> Arc<FaultyBackend> {
    let profile = inner.profile().clone();
    faulty_with_profile(inner, profile)
}

/// Wraps a store, and reports another profile than the store's.
pub(crate) fn faulty_with_profile(inner: Arc<dyn Backend>, profile: Profile) -> Arc<FaultyBackend> {
    let controls = CallControls {
        inner,
        controls: Mutex::default(),
        invalidations: InvalidationQueue::default(),
        subscriptions: AtomicUsize::new(0),
        least_lease: Mutex::default(),
        renewed_lease: Mutex::default(),
        lease_age: Mutex::default(),
        keeps_writers: AtomicBool::new(false),
        answer_after_failure: Mutex::default(),
        failed_claims: Mutex::default(),
        placed: Mutex::default(),
        reserved: Mutex::default(),
    };
    Arc::new(FaultyBackend::new(controls).with_profile(profile))
}

/// The faults and counters that a test controls.
#[derive(Debug)]
pub(crate) struct CallControls {
    inner: Arc<dyn Backend>,
    controls: Mutex<HashMap<Verb, Arc<CallControl>>>,
    invalidations: InvalidationQueue,
    subscriptions: AtomicUsize,
    least_lease: Mutex<Duration>,
    renewed_lease: Mutex<Option<Duration>>,
    lease_age: Mutex<Duration>,
    /// True if the store refuses to downgrade claims.
    pub(crate) keeps_writers: AtomicBool,
    /// If `Some`, the first acquire of each claim fails, and the next ones have this answer without asking the store: `Ended` as
    /// by a quorum that has withdrawn the claim, `TooLate` as by a store without a free connection.
    pub(crate) answer_after_failure: Mutex<Option<AcquireReply>>,
    failed_claims: Mutex<HashSet<ClaimId>>,
    /// For each `acquire` call, the number of tokens that its claim reserves.
    pub(crate) placed: Mutex<Vec<u32>>,
    /// For each successor in a release, the number of tokens that its claim reserves.
    pub(crate) reserved: Mutex<Vec<u32>>,
}

/// The faults and counters of the calls of one verb.
#[derive(Default)]
pub(crate) struct CallControl {
    pub(crate) calls: AtomicUsize,
    /// Number of claims in all calls together: a call has a batch of them.
    pub(crate) elements: AtomicUsize,
    /// How often each call yields before its effect, and again after it. Each yield is an await point.
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

impl fmt::Debug for CallControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallControl")
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

impl CallControls {
    /// Makes the store grant and renew leases of at least `lease` from now on.
    pub(crate) fn round_up_to(&self, lease: Duration) {
        *self.least_lease.lock() = lease;
    }

    /// Makes the store keep renewed claims for at most this lease from now on.
    pub(crate) fn renew_for(&self, lease: Duration) {
        *self.renewed_lease.lock() = Some(lease);
    }

    /// Makes the leases of grants count from this time before the request, as those of shared leases do.
    pub(crate) fn age_leases(&self, age: Duration) {
        *self.lease_age.lock() = age;
    }

    /// Reports to the engine that the connection to the store was replaced.
    pub(crate) fn reconnect(&self) {
        self.invalidate(Invalidation::All);
    }

    /// Reports to the engine that claims may be gone.
    pub(crate) fn invalidate(&self, invalidation: Invalidation) {
        self.invalidations.push(invalidation);
    }

    /// How often the engine has subscribed to invalidations.
    pub(crate) fn subscriptions(&self) -> usize {
        self.subscriptions.load(Ordering::Relaxed)
    }

    pub(crate) fn control(&self, verb: Verb) -> Arc<CallControl> {
        self.controls.lock().entry(verb).or_default().clone()
    }

    /// Makes every call of every verb yield `yields` times before its effect, and as often after it.
    pub(crate) fn yield_everywhere(&self, yields: u32) {
        for verb in [Verb::Acquire, Verb::Renew, Verb::Release, Verb::Watch] {
            self.control(verb).yields.store(yields, Ordering::Relaxed);
        }
    }
}

impl CallControls {
    fn control_of(&self, request: &Request) -> Option<Arc<CallControl>> {
        let verb = match request {
            Request::Acquire(..) => Verb::Acquire,
            Request::Renew(_) => Verb::Renew,
            Request::Release(_) => Verb::Release,
            Request::Watch(_) => Verb::Watch,
            Request::Inspect(_) => return None,
        };
        Some(self.control(verb))
    }

    /// Notes how many tokens a request reserves, and changes its lease as the test demands.
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

    /// Lets the first acquire of a claim fail, and answers the next ones.
    fn fail_or_answer(&self, element: &mut Exchange, answer: &AcquireReply) {
        let Request::Acquire(claim, _) = &element.request else {
            return;
        };
        match self.failed_claims.lock().insert(claim.at.id) {
            true => element.fail(unavailable()),
            false => element.reply = Some(Ok(Reply::Acquire(answer.clone()))),
        }
    }
}

impl CallControl {
    /// From now on, holds calls before they reach the store.
    pub(crate) fn hold_before(&self) {
        self.held_before.store(true, Ordering::Relaxed);
    }

    /// From now on, holds calls after their effect in the store.
    pub(crate) fn hold_after(&self) {
        self.held_after.store(true, Ordering::Relaxed);
    }

    pub(crate) fn resume(&self) {
        self.held_before.store(false, Ordering::Relaxed);
        self.held_after.store(false, Ordering::Relaxed);
        self.go.notify_waiters();
    }

    /// Makes the next `calls` calls fail before they reach the store.
    pub(crate) fn fail_before(&self, calls: usize) {
        self.fail_before.store(calls, Ordering::Relaxed);
    }

    /// Makes the next `calls` calls fail after their effect in the store.
    pub(crate) fn fail_after(&self, calls: usize) {
        self.fail_after.store(calls, Ordering::Relaxed);
    }

    /// Makes the store refuse the next `calls` calls: a permanent error, without effect.
    pub(crate) fn refuse(&self, calls: usize) {
        self.refuse.store(calls, Ordering::Relaxed);
    }

    /// From now on, delays replies by `time`.
    pub(crate) fn delay(&self, time: Duration) {
        *self.delay.lock() = time;
    }

    /// Runs `act` during the next call, after its effect in the store and before its reply.
    pub(crate) fn meanwhile(&self, act: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock() = Some(Box::new(act));
    }

    /// Makes the next call panic before it returns a future.
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
            return Err(unavailable());
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
            // sleep: time is paused, and this simulates the network.
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

fn unavailable() -> BackendError {
    BackendError::new(Fault::Unavailable, Effect::None, "the test lets this call fail")
}

fn take_one(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
        .is_ok()
}

impl Faults for CallControls {
    fn store(&self) -> Arc<dyn Backend> {
        self.inner.clone()
    }

    fn invalidations(&self, _: ClientId) -> Option<Invalidations> {
        self.subscriptions.fetch_add(1, Ordering::Relaxed);
        Some(self.invalidations.invalidations(|| {}))
    }

    fn called(&self, requests: &[Request]) {
        let Some(control) = self.control_of(&requests[0]) else {
            return;
        };
        assert!(
            !control.panics.swap(false, Ordering::Relaxed),
            "the test lets this call panic at once"
        );
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        let Some(control) = self.control_of(&call[0].request) else {
            return;
        };
        let passed = match when {
            When::Before => {
                call.iter_mut()
                    .for_each(|element| self.change(&mut element.request));
                let keeps_writers = self.keeps_writers.load(Ordering::Relaxed);
                let downgrades = |request: &Request| matches!(request, Request::Renew(one) if one.downgrade);
                for element in call
                    .iter_mut()
                    .filter(|element| keeps_writers && downgrades(&element.request))
                {
                    element.fail(BackendError::unsupported("the test refuses downgrades"));
                }
                let entered = control.enter(call.len()).await;
                if let Some(answer) = &*self.answer_after_failure.lock() {
                    call.iter_mut()
                        .for_each(|element| self.fail_or_answer(element, answer));
                }
                entered
            }
            When::After if call[0].sent && !matches!(call[0].reply, Some(Err(_))) => control.leave().await,
            When::After => Ok(()),
        };
        for element in call {
            match (&passed, &mut element.reply) {
                (Err(error), _) => element.fail(error.clone()),
                // The lease counts from the engine's call, although a held call reaches the store later.
                (Ok(()), Some(Ok(Reply::Acquire(AcquireReply::Granted(grant))))) => {
                    grant.confirmed_from = grant.confirmed_from.min(element.asked);
                    let age = self.lease_age.lock().as_nanos() as u64;
                    let held_from = grant.held_from.min(element.asked).as_nanos();
                    grant.held_from = tenure_backend::Instant::from_nanos(held_from.saturating_sub(age));
                }
                (Ok(()), _) => {}
            }
        }
    }
}
