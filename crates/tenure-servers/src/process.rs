//! The process of a server. It cannot outlive the tests, and a test can end, pause and continue it.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::account::Account;
use crate::needs::{cannot_start, program};
use crate::tree;

/// Time limit for a started server to answer its first request.
const PATIENCE: Duration = Duration::from_secs(30);

/// Number of lines that are printed of a server that has ended by itself.
const LAST_LINES: usize = 40;

/// Whether a restarted server keeps its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// The server keeps the data that is on its disk.
    Kept,
    /// The server starts empty.
    Lost,
}

/// A process that is killed on drop, or by the system if the tests end without a drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    stop_signal: Signal,
    /// Whether the process has been asked to end, or killed.
    is_to_end: AtomicBool,
}

impl Process {
    /// Starts `program` with `args` and `environment`. Its output goes to the file `log`.
    ///
    /// # Errors
    /// The system's error if the program cannot be started.
    pub fn start(
        program: &str,
        args: &[String],
        environment: &[(String, String)],
        log: &Path,
    ) -> io::Result<Process> {
        Self::start_as(None, program, args, environment, log)
    }

    /// Starts a program as the user of an account.
    pub(crate) fn start_as(
        account: Option<&Account>,
        name: &str,
        args: &[String],
        environment: &[(String, String)],
        log: &Path,
    ) -> io::Result<Process> {
        let output = File::options().create(true).append(true).open(log)?;
        // `setpriv` makes the system kill the server when the thread that started it ends, even if the test is killed.
        // It does so after it has changed the user: the system forgets this order when the user changes.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL"])
            .args(account.map(Account::setpriv_options).unwrap_or_default())
            .arg(program(name))
            .args(args)
            .envs(environment.iter().cloned())
            .stdin(Stdio::null())
            .stderr(output.try_clone()?)
            .stdout(output);
        let child = spawn(command).map_err(|error| cannot_start("setpriv", error))?;
        Ok(Process {
            child,
            log: log.to_owned(),
            stop_signal: Signal::TERM,
            is_to_end: AtomicBool::new(false),
        })
    }

    /// Makes [`stop`](Process::stop) send another signal than SIGTERM.
    pub(crate) fn with_stop_signal(mut self, stop_signal: Signal) -> Process {
        self.stop_signal = stop_signal;
        self
    }

    /// Polls `is_ready` until it returns true. Fails, with the process's output, if the process ends or after 30 s.
    pub(crate) fn wait_until(
        &mut self,
        what: &str,
        mut is_ready: impl FnMut(&mut Process) -> bool,
    ) -> io::Result<()> {
        let end = Instant::now() + PATIENCE;
        while !is_ready(self) {
            if !self.is_running() || Instant::now() >= end {
                let said = self.log();
                return Err(io::Error::other(format!("{what}:\n{said}")));
            }
            // sleep: a server sends no event when it has started.
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The process's ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the process has not ended. A paused process counts as running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Stops the process and its child processes, like a suspended machine. Returns once they have stopped, or after
    /// 5 s. If the test program is killed before `resume`, the stopped child processes remain.
    pub fn pause(&self) {
        if let Some(pid) = self.raw_pid() {
            tree::pause(pid);
        }
    }

    /// Continues a paused process and its child processes, with SIGCONT.
    pub fn resume(&self) {
        if let Some(pid) = self.raw_pid() {
            tree::resume(pid);
        }
    }

    /// Returns whether the process is paused or has ended, so that it answers nothing.
    pub(crate) fn is_still(&self) -> bool {
        self.raw_pid().is_none_or(tree::is_still)
    }

    /// Kills the process and its child processes at once, without a chance to write their data.
    pub fn kill(&mut self) {
        match self.child.try_wait() {
            Ok(Some(status)) if !self.is_to_end.load(Ordering::Relaxed) => self.tell_of_its_end(status),
            Ok(None) => _ = self.raw_pid().map(tree::kill_descendants),
            _ => {}
        }
        self.is_to_end.store(true, Ordering::Relaxed);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks the process to end in an orderly way and does not wait: sends SIGTERM, or SIGINT to PostgreSQL, which
    /// would wait for its clients after SIGTERM. Continues a paused process first.
    pub fn ask_to_end(&self) {
        self.is_to_end.store(true, Ordering::Relaxed);
        self.resume();
        if let Some(pid) = self.raw_pid() {
            tree::send(pid, self.stop_signal);
        }
    }

    /// Asks the process to end, and waits until it has ended.
    pub fn stop(&mut self) {
        self.ask_to_end();
        let _ = self.child.wait();
    }

    /// The process's output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Prints the last lines of the output of a process that has ended although no test wanted it: its folder is removed.
    fn tell_of_its_end(&self, status: ExitStatus) {
        let said = self.log();
        let lines: Vec<&str> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
        eprintln!("a server has ended by itself ({status}):\n{last}");
    }

    fn raw_pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

type Order = (Command, Sender<io::Result<Child>>);

/// Starts a process from a thread that lives until the tests end: the system kills the process when the thread ends.
fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, ordered) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in ordered {
                // Fails if the caller's thread has ended.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (answer, child) = channel();
    let gone = || io::Error::other("the thread that starts servers has ended");
    let sent = starter
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send((command, answer));
    sent.map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}
