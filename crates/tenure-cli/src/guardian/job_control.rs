//! Job control for `tenure`: when it stops together with its command, and when it continues the command.

use std::io;

use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};
use signal_hook::consts::{SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU};

use super::{Inbox, terminal};

/// State of `tenure`'s job control. Exists only if this process has a terminal.
#[derive(Debug)]
pub(super) struct JobControl {
    signals: Inbox,
    /// True if `tenure`, when it is in the terminal's foreground, puts the command there.
    pub(super) shares_terminal: bool,
    /// Number of CONT signals that this process has sent to the command.
    continued: u64,
    /// Signal with which this process will stop itself, unless a CONT arrives first.
    stop_due: Option<i32>,
    /// True from the time at which this process stops itself with the command until the command continues.
    suspended: bool,
}

/// The supervisor's next action on the command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum JobAction {
    Nothing,
    /// Give the command the terminal, if this process has it and shares it, and send the command CONT.
    Continue,
    /// Forward this signal to the command.
    Forward(i32),
    /// Leave the command stopped by this signal. `tenure` does not stop itself, because no shell could continue it.
    Stuck(i32),
}

impl JobControl {
    /// Starts to listen for the signals of a shell with job control. Returns `None` without a terminal.
    ///
    /// If the command shares the terminal, TSTP keeps its default action in `tenure`: the key Ctrl-Z then signals
    /// only the command, because `tenure` is in the background.
    pub(super) fn open(shares_terminal: bool) -> io::Result<Option<JobControl>> {
        if !terminal::exists() {
            return Ok(None);
        }
        let signals: &[i32] = if shares_terminal {
            &[SIGCONT]
        } else {
            &[SIGCONT, SIGTSTP]
        };
        let signals = Inbox::listen(signals)?;
        Ok(Some(JobControl {
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

    /// Handles a report that `signal` stopped the command. `continued` is the number of CONTs that the guardian had
    /// sent to the command by then.
    pub(super) fn command_stopped(&mut self, signal: i32, continued: u64) -> JobAction {
        let by_terminal = [SIGTSTP, SIGTTIN, SIGTTOU].contains(&signal);
        if continued != self.continued || (!by_terminal && !self.shares_terminal) {
            // Either a later CONT of this process has already undone the stop, or an operator sent STOP and will send
            // CONT.
            return JobAction::Nothing;
        }
        if self.shares_terminal && signal != SIGTSTP && by_terminal && terminal::is_ours_to_give() {
            // After the stop, a shell has moved this process to the foreground. It sent no CONT, because `fg` sends
            // CONT only to stopped jobs.
            return self.continue_command();
        }
        if terminal::shell_can_continue_us() {
            self.stop_due = Some(signal);
            return JobAction::Nothing;
        }
        // A command without `tenure` would not stop either: the kernel drops TSTP if no shell could continue the job.
        if signal == SIGTSTP {
            self.continue_command()
        } else {
            JobAction::Stuck(signal)
        }
    }

    fn continue_command(&mut self) -> JobAction {
        self.continued += 1;
        self.stop_due = None;
        JobAction::Continue
    }

    /// Waits for a signal. If `stop_due` is set and no signal is queued, stops this process instead.
    ///
    /// # Cancel safety
    /// Dropping the future loses no signal.
    pub(super) async fn next(&mut self) -> JobAction {
        tokio::select! {
            biased;
            signal = self.signals.recv() => match signal {
                SIGCONT => self.continue_command(),
                other => JobAction::Forward(other),
            },
            () = tokio::task::yield_now(), if self.stop_due.is_some() => {
                self.stop_ourselves();
                JobAction::Nothing
            }
        }
    }

    /// Stops this process after its command has stopped, so that the shell sees one stopped job.
    fn stop_ourselves(&mut self) {
        let Some(signal) = self.stop_due.take() else {
            return;
        };
        self.suspended = true;
        // Cannot fail: a process may signal itself and its own group.
        let _ = match Signal::from_named_raw(signal) {
            // This process handles TSTP, so only STOP stops it. The terminal has sent TSTP to the rest of the group.
            Some(Signal::TSTP) if !self.shares_terminal => kill_process(getpid(), Signal::STOP),
            Some(signal) => kill_current_process_group(signal),
            None => Ok(()),
        };
    }
}
