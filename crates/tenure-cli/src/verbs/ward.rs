//! A command under a lock, from its start to its end: renewals move the guardian's deadline, losses stop the command.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{Instant, Lost};

use super::lock::Held;
use super::signals::{is, orders_to_go};
use crate::args::OnLost;
use crate::guardian::{
    Deadline, Ended, Event, Inbox, LONGEST_SLEEP, Launch, Recipient, StartError, Supervisor, Why, now,
    reached,
};
use crate::words::warn;

/// The deadline is moved that many times a lease, when a renewal allows it.
const LOOKS_PER_LEASE: u32 = 20;

/// What the command line says of losing the lock.
pub(super) struct Terms {
    pub(super) on_lost: OnLost,
    /// Between TERM and KILL.
    pub(super) grace: Duration,
    pub(super) max_hold: Option<Duration>,
    pub(super) at_least: Duration,
}

/// A held lock and the guardian of the command that runs under it.
pub(super) struct Ward<'a> {
    supervisor: Supervisor,
    inbox: &'a mut Inbox,
    held: &'a Held,
    terms: Terms,
    /// When the lock was had.
    since: Instant,
    armed_until: Instant,
    /// Whether the loss of the lock is known, and was told.
    pub(super) lost: bool,
    /// It was said that the command is being stopped.
    told_stop: bool,
    /// The first order to go that came when the command was being stopped already, and could not heed it.
    pub(super) told_to_go: Option<i32>,
}

impl<'a> Ward<'a> {
    pub(super) fn new(
        supervisor: Supervisor,
        inbox: &'a mut Inbox,
        held: &'a Held,
        terms: Terms,
    ) -> Ward<'a> {
        Ward {
            supervisor,
            inbox,
            held,
            terms,
            since: now(),
            armed_until: Instant::ORIGIN,
            lost: false,
            told_stop: false,
            told_to_go: None,
        }
    }

    /// Arms the guardian, and then starts the command.
    pub(super) async fn start(
        &mut self,
        argv: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
    ) -> Result<(), StartError> {
        match self.terms.on_lost {
            OnLost::Ignore => self.supervisor.waive(),
            OnLost::Term | OnLost::Kill => self.move_deadline(),
        }
        self.supervisor.start(Launch::new(argv, env)).await.map(|_| ())
    }

    /// Keeps the command until nothing is left of it.
    pub(super) async fn keep(&mut self) -> Ended {
        loop {
            if self.terms.on_lost != OnLost::Ignore {
                self.move_deadline();
            }
            let pause = self.enforce_max_hold().min(self.held.lease / LOOKS_PER_LEASE);
            tokio::select! {
                event = self.supervisor.next() => match event {
                    Event::Ended(ended) => return self.report(ended),
                    event => self.tell(&event),
                },
                signal = self.inbox.recv() => self.forward(signal),
                lost = self.held.lost(), if !self.lost => self.lose(&lost),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Keeps the lock for as long as `--at-least` says, unless told to go or the lock is lost.
    pub(super) async fn linger(&mut self) {
        let until = self.since + self.terms.at_least;
        while !self.lost {
            tokio::select! {
                biased;
                () = reached(until) => return,
                signal = self.inbox.recv() => {
                    if is(signal, Signal::INT) || is(signal, Signal::TERM) {
                        return;
                    }
                }
                lost = self.held.lost() => {
                    self.lost = true;
                    warn(&format!("{lost}, sooner than --at-least says"));
                }
            }
        }
    }

    /// Moves the guardian's deadline to where the last renewals put it, be that later or earlier.
    fn move_deadline(&mut self) {
        let Some(until) = deadline_to_arm(self.armed_until, self.held.believe_until()) else {
            return;
        };
        self.armed_until = until;
        let grace = self.grace_on_loss();
        self.supervisor
            .arm(Deadline::before(until, self.held.lease, grace));
    }

    /// Stops the command at `--max-hold`; answers how long to sleep at the most.
    fn enforce_max_hold(&mut self) -> Duration {
        let Some(max_hold) = self.terms.max_hold else {
            return LONGEST_SLEEP;
        };
        let left = self.since + max_hold - now();
        if left.is_zero() {
            self.supervisor.stop(Why::MaxHold, self.terms.grace);
            return LONGEST_SLEEP;
        }
        left.min(LONGEST_SLEEP)
    }

    fn lose(&mut self, lost: &Lost) {
        self.lost = true;
        match self.terms.on_lost {
            OnLost::Ignore => warn(&format!("{lost}; the command runs on, as --on-lost ignore says")),
            OnLost::Term | OnLost::Kill => {
                self.told_stop = true;
                warn(&format!("{lost}; the command is being stopped"));
                self.supervisor.stop(Why::Lost, self.grace_on_loss());
            }
        }
    }

    fn grace_on_loss(&self) -> Duration {
        match self.terms.on_lost {
            OnLost::Kill => Duration::ZERO,
            OnLost::Term | OnLost::Ignore => self.terms.grace,
        }
    }

    /// INT, TERM, HUP and QUIT go to the command's group, USR1 and USR2 to the command alone.
    fn forward(&mut self, signal: i32) {
        if !orders_to_go(signal) {
            return self.supervisor.signal(signal, Recipient::Leader);
        }
        if self.told_stop {
            self.told_to_go.get_or_insert(signal);
        }
        self.supervisor.signal(signal, Recipient::Group);
    }

    fn tell(&mut self, event: &Event) {
        match event {
            Event::Terming(why) | Event::Killing(why) if !self.told_stop => {
                self.told_stop = true;
                if let Some(words) = reason(*why) {
                    warn(&format!("{words}; the command is being stopped"));
                }
            }
            Event::Stuck(signal) => warn(&format!(
                "the command was stopped by signal {signal} and stays so, since no shell could continue it; \
                 it is ended when its lock is, or continue it with `kill -CONT`"
            )),
            Event::Terming(_) | Event::Killing(_) | Event::Ended(_) => {}
        }
    }

    fn report(&self, ended: Ended) -> Ended {
        if ended.stopped_by == Some(Why::GuardianDied) {
            warn("the guardian process died, so the command was ended");
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
}

/// Why the guardian stops a command, where it was not told to.
fn reason(why: Why) -> Option<&'static str> {
    match why {
        Why::Deadline => Some("the lock could not be renewed in time"),
        Why::MaxHold => Some("--max-hold is over"),
        Why::Lost => Some("the lock was lost"),
        Why::GuardianDied | Why::CallerDied => None,
    }
}

/// The local deadline to arm, unless the guardian has it already.
///
/// A renewal moves it back when the store keeps the lock for less time than before. The origin of time stands for a lost
/// lock, whose command `lose` stops.
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
