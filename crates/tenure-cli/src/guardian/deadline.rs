//! When a command must be told to end, and when it must be ended: pure arithmetic on given times.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::Instant;

use super::clock::nanos;

/// When TERM is sent, and when KILL.
///
/// `term_at` equal to `kill_at` means that there is no TERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// TERM goes to the command and all its descendants.
    #[serde(with = "nanos")]
    pub term_at: Instant,
    /// KILL goes to whatever is left.
    #[serde(with = "nanos")]
    pub kill_at: Instant,
}

impl Deadline {
    /// The deadline that keeps the promise of `tenure run`.
    ///
    /// KILL by `believe_until` less 100 ms or a thirtieth of the lease, whichever is more; TERM a grace
    /// earlier. With a grace of zero there is no TERM.
    pub fn before(believe_until: Instant, lease: Duration, grace: Duration) -> Deadline {
        let kill_at = believe_until - (lease / 30).max(Duration::from_millis(100));
        Deadline {
            term_at: kill_at - grace,
            kill_at,
        }
    }
}

/// Why a command was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// Its deadline came and had not been moved.
    Deadline,
    /// Its caller learned that the lock was lost.
    Lost,
    /// It had run for as long as `--max-hold` allows.
    MaxHold,
    /// The guardian died first.
    GuardianDied,
    /// The caller died first.
    CallerDied,
}

/// What is due at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Term(Why),
    Kill(Why),
}

/// The deadline as last armed, and the sentence once one has been passed.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    armed: Armed,
    sentence: Option<Sentence>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Armed {
    #[default]
    Never,
    At(Deadline),
    Waived,
}

/// TERM is out, or about to be; KILL follows.
#[derive(Clone, Copy, Debug)]
struct Sentence {
    why: Why,
    kill_at: Instant,
    told: bool,
}

impl Verdict {
    /// Moves the deadline. A sentence that has been passed stands.
    pub(super) fn arm(&mut self, deadline: Deadline) {
        self.armed = Armed::At(deadline);
    }

    /// Lifts the deadline. A sentence that has been passed stands.
    pub(super) fn waive(&mut self) {
        self.armed = Armed::Waived;
    }

    /// Passes sentence: TERM now, KILL a grace later or at the deadline, whichever is sooner.
    pub(super) fn stop(&mut self, why: Why, grace: Duration, now: Instant) {
        if self.sentence.is_none() {
            self.sentence = Some(Sentence {
                why,
                kill_at: now + grace,
                told: grace.is_zero(),
            });
        }
    }

    /// A command may start only under a deadline that lies ahead, or that was waived.
    pub(super) fn may_start(&self, now: Instant) -> bool {
        match self.armed {
            Armed::Never => false,
            Armed::Waived => true,
            Armed::At(deadline) => now < deadline.term_at,
        }
    }

    /// What must be done now. `Term` is answered once.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        if let Armed::At(deadline) = self.armed
            && now >= deadline.term_at
            && self.sentence.is_none()
        {
            let told = deadline.term_at == deadline.kill_at;
            self.sentence = Some(Sentence {
                why: Why::Deadline,
                kill_at: deadline.kill_at,
                told,
            });
        }
        let kill_at = self.kill_at();
        match &mut self.sentence {
            Some(sentence) if kill_at.is_some_and(|at| now >= at) => Due::Kill(sentence.why),
            Some(sentence) if !sentence.told => {
                sentence.told = true;
                Due::Term(sentence.why)
            }
            _ => Due::Nothing,
        }
    }

    /// When something is next due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        match (self.sentence, self.armed) {
            (None, Armed::At(deadline)) => Some(deadline.term_at),
            _ => self.kill_at(),
        }
    }

    /// The moment of KILL: the sentence's or the deadline's, whichever is sooner.
    pub(super) fn kill_at(&self) -> Option<Instant> {
        let armed = match self.armed {
            Armed::At(deadline) => Some(deadline.kill_at),
            Armed::Never | Armed::Waived => None,
        };
        armed
            .into_iter()
            .chain(self.sentence.map(|sentence| sentence.kill_at))
            .min()
    }

    /// Why TERM or KILL was sent, once it was.
    pub(super) fn why(&self) -> Option<Why> {
        self.sentence.map(|sentence| sentence.why)
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

    fn armed(term: u64, kill: u64) -> Verdict {
        let mut verdict = Verdict::default();
        verdict.arm(deadline(term, kill));
        verdict
    }

    #[test]
    fn nothing_starts_unarmed_or_past_its_deadline() {
        assert!(!Verdict::default().may_start(at(0)));
        assert!(armed(10, 15).may_start(at(9)));
        assert!(!armed(10, 15).may_start(at(10)));
        let mut waived = Verdict::default();
        waived.waive();
        assert!(waived.may_start(at(99)));
    }

    #[test]
    fn term_comes_once_and_then_kill() {
        let mut verdict = armed(10, 15);
        assert_eq!(verdict.due(at(9)), Due::Nothing);
        assert_eq!(verdict.next_at(), Some(at(10)));
        assert_eq!(verdict.due(at(10)), Due::Term(Why::Deadline));
        assert_eq!(verdict.due(at(11)), Due::Nothing);
        assert_eq!(verdict.next_at(), Some(at(15)));
        assert_eq!(verdict.due(at(15)), Due::Kill(Why::Deadline));
    }

    #[test]
    fn a_renewal_moves_the_deadline() {
        let mut verdict = armed(10, 15);
        verdict.arm(deadline(20, 25));
        assert_eq!(verdict.due(at(16)), Due::Nothing);
        assert_eq!(verdict.due(at(20)), Due::Term(Why::Deadline));
    }

    #[test]
    fn a_renewal_after_term_does_not_save_the_command() {
        let mut verdict = armed(10, 15);
        assert_eq!(verdict.due(at(12)), Due::Term(Why::Deadline));
        verdict.arm(deadline(40, 45));
        assert_eq!(verdict.due(at(15)), Due::Kill(Why::Deadline));
    }

    #[test]
    fn a_machine_that_slept_past_the_kill_skips_term() {
        assert_eq!(armed(10, 15).due(at(60)), Due::Kill(Why::Deadline));
    }

    #[test]
    fn without_grace_there_is_no_term() {
        assert_eq!(armed(10, 10).due(at(10)), Due::Kill(Why::Deadline));
        let mut verdict = armed(10, 15);
        verdict.stop(Why::Lost, Duration::ZERO, at(3));
        assert_eq!(verdict.due(at(3)), Due::Kill(Why::Lost));
    }

    #[test]
    fn a_stop_never_outlasts_the_armed_deadline() {
        let mut verdict = armed(10, 15);
        verdict.stop(Why::Lost, Duration::from_secs(8), at(12));
        assert_eq!(verdict.due(at(12)), Due::Term(Why::Lost));
        assert_eq!(verdict.next_at(), Some(at(15)));
        assert_eq!(verdict.due(at(15)), Due::Kill(Why::Lost));
    }

    #[test]
    fn a_waived_deadline_never_comes_but_max_hold_does() {
        let mut verdict = armed(10, 15);
        verdict.waive();
        assert_eq!(verdict.due(at(99)), Due::Nothing);
        assert_eq!(verdict.next_at(), None);
        verdict.stop(Why::MaxHold, Duration::from_secs(5), at(100));
        assert_eq!(verdict.due(at(100)), Due::Term(Why::MaxHold));
        assert_eq!(verdict.due(at(105)), Due::Kill(Why::MaxHold));
    }

    #[test]
    fn kill_is_a_thirtieth_of_the_lease_before_belief_ends_and_at_least_100_ms() {
        let long = Deadline::before(at(100), Duration::from_secs(30), Duration::from_secs(5));
        assert_eq!(long, deadline(94, 99));
        let short = Deadline::before(at(100), Duration::from_secs(1), Duration::ZERO);
        assert_eq!(short.kill_at, at(100) - Duration::from_millis(100));
        assert_eq!(short.term_at, short.kill_at);
    }
}
