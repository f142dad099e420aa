//! Supervises a command under a lock: each renewal moves the guardian's deadline, and the loss of the lock stops the
//! command.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{Instant, Lost};

use super::lock::HeldLock;
use super::signals::{is, requests_termination, termination_signal};
use crate::args::OnLost;
use crate::guardian::{
    Deadline, Ended, Event, Inbox, LONGEST_SLEEP, Launch, Recipient, StartError, StopReason, Supervisor, now,
    reached,
};
use crate::messages::warn;

/// How often during one lease `run_to_end` checks whether a renewal has moved the deadline.
const ARM_CHECKS_PER_LEASE: u32 = 20;

/// Options for stopping the command, and for `--at-least`.
pub(super) struct SupervisionOptions {
    pub(super) on_lost: OnLost,
    /// Time between TERM and KILL.
    pub(super) grace: Duration,
    pub(super) max_hold: Option<Duration>,
    pub(super) at_least: Duration,
    /// Whether notes tell of the grant and the release (`-v`).
    pub(super) verbose: bool,
}

/// A held lock, and the guardian of the command that runs under it.
pub(super) struct SupervisedCommand<'a> {
    supervisor: Supervisor,
    inbox: &'a mut Inbox,
    held: &'a HeldLock,
    options: SupervisionOptions,
    /// The time just after the lock was acquired.
    since: Instant,
    armed_until: Instant,
    /// True once the command has begun.
    started: bool,
    /// True once the lock is known to be lost and a warning was printed.
    pub(super) lost: bool,
    /// True once a warning has said that the command is being stopped.
    stop_printed: bool,
    /// The first INT, TERM, HUP or QUIT that asked `tenure` to end, whatever becomes of the command. HUP does so only
    /// after the warning that the command is being stopped: a command that runs may take it as an order to reload.
    pub(super) ending_signal: Option<i32>,
    /// True once a signal has ended the time of `--at-least`.
    at_least_is_over: bool,
}

impl<'a> SupervisedCommand<'a> {
    pub(super) fn new(
        supervisor: Supervisor,
        inbox: &'a mut Inbox,
        held: &'a HeldLock,
        options: SupervisionOptions,
    ) -> SupervisedCommand<'a> {
        SupervisedCommand {
            supervisor,
            inbox,
            held,
            options,
            since: now(),
            armed_until: Instant::ORIGIN,
            started: false,
            lost: false,
            stop_printed: false,
            ending_signal: None,
            at_least_is_over: false,
        }
    }

    /// Sends the guardian the deadline, then starts the command. The loss of the lock cancels the start; so does INT,
    /// TERM, HUP or QUIT, unless the guardian has reported that the command begins.
    pub(super) async fn start(
        &mut self,
        argv: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
    ) -> Result<(), StartError> {
        self.move_deadline();
        let why = tokio::select! {
            biased;
            lost = self.held.lost() => {
                self.lost = true;
                StartError::Lost(lost)
            }
            // Before the signal: if the command has begun, `run_to_end` forwards the signal to it.
            started = self.supervisor.start(Launch::new(argv, env)) => return started.map(drop),
            signal = termination_signal(self.inbox) => StartError::Signal(signal),
        };
        self.supervisor.cancel_start().await;
        Err(why)
    }

    /// Supervises the command until no process of it is left, or until the guardian has reported that it cannot be
    /// executed.
    pub(super) async fn run_to_end(&mut self) -> Result<Ended, StartError> {
        loop {
            if !self.outlives_its_lock() {
                self.move_deadline();
            }
            let pause = self
                .enforce_max_hold()
                .min(self.held.lease / ARM_CHECKS_PER_LEASE);
            tokio::select! {
                // Reports first: what to do about a signal or a loss depends on them.
                biased;
                event = self.supervisor.next() => match event {
                    Event::Ended(ended) => return Ok(self.report(ended)),
                    Event::NotStarted(error) => return Err(error),
                    event => self.on_event(&event),
                },
                signal = self.inbox.recv() => self.forward(signal),
                lost = self.held.lost(), if !self.lost => self.on_loss(&lost),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    pub(super) fn into_supervisor(self) -> Supervisor {
        self.supervisor
    }

    /// Keeps the lock for as long as `--at-least` says. INT, TERM or the loss of the lock end the wait, also if they came
    /// while the command ran.
    pub(super) async fn wait_at_least(&mut self) {
        let until = self.since + self.options.at_least;
        while !self.lost && !self.at_least_is_over {
            tokio::select! {
                biased;
                () = reached(until) => return,
                signal = self.inbox.recv() => self.at_least_is_over = ends_at_least(signal),
                lost = self.held.lost() => {
                    self.lost = true;
                    warn(&format!("{lost}, sooner than --at-least says"));
                }
            }
        }
    }

    /// Sends the guardian a new deadline if a renewal has moved the local deadline, to a later or an earlier time.
    fn move_deadline(&mut self) {
        let Some(until) = deadline_to_arm(self.armed_until, self.held.local_deadline()) else {
            return;
        };
        self.armed_until = until;
        // A renewal may prove far less than the granted lease, and the next one is due after a third of what it proved. TERM
        // must not come before that.
        let (left, grace) = (until - now(), self.grace_on_loss());
        let grace = match left < self.held.lease / 10 * 9 {
            true => grace.min(left / 3),
            false => grace,
        };
        self.supervisor
            .arm(Deadline::before(until, self.held.lease, grace));
    }

    /// Stops the command at `--max-hold`. Returns how long the caller may sleep before the next check.
    fn enforce_max_hold(&mut self) -> Duration {
        let Some(max_hold) = self.options.max_hold else {
            return LONGEST_SLEEP;
        };
        let left = self.since + max_hold - now();
        if left.is_zero() {
            self.supervisor.stop(StopReason::MaxHold, self.options.grace);
            return LONGEST_SLEEP;
        }
        left.min(LONGEST_SLEEP)
    }

    fn on_loss(&mut self, lost: &Lost) {
        self.lost = true;
        if self.outlives_its_lock() {
            let words = self.held.words_of(lost);
            return warn(&format!("{words}; the command runs on, as --on-lost ignore says"));
        }
        // Before the warning: a write to stderr waits while its pipe is full.
        self.supervisor.stop(StopReason::Lost, self.grace_on_loss());
        self.stop_printed = true;
        warn(&format!(
            "{}; the command is being stopped",
            self.held.words_of(lost)
        ));
    }

    /// Returns whether the command may run on without the lock: it has begun, with `--on-lost ignore`.
    fn outlives_its_lock(&self) -> bool {
        self.started && self.options.on_lost == OnLost::Ignore
    }

    fn grace_on_loss(&self) -> Duration {
        match self.options.on_lost {
            OnLost::Kill => Duration::ZERO,
            OnLost::Term | OnLost::Ignore => self.options.grace,
        }
    }

    /// Forwards INT, TERM, HUP and QUIT to the command's group, and USR1 and USR2 to the command alone.
    fn forward(&mut self, signal: i32) {
        if !requests_termination(signal) {
            return self.supervisor.signal(signal, Recipient::Leader);
        }
        if self.stop_printed || !is(signal, Signal::HUP) {
            self.ending_signal.get_or_insert(signal);
        }
        self.at_least_is_over |= ends_at_least(signal);
        self.supervisor.signal(signal, Recipient::Group);
    }

    fn on_event(&mut self, event: &Event) {
        match event {
            Event::Started => {
                self.started = true;
                if self.outlives_its_lock() {
                    self.supervisor.waive();
                }
            }
            Event::TermSent(why) | Event::KillSent(why) if !self.stop_printed => {
                self.stop_printed = true;
                if let Some(words) = self.reason(*why) {
                    warn(&format!("{words}; the command is being stopped"));
                }
            }
            Event::Stuck(signal) => warn(&format!(
                "the command was stopped by signal {signal} and stays so, since no shell could continue it; \
                 it is ended when its lock is, or continue it with `kill -CONT`"
            )),
            Event::TermSent(_) | Event::KillSent(_) | Event::NotStarted(_) | Event::Ended(_) => {}
        }
    }

    fn report(&self, ended: Ended) -> Ended {
        if ended.stopped_by == Some(StopReason::GuardianDied) {
            warn("the guardian process died, so the command was ended");
        }
        if !self.stop_printed
            && !ended.while_suspended
            && let Some(words) = ended.stopped_by.and_then(|why| self.reason(why))
        {
            warn(&format!("{words}; the command was ended"));
        }
        if ended.while_suspended {
            warn("the lock's deadline came while this job was suspended, so its command was ended");
        }
        if !ended.unreached.is_empty() {
            let pids: Vec<String> = ended.unreached.iter().map(ToString::to_string).collect();
            warn(&format!(
                "these processes of the command run on without the lock, since they are another user's: {}",
                pids.join(", ")
            ));
        }
        ended
    }

    /// Returns the words for the reason of a stop. `None` for a dead guardian, because `report` prints that later, and for
    /// a dead `tenure`, which prints nothing.
    fn reason(&self, why: StopReason) -> Option<String> {
        let lock = format!("the lock on {}", self.held.names());
        match why {
            StopReason::Deadline => {
                let why = self.held.renewal_error();
                let why = why.unwrap_or_else(|| "no renewal was answered".to_owned());
                Some(format!("{lock} could not be renewed in time: {why}"))
            }
            StopReason::MaxHold => Some("--max-hold is over".to_owned()),
            StopReason::Lost => Some(format!("{lock} was lost")),
            StopReason::GuardianDied | StopReason::CallerDied => None,
        }
    }
}

fn ends_at_least(signal: i32) -> bool {
    is(signal, Signal::INT) || is(signal, Signal::TERM)
}

/// Returns the local deadline to send to the guardian, if it differs from the one that the guardian has.
///
/// A renewal moves the deadline to an earlier time if the store keeps the lock for less time than before. If `local`
/// is the clock's origin, the lock is lost: no deadline is sent, because `on_loss` stops the command.
fn deadline_to_arm(armed: Instant, local: Instant) -> Option<Instant> {
    (local != armed && local != Instant::ORIGIN).then_some(local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_moves_back_is_armed() {
        let at = Instant::from_nanos;
        assert_eq!(deadline_to_arm(at(20), at(30)), Some(at(30)));
        assert_eq!(deadline_to_arm(at(20), at(10)), Some(at(10)));
    }

    #[test]
    fn a_deadline_that_stands_or_is_lost_is_not_armed() {
        let at = Instant::from_nanos;
        assert_eq!(deadline_to_arm(at(20), at(20)), None);
        assert_eq!(deadline_to_arm(at(20), Instant::ORIGIN), None);
    }
}
