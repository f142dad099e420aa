//! `tenure`'s own side of the guardian: starts it, arms it, hears from it, and acts in its place if it dies.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use rustix::net::{SendFlags, send};
use rustix::process::{Pid, getpgrp};
use signal_hook::consts::SIGCONT;
use tenure::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::deadline::Verdict;
use super::entry::{GUARDIAN, helper};
use super::job::{Job, Wish};
use super::protocol::{Ended, Inflow, Launch, Order, Recipient, Report, line};
use super::sweep::{Left, Sweep};
use super::{Deadline, StartError, Why, handover, kin, now, reached, terminal};

/// How far past the moment of KILL a silent guardian is taken for stuck.
const STUCK_AFTER: Duration = Duration::from_millis(50);
/// How long the news of a child's end is waited for, before the guardian is looked at without it.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long the exit of a guardian is waited for after its last report.
const EXIT_LIMIT: Duration = Duration::from_secs(1);

/// What the guardian, or its death, has to tell.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// TERM went out; KILL follows after the grace.
    Terming(Why),
    /// KILL went out; `Ended` follows once nobody is left.
    Killing(Why),
    /// The command was stopped by this signal, and nobody could continue us if we stopped too: it stays
    /// stopped.
    Stuck(i32),
    /// Nothing is left of the command. The last event.
    Ended(Ended),
}

/// A guardian and, once started, its command.
///
/// Dropping it ends the command with KILL: to the guardian that is the same as our death.
///
/// If the guardian dies, this process ends all that is below it, except the processes that were there when the command was
/// started. No guarantee for what those start later: handed to this process as an orphan, it looks like the command's.
#[derive(Debug)]
pub struct Supervisor {
    guardian: Child,
    /// Wakes after each SIGCHLD.
    child_changed: Signal,
    socket: UnixStream,
    inflow: Inflow,
    leader: Option<Pid>,
    /// Processes below this one, but for the guardian, when the command was started.
    spared: Vec<kin::Identity>,
    /// What the guardian was ordered.
    verdict: Verdict,
    /// The guardian has said that TERM or KILL went out.
    ending: bool,
    /// The guardian has said that it kills.
    killing: Option<Why>,
    job: Option<Job>,
    /// The command was told to end while we were stopped.
    missed: bool,
    revenge: Option<Sweep>,
    /// The last event, while the guardian exits.
    ended: Option<Ended>,
}

impl Supervisor {
    /// Starts a guardian from `binary` ([`own_binary`](super::own_binary)), without a command.
    ///
    /// Costs a few milliseconds in another process, so it is worth doing before the lock is asked for.
    /// From here on this process is a subreaper (Linux).
    ///
    /// # Errors
    /// When the process cannot be started.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn(binary: &Path) -> io::Result<Supervisor> {
        // If our caller ignored SIGCHLD, the kernel reaps each child at once, and gives its id away: a handler ends that.
        // The helpers and the command start with the default, because exec resets handlers.
        let child_changed = signal(SignalKind::child())?;
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let guardian = helper(binary.into(), GUARDIAN, OwnedFd::from(theirs)).spawn()?;
        handover::give_stdin(&ours, rustix::stdio::stdin())?;
        Ok(Supervisor {
            guardian,
            child_changed,
            socket: UnixStream::from_std(ours)?,
            inflow: Inflow::default(),
            leader: None,
            spared: Vec::new(),
            verdict: Verdict::default(),
            ending: false,
            killing: None,
            job: None,
            missed: false,
            revenge: None,
            ended: None,
        })
    }

    /// The guardian's process.
    pub fn guardian_pid(&self) -> u32 {
        self.guardian.id()
    }

    /// Sets the deadline. Needed before [`start`](Self::start), and again after each renewal.
    ///
    /// A command that was already told to end is not saved by a later deadline.
    pub fn arm(&mut self, deadline: Deadline) {
        self.verdict.arm(deadline);
        self.order(&Order::Arm(deadline));
    }

    /// Lifts the deadline for as long as this process lives.
    pub fn waive(&mut self) {
        self.verdict.waive();
        self.order(&Order::Waive);
    }

    /// Starts the command and gives its process id. The terminal is handed to it if it may have it.
    ///
    /// # Cancel safety
    /// Not cancel safe: drop the supervisor afterwards, which ends the command.
    ///
    /// # Errors
    /// See [`StartError`]; the command never ran.
    pub async fn start(&mut self, mut launch: Launch) -> Result<u32, StartError> {
        let shares_terminal = terminal::is_shared_with_the_command();
        launch.terminal_owner = shares_terminal.then(|| getpgrp().as_raw_pid());
        self.job = Job::open(shares_terminal).map_err(|_| StartError::Guardian)?;
        self.spared = kin::everything_below();
        let guardian = Pid::from_child(&self.guardian);
        self.spared.retain(|spared| spared.pid != guardian);
        // A guardian that is gone is noticed in the reading.
        let _ = self.socket.write_all(&line(&Order::Start(launch))).await;
        loop {
            match read_report(&mut self.inflow, &mut self.socket).await {
                Some(Report::Spawned { pid }) => {
                    self.leader = Pid::from_raw(pid);
                    self.let_it_run(&Order::Go);
                }
                // It was ended before it began, and says so next.
                Some(Report::Started | Report::Killing { .. }) => break,
                Some(Report::ExecFailed { errno }) => {
                    return Err(StartError::Exec(io::Error::from_raw_os_error(errno)));
                }
                Some(Report::Refused) => return Err(StartError::TooLate),
                Some(_) => {}
                // It may have died after the command had begun: whatever there is of it is ended by us.
                None if self.leader.is_some() => {
                    self.take_over();
                    break;
                }
                // A stub without its guardian dies by itself, before it becomes the command.
                None => return Err(StartError::Guardian),
            }
        }
        Ok(self.leader.map_or(0, |leader| leader.as_raw_pid().unsigned_abs()))
    }

    /// Forwards a signal. Does nothing before the command was started, and once it has ended.
    pub fn signal(&mut self, signal: i32, to: Recipient) {
        self.order(&Order::Signal { signal, to });
    }

    /// Tells the command to end: TERM now and KILL a grace later, or at the deadline if that is sooner.
    ///
    /// With a grace of zero, KILL now. The first reason given stands.
    pub fn stop(&mut self, why: Why, grace: Duration) {
        if self.verdict.why().is_none() {
            self.verdict.stop(why, grace, now());
            self.order(&Order::Stop { why, grace });
        }
    }

    /// Waits for what happens next. Also does what job control asks for, while it is polled.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Event {
        loop {
            if self.revenge.is_some() {
                return Event::Ended(self.act_in_its_place().await);
            }
            if self.ended.is_some() {
                self.see_guardian_off().await;
            }
            if let Some(ended) = self.ended.take() {
                return Event::Ended(ended);
            }
            let overdue = overdue(self.silent_until());
            let event = tokio::select! {
                // What it has said counts, however late we come to read it.
                biased;
                report = read_report(&mut self.inflow, &mut self.socket) => match report {
                    Some(report) => self.heed(report),
                    None => self.take_over(),
                },
                wish = next_wish(&mut self.job) => self.grant(wish),
                () = overdue => self.take_over(),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// Sends a short order without waiting. A guardian whose socket is full reads nothing: it is stuck.
    fn order(&mut self, order: &Order) {
        if self.revenge.is_some() {
            // The guardian is gone, and its process id may be another's.
            return;
        }
        let bytes = line(order);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if !send(self.socket.as_fd(), &bytes, flags).is_ok_and(|sent| sent == bytes.len()) {
            // Its end is noticed by the next reading. It may be dead already.
            let _ = self.guardian.kill();
        }
    }

    fn heed(&mut self, report: Report) -> Option<Event> {
        match report {
            Report::Terming { why } => {
                self.end_begins();
                Some(Event::Terming(why))
            }
            Report::Killing { why } => {
                self.end_begins();
                self.killing = Some(why);
                Some(Event::Killing(why))
            }
            // A command that is being ended stops for nobody: not even for its wish to read
            // from the terminal.
            Report::Stopped { .. } if self.ending => None,
            Report::Stopped { signal, continued } => {
                let wish = self
                    .job
                    .as_mut()
                    .map(|job| job.command_stopped(signal, continued));
                self.grant(wish.unwrap_or(Wish::Nothing))
            }
            Report::Ended(mut ended) => {
                ended.while_suspended = self.missed;
                self.ended = Some(ended);
                None
            }
            Report::Continued => {
                if let Some(job) = &mut self.job {
                    job.command_continued();
                }
                None
            }
            Report::Spawned { .. } | Report::Started | Report::ExecFailed { .. } | Report::Refused => None,
        }
    }

    /// Waits for the guardian to exit and reaps it, within a limit: nothing depends on it any more.
    async fn see_guardian_off(&mut self) {
        let exit = async {
            while matches!(self.guardian.try_wait(), Ok(None)) {
                // Looks again from time to time, for a caller that blocks SIGCHLD.
                let _ = tokio::time::timeout(LOOK_AGAIN, self.child_changed.recv()).await;
            }
        };
        let _ = tokio::time::timeout(EXIT_LIMIT, exit).await;
    }

    fn end_begins(&mut self) {
        self.ending = true;
        self.missed |= self.suspended();
    }

    fn suspended(&self) -> bool {
        self.job.as_ref().is_some_and(Job::suspended)
    }

    fn grant(&mut self, wish: Wish) -> Option<Event> {
        match wish {
            Wish::Nothing => {}
            Wish::GoOn => self.let_it_run(&Order::Signal {
                signal: SIGCONT,
                to: Recipient::Group,
            }),
            Wish::Forward(signal) => self.order(&Order::Signal {
                signal,
                to: Recipient::Group,
            }),
            Wish::Stuck(signal) => return Some(Event::Stuck(signal)),
        }
        None
    }

    /// Hands over the terminal, if it is to be had, and then gives the order on which the command runs.
    fn let_it_run(&mut self, order: &Order) {
        if let (Some(job), Some(leader)) = (&self.job, self.leader)
            && job.shares_terminal
        {
            terminal::hand_to(leader);
        }
        self.order(order);
    }

    /// When the guardian must have been heard to kill.
    fn silent_until(&self) -> Option<Instant> {
        self.leader?;
        if self.killing.is_some() {
            return None;
        }
        Some(self.verdict.kill_at()? + STUCK_AFTER)
    }

    /// The guardian is dead, or stuck: what it was the parent of is ours from here on.
    fn take_over(&mut self) -> Option<Event> {
        // It may be dead already. The sweep reaps it as one of our children: waiting for that here would put off the
        // deadline, because a process in a system call or under a debugger may die late.
        let _ = self.guardian.kill();
        self.revenge = Some(Sweep::of(self.leader, self.spared.clone()));
        None
    }

    async fn act_in_its_place(&mut self) -> Ended {
        if let (Some(job), Some(leader)) = (&self.job, self.leader)
            && job.shares_terminal
        {
            terminal::take_back(leader, getpgrp());
        }
        while let Some(sweep) = &mut self.revenge {
            match sweep.round(now()) {
                Left::Running(pause) => tokio::time::sleep(pause).await,
                Left::Unreachable(pids) => return self.ended_in_its_place(pids),
            }
        }
        self.ended_in_its_place(Vec::new())
    }

    fn ended_in_its_place(&mut self, unreached: Vec<i32>) -> Ended {
        let is_overdue = self.verdict.kill_at().is_some_and(|at| now() >= at);
        let unordered = if is_overdue {
            Why::Deadline
        } else {
            Why::GuardianDied
        };
        let why = self.killing.or(self.verdict.why()).unwrap_or(unordered);
        Ended {
            status: self.revenge.as_ref().and_then(Sweep::status),
            stopped_by: Some(why),
            unreached,
            while_suspended: self.missed || self.suspended(),
        }
    }
}

async fn next_wish(job: &mut Option<Job>) -> Wish {
    match job {
        Some(job) => job.next().await,
        None => std::future::pending().await,
    }
}

/// The next report; none once the guardian is gone, or speaks another language.
async fn read_report(inflow: &mut Inflow, socket: &mut UnixStream) -> Option<Report> {
    loop {
        if let Some(report) = inflow.next() {
            return report.ok();
        }
        if socket.read_buf(inflow.buffer()).await.ok()? == 0 {
            return None;
        }
    }
}

/// Waits until `at`, on the clock that counts suspend.
async fn overdue(at: Option<Instant>) {
    let Some(at) = at else {
        return std::future::pending().await;
    };
    reached(at).await;
    // Lets the runtime look at the socket once more: if this process was stopped past `at`, it does not know yet what the
    // guardian has sent.
    tokio::task::yield_now().await;
}
