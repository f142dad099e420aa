//! Asking the store for one claim until it is granted: wake-ups, always backed by polls.
//! For whom it asks is the caller's business.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use tenure_backend::{BackendError, Call, Claim, Effect, Grant, Instant, Standing, WakeUp, Wakes};
use tokio::sync::Notify;

use crate::engine::Engine;
use crate::release::backoff;
use crate::timer::{nap, within};

/// How often a claim is polled at least where no wake-up can come.
const POLL: Duration = Duration::from_millis(100);
/// How soon a claim is polled again at the soonest, whatever the store advises: nobody is to spin.
const SOON: Duration = Duration::from_millis(1);
/// How long after a failed attempt to listen the next one is made.
const REARM: Duration = Duration::from_secs(1);

/// How the search ended.
pub(crate) enum Found {
    /// Uncertain, if any call's outcome was unknown: it may still be on its way.
    Granted { grant: Grant, uncertain: bool },
    /// The claim was ended by somebody else.
    Ended,
    /// The store refused for good. Uncertain, if any call's outcome was unknown: the claim may be there.
    Failed { error: BackendError, uncertain: bool },
    /// Nobody wants it any more. Uncertain, if any call's outcome was unknown: the claim may be there.
    Stopped { uncertain: bool },
}

/// Asks for `claim` until it is granted, or until `wanted` (how soon to look again) says `None`.
///
/// `bell` is rung when `wanted` may have changed its mind. Weather is not an answer: an unavailable store is asked
/// again. `pause` is what to do before the first poll.
pub(crate) async fn seek(
    engine: &Engine,
    claim: &Arc<Claim>,
    mut pause: Pause,
    bell: &Notify,
    wanted: impl Fn() -> Option<Duration>,
) -> Found {
    let mut seeker = Seeker {
        engine,
        claim,
        wakes: None,
        rearm_at: Instant::ORIGIN,
        arming: None,
        failures: 0,
        uncertain: false,
    };
    loop {
        let time = match pause {
            Pause::ForWakeUp(time) => {
                seeker.listen().await;
                time
            }
            Pause::Blind(time) => {
                seeker.wakes = None;
                time
            }
        };
        if !seeker.wait(time, bell, &wanted).await {
            return Found::Stopped {
                uncertain: seeker.uncertain,
            };
        }
        pause = match pause {
            // Armed first: whatever happened meanwhile is found by the poll that follows.
            Pause::Blind(_) => Pause::ForWakeUp(Duration::ZERO),
            Pause::ForWakeUp(_) => match seeker.ask().await {
                Ok(pause) => pause,
                Err(found) => return found,
            },
        };
    }
}

/// What to do before the next poll.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pause {
    /// Wait for a wake-up, but no longer than that.
    ForWakeUp(Duration),
    /// Leave the store alone for so long, whatever wakes: it did not answer, or others are to go first.
    Blind(Duration),
}

struct Seeker<'a> {
    engine: &'a Engine,
    claim: &'a Arc<Claim>,
    wakes: Option<Wakes>,
    rearm_at: Instant,
    /// A request to listen that the store has not answered: polls do not wait for it.
    arming: Option<Call<Wakes>>,
    failures: u32,
    uncertain: bool,
}

impl Seeker<'_> {
    /// Arms the wake-up unless it is armed. A poll follows.
    async fn listen(&mut self) {
        let poll_only = self.engine.backend.profile().wake_up == WakeUp::Poll;
        if self.wakes.is_some() || poll_only || self.engine.clock.now() < self.rearm_at {
            return;
        }
        let mut arming = self
            .arming
            .take()
            .unwrap_or_else(|| self.engine.backend.watch(self.claim.clone()));
        match within(self.engine, POLL, poll_fn(|cx| Pin::new(&mut arming).poll(cx))).await {
            None => self.arming = Some(arming),
            Some(Ok(wakes)) => self.wakes = Some(wakes),
            Some(Err(error)) => {
                tracing::debug!(key = %self.claim.at.key, %error, "no wake-ups: polling only");
                self.rearm_at = self.engine.clock.now() + REARM;
            }
        }
    }

    /// Asks once. `Ok` is what to do before the next time.
    async fn ask(&mut self) -> Result<Pause, Found> {
        let asked = self.engine.clock.now();
        let place_by = self.engine.place_by(asked);
        let answer = self.engine.backend.acquire(self.claim.clone(), place_by).await;
        if answer.is_ok() {
            self.engine.weather_is_over();
        }
        match answer {
            Ok(Standing::Granted(grant)) => {
                let uncertain = self.uncertain;
                return Err(Found::Granted { grant, uncertain });
            }
            Ok(Standing::Ended) => return Err(Found::Ended),
            Ok(Standing::Waiting { poll_after, .. }) => {
                self.failures = 0;
                // From when it was asked: an answer that was long on the way, or read late, does not put off the next poll.
                let poll_after = asked + poll_after - self.engine.clock.now();
                let most = if self.wakes.is_some() { Duration::MAX } else { POLL };
                return Ok(Pause::ForWakeUp(self.spread(poll_after.clamp(SOON, most))));
            }
            Ok(Standing::TooLate | Standing::Recovering) => {}
            Err(error) if error.is_weather() => {
                self.uncertain |= error.effect() == Effect::Unknown;
                self.engine.tell_weather(&self.claim.at.key, &error);
            }
            Err(error) => {
                let uncertain = self.uncertain || error.effect() == Effect::Unknown;
                return Err(Found::Failed { error, uncertain });
            }
        }
        self.failures += 1;
        Ok(Pause::Blind(backoff(self.failures, self.engine.dice())))
    }

    /// A little more than `time`, differently for each client, so that they do not all ask at once.
    fn spread(&self, time: Duration) -> Duration {
        let most = (time / 8).min(Duration::from_millis(50));
        time + most.mul_f64((self.engine.dice() % 1024) as f64 / 1024.0)
    }

    /// Waits for a wake-up or `time`; false if nobody wants the claim any more.
    async fn wait(&mut self, time: Duration, bell: &Notify, wanted: &impl Fn() -> Option<Duration>) -> bool {
        let clock = &self.engine.clock;
        let until = clock.now() + time;
        loop {
            // Made before the flag is read: a close between the two is not missed.
            let closing = self.engine.watchdog.closing();
            if self.engine.watchdog.is_closed() {
                return false;
            }
            let Some(check) = wanted() else { return false };
            let left = until - clock.now();
            if left.is_zero() {
                return true;
            }
            tokio::select! {
                biased;
                woken = next_wake(&mut self.wakes) => {
                    if !woken {
                        self.wakes = None;
                        self.rearm_at = clock.now() + REARM;
                    }
                    return true;
                }
                () = bell.notified() => {}
                () = closing => {}
                () = nap(&self.engine.watchdog, left.min(check)) => {}
            }
        }
    }
}

/// The next wake-up; false when they have ended. Without any it never comes.
pub(crate) async fn next_wake(wakes: &mut Option<Wakes>) -> bool {
    match wakes {
        Some(wakes) => poll_fn(|cx| Pin::new(&mut *wakes).poll_next(cx)).await.is_some(),
        None => std::future::pending().await,
    }
}
