//! Job control on `tenure`'s side: when it stops together with its command, and when it lets it go on.

use std::io;

use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};
use signal_hook::consts::{SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU};

use super::{Inbox, terminal};

/// What job control needs, where there is a terminal at all.
#[derive(Debug)]
pub(super) struct Job {
    signals: Inbox,
    /// The command may have the terminal while we are in its foreground.
    pub(super) shares_terminal: bool,
    /// How often the command was continued.
    continued: u64,
    /// We are about to stop ourselves, unless we are continued first.
    stop_due: Option<i32>,
    /// We have stopped ourselves with the command, and it was not continued since.
    suspended: bool,
}

/// What the supervisor is to do about the command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wish {
    Nothing,
    /// Hand it the terminal, if that is ours to give, and send it CONT.
    GoOn,
    /// Forward this signal.
    Forward(i32),
    /// It stays stopped: nobody could continue us if we stopped too.
    Stuck(i32),
}

impl Job {
    /// Begins to listen for what a shell with job control sends. `None` without a terminal.
    ///
    /// Where the terminal is shared, TSTP keeps its default: we are not in the foreground while the
    /// command is.
    pub(super) fn open(shares_terminal: bool) -> io::Result<Option<Job>> {
        if !terminal::exists() {
            return Ok(None);
        }
        let signals: &[i32] = if shares_terminal {
            &[SIGCONT]
        } else {
            &[SIGCONT, SIGTSTP]
        };
        let signals = Inbox::listen(signals)?;
        Ok(Some(Job {
            signals,
            shares_terminal,
            continued: 0,
            stop_due: None,
            suspended: false,
        }))
    }

    pub(super) fn suspended(&self) -> bool {
        self.suspended
    }

    pub(super) fn command_continued(&mut self) {
        self.suspended = false;
    }

    /// The command was stopped, after as many CONTs as `continued` says.
    pub(super) fn command_stopped(&mut self, signal: i32, continued: u64) -> Wish {
        let by_terminal = [SIGTSTP, SIGTTIN, SIGTTOU].contains(&signal);
        if continued != self.continued || (!by_terminal && !self.shares_terminal) {
            // One of our own CONTs has undone it meanwhile; or it is an operator's STOP, and
            // the operator's to undo.
            return Wish::Nothing;
        }
        if self.shares_terminal && signal != SIGTSTP && by_terminal && terminal::is_ours_to_give() {
            // We came to the foreground unnoticed: a shell does not announce it to a job that runs.
            return self.go_on();
        }
        if terminal::someone_can_continue_us() {
            self.stop_due = Some(signal);
            return Wish::Nothing;
        }
        // Alone at its terminal, without us, it would not have been stopped by TSTP either.
        if signal == SIGTSTP {
            self.go_on()
        } else {
            Wish::Stuck(signal)
        }
    }

    fn go_on(&mut self) -> Wish {
        self.continued += 1;
        self.stop_due = None;
        Wish::GoOn
    }

    /// Waits for a signal, or stops this process if that is due. A CONT that came first wins.
    ///
    /// # Cancel safety
    /// Dropping the future loses no wish.
    pub(super) async fn next(&mut self) -> Wish {
        tokio::select! {
            biased;
            signal = self.signals.recv() => match signal {
                SIGCONT => self.go_on(),
                other => Wish::Forward(other),
            },
            () = tokio::task::yield_now(), if self.stop_due.is_some() => {
                self.stop_ourselves();
                Wish::Nothing
            }
        }
    }

    /// So that whoever started us sees one stopped job.
    fn stop_ourselves(&mut self) {
        let Some(signal) = self.stop_due.take() else {
            return;
        };
        self.suspended = true;
        // Signals to ourselves and to our own group are not refused.
        let _ = match Signal::from_named_raw(signal) {
            // We hear TSTP ourselves, and the terminal has sent it to the rest of our group.
            Some(Signal::TSTP) if !self.shares_terminal => kill_process(getpid(), Signal::STOP),
            Some(signal) => kill_current_process_group(signal),
            None => Ok(()),
        };
    }
}
