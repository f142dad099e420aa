//! A server's process: started so that it cannot outlive the tests, and ended, stopped and continued at will.
//! What it serves is its owner's.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::needs::cannot_start;

/// How long a process may take to stand still.
const PATIENCE: Duration = Duration::from_secs(5);

/// A process that is killed when this is dropped, and by the system when the tests end otherwise.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program` with `args` and `environment`; what it prints goes to the file `log`.
    ///
    /// # Errors
    /// What the system says if it cannot be started.
    pub fn start(
        program: &str,
        args: &[String],
        environment: &[(String, String)],
        log: &Path,
    ) -> io::Result<Process> {
        let output = File::options().create(true).append(true).open(log)?;
        // The system kills it when the thread that started it ends, so that a test that is killed leaves no server.
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

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it runs; stopped, it does.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Stops it, as a machine that is suspended, or a garbage collection without end; answers when it stands still.
    pub fn pause(&self) {
        self.send(Signal::STOP);
        let end = Instant::now() + PATIENCE;
        while !self.stands_still() && Instant::now() < end {
            // sleep: a system call that is under way is finished first, and nobody says when.
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Whether it is stopped, or dead.
    fn stands_still(&self) -> bool {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())) else {
            return true;
        };
        // The state follows the name, which stands in brackets and may contain some.
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.trim_start().chars().next());
        matches!(state, Some('T' | 't' | 'Z' | 'X') | None)
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.send(Signal::CONT);
    }

    /// Ends it at once: nothing is written that was not written.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end; a stopped one goes on first.
    pub fn ask_to_end(&self) {
        self.resume();
        self.send(Signal::TERM);
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(&mut self) {
        self.ask_to_end();
        let _ = self.child.wait();
    }

    /// What it has printed.
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

/// A command to start, and where its process goes.
type Order = (Command, Sender<io::Result<Child>>);

/// Starts a process from a thread that lives as long as the tests do: a parent's death is the death of a thread.
fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, ordered) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in ordered {
                // Whoever asked may have gone.
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
