//! One release: the call for it, repeated while nobody knows whether it took effect, and what its line is told of the heir.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use tenure_backend::{
    BackendError, Cause, Claim, ClaimRef, Departure, Each, Effect, Heir, Holder, HolderId, Released, Standing,
};

use crate::error::no_answer;
use crate::line::Line;
use crate::timer::sleep;
use crate::watchdog::Busy;

/// One release, with all its tries.
pub(super) struct Release {
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

/// How a release ended that was carried out.
pub(crate) enum Left {
    /// The claim was there and is absent as of this release.
    Freed,
    /// The claim was absent already.
    WasGone,
    /// The claim is absent; an earlier try may have made it so.
    Absent,
}

impl Release {
    /// A release of which nothing was sent yet.
    pub(super) fn new(line: Arc<Line>, claim: Arc<Claim>, cause: Cause, heir: Option<Arc<Claim>>) -> Self {
        let busy = line.engine.watchdog.busy();
        Release {
            line,
            claim,
            cause,
            heir,
            call: None,
            answered: None,
            tries: 0,
            _busy: busy,
        }
    }

    pub(super) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    pub(super) fn at(&self) -> &ClaimRef {
        &self.claim.at
    }

    pub(super) fn names_an_heir(&self) -> bool {
        self.heir.is_some()
    }

    /// Carries several out in one call; those of which the store does not say that the claim is absent, and those that are
    /// under way, are seen through one by one.
    pub(super) async fn see_through_together(releases: impl Iterator<Item = Release>) {
        let (under_way, fresh): (Vec<_>, Vec<_>) = releases.partition(|release| release.call.is_some());
        under_way.into_iter().for_each(Release::see_through_behind);
        let Some(first) = fresh.first() else { return };
        let departures = fresh.iter().map(Release::departure).collect();
        let answers = first.line.engine.backend.release(departures).await;
        let mut answers = answers.into_iter();
        for mut release in fresh {
            release.tries += 1;
            match answers.next() {
                Some(Released::Done { others, heir, .. }) => release.settle_heir(others, heir),
                _ => release.see_through_behind(),
            }
        }
    }

    pub(super) fn see_through_behind(self) {
        let line = self.line.clone();
        line.engine.watchdog.spawn(self.see_through());
    }

    /// As [`run`](Self::run), with what is left of the release.
    pub(super) async fn run_to_end(mut self, limit: Duration) -> (Self, Result<Left, BackendError>) {
        let answer = self.run(limit).await;
        (self, answer)
    }

    pub(super) async fn see_through(mut self) {
        let limit = match self.cause {
            // A request of this claim that was not answered may place it until then.
            Cause::Withdrawn => self.claim.lease.max(self.line.engine.settings.call_limit),
            Cause::Unlocked | Cause::Evicted { .. } => self.claim.lease,
        };
        if let Err(error) = self.run(limit).await {
            self.line.meters().unreturned.increment(1);
            tracing::warn!(key = %self.claim.at.key, claim = %self.claim.at.id, %error,
                "a lock could not be given back: it ends with its lease");
        }
    }

    pub(super) async fn run(&mut self, limit: Duration) -> Result<Left, BackendError> {
        let mut give_up = None;
        loop {
            let call = match &mut self.call {
                Some(call) => call,
                none => {
                    self.tries += 1;
                    let departure = departure(&self.line, &self.claim, &self.cause, self.heir.as_ref());
                    none.insert(self.line.engine.backend.release(smallvec![departure]))
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
