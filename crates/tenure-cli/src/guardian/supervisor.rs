//! The `tenure` side: starts the guardian, sends deadlines, reads reports, and kills the command if the guardian dies.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use rustix::net::{SendFlags, send};
use rustix::process::{Pid, WaitOptions, getpgrp, wait};
use signal_hook::consts::SIGCONT;
use tenure::Instant;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::deadline::DeadlineState;
use super::helper::{GUARDIAN, helper, start_error};
use super::job_control::{JobAction, JobControl};
use super::protocol::{Ended, MessageBuffer, Order, Recipient, Report, line};
use super::sweep::{RoundResult, Sweep};
use super::{Deadline, StartError, StopReason, now, process_tree, reached, stdin_passing, terminal};

mod start;

/// If the guardian has not reported KILL this long after KILL was due, `tenure` kills the guardian and the command.
const STUCK_AFTER: Duration = Duration::from_millis(50);
/// Longest wait for SIGCHLD before `tenure` checks without it whether the guardian has exited.
const CHILD_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait for the guardian to exit after its last report.
const EXIT_LIMIT: Duration = Duration::from_secs(1);

/// A change of the command's state, reported by the guardian or, if the guardian died, found by `tenure`.
#[derive(Debug)]
pub enum Event {
    /// The stub has become the command, or has died: then `Ended` follows.
    Started,
    /// The command did not start, although the guardian had a stub for it. This is the last event.
    NotStarted(StartError),
    /// The guardian sends TERM to the command. KILL follows after `--grace`, or sooner.
    TermSent(StopReason),
    /// The guardian sends KILL to the command. `Ended` follows once no process is left.
    KillSent(StopReason),
    /// This signal stopped the command. `tenure` runs on, because no shell could continue a stopped `tenure`.
    Stuck(i32),
    /// No process of the command is left, except those in `unreached`. This is the last event.
    Ended(Ended),
}

/// A guardian and, once started, its command.
///
/// Dropping it kills the command: the socket closes, and the guardian acts as if `tenure` had died.
///
/// If the guardian dies, this process kills all its own descendants, except those that existed when the command was
/// started. A process that such an older descendant starts later may be killed too: if its parent dies, it becomes a
/// child of this process and looks like one of the command.
#[derive(Debug)]
pub struct Supervisor {
    guardian: Child,
    /// Wakes after each SIGCHLD.
    child_changed: Signal,
    socket: UnixStream,
    incoming: MessageBuffer,
    leader: Option<Pid>,
    /// Descendants of this process that existed before the command, except the guardian. If this process has to kill
    /// the command itself, it spares them. `None` until they are listed: before that, no command can have begun.
    spared: Option<Vec<process_tree::ProcessIdentity>>,
    /// Copy of what the guardian was sent: the deadline, and the decision to stop.
    deadline_state: DeadlineState,
    /// True once `next` has read the guardian's report of TERM or KILL.
    ending: bool,
    /// The reason in the guardian's report `KillSent`, once `next` has read it.
    killing: Option<StopReason>,
    job: Option<JobControl>,
    /// True if the guardian reported TERM or KILL while job control had stopped this process.
    missed_while_suspended: bool,
    takeover: Option<Sweep>,
    /// True once the guardian has reported `Ended`: it exits by itself.
    guardian_exits: bool,
}

impl Supervisor {
    /// Starts a guardian from `binary` (see [`own_binary`](super::own_binary)), without a command.
    ///
    /// Call this before the lock is requested: the guardian needs a few milliseconds to start. Makes this process a
    /// subreaper (Linux).
    ///
    /// # Errors
    /// If the process, its socket or the handler of SIGCHLD cannot be created.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn(binary: &Path) -> io::Result<Supervisor> {
        // If the caller of `tenure` ignored SIGCHLD, the kernel would reap each child at once and could reuse its id. A
        // handler prevents this. `exec` resets handlers, so the guardian and the command start with the default.
        let child_changed = signal(SignalKind::child())?;
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let guardian = helper(binary, GUARDIAN, OwnedFd::from(theirs)).spawn();
        let guardian = guardian.map_err(|error| start_error(binary, error))?;
        stdin_passing::send_stdin(&ours, rustix::stdio::stdin())?;
        Ok(Supervisor {
            guardian,
            child_changed,
            socket: UnixStream::from_std(ours)?,
            incoming: MessageBuffer::default(),
            leader: None,
            spared: None,
            deadline_state: DeadlineState::default(),
            ending: false,
            killing: None,
            job: None,
            missed_while_suspended: false,
            takeover: None,
            guardian_exits: false,
        })
    }

    /// Returns the process id of the guardian.
    pub fn guardian_pid(&self) -> u32 {
        self.guardian.id()
    }

    /// Sets or moves the deadline. The guardian starts no command without one, so call this before
    /// [`start`](Self::start).
    ///
    /// A later deadline does not save a command that already got TERM.
    pub fn arm(&mut self, deadline: Deadline) {
        self.deadline_state.arm(deadline);
        self.order(&Order::Arm(deadline));
    }

    /// Removes the deadline of a command that has [`Started`](Event::Started). The guardian still kills the command when
    /// this process dies.
    pub fn waive(&mut self) {
        self.deadline_state.waive();
        self.order(&Order::Waive);
    }

    /// Forwards a signal. Does nothing before the command is started, and after it has ended.
    pub fn signal(&mut self, signal: i32, to: Recipient) {
        self.order(&Order::Signal { signal, to });
    }

    /// Stops the command: TERM now, KILL after `grace` or at the deadline, whichever is sooner.
    ///
    /// If `grace` is zero: KILL now. A second call changes nothing.
    pub fn stop(&mut self, why: StopReason, grace: Duration) {
        if self.deadline_state.why().is_none() {
            self.deadline_state.stop(why, grace, now());
            self.order(&Order::Stop { why, grace });
        }
    }

    /// Waits for the next event. Also handles job control while it is polled.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Event {
        loop {
            if self.takeover.is_some() {
                return Event::Ended(self.end_in_its_place().await);
            }
            let overdue = overdue(self.guardian_silent_until());
            let event = tokio::select! {
                // Read reports first: a report that has arrived counts, even if this process reads it late.
                biased;
                report = read_report(&mut self.incoming, &mut self.socket) => match report {
                    Some(report) => self.on_report(report),
                    None => self.take_over(),
                },
                action = next_action(&mut self.job) => self.apply(action),
                () = overdue => self.take_over(),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// Sends a short order without blocking. If the socket is full, the guardian does not read, so it counts as stuck
    /// and is killed.
    fn order(&mut self, order: &Order) {
        if self.takeover.is_some() {
            // `takeover`, which kills the descendants, may have reaped the guardian. Another process may have its id.
            return;
        }
        let bytes = line(order);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if !send(self.socket.as_fd(), &bytes, flags).is_ok_and(|sent| sent == bytes.len()) {
            // `kill` fails only if the guardian is dead already. The next read notices its end.
            let _ = self.guardian.kill();
        }
    }

    fn on_report(&mut self, report: Report) -> Option<Event> {
        match report {
            Report::TermSent { why } => {
                self.stop_begins();
                Some(Event::TermSent(why))
            }
            Report::KillSent { why } => {
                self.stop_begins();
                self.killing = Some(why);
                Some(Event::KillSent(why))
            }
            // After TERM the command soon gets KILL, so job control ignores the stop.
            Report::Stopped { .. } if self.ending => None,
            Report::Stopped { signal, continued } => {
                let action = self
                    .job
                    .as_mut()
                    .map(|job| job.command_stopped(signal, continued));
                self.apply(action.unwrap_or(JobAction::Nothing))
            }
            Report::Ended(mut ended) => {
                ended.while_suspended = self.missed_while_suspended;
                self.guardian_exits = true;
                Some(Event::Ended(ended))
            }
            Report::Continued => {
                if let Some(job) = &mut self.job {
                    job.command_continued();
                }
                None
            }
            Report::Started => Some(Event::Started),
            Report::ExecFailed { errno } => {
                let error = io::Error::from_raw_os_error(errno);
                Some(Event::NotStarted(StartError::Exec(error)))
            }
            Report::Refused => Some(Event::NotStarted(StartError::TooLate)),
            Report::Spawned { .. } => None,
        }
    }

    /// Waits, for at most a second, until the guardian has exited, and reaps it. If it has no command to end, kills it
    /// first.
    ///
    /// # Cancel safety
    /// If the future is dropped, the guardian still exits, but is reaped only after this process has ended.
    pub async fn reap_guardian(mut self) {
        if self.takeover.is_some() {
            // The `Sweep` has reaped it.
            return;
        }
        let has_no_command = !self.guardian_exits;
        if has_no_command {
            // An error means that the guardian is dead already.
            let _ = self.guardian.kill();
        }
        let exit = async {
            while matches!(self.guardian.try_wait(), Ok(None)) {
                // The time limit is for a `tenure` whose caller has blocked SIGCHLD, so that none arrives.
                let _ = tokio::time::timeout(CHILD_POLL_INTERVAL, self.child_changed.recv()).await;
            }
            // The stub dies a moment after its guardian, as a child of this process. Other children may be older than
            // this program, and live on.
            while has_no_command && matches!(wait(WaitOptions::NOHANG), Ok(None)) {
                let _ = tokio::time::timeout(CHILD_POLL_INTERVAL, self.child_changed.recv()).await;
            }
        };
        let _ = tokio::time::timeout(EXIT_LIMIT, exit).await;
    }

    fn stop_begins(&mut self) {
        self.ending = true;
        self.missed_while_suspended |= self.suspended();
    }

    fn suspended(&self) -> bool {
        self.job.as_ref().is_some_and(JobControl::suspended)
    }

    fn apply(&mut self, action: JobAction) -> Option<Event> {
        match action {
            JobAction::Nothing => {}
            JobAction::Continue => self.order_with_terminal(&Order::Signal {
                signal: SIGCONT,
                to: Recipient::Group,
            }),
            JobAction::Forward(signal) => self.order(&Order::Signal {
                signal,
                to: Recipient::Group,
            }),
            JobAction::Stuck(signal) => return Some(Event::Stuck(signal)),
        }
        None
    }

    /// Gives the terminal to the command if `tenure` shares it, then sends the order that lets the command run.
    fn order_with_terminal(&mut self, order: &Order) {
        if let (Some(job), Some(leader)) = (&self.job, self.leader)
            && job.shares_terminal
        {
            terminal::hand_to(leader);
        }
        self.order(order);
    }

    /// Returns the time by which the guardian must report KILL. Returns `None` if the guardian has reported KILL, if
    /// there is no command, or if there is neither a deadline nor a stop.
    fn guardian_silent_until(&self) -> Option<Instant> {
        self.leader?;
        if self.killing.is_some() {
            return None;
        }
        Some(self.deadline_state.kill_at()? + STUCK_AFTER)
    }

    /// Kills the guardian, which is dead or stuck, and makes this process kill the command.
    fn take_over(&mut self) -> Option<Event> {
        // The guardian may be dead already. The `Sweep` reaps it later: waiting for it here could delay the command's
        // death, because a process in a system call or under a debugger can take long to die.
        let _ = self.guardian.kill();
        let spared = self.spared.clone().unwrap_or_default();
        self.takeover = Some(Sweep::of(self.leader, spared));
        None
    }

    async fn end_in_its_place(&mut self) -> Ended {
        if let (Some(job), Some(leader)) = (&self.job, self.leader)
            && job.shares_terminal
        {
            terminal::take_back(leader, getpgrp());
        }
        while let Some(sweep) = &mut self.takeover {
            match sweep.round(now()) {
                RoundResult::Running(pause) => tokio::time::sleep(pause).await,
                RoundResult::Unreachable(pids) => return self.takeover_result(pids),
            }
        }
        self.takeover_result(Vec::new())
    }

    fn takeover_result(&mut self, unreached: Vec<i32>) -> Ended {
        let is_overdue = self.deadline_state.kill_at().is_some_and(|at| now() >= at);
        let unordered = if is_overdue {
            StopReason::Deadline
        } else {
            StopReason::GuardianDied
        };
        let why = self.killing.or(self.deadline_state.why()).unwrap_or(unordered);
        Ended {
            status: self.takeover.as_ref().and_then(Sweep::status),
            stopped_by: Some(why),
            unreached,
            while_suspended: self.missed_while_suspended || self.suspended(),
        }
    }
}

async fn next_action(job: &mut Option<JobControl>) -> JobAction {
    match job {
        Some(job) => job.next().await,
        None => std::future::pending().await,
    }
}

/// Reads the next report. Returns `None` once the guardian is gone or has sent something that is no report.
async fn read_report(incoming: &mut MessageBuffer, socket: &mut UnixStream) -> Option<Report> {
    loop {
        if let Some(report) = incoming.next() {
            return report.ok();
        }
        if socket.read_buf(incoming.buffer()).await.ok()? == 0 {
            return None;
        }
    }
}

/// Waits until `at`, on the clock that counts suspended time. `None`: waits for ever.
async fn overdue(at: Option<Instant>) {
    let Some(at) = at else {
        return std::future::pending().await;
    };
    reached(at).await;
    // Lets the runtime read the socket once more: if this process was stopped until after `at`, reports of the guardian
    // may be waiting there.
    tokio::task::yield_now().await;
}
