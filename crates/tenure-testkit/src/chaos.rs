//! Weather around any backend: delays, errors before and after the effect, duplicates, lost and spurious wakes.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, Effect, Fairness, Fault, ReleaseTarget, WakeUp, Wakes,
};

use crate::Dice;
use crate::faulty::{Exchange, Faults, FaultyBackend, Reply, Request, When};

/// How many repetitions are kept for later; when one more comes, the oldest is delivered.
const MAX_LATE: usize = 32;

/// How bad the weather is. Odds are percentages of calls, and of a batch's elements.
///
/// # Examples
/// ```
/// use tenure_testkit::Weather;
///
/// // Every third reply is lost on its way back, and nothing else happens.
/// let lossy = Weather { fails_after: 33, ..Weather::CALM };
/// assert_eq!(lossy.fails_before, 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// Each call is delayed by up to so much, drawn evenly; half of them are not delayed.
    pub delay: Duration,
    /// Odds of `Unavailable` without effect.
    pub fails_before: u8,
    /// Odds of `Unavailable` though the store has done it.
    pub fails_after: u8,
    /// Odds that a request is delivered again later, during one of the client's next calls; its answer is
    /// thrown away.
    pub repeats: u8,
    /// Odds that a wake-up is lost.
    pub loses_wake: u8,
    /// How many wake-ups are sent for nothing to each watcher, some milliseconds apart.
    pub spurious_wakes: u32,
}

impl Weather {
    /// Nothing happens.
    pub const CALM: Weather = Weather {
        delay: Duration::ZERO,
        fails_before: 0,
        fails_after: 0,
        repeats: 0,
        loses_wake: 0,
        spurious_wakes: 0,
    };
    /// A bad day: every third call is hit by something.
    pub const ROUGH: Weather = Weather {
        delay: Duration::from_millis(1),
        fails_before: 10,
        fails_after: 10,
        repeats: 25,
        loses_wake: 30,
        spurious_wakes: 3,
    };
}

/// A backend in bad weather.
///
/// It decides by its seed alone: the same calls in the same order meet the same weather. A correct store is
/// still correct behind it, so the whole conformance suite passes through it.
///
/// # Guarantees
/// - An error before the effect is `Unavailable` with [`Effect::None`], and the store was not asked; one after
///   the effect is `Unavailable` with [`Effect::Unknown`], and the store has done it. What was answered with
///   [`Effect::None`] is never repeated.
/// - Only requests that are safe to repeat are repeated: releases of named claims, renewals, and, where the
///   store remembers ended claims, placements. The eviction of everybody and of foreign holders is not.
/// - What would place an unfair claim after its client was told that it is refused is never repeated, neither its
///   placement nor a release whose successor it is: a refused unfair claim leaves nothing in the store, so its client forgets
///   it without a withdrawal, and a request that is answered and still sent again is outside the contract.
/// - Its profile is the store's, but wake-ups that were reliable are lossy.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use tenure_backend::Backend;
/// use tenure_testkit::{Chaos, Weather};
///
/// /// What an engine is tested on: the same store, and the same bad luck whenever the seed is the same.
/// fn in_bad_weather(store: Arc<dyn Backend>, seed: u64) -> Arc<dyn Backend> {
///     Arc::new(Chaos::new(store, seed, Weather::ROUGH))
/// }
/// ```
#[derive(Debug)]
pub struct Chaos {
    inner: Arc<dyn Backend>,
    weather: Weather,
    fate: Arc<Mutex<Fate>>,
}

#[derive(Debug)]
struct Fate {
    dice: Dice,
    /// Requests that will be delivered again.
    late: Vec<Request>,
}

impl Chaos {
    /// Puts `inner` into the weather that `seed` decides.
    pub fn new(inner: Arc<dyn Backend>, seed: u64, weather: Weather) -> FaultyBackend<Chaos> {
        let mut profile = inner.profile().clone();
        profile.wake_up = profile.wake_up.min(WakeUp::Lossy);
        let fate = Fate {
            dice: Dice::new(seed),
            late: Vec::new(),
        };
        let chaos = Chaos {
            inner,
            weather,
            fate: Arc::new(Mutex::new(fate)),
        };
        FaultyBackend::new(chaos).with_profile(profile)
    }

    /// The delay before a call, and the requests of earlier calls that arrive in the meantime.
    async fn meanwhile(&self) {
        let (delay, arriving) = self.next_delay();
        if delay.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(delay).await;
        }
        for request in arriving {
            self.deliver(request).await;
        }
    }

    fn next_delay(&self) -> (Duration, Vec<Request>) {
        let mut fate = self.fate.lock();
        let Fate { dice, late } = &mut *fate;
        let excess = late.len().saturating_sub(MAX_LATE);
        let mut arriving: Vec<Request> = late.drain(..excess).collect();
        if dice.chance(30) && !late.is_empty() {
            let chosen = usize::try_from(dice.below(late.len() as u64)).unwrap_or(0);
            arriving.push(late.remove(chosen));
        }
        let most = u64::try_from(self.weather.delay.as_micros()).unwrap_or(u64::MAX);
        let delay = if dice.chance(50) { 0 } else { dice.below(most) };
        (Duration::from_micros(delay), arriving)
    }

    /// Delivers a request again, and throws its answer away.
    async fn deliver(&self, request: Request) {
        let inner = self.inner.clone();
        match request {
            Request::Acquire(claim, not_after) => drop(inner.acquire(claim, not_after).await),
            Request::Renew(renewal) => drop(inner.renew(Batch::from_iter([renewal])).await),
            Request::Release(departure) => drop(inner.release(Batch::from_iter([departure])).await),
            Request::Watch(_) | Request::Inspect(_) => {}
        }
    }

    /// The request to deliver again later, if repeating it is within the contract. `lost` says that its reply will not
    /// reach the client.
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
                // The client forgets an unfair claim that was refused, so nothing would withdraw a repeated one.
                let forgotten = refused && !lost && claim.fairness == Fairness::Unfair;
                (self.inner.profile().remembers_ended && !forgotten)
                    .then_some(Request::Acquire(claim, not_after))
            }
            Request::Renew(renewal) => Some(Request::Renew(renewal)),
            Request::Release(mut departure) if matches!(departure.target, ReleaseTarget::Claim(_)) => {
                // The client forgets an unfair successor that was refused, as in `acquire`.
                departure
                    .successor
                    .take_if(|successor| successor.claim.fairness == Fairness::Unfair);
                Some(Request::Release(departure))
            }
            Request::Release(_) | Request::Watch(_) | Request::Inspect(_) => None,
        }
    }

    fn fail_before(&self, call: &mut [Exchange]) {
        let dice = &mut self.fate.lock().dice;
        for element in call {
            if dice.chance(self.weather.fails_before) {
                let message = "chaos: the request was lost before it reached the store";
                element.fail(BackendError::new(Fault::Unavailable, Effect::None, message));
            }
        }
    }

    fn fail_after(&self, call: &mut [Exchange]) {
        let Fate { dice, late } = &mut *self.fate.lock();
        for element in call.iter_mut().filter(|element| element.sent) {
            let lost = dice.chance(self.weather.fails_after);
            if dice.chance(self.weather.repeats) {
                late.extend(self.repeatable(element, lost));
            }
            match &mut element.reply {
                Some(Ok(_)) if lost => {
                    let message = "chaos: the store's answer was lost";
                    element.fail(BackendError::new(Fault::Unavailable, Effect::Unknown, message));
                }
                Some(Ok(Reply::Watch(wakes))) => self.disturb(wakes),
                _ => {}
            }
        }
    }

    /// Loses some wake-ups and adds spurious ones.
    fn disturb(&self, wakes: &mut Wakes) {
        let calm = std::mem::replace(wakes, Wakes::new(stream::empty()));
        let (fate, loses_wake) = (self.fate.clone(), self.weather.loses_wake);
        let heard = calm.filter(move |()| ready(!fate.lock().dice.chance(loses_wake)));
        let fate = self.fate.clone();
        let spurious = stream::unfold(self.weather.spurious_wakes, move |left| {
            let pause = Duration::from_millis(1 + fate.lock().dice.below(10));
            async move {
                let left = left.checked_sub(1)?;
                tokio::time::sleep(pause).await;
                Some(((), left))
            }
        });
        *wakes = Wakes::new(stream::select(heard, spurious));
    }
}

impl Faults for Chaos {
    fn store(&self) -> Arc<dyn Backend> {
        self.inner.clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        match when {
            When::Before => {
                self.meanwhile().await;
                self.fail_before(call);
            }
            When::After => self.fail_after(call),
        }
    }
}
