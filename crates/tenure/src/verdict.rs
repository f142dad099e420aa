//! What the store's answer to a caller's own call means: it holds, it waits, it was refused, or it failed.
//! How the call is made and waited for is in `attempt.rs`.

use std::sync::Arc;

use tenure_backend::{BackendError, Claim, Effect, Fairness, Fault, Standing};

use crate::error::Error;
use crate::held::Held;
use crate::line::Line;
use crate::want::Want;

/// What the answer to a caller's own call means.
pub(crate) enum Verdict {
    Held(Arc<Held>),
    /// It only tried, and the lock is busy.
    Refused,
    /// It waits, with this claim.
    Wait(Arc<Claim>),
    Failed(Error),
}

impl Verdict {
    /// Judges the answer. An unfair caller that does not merely try counts as asking until this.
    pub(crate) fn of(
        line: &Arc<Line>,
        answer: Result<Standing, BackendError>,
        claim: &Arc<Claim>,
        want: &Want,
        tries: bool,
    ) -> Verdict {
        let asks = claim.fairness == Fairness::Unfair && !tries;
        match &answer {
            Ok(_) => line.engine.weather_is_over(),
            Err(error) if error.is_weather() && !tries => line.engine.tell_weather(&line.key, error),
            Err(_) => {}
        }
        let verdict = match answer {
            Ok(Standing::Granted(grant)) => {
                let held = if asks {
                    line.hold_asked(claim, grant, want)
                } else {
                    line.hold(claim, grant, want)
                };
                match held {
                    Some(held) => return Verdict::Held(held),
                    None => Self::dead_on_arrival(line, claim, want, tries),
                }
            }
            Ok(Standing::Waiting { .. }) if tries => {
                if claim.fairness == Fairness::Fifo {
                    line.withdraw(claim.clone());
                }
                Verdict::Refused
            }
            Ok(Standing::Waiting { .. }) => Verdict::Wait(claim.clone()),
            Ok(_) if tries => Verdict::Failed(no_answer(
                "the store could not judge this request in time: try again",
            )),
            Ok(_) => Verdict::Wait(line.engine.claim(line, want, claim.fairness)),
            // It may be placed: what was not answered is asked again, and keeps its place.
            Err(error) if keeps_place(line, &error) && !tries && claim.fairness == Fairness::Fifo => {
                Verdict::Wait(claim.clone())
            }
            Err(error) => {
                if error.effect() == Effect::Unknown {
                    line.withdraw_unanswered(claim.clone());
                }
                if error.is_weather() && !tries {
                    Verdict::Wait(line.engine.claim(line, want, claim.fairness))
                } else {
                    Verdict::Failed(error.into())
                }
            }
        };
        if asks && matches!(verdict, Verdict::Failed(_)) {
            line.stop_asking();
        }
        verdict
    }

    /// A grant in which no belief is left is given back, never returned.
    fn dead_on_arrival(line: &Arc<Line>, claim: &Arc<Claim>, want: &Want, tries: bool) -> Verdict {
        line.withdraw(claim.clone());
        if tries {
            return Verdict::Failed(no_answer(
                "the store answered too late for a lease this short: try again",
            ));
        }
        Verdict::Wait(line.engine.claim(line, want, claim.fairness))
    }
}

/// Whether a claim is asked for again after this: not where the store forgets ended claims, and a call that is still on its
/// way could place it after it was given back.
fn keeps_place(line: &Line, error: &BackendError) -> bool {
    let forgets = !line.engine.backend.profile().remembers_ended;
    error.is_weather() && !(forgets && error.effect() == Effect::Unknown)
}

fn no_answer(message: &str) -> Error {
    Error::Backend(BackendError::new(Fault::Unavailable, Effect::None, message))
}
