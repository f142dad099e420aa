//! The process of a server. It cannot outlive the tests, and a test can end, pause and continue it.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::needs::cannot_start;

/// Longest wait of `pause` until the process has stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// A process that is killed on drop, or by the system if the tests end without a drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
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
        let output = File::options().create(true).append(true).open(log)?;
        // `setpriv` makes the system kill the server when the thread that started it ends, even if the test is killed.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", program])
            .args(args)
            .envs(environment.iter().cloned())
            .stdin(Stdio::null())
            .stderr(output.try_clone()?)
            .stdout(output);
        let child = spawn(command).map_err(|error| cannot_start("setpriv", error))?;
        Ok(Process {
            child,
            log: log.to_owned(),
        })
    }

    /// The process's ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the process has not ended. A paused process counts as running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Stops the process, like a suspended machine. Returns once it has stopped, or after 5 s.
    pub fn pause(&self) {
        self.send(Signal::STOP);
        let end = Instant::now() + PATIENCE;
        while !self.stands_still() && Instant::now() < end {
            // sleep: the process first finishes its system call, and the system sends no event for that.
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn stands_still(&self) -> bool {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())) else {
            return true;
        };
        // The state follows the process's name, which is in brackets and may itself contain brackets.
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.trim_start().chars().next());
        matches!(state, Some('T' | 't' | 'Z' | 'X') | None)
    }

    /// Continues a paused process, with SIGCONT.
    pub fn resume(&self) {
        self.send(Signal::CONT);
    }

    /// Kills the process at once, without a chance to write its data.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM and does not wait. Continues a paused process first.
    pub fn ask_to_end(&self) {
        self.resume();
        self.send(Signal::TERM);
    }

    /// Sends SIGTERM, and waits until the process has ended.
    pub fn stop(&mut self) {
        self.ask_to_end();
        let _ = self.child.wait();
    }

    /// The process's output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn send(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
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
