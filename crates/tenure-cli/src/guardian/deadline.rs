//! Computes when a command gets TERM and when it gets KILL. Pure arithmetic: the caller passes the present time.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::Instant;

use super::clock::nanos;

/// The times at which a command gets TERM and KILL.
///
/// If `term_at` equals `kill_at`, no TERM is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// Time of TERM to the command and all its descendants.
    #[serde(with = "nanos")]
    pub term_at: Instant,
    /// Time of KILL to every process of the command that is left.
    #[serde(with = "nanos")]
    pub kill_at: Instant,
}

impl Deadline {
    /// Computes the deadline that keeps the promise of `tenure run`: the command ends before its lock does.
    ///
    /// KILL is due at `local_deadline - max(lease / 30, 100 ms)`, TERM earlier by `grace`. No TERM if `grace` is zero.
    pub fn before(local_deadline: Instant, lease: Duration, grace: Duration) -> Deadline {
        let kill_at = local_deadline - (lease / 30).max(Duration::from_millis(100));
        Deadline {
            term_at: kill_at - grace,
            kill_at,
        }
    }
}

/// Why a command was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// The deadline came before a renewal moved it.
    Deadline,
    /// `tenure` learned that the lock was lost.
    Lost,
    /// The lock had been held for as long as `--max-hold` allows.
    MaxHold,
    /// The guardian died while the command ran.
    GuardianDied,
    /// `tenure` died while the command ran.
    CallerDied,
}

/// The signal that is due at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Term(StopReason),
    Kill(StopReason),
}

/// The last deadline that `tenure` set, and the decision to stop the command, if there is one.
#[derive(Debug, Default)]
pub(super) struct DeadlineState {
    /// `None` before the first deadline, and after the deadline was waived.
    armed: Option<Deadline>,
    pending: Option<PendingStop>,
}

/// A decision to stop the command. It is final: no later deadline takes it back.
#[derive(Clone, Copy, Debug)]
struct PendingStop {
    why: StopReason,
    kill_at: Instant,
    term_sent: bool,
}

impl DeadlineState {
    /// Sets or moves the deadline. An earlier decision to stop remains.
    pub(super) fn arm(&mut self, deadline: Deadline) {
        self.armed = Some(deadline);
    }

    /// Removes the deadline. An earlier decision to stop remains.
    pub(super) fn waive(&mut self) {
        self.armed = None;
    }

    /// Decides to stop the command: TERM now, KILL after `grace` or at the deadline, whichever is sooner. If `grace`
    /// is zero: KILL now. Has no effect after an earlier decision.
    pub(super) fn stop(&mut self, why: StopReason, grace: Duration, now: Instant) {
        if self.pending.is_none() {
            self.pending = Some(PendingStop {
                why,
                kill_at: now + grace,
                term_sent: grace.is_zero(),
            });
        }
    }

    /// Returns whether a command may start: only before the time of TERM, and never after a decision to stop. A command
    /// that runs on without its lock must have begun with it, so none starts after the deadline was waived.
    pub(super) fn may_start(&self, now: Instant) -> bool {
        self.armed.is_some_and(|deadline| now < deadline.term_at) && self.pending.is_none()
    }

    /// Returns the signal that is due at `now`. Returns `Term` only once.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        if let Some(deadline) = self.armed
            && now >= deadline.term_at
            && self.pending.is_none()
        {
            let term_sent = deadline.term_at == deadline.kill_at;
            self.pending = Some(PendingStop {
                why: StopReason::Deadline,
                kill_at: deadline.kill_at,
                term_sent,
            });
        }
        let kill_at = self.kill_at();
        match &mut self.pending {
            Some(pending) if kill_at.is_some_and(|at| now >= at) => Due::Kill(pending.why),
            Some(pending) if !pending.term_sent => {
                pending.term_sent = true;
                Due::Term(pending.why)
            }
            _ => Due::Nothing,
        }
    }

    /// Returns the time of the next signal, `None` while there is neither a deadline nor a decision to stop. Call
    /// `due` first: a decision to stop makes TERM due at once, and from then on this returns only the time of KILL.
    pub(super) fn next_at(&self) -> Option<Instant> {
        match (self.pending, self.armed) {
            (None, Some(deadline)) => Some(deadline.term_at),
            _ => self.kill_at(),
        }
    }

    /// Returns the time of KILL: that of a decided stop or that of the deadline, whichever is sooner.
    pub(super) fn kill_at(&self) -> Option<Instant> {
        let armed = self.armed.map(|deadline| deadline.kill_at);
        let pending = self.pending.map(|pending| pending.kill_at);
        armed.into_iter().chain(pending).min()
    }

    /// Returns the reason for the stop, `None` before a stop is decided.
    pub(super) fn why(&self) -> Option<StopReason> {
        self.pending.map(|pending| pending.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::from_nanos(secs * 1_000_000_000)
    }

    fn deadline(term: u64, kill: u64) -> Deadline {
        Deadline {
            term_at: at(term),
            kill_at: at(kill),
        }
    }

    fn armed(term: u64, kill: u64) -> DeadlineState {
        let mut deadline_state = DeadlineState::default();
        deadline_state.arm(deadline(term, kill));
        deadline_state
    }

    #[test]
    fn nothing_starts_without_a_deadline_or_past_it() {
        assert!(!DeadlineState::default().may_start(at(0)));
        assert!(armed(10, 15).may_start(at(9)));
        assert!(!armed(10, 15).may_start(at(10)));
        let mut waived = armed(10, 15);
        waived.waive();
        assert!(!waived.may_start(at(1)));
        let mut stopped = armed(10, 15);
        stopped.stop(StopReason::Lost, Duration::ZERO, at(1));
        assert!(!stopped.may_start(at(1)));
    }

    #[test]
    fn term_comes_once_and_then_kill() {
        let mut deadline_state = armed(10, 15);
        assert_eq!(deadline_state.due(at(9)), Due::Nothing);
        assert_eq!(deadline_state.next_at(), Some(at(10)));
        assert_eq!(deadline_state.due(at(10)), Due::Term(StopReason::Deadline));
        assert_eq!(deadline_state.due(at(11)), Due::Nothing);
        assert_eq!(deadline_state.next_at(), Some(at(15)));
        assert_eq!(deadline_state.due(at(15)), Due::Kill(StopReason::Deadline));
    }

    #[test]
    fn a_renewal_moves_the_deadline() {
        let mut deadline_state = armed(10, 15);
        deadline_state.arm(deadline(20, 25));
        assert_eq!(deadline_state.due(at(16)), Due::Nothing);
        assert_eq!(deadline_state.due(at(20)), Due::Term(StopReason::Deadline));
    }

    #[test]
    fn a_renewal_after_term_does_not_save_the_command() {
        let mut deadline_state = armed(10, 15);
        assert_eq!(deadline_state.due(at(12)), Due::Term(StopReason::Deadline));
        deadline_state.arm(deadline(40, 45));
        assert_eq!(deadline_state.due(at(15)), Due::Kill(StopReason::Deadline));
    }

    #[test]
    fn a_deadline_passed_while_asleep_skips_term() {
        assert_eq!(armed(10, 15).due(at(60)), Due::Kill(StopReason::Deadline));
    }

    #[test]
    fn without_grace_there_is_no_term() {
        assert_eq!(armed(10, 10).due(at(10)), Due::Kill(StopReason::Deadline));
        let mut deadline_state = armed(10, 15);
        deadline_state.stop(StopReason::Lost, Duration::ZERO, at(3));
        assert_eq!(deadline_state.due(at(3)), Due::Kill(StopReason::Lost));
    }

    #[test]
    fn a_stop_never_outlasts_the_armed_deadline() {
        let mut deadline_state = armed(10, 15);
        deadline_state.stop(StopReason::Lost, Duration::from_secs(8), at(12));
        assert_eq!(deadline_state.due(at(12)), Due::Term(StopReason::Lost));
        assert_eq!(deadline_state.next_at(), Some(at(15)));
        assert_eq!(deadline_state.due(at(15)), Due::Kill(StopReason::Lost));
    }

    #[test]
    fn a_waived_deadline_never_comes_but_max_hold_does() {
        let mut deadline_state = armed(10, 15);
        deadline_state.waive();
        assert_eq!(deadline_state.due(at(99)), Due::Nothing);
        assert_eq!(deadline_state.next_at(), None);
        deadline_state.stop(StopReason::MaxHold, Duration::from_secs(5), at(100));
        assert_eq!(deadline_state.due(at(100)), Due::Term(StopReason::MaxHold));
        assert_eq!(deadline_state.due(at(105)), Due::Kill(StopReason::MaxHold));
    }

    #[test]
    fn kill_precedes_the_local_deadline_by_a_thirtieth_of_the_lease() {
        let long = Deadline::before(at(100), Duration::from_secs(30), Duration::from_secs(5));
        assert_eq!(long, deadline(94, 99));
        let short = Deadline::before(at(100), Duration::from_secs(1), Duration::ZERO);
        assert_eq!(short.kill_at, at(100) - Duration::from_millis(100));
        assert_eq!(short.term_at, short.kill_at);
    }
}
