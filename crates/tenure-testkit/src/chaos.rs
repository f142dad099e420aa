//! Weather around any backend: delays, errors before and after the effect, duplicates, lost and spurious wakes.
//! What is deliberately not here: faults of the store itself; see `tenure-servers` for killed and paused ones.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use tenure_backend::{
    Backend, BackendError, Batch, Call, Claim, Clock, Departure, Each, Effect, Fairness, Fault, Finding,
    Holder, Instant, LockStatus, Page, Profile, Query, Released, Renewal, Renewed, Standing, WakeUp, Wakes,
};

use crate::Dice;

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
///   placement nor a release whose heir it is: a refused unfair claim leaves nothing in the store, so its client forgets
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
    profile: Profile,
    weather: Weather,
    fate: Mutex<Fate>,
}

#[derive(Debug)]
struct Fate {
    dice: Dice,
    late: Vec<Late>,
}

/// A request that will be delivered again.
#[derive(Debug)]
enum Late {
    Acquire(Arc<Claim>, Instant),
    Renew(Renewal),
    Release(Departure),
}

/// What happens to one request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fortune {
    Fair,
    FailsBefore,
    FailsAfter,
}

impl Chaos {
    /// Puts `inner` into the weather that `seed` decides.
    pub fn new(inner: Arc<dyn Backend>, seed: u64, weather: Weather) -> Self {
        let mut profile = inner.profile().clone();
        profile.wake_up = profile.wake_up.min(WakeUp::Lossy);
        let fate = Fate {
            dice: Dice::new(seed),
            late: Vec::new(),
        };
        Chaos {
            inner,
            profile,
            weather,
            fate: Mutex::new(fate),
        }
    }

    fn fortune(&self) -> Fortune {
        let dice = &mut self.fate.lock().dice;
        if dice.chance(self.weather.fails_before) {
            Fortune::FailsBefore
        } else if dice.chance(self.weather.fails_after) {
            Fortune::FailsAfter
        } else {
            Fortune::Fair
        }
    }

    /// Keeps a request that has reached the store for later, sometimes.
    fn maybe_repeat(&self, again: Option<Late>) {
        let mut fate = self.fate.lock();
        if fate.dice.chance(self.weather.repeats) {
            fate.late.extend(again);
        }
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

    fn next_delay(&self) -> (Duration, Vec<Late>) {
        let mut fate = self.fate.lock();
        let Fate { dice, late } = &mut *fate;
        let excess = late.len().saturating_sub(MAX_LATE);
        let mut arriving: Vec<Late> = late.drain(..excess).collect();
        if dice.chance(30) && !late.is_empty() {
            let chosen = usize::try_from(dice.below(late.len() as u64)).unwrap_or(0);
            arriving.push(late.remove(chosen));
        }
        let most = u64::try_from(self.weather.delay.as_micros()).unwrap_or(u64::MAX);
        let delay = if dice.chance(50) { 0 } else { dice.below(most) };
        (Duration::from_micros(delay), arriving)
    }

    async fn deliver(&self, request: Late) {
        let inner = self.inner.clone();
        match request {
            Late::Acquire(claim, place_by) => drop(inner.acquire(claim, place_by).await),
            Late::Renew(renewal) => drop(inner.renew(Batch::from_iter([renewal])).await),
            Late::Release(departure) => drop(inner.release(Batch::from_iter([departure])).await),
        }
    }

    /// A request of its own weather. It may be repeated later, unless it is certain that it had no effect.
    ///
    /// `done` says of an answer that reached the client whether it ended the matter: what was answered so is not sent
    /// again.
    async fn lone<T>(
        &self,
        call: impl FnOnce() -> Call<T>,
        again: Option<Late>,
        done: impl FnOnce(&T) -> bool,
    ) -> Result<T, BackendError> {
        self.meanwhile().await;
        let fortune = self.fortune();
        if fortune == Fortune::FailsBefore {
            return Err(before());
        }
        let answer = call().await;
        let refused = match &answer {
            Ok(answer) => fortune == Fortune::Fair && done(answer),
            Err(error) => error.effect() == Effect::None,
        };
        self.maybe_repeat(again.filter(|_| !refused));
        if fortune == Fortune::FailsAfter {
            answer.and(Err(after()))
        } else {
            answer
        }
    }

    /// A batch in which each element meets its own weather.
    async fn each<Q, A>(
        &self,
        batch: Batch<Q>,
        call: impl FnOnce(Batch<Q>) -> Each<A>,
        again: impl Fn(&Q) -> Option<Late>,
        unknown: impl Fn(BackendError) -> A,
    ) -> Batch<A> {
        self.meanwhile().await;
        let fortunes: Vec<Fortune> = batch.iter().map(|_| self.fortune()).collect();
        let arriving = batch.into_iter().zip(&fortunes);
        let arriving: Batch<Q> = arriving
            .filter(|(_, fortune)| **fortune != Fortune::FailsBefore)
            .map(|(element, _)| element)
            .collect();
        let late: Vec<Option<Late>> = arriving.iter().map(again).collect();
        let answers = if arriving.is_empty() {
            Batch::new()
        } else {
            call(arriving).await
        };
        late.into_iter().for_each(|again| self.maybe_repeat(again));
        let mut answers = answers.into_iter();
        let answer = |fortune| match fortune {
            Fortune::FailsBefore => Some(unknown(before())),
            Fortune::Fair => answers.next(),
            Fortune::FailsAfter => answers.next().map(|_| unknown(after())),
        };
        fortunes.into_iter().filter_map(answer).collect()
    }
}

fn before() -> BackendError {
    let message = "chaos: the request was lost before it reached the store";
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

fn after() -> BackendError {
    let message = "chaos: the store's answer was lost";
    BackendError::new(Fault::Unavailable, Effect::Unknown, message)
}

impl Backend for Chaos {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.inner.clock()
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, place_by: Instant) -> Call<Standing> {
        Call::new(async move {
            let remembers = self.profile.remembers_ended;
            let again = remembers.then(|| Late::Acquire(claim.clone(), place_by));
            let unfair = claim.fairness == Fairness::Unfair;
            // Its client forgets an unfair claim that was refused: nobody would withdraw it.
            let refused =
                |standing: &Standing| matches!(standing, Standing::Waiting { .. } | Standing::Recovering);
            let done = move |standing: &Standing| unfair && refused(standing);
            self.lone(|| self.inner.clone().acquire(claim, place_by), again, done)
                .await
        })
    }

    fn renew(self: Arc<Self>, batch: Batch<Renewal>) -> Each<Renewed> {
        Each::new(async move {
            let call = |batch| self.inner.clone().renew(batch);
            let again = |renewal: &Renewal| Some(Late::Renew(renewal.clone()));
            self.each(batch, call, again, Renewed::Unknown).await
        })
    }

    fn release(self: Arc<Self>, batch: Batch<Departure>) -> Each<Released> {
        Each::new(async move {
            let call = |batch| self.inner.clone().release(batch);
            let again = |departure: &Departure| {
                let named = matches!(departure.who, Holder::Claim(_));
                named.then(|| {
                    let mut again = departure.clone();
                    // An unfair heir that was told of its refusal is forgotten by its client, as in `acquire`.
                    again.heir.take_if(|heir| heir.claim.fairness == Fairness::Unfair);
                    Late::Release(again)
                })
            };
            self.each(batch, call, again, Released::Unknown).await
        })
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        Call::new(async move {
            let wakes = self
                .lone(|| self.inner.clone().watch(claim), None, |_| true)
                .await?;
            let heard = wakes.filter({
                let chaos = self.clone();
                move |()| ready(!chaos.fate.lock().dice.chance(chaos.weather.loses_wake))
            });
            let spurious = stream::unfold(self.weather.spurious_wakes, move |left| {
                let pause = Duration::from_millis(1 + self.fate.lock().dice.below(10));
                async move {
                    let left = left.checked_sub(1)?;
                    tokio::time::sleep(pause).await;
                    Some(((), left))
                }
            });
            Ok(Wakes::new(stream::select(heard, spurious)))
        })
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        Call::new(async move {
            self.lone(|| self.inner.clone().inspect(query), None, |_| true)
                .await
        })
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        Call::new(async move { self.lone(|| self.inner.clone().examine(), None, |_| true).await })
    }

    fn close(self: Arc<Self>) -> Call<()> {
        Call::new(async move { self.inner.clone().close().await })
    }
}
