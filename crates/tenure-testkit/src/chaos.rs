//! Random faults around any backend: delays, errors before and after the effect, repeated requests, lost and spurious
//! wake-ups and invalidations.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, ClientId, Effect, Fairness, Fault, Invalidation,
    Invalidations, ReleaseTarget, WakeUp, Wakes,
};

use crate::Dice;
use crate::faulty::{Exchange, Faults, FaultyBackend, Reply, Request, When};

/// Maximum number of requests kept for a late repetition. If there are more, the next call repeats the oldest ones.
const MAX_LATE: usize = 32;

/// How often [`Chaos`] injects each fault. Rates are percentages of single calls and of batch elements.
///
/// # Examples
/// ```
/// use tenure_testkit::FaultRates;
///
/// // Loses about a third of the replies, and injects no other fault.
/// let lossy = FaultRates { fails_after: 33, ..FaultRates::NONE };
/// assert_eq!(lossy.fails_before, 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRates {
    /// Maximum delay of a call. Half of the calls are not delayed; each other call has a uniformly random delay below
    /// this.
    pub delay: Duration,
    /// Percentage of `Unavailable` errors without effect: the request is lost.
    pub fails_before: u8,
    /// Percentage of `Unavailable` errors after the store has acted: the reply is lost.
    pub fails_after: u8,
    /// Percentage of requests that are delivered again, during a later call of the client. The second reply is
    /// discarded.
    pub repeats: u8,
    /// Percentage of lost wake-ups.
    pub loses_wake: u8,
    /// Number of spurious wake-ups for each watcher, a few milliseconds apart.
    pub spurious_wakes: u32,
}

impl FaultRates {
    /// No faults.
    pub const NONE: FaultRates = FaultRates {
        delay: Duration::ZERO,
        fails_before: 0,
        fails_after: 0,
        repeats: 0,
        loses_wake: 0,
        spurious_wakes: 0,
    };
    /// High rates: about 40 % of calls have a fault other than a delay.
    pub const HIGH: FaultRates = FaultRates {
        delay: Duration::from_millis(1),
        fails_before: 10,
        fails_after: 10,
        repeats: 25,
        loses_wake: 30,
        spurious_wakes: 3,
    };
}

/// Injects random faults between a client and a backend.
///
/// The seed decides everything: the same calls in the same order get the same faults. A correct store stays correct
/// behind these faults, so it passes the whole conformance suite behind them too.
///
/// # Guarantees
/// - An error before the effect is `Unavailable` with [`Effect::None`], and the store did not receive the request. An
///   error after the effect is `Unavailable` with [`Effect::Unknown`], and the store has acted. A request that was
///   answered with [`Effect::None`] is never repeated.
/// - Only requests that are safe to repeat are repeated: releases of named claims, renewals, and placements if the
///   store remembers ended claims. Evictions of all holders or of foreign holders are not repeated.
/// - The placement of an unfair claim is never repeated once the client knows that the store refused it, neither as a
///   claim of its own nor as a successor. A refused unfair claim leaves nothing in the store, so its client forgets it
///   without a withdrawal: nothing would withdraw the claim if a repetition placed it.
/// - The profile is that of the store, but reliable wake-ups become lossy.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use tenure_backend::Backend;
/// use tenure_testkit::{Chaos, FaultRates};
///
/// /// Puts random faults in front of a store. The same seed gives the same faults.
/// fn unreliable(store: Arc<dyn Backend>, seed: u64) -> Arc<dyn Backend> {
///     Arc::new(Chaos::new(store, seed, FaultRates::HIGH))
/// }
/// ```
#[derive(Debug)]
pub struct Chaos {
    inner: Arc<dyn Backend>,
    rates: FaultRates,
    state: Arc<Mutex<ChaosState>>,
}

#[derive(Debug)]
struct ChaosState {
    dice: Dice,
    /// Requests to be delivered again.
    late: Vec<Request>,
}

impl Chaos {
    /// Puts random faults in front of `inner`, with these rates and this seed.
    pub fn new(inner: Arc<dyn Backend>, seed: u64, rates: FaultRates) -> FaultyBackend<Chaos> {
        let mut profile = inner.profile().clone();
        profile.wake_up = profile.wake_up.min(WakeUp::Lossy);
        let state = ChaosState {
            dice: Dice::new(seed),
            late: Vec::new(),
        };
        let chaos = Chaos {
            inner,
            rates,
            state: Arc::new(Mutex::new(state)),
        };
        FaultyBackend::new(chaos).with_profile(profile)
    }

    /// Waits for the call's random delay. Then sends some earlier requests again.
    async fn delay_call(&self) {
        let (delay, due) = self.next_delay();
        if delay.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(delay).await;
        }
        for request in due {
            self.deliver_late(request).await;
        }
    }

    fn next_delay(&self) -> (Duration, Vec<Request>) {
        let mut state = self.state.lock();
        let ChaosState { dice, late } = &mut *state;
        let excess = late.len().saturating_sub(MAX_LATE);
        let mut due: Vec<Request> = late.drain(..excess).collect();
        if dice.chance(30) && !late.is_empty() {
            let chosen = usize::try_from(dice.below(late.len() as u64)).unwrap_or(0);
            due.push(late.remove(chosen));
        }
        let most = u64::try_from(self.rates.delay.as_micros()).unwrap_or(u64::MAX);
        let delay = if dice.chance(50) { 0 } else { dice.below(most) };
        (Duration::from_micros(delay), due)
    }

    /// Repeats a request to the store, and discards the reply.
    async fn deliver_late(&self, request: Request) {
        let inner = self.inner.clone();
        match request {
            Request::Acquire(claim, not_after) => drop(inner.acquire(claim, not_after).await),
            Request::Renew(renewal) => drop(inner.renew(Batch::from_iter([renewal])).await),
            Request::Release(release) => drop(inner.release(Batch::from_iter([release])).await),
            Request::Watch(_) | Request::Inspect(_) => {}
        }
    }

    /// Returns the request to deliver again later, or `None` if the contract does not allow a repetition. If `lost` is
    /// true, the client does not receive the reply.
    fn repeatable(&self, element: &Exchange, lost: bool) -> Option<Request> {
        if let Some(Err(error)) = &element.reply
            && error.effect() == Effect::None
        {
            return None;
        }
        match element.request.clone() {
            Request::Acquire(claim, not_after) => {
                let refused = matches!(
                    element.reply,
                    Some(Ok(Reply::Acquire(
                        AcquireReply::Waiting { .. } | AcquireReply::Recovering
                    )))
                );
                // The client forgets a refused unfair claim: nothing would withdraw it if the repetition placed it.
                let is_forgotten = refused && !lost && claim.fairness == Fairness::Unfair;
                (self.inner.profile().remembers_ended && !is_forgotten)
                    .then_some(Request::Acquire(claim, not_after))
            }
            Request::Renew(renewal) => Some(Request::Renew(renewal)),
            Request::Release(mut release) if matches!(release.target, ReleaseTarget::Claim(_)) => {
                // The client also forgets a refused unfair successor, so the repetition must not place it.
                release
                    .successor
                    .take_if(|successor| successor.claim.fairness == Fairness::Unfair);
                Some(Request::Release(release))
            }
            Request::Release(_) | Request::Watch(_) | Request::Inspect(_) => None,
        }
    }

    fn fail_before(&self, call: &mut [Exchange]) {
        let dice = &mut self.state.lock().dice;
        for element in call {
            if dice.chance(self.rates.fails_before) {
                let message = "chaos: the request was lost before it reached the store";
                element.fail(BackendError::new(Fault::Unavailable, Effect::None, message));
            }
        }
    }

    fn fail_after(&self, call: &mut [Exchange]) {
        let ChaosState { dice, late } = &mut *self.state.lock();
        for element in call.iter_mut().filter(|element| element.sent) {
            let lost = dice.chance(self.rates.fails_after);
            if dice.chance(self.rates.repeats) {
                late.extend(self.repeatable(element, lost));
            }
            match &mut element.reply {
                Some(Ok(_)) if lost => {
                    let message = "chaos: the store's reply was lost";
                    element.fail(BackendError::new(Fault::Unavailable, Effect::Unknown, message));
                }
                Some(Ok(Reply::Watch(wakes))) => self.disturb(wakes),
                _ => {}
            }
        }
    }

    /// Loses some wake-ups and adds spurious ones.
    fn disturb(&self, wakes: &mut Wakes) {
        let wake_ups = std::mem::replace(wakes, Wakes::new(stream::empty()));
        let (state, loses_wake) = (self.state.clone(), self.rates.loses_wake);
        let kept = wake_ups.filter(move |()| ready(!state.lock().dice.chance(loses_wake)));
        let state = self.state.clone();
        let spurious = stream::unfold(self.rates.spurious_wakes, move |left| {
            let pause = Duration::from_millis(1 + state.lock().dice.below(10));
            async move {
                let left = left.checked_sub(1)?;
                tokio::time::sleep(pause).await;
                Some(((), left))
            }
        });
        *wakes = Wakes::new(stream::select(kept, spurious));
    }
}

impl Faults for Chaos {
    fn store(&self) -> Arc<dyn Backend> {
        self.inner.clone()
    }

    /// Sends no hints, or only false ones, or each one twice.
    fn invalidations(&self, client: ClientId) -> Option<Invalidations> {
        let hints = self.inner.clone().invalidations(client)?;
        match self.state.lock().dice.below(3) {
            0 => None,
            1 => {
                let again = stream::unfold(self.rates.spurious_wakes, async |left| {
                    let left = left.checked_sub(1)?;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    Some((Invalidation::All, left))
                });
                let first = stream::iter([Invalidation::All]);
                Some(Invalidations::new(first.chain(again).chain(stream::pending())))
            }
            _ => {
                let twice = hints.flat_map(|hint| stream::iter([hint.clone(), hint]));
                Some(Invalidations::new(twice))
            }
        }
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        match when {
            When::Before => {
                self.delay_call().await;
                self.fail_before(call);
            }
            When::After => self.fail_after(call),
        }
    }
}
