//! The start of a command: it can be cancelled until the guardian has reported the stub, the process that becomes the
//! command.

use std::time::Duration;

use rustix::process::{Pid, getpgrp};
use tokio::io::AsyncWriteExt;

use super::{EXIT_LIMIT, Event, Supervisor, overdue, read_report};
use crate::guardian::job_control::JobControl;
use crate::guardian::protocol::{Launch, Order, Report, line};
use crate::guardian::{StartError, now, process_tree, terminal};

/// If the guardian has not reported the stub this long after KILL was due, `tenure` cancels the start. Longer than
/// `STUCK_AFTER`, because the guardian may still be starting, and no command runs.
const START_LIMIT: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Lets the guardian start the command, and returns the command's process id. Gives the command the terminal if
    /// `tenure` shares it. [`Started`](Event::Started) or another event follows.
    ///
    /// # Cancel safety
    /// Not cancel safe: call [`cancel_start`](Self::cancel_start) afterwards.
    ///
    /// # Errors
    /// See [`StartError`]; the command never ran.
    pub async fn start(&mut self, mut launch: Launch) -> Result<u32, StartError> {
        let shares_terminal = terminal::is_shared_with_the_command();
        launch.terminal_owner = shares_terminal.then(|| getpgrp().as_raw_pid());
        self.job = JobControl::open(shares_terminal).map_err(StartError::JobControl)?;
        let kill_at = self.deadline_state.kill_at().max(Some(now()));
        tokio::select! {
            biased;
            started = self.begin(launch, shares_terminal) => return started,
            () = overdue(kill_at.map(|at| at + START_LIMIT)) => {}
        }
        self.cancel_start().await;
        Err(StartError::TooLate)
    }

    /// Sends the orders, and waits until the guardian has reported the stub.
    async fn begin(&mut self, launch: Launch, shares_terminal: bool) -> Result<u32, StartError> {
        self.write(&Order::Start(launch)).await;
        // Look for older descendants while the guardian prepares the start: before `Go` the command does not run and has no
        // children. Each such descendant is below a child other than the guardian.
        let guardian = Pid::from_child(&self.guardian);
        let mut spared = Vec::new();
        let children = process_tree::children().map_err(StartError::Processes)?;
        if children.iter().any(|&pid| pid != guardian) {
            spared = process_tree::everything_below().map_err(StartError::Processes)?;
            spared.retain(|spared| spared.pid != guardian);
        }
        // If nothing must be done after the report `Spawned`, do not wait for it: the command then starts sooner.
        let goes_at_once = !shares_terminal && spared.is_empty();
        self.spared = Some(spared);
        if goes_at_once {
            self.write(&Order::Go).await;
        }
        loop {
            match read_report(&mut self.incoming, &mut self.socket).await {
                Some(Report::Spawned { pid }) => {
                    self.spawned(pid);
                    if !goes_at_once {
                        self.order_with_terminal(&Order::Go);
                    }
                    return Ok(pid.unsigned_abs());
                }
                Some(report) => {
                    if let Some(Event::NotStarted(error)) = self.on_report(report) {
                        return Err(error);
                    }
                }
                // A stub that never got `Go` dies with its guardian, before it becomes the command.
                None => return Err(StartError::Guardian),
            }
        }
    }

    /// Writes an order of the start, which can be too long for the socket.
    async fn write(&mut self, order: &Order) {
        // If the guardian is gone, the reads report that after its last reports.
        let _ = self.socket.write_all(&line(order)).await;
    }

    fn spawned(&mut self, pid: i32) {
        self.leader = Pid::from_raw(pid);
        // The stub, which becomes the command, may have existed when `spared` was listed.
        if let Some(spared) = &mut self.spared {
            spared.retain(|spared| Some(spared.pid) != self.leader);
        }
    }

    /// Kills the guardian, and so the stub: the command does not start. If the guardian has just let the stub go, kills
    /// the command. Returns when no process of the command is left.
    ///
    /// # Cancel safety
    /// If the future is dropped, drop the supervisor too, which kills the command.
    pub async fn cancel_start(&mut self) {
        // An error means that the guardian is dead already.
        let _ = self.guardian.kill();
        let reports = async {
            while let Some(report) = read_report(&mut self.incoming, &mut self.socket).await {
                if let Report::Spawned { pid } = report {
                    return Some(pid);
                }
            }
            None
        };
        // The socket ends with the guardian. A guardian whose system call does not end is dead for our purposes: it
        // executes no more of its code.
        let Ok(Some(pid)) = tokio::time::timeout(EXIT_LIMIT, reports).await else {
            return;
        };
        self.spawned(pid);
        if self.spared.is_some() {
            self.take_over();
            self.end_in_its_place().await;
        }
    }
}
