//! Giving a claim back: polled in place by `unlock`, seen through by the client's own task when nobody waits.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use tenure_backend::{BackendError, Cause, Claim, Departure, Each, Heir, Holder, HolderId, Instant, Released};

use crate::line::Line;

/// A release that must be carried out. Dropped before it is, it is seen through by the client's own task.
pub(crate) struct Departing(Option<Release>);

struct Release {
    line: Arc<Line>,
    claim: Arc<Claim>,
    cause: Cause,
    heir: Option<Arc<Claim>>,
    call: Option<Each<Released>>,
    tries: u32,
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
        Departing(Some(Release { line, claim, cause: Cause::Unlocked, heir, call: None, tries: 0 }))
    }

    /// The claim is given up, whatever state it is in.
    pub(crate) fn withdrawing(line: Arc<Line>, claim: Arc<Claim>) -> Self {
        Departing(Some(Release { line, claim, cause: Cause::Withdrawn, heir: None, call: None, tries: 0 }))
    }

    /// Carries the release out, repeating it until `give_up` while nobody knows whether it took effect.
    ///
    /// # Cancel safety
    /// Dropped on the way, the rest is done by the client's own task.
    pub(crate) async fn run(&mut self, give_up: Instant) -> Result<Left, BackendError> {
        let Some(release) = &mut self.0 else { return Ok(Left::Absent) };
        let answer = release.run(give_up).await;
        if answer.is_ok() {
            self.0 = None;
        }
        answer
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
            line.engine.watchdog.spawn(release.see_through());
        }
    }
}

impl Release {
    async fn see_through(mut self) {
        let clock = &self.line.engine.clock;
        let give_up = clock.now() + self.claim.lease;
        if let Err(error) = self.run(give_up).await {
            tracing::warn!(key = %self.claim.at.key, claim = %self.claim.at.id, %error,
                "a lock could not be given back: it ends with its lease");
        }
        self.settle_heir(None, None);
    }

    async fn run(&mut self, give_up: Instant) -> Result<Left, BackendError> {
        loop {
            let call = match &mut self.call {
                Some(call) => call,
                none => {
                    self.tries += 1;
                    let departure = Self::departure(&self.line, &self.claim, &self.cause, self.heir.as_ref());
                    none.insert(self.line.engine.backend.clone().release(smallvec![departure]))
                }
            };
            let answer = poll_fn(|cx| Pin::new(&mut *call).poll(cx)).await.pop();
            self.call = None;
            let error = match answer {
                Some(Released::Done { freed, others, heir }) => {
                    self.settle_heir(others, heir);
                    return Ok(match () {
                        () if freed.contains(&HolderId::Claim(self.claim.at.id)) => Left::Freed,
                        () if self.tries == 1 => Left::WasGone,
                        () => Left::Absent,
                    });
                }
                Some(Released::Unknown(error)) => error,
                None => BackendError::new(
                    tenure_backend::Fault::Store,
                    tenure_backend::Effect::Unknown,
                    "the store did not answer a release",
                ),
            };
            let pause = backoff(self.tries, self.line.engine.dice());
            if !error.is_weather() || self.line.engine.clock.now() + pause >= give_up {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn departure(line: &Line, claim: &Arc<Claim>, cause: &Cause, heir: Option<&Arc<Claim>>) -> Departure {
        let place_by = || line.engine.place_by(line.engine.clock.now());
        Departure {
            who: Holder::Claim(claim.at.clone()),
            cause: cause.clone(),
            heir: heir.map(|claim| Heir { claim: claim.clone(), place_by: place_by() }),
            bar: Duration::ZERO,
        }
    }

    /// Tells the line where its heir stands; given up, the line asks for itself with the same claim.
    fn settle_heir(&mut self, others: Option<u32>, standing: Option<tenure_backend::Standing>) {
        if let Some(heir) = self.heir.take() {
            self.line.heir_answered(heir, others, standing);
        }
    }
}

/// How long to wait after the so manyth failure in a row: 20 ms at first, doubled each time, 1 s at the most.
pub(crate) fn backoff(failures: u32, dice: u64) -> Duration {
    let base = Duration::from_millis(20 << failures.saturating_sub(1).min(5));
    base.mul_f64(0.75 + (dice % 512) as f64 / 1024.0)
}
