//! How claims are kept alive, and what is done when one is not. When that is due is in `rounds.rs`.

use std::sync::Arc;

use smallvec::smallvec;
use tenure_backend::{Batch, Instant, Phase, Renewal, Renewed};
use tokio::sync::oneshot;
use tracing::Instrument;

use super::life::{Shared, Watchdog};
use super::rounds::next_look;
use crate::belief::{renew_after, retry_after};
use crate::error::{Error, Lost, LostCause, no_answer};
use crate::held::Held;
use crate::release::backoff;
use crate::telemetry::renewing;
use crate::timer::nap;

impl Watchdog {
    /// Asks the store at once whether a claim is alive.
    pub(crate) async fn verify(&self, held: &Arc<Held>) -> Result<(), Error> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let (shared, held) = (self.0.clone(), held.clone());
        self.spawn(async move {
            let failed = renew(&shared, vec![held]).await;
            let _ = answer.send(failed);
        });
        match answered.await {
            Ok(None) => Ok(()),
            Ok(Some(error)) => Err(error),
            Err(_) => Err(self.closed()),
        }
    }

    /// Why the store has no such claim any more, as far as it remembers.
    pub(crate) async fn why_gone(&self, held: &Held) -> LostCause {
        let renewal = Renewal {
            who: held.claim.at.clone(),
            lease: held.claim.lease,
            only: Phase::Granted,
            shorten_only: true,
            raise: None,
        };
        match self.0.backend.renew(smallvec![renewal]).await.pop() {
            Some(Renewed::Gone(loss)) => loss.into(),
            _ => LostCause::Missing,
        }
    }

    /// Has the store keep a claim until then by itself: its holder is done. Belief in it ends at `believed_until` unless
    /// the store confirms it. `told` hears once what the store said; true when the time has come, false if that is left to
    /// the store: the client closes, or the claim is gone.
    pub(crate) async fn keep(
        &self,
        held: &Held,
        until: Instant,
        mut believed_until: Instant,
        told: oneshot::Sender<Result<(), Error>>,
    ) -> bool {
        let most = self.0.backend.profile().limits.max_lease;
        let mut told = Some(told);
        let mut tell = |said| told.take().is_some_and(|told| told.send(said).is_ok());
        let mut kept = false;
        let mut failures = 0;
        loop {
            // Made before the flag is read, and before the store is asked: what comes between the two is not missed.
            let (closing, asked_about) = (
                self.closing(),
                held.line.engine.loss_bell(held.claim.at.id).notified(),
            );
            let now = self.0.clock.now();
            if now >= until {
                return true;
            }
            if now >= believed_until {
                let lost = held.check(now).err();
                tell(lost.map_or(Ok(()), |lost| Err(lost.into())));
                return false;
            }
            let lease = (until - now).min(most);
            let renewal = Renewal {
                who: held.claim.at.clone(),
                lease,
                only: Phase::Granted,
                shorten_only: false,
                raise: None,
            };
            let pause = match self.0.backend.renew(smallvec![renewal]).await.pop() {
                Some(Renewed::Alive { held_from, lease }) => {
                    (failures, kept) = (0, true);
                    believed_until = held_from + lease;
                    tell(Ok(()));
                    if now + lease < until {
                        lease / 3
                    } else {
                        until - now
                    }
                }
                Some(Renewed::Unknown(error)) if error.is_weather() => {
                    failures += 1;
                    backoff(failures, held.line.engine.dice())
                }
                Some(Renewed::Unknown(error)) => {
                    tell(Err(error.into()));
                    return false;
                }
                Some(Renewed::Gone(loss)) => {
                    let cause = LostCause::from(loss);
                    held.lose(cause.clone());
                    tell(Err(Lost { cause }.into()));
                    return false;
                }
                None => {
                    tell(Err(no_answer().into()));
                    return false;
                }
            };
            let over = self.0.clock.now() + pause;
            // A closing client waits for the store's word, and leaves the rest to it.
            if kept && self.is_closed() {
                return false;
            }
            tokio::select! {
                biased;
                () = rest_until(self, over) => {}
                () = asked_about => {}
                () = closing, if kept => return false,
            }
        }
    }
}

/// Sleeps until then on the belief clock.
async fn rest_until(watchdog: &Watchdog, then: Instant) {
    loop {
        let now = watchdog.0.clock.now();
        if now >= then {
            return;
        }
        nap(watchdog, then - now).await;
    }
}

/// Renews a batch of claims of one store. Answers why the first one is not renewed, if it is not.
pub(super) async fn renew(shared: &Shared, batch: Vec<Arc<Held>>) -> Option<Error> {
    // One for all: a round of renewals touches no line.
    let engine = batch.first()?.line.engine.clone();
    let (meters, margin) = (engine.rounds(), shared.backend.profile().limits.margin);
    let renewals: Batch<Renewal> = batch
        .iter()
        .map(|held| Renewal {
            who: held.claim.at.clone(),
            lease: held.claim.lease,
            only: Phase::Granted,
            // A fixed lease is not lengthened by being asked about.
            shorten_only: !held.options.renewed,
            raise: None,
        })
        .collect();
    // Until it is answered: a store that is silent is out of reach.
    batch.iter().for_each(|held| held.strain());
    let sent = shared.clock.now();
    let call = shared.backend.renew(renewals);
    let answers = call.instrument(renewing(batch.len())).await;
    let now = shared.clock.now();
    meters.renewal.record(now - sent);
    let mut first = None;
    let mut renewed = 0;
    let mut looks = Vec::with_capacity(batch.len());
    let missing = std::iter::repeat_with(|| Renewed::Unknown(no_answer()));
    for (held, answer) in batch.iter().zip(answers.into_iter().chain(missing)) {
        let failed = match answer {
            _ if held.has_departed() => held.check(now).err().map(Error::Lost),
            Renewed::Alive { held_from, lease } => {
                renewed += 1;
                held.first_renewal_done();
                if held.options.renewed {
                    meters.margin.record(held.deadline() - now);
                    held.extend(held_from, lease, margin, now);
                }
                let renewal = now + renew_after(held.lease(), engine.dice());
                looks.push((held, next_look(held, renewal)));
                held.check(now).err().map(Error::Lost)
            }
            Renewed::Gone(loss) => {
                held.lose(loss.into());
                shared.due.lock().wheel.remove(held);
                let lost = held.check(now).err();
                if let Some(lost) = &lost {
                    warn_lost(held, lost);
                    held.line.look_again();
                }
                lost.map(Error::Lost)
            }
            Renewed::Unknown(error) => {
                tracing::debug!(key = %held.claim.at.key, claim = %held.claim.at.id, %error, "a renewal failed");
                meters.failed.increment(1);
                looks.push((held, next_look(held, now + retry_after(held.lease()))));
                Some(error.into())
            }
        };
        first = first.or(failed);
    }
    meters.renewed.increment(renewed);
    let mut all = shared.due.lock();
    for (held, at) in looks {
        all.wheel.reschedule(held, at);
    }
    first
}

/// Belief in a claim has ended: its line looks for the next holder, and what may still stand in the store is given
/// back.
pub(super) fn tell_lost(held: &Arc<Held>, lost: &Lost) {
    if !held.has_departed() {
        warn_lost(held, lost);
        held.line.leave_behind(held);
    }
}

fn warn_lost(held: &Held, lost: &Lost) {
    tracing::warn!(key = %held.claim.at.key, claim = %held.claim.at.id, cause = lost.cause.as_str(), "{lost}");
}
