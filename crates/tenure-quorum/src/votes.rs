//! Counts the members' replies to one `acquire`.

use std::time::Duration;

use tenure_backend::{AcquireReply, BackendError, Effect, Fault, Grant};

/// After a split vote, in which a minority granted the claim, the client polls again after this pause. If no member
/// granted the claim, it polls this long after a member's `poll_after`. The engine adds a random part, so that
/// competing clients do not poll together again.
const SPLIT_PAUSE: Duration = Duration::from_millis(5);

/// The replies of the members to one claim.
#[derive(Debug)]
pub(crate) struct Votes {
    members: usize,
    majority: usize,
    /// The indices of the members that granted the claim, and their grants.
    pub(crate) granted: Vec<(usize, Grant)>,
    /// `poll_after` of each member that replied `Waiting`.
    waiting: Vec<Duration>,
    ended: bool,
    too_late: bool,
    recovering: bool,
    /// The indices of the members whose request failed with an unknown effect: they may have granted the claim.
    pub(crate) uncertain: Vec<usize>,
    /// Number of replies that are not grants, including errors.
    refusals: usize,
    errors: Vec<BackendError>,
}

impl Votes {
    pub(crate) fn new(members: usize, majority: usize) -> Self {
        Votes {
            members,
            majority,
            granted: Vec::new(),
            waiting: Vec::new(),
            ended: false,
            too_late: false,
            recovering: false,
            uncertain: Vec::new(),
            refusals: 0,
            errors: Vec::new(),
        }
    }

    /// Counts the reply of a member.
    pub(crate) fn add(&mut self, member: usize, reply: Result<AcquireReply, BackendError>) {
        match reply {
            Ok(AcquireReply::Granted(grant)) => return self.granted.push((member, grant)),
            Ok(AcquireReply::Waiting { poll_after, .. }) => self.waiting.push(poll_after),
            Ok(AcquireReply::Ended) => self.ended = true,
            Ok(AcquireReply::TooLate) => self.too_late = true,
            Ok(AcquireReply::Recovering) => self.recovering = true,
            Err(error) => {
                if error.effect() == Effect::Unknown {
                    self.uncertain.push(member);
                }
                self.errors.push(error);
            }
        }
        self.refusals += 1;
    }

    /// Returns whether a majority has granted the claim.
    pub(crate) fn is_granted(&self) -> bool {
        self.granted.len() >= self.majority
    }

    /// Returns whether the quorum can reply: a majority has granted the claim, or none can any more.
    ///
    /// A refusal needs the answers of a majority, too. If one of three members fails and another answers `Waiting`, the third
    /// may still grant the claim. The quorum would not use that grant, and the client's next claim would have to wait for its end.
    pub(crate) fn is_decided(&self) -> bool {
        let answers = self.granted.len() + self.refusals - self.errors.len();
        self.is_granted()
            || self.members - self.refusals < self.majority
                && (answers >= self.majority
                    || errors_decide(self.members, self.majority, answers, &self.errors))
    }

    /// The reply for a claim that the quorum does not grant.
    pub(crate) fn refusal(mut self) -> Result<AcquireReply, BackendError> {
        let unanswered = self.members - self.refusals - self.granted.len();
        // If the votes are not decided, the time limit has passed: members that have not replied count as failed.
        let silent = if self.is_decided() { 0 } else { unanswered };
        if self.members - self.errors.len() - silent < self.majority {
            return Err(self.unavailable(silent));
        }
        if self.ended {
            return Ok(AcquireReply::Ended);
        }
        if !self.waiting.is_empty() {
            self.waiting.sort_unstable();
            let poll_after = if self.granted.is_empty() {
                // The client polls when a majority of the members may have become free, and then a little later:
                // leases that were granted together end a little apart, and a poll in between would split the vote.
                self.waiting[(self.majority - 1).min(self.waiting.len() - 1)] + SPLIT_PAUSE
            } else {
                SPLIT_PAUSE
            };
            return Ok(AcquireReply::Waiting {
                ahead: None,
                poll_after,
            });
        }
        Ok(if self.recovering || !self.too_late {
            AcquireReply::Recovering
        } else {
            AcquireReply::TooLate
        })
    }

    /// The error if fewer than a majority of the members answered. `silent` is the number of members that did not reply
    /// within the time limit.
    ///
    /// The error's effect is `None` if no member is silent and each member's error has no effect, because the grants
    /// of a minority are released.
    fn unavailable(self, silent: usize) -> BackendError {
        let is_refused = self.errors.iter().all(|error| error.effect() == Effect::None);
        let effect = if is_refused && silent == 0 {
            Effect::None
        } else {
            Effect::Unknown
        };
        too_few(self.members, self.majority, self.errors, effect)
    }
}

/// The error if fewer than a majority of the members answered. Its cause is the first member's error that is not
/// transient, else the last error. Its fault is that of the cause, but [`Fault::Unavailable`] while the other members could
/// be a majority.
pub(crate) fn too_few(
    members: usize,
    majority: usize,
    mut errors: Vec<BackendError>,
    effect: Effect,
) -> BackendError {
    let message = format!("fewer than {majority} of the {members} servers answered: locks need a majority");
    let others = members - count_lasting(&errors);
    let first = errors.iter().position(is_lasting);
    match errors
        .len()
        .checked_sub(1)
        .map(|last| errors.swap_remove(first.unwrap_or(last)))
    {
        Some(cause) if is_lasting(&cause) && others >= majority => {
            BackendError::because(Fault::Unavailable, effect, message, cause)
        }
        Some(cause) => BackendError::because(cause.fault(), effect, message, cause),
        None => BackendError::new(Fault::Unavailable, effect, message),
    }
}

/// Returns whether these errors leave too few members for a majority, and no further reply can change the fault that
/// [`too_few`] gives. `answers`: the number of replies that are not errors.
pub(crate) fn errors_decide(
    members: usize,
    majority: usize,
    answers: usize,
    errors: &[BackendError],
) -> bool {
    let (spare, lasting) = (members - majority, count_lasting(errors));
    let unanswered = members - answers - errors.len();
    errors.len() > spare && (lasting > spare || lasting + unanswered <= spare)
}

fn count_lasting(errors: &[BackendError]) -> usize {
    errors.iter().filter(|error| is_lasting(error)).count()
}

fn is_lasting(error: &BackendError) -> bool {
    !error.is_transient()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(fault: Fault) -> BackendError {
        BackendError::new(fault, Effect::None, "a member's")
    }

    #[test]
    fn an_error_is_lasting_if_no_majority_is_left() {
        for (faults, expected) in [
            (&[][..], Fault::Unavailable),
            (&[Fault::Unavailable], Fault::Unavailable),
            (&[Fault::Denied, Fault::Unavailable], Fault::Unavailable),
            (&[Fault::Denied, Fault::Store], Fault::Denied),
        ] {
            let errors = faults.iter().copied().map(error).collect();
            let error = too_few(3, 2, errors, Effect::None);
            assert_eq!(error.fault(), expected, "{faults:?}");
        }
    }

    #[test]
    fn errors_decide_once_no_reply_can_change_the_fault() {
        for (faults, answers, expected) in [
            (&[Fault::Unavailable][..], 0, false),
            (&[Fault::Unavailable, Fault::Unavailable], 0, true),
            (&[Fault::Unavailable, Fault::Denied], 0, false),
            (&[Fault::Unavailable, Fault::Denied], 1, true),
            (&[Fault::Denied, Fault::Denied], 0, true),
        ] {
            let errors: Vec<_> = faults.iter().copied().map(error).collect();
            assert_eq!(
                errors_decide(3, 2, answers, &errors),
                expected,
                "{faults:?}, {answers}"
            );
        }
    }
}
