//! Giving a claim back: polled in place by `unlock`, seen through by the client's own task when nobody waits.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use tenure_backend::{
    BackendError, Cause, Claim, Departure, Each, Effect, Heir, Holder, HolderId, Released, Standing,
};

use crate::error::no_answer;
use crate::line::Line;
use crate::timer::sleep;
use crate::watchdog::Busy;

/// A release that must be carried out. Dropped before it is, it is seen through by the client's own task.
pub(crate) struct Departing(Option<Release>);

struct Release {
    line: Arc<Line>,
    claim: Arc<Claim>,
    cause: Cause,
    heir: Option<Arc<Claim>>,
    call: Option<Each<Released>>,
    /// What the store said of the heir, if there is one, until the line is told.
    answered: Option<Box<(Option<u32>, Option<Standing>)>>,
    tries: u32,
    _busy: Busy,
}

/// Carries several releases out in one call; those of which the store does not say that the claim is absent, and those
/// that are under way, are seen through one by one.
pub(crate) async fn see_through_together(departing: Vec<Departing>) {
    let releases = departing
        .into_iter()
        .filter_map(|mut departing| departing.0.take());
    let (under_way, fresh): (Vec<_>, Vec<_>) = releases.partition(|release| release.call.is_some());
    under_way.into_iter().for_each(Release::see_through_behind);
    let Some(first) = fresh.first() else { return };
    let departures = fresh.iter().map(Release::departure).collect();
    let answers = first.line.engine.backend.clone().release(departures).await;
    let mut answers = answers.into_iter();
    for mut release in fresh {
        release.tries += 1;
        match answers.next() {
            Some(Released::Done { others, heir, .. }) => release.settle_heir(others, heir),
            _ => release.see_through_behind(),
        }
    }
}

/// How a release ended that was carried out.
pub(crate) enum Left {
    /// The claim was there and is absent as of this release.
    Freed,
    /// The claim was absent already.
    WasGone,
    /// The claim is absent; an earlier try may have made it so.
    Absent,
}

impl Departing {
    /// The holder is done, and the heir may have the key at once.
    pub(crate) fn new(line: Arc<Line>, claim: Arc<Claim>, heir: Option<Arc<Claim>>) -> Self {
        Self::with(line, claim, Cause::Unlocked, heir)
    }

    /// The claim is given up, whatever state it is in.
    pub(crate) fn withdrawing(line: Arc<Line>, claim: Arc<Claim>) -> Self {
        Self::with(line, claim, Cause::Withdrawn, None)
    }

    fn with(line: Arc<Line>, claim: Arc<Claim>, cause: Cause, heir: Option<Arc<Claim>>) -> Self {
        let busy = line.engine.watchdog.busy();
        Departing(Some(Release {
            line,
            claim,
            cause,
            heir,
            call: None,
            answered: None,
            tries: 0,
            _busy: busy,
        }))
    }

    /// Carries the release out, repeating it for `limit` while nobody knows whether it took effect.
    ///
    /// With an heir it runs as the client's own task: waiters depend on it, so it must not depend on the caller's
    /// future being polled.
    ///
    /// # Cancel safety
    /// Dropped on the way, the rest is done by the client's own task.
    pub(crate) async fn run(mut self, limit: Duration) -> Result<Left, BackendError> {
        match &mut self.0 {
            Some(release) if release.heir.is_none() => {
                let answer = release.run(limit).await;
                if answer.is_ok() {
                    self.0 = None;
                }
                answer
            }
            Some(release) => {
                let line = release.line.clone();
                let (tell, told) = tokio::sync::oneshot::channel();
                line.engine.watchdog.spawn(async move {
                    let Some(mut release) = self.0.take() else { return };
                    let answer = release.run(limit).await;
                    let failed = answer.is_err();
                    // Nobody may be there to hear it.
                    let _ = tell.send(answer);
                    // Told last, and so polled next: whoever now holds the key goes before whoever is done with it.
                    if failed {
                        release.see_through().await;
                    } else {
                        drop(release);
                    }
                });
                told.await.unwrap_or_else(|_| Err(BackendError::closed()))
            }
            None => Ok(Left::Absent),
        }
    }

    /// Leaves it to the lease: there is no runtime to carry it out on.
    pub(crate) fn forget(mut self) {
        self.0 = None;
    }

    /// Carries the release out, for as long as the claim's lease could last.
    pub(crate) async fn see_through(mut self) {
        if let Some(release) = self.0.take() {
            release.see_through().await;
        }
    }
}

impl Drop for Departing {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            let line = release.line.clone();
            line.engine.watchdog.give_back(Departing(Some(release)));
        }
    }
}

impl fmt::Debug for Departing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Departing")
            .field(&self.0.as_ref().map(|release| &release.claim.at))
            .finish()
    }
}

impl Release {
    fn see_through_behind(self) {
        let line = self.line.clone();
        line.engine.watchdog.spawn(self.see_through());
    }

    async fn see_through(mut self) {
        let limit = self.claim.lease;
        if let Err(error) = self.run(limit).await {
            self.line.meters().unreturned.increment(1);
            tracing::warn!(key = %self.claim.at.key, claim = %self.claim.at.id, %error,
                "a lock could not be given back: it ends with its lease");
        }
    }

    async fn run(&mut self, limit: Duration) -> Result<Left, BackendError> {
        let mut give_up = None;
        loop {
            let call = match &mut self.call {
                Some(call) => call,
                none => {
                    self.tries += 1;
                    let departure = departure(&self.line, &self.claim, &self.cause, self.heir.as_ref());
                    none.insert(self.line.engine.backend.clone().release(smallvec![departure]))
                }
            };
            let answer = poll_fn(|cx| Pin::new(&mut *call).poll(cx)).await.pop();
            self.call = None;
            let error = match answer {
                Some(Released::Done { freed, others, heir }) => {
                    if self.heir.is_some() {
                        self.answered = Some(Box::new((others, heir)));
                    }
                    return Ok(match () {
                        () if freed.contains(&HolderId::Claim(self.claim.at.id)) => Left::Freed,
                        () if self.tries == 1 => Left::WasGone,
                        () => Left::Absent,
                    });
                }
                Some(Released::Unknown(error)) => error,
                None => no_answer(),
            };
            let now = self.line.engine.clock.now();
            let give_up = *give_up.get_or_insert(now + limit);
            let may_go_through = error.is_weather() || error.effect() == Effect::Unknown;
            if !may_go_through || now >= give_up {
                return Err(error);
            }
            // The last try is at the limit itself: until then the store may keep the claim.
            let pause = backoff(self.tries, self.line.engine.dice()).min(give_up - now);
            sleep(&self.line.engine.watchdog, pause).await;
            if self.line.engine.watchdog.is_gone() {
                return Err(error);
            }
        }
    }

    fn departure(&self) -> Departure {
        departure(&self.line, &self.claim, &self.cause, self.heir.as_ref())
    }

    /// Tells the line where its heir stands.
    fn settle_heir(&mut self, others: Option<u32>, standing: Option<Standing>) {
        if let Some(heir) = self.heir.take() {
            // A first try that was not answered may have placed it: then it is withdrawn, unless it was granted.
            let placed_perhaps = self.tries > 1 || standing.is_none();
            if placed_perhaps && self.tries > 0 && !matches!(standing, Some(Standing::Granted(_))) {
                self.line.withdraw_unanswered(heir.clone());
            }
            self.line.heir_answered(heir, others, standing);
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let (others, heir) = self.answered.take().map_or((None, None), |answered| *answered);
        self.settle_heir(others, heir);
    }
}

fn departure(line: &Line, claim: &Arc<Claim>, cause: &Cause, heir: Option<&Arc<Claim>>) -> Departure {
    let place_by = || line.engine.place_by(line.engine.clock.now());
    Departure {
        who: Holder::Claim(claim.at.clone()),
        cause: cause.clone(),
        heir: heir.map(|claim| Heir {
            claim: claim.clone(),
            place_by: place_by(),
        }),
        bar: Duration::ZERO,
    }
}

/// How long to wait after the so manyth failure in a row: 20 ms at first, doubled each time, 800 ms at the most.
pub(crate) fn backoff(failures: u32, dice: u64) -> Duration {
    let base = Duration::from_millis(20 << failures.saturating_sub(1).min(5));
    base.mul_f64(0.75 + (dice % 512) as f64 / 1024.0)
}
