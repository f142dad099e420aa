//! Two holders, one of which is stopped beyond its lease: real processes, and what they say.
//! Not here: what they do, which is in `holder.rs`.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Generous: reached only where something is wrong.
const LIMIT: Duration = Duration::from_secs(60);

/// What became of the two writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The token of the holder that was stopped.
    pub old_token: u64,
    /// The token of the one that took over.
    pub new_token: u64,
    /// What the one that took over said of its write.
    pub new_write: String,
    /// What the one that was stopped said of its own, later write.
    pub old_write: String,
}

/// Plays the story: `holder` gives the command of a holder that writes such a balance. Each event is told.
pub fn play(holder: impl Fn(i64) -> Command, tell: impl Fn(&str)) -> Result<Ending, Box<dyn Error>> {
    let mut a = Holder::start(holder(100))?;
    let old_token = a.held()?;
    tell(&format!("A holds the lock, with token {old_token}."));
    a.stop()?;
    tell("A is stopped. Its lease goes on.");

    let mut b = Holder::start(holder(200))?;
    let new_token = b.held()?;
    tell(&format!(
        "A's lease has ended, and B holds the lock, with token {new_token}."
    ));
    let new_write = b.write()?;
    tell(&format!("B writes 200: {new_write}."));

    a.resume()?;
    let old_write = a.write()?;
    tell(&format!(
        "A goes on, and writes 100 as if nothing had happened: {old_write}."
    ));
    Ok(Ending {
        old_token,
        new_token,
        new_write,
        old_write,
    })
}

/// A holder's process. It is killed with the story.
struct Holder {
    process: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Holder {
    fn start(mut command: Command) -> Result<Self, Box<dyn Error>> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = process.stdin.take().ok_or("stdin is a pipe")?;
        let stdout = process.stdout.take().ok_or("stdout is a pipe")?;
        let (line, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for said in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line.send(said).is_err() {
                    break;
                }
            }
        });
        Ok(Holder {
            process,
            stdin,
            lines,
        })
    }

    /// Waits for the lock; answers its token.
    fn held(&self) -> Result<u64, Box<dyn Error>> {
        let said = self.said()?;
        let token = said
            .strip_prefix("held ")
            .ok_or_else(|| format!("a holder says {said:?}"))?;
        Ok(token.parse()?)
    }

    /// Has it write; answers what it says.
    fn write(&mut self) -> Result<String, Box<dyn Error>> {
        writeln!(self.stdin, "write")?;
        self.said()
    }

    fn said(&self) -> Result<String, Box<dyn Error>> {
        let said = self.lines.recv_timeout(LIMIT);
        said.map_err(|error| format!("a holder says nothing: {error}").into())
    }

    /// Stops it, and waits until it is.
    fn stop(&self) -> Result<(), Box<dyn Error>> {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::STOP)?;
        let stopped = waitpid(Some(pid), WaitOptions::UNTRACED)?;
        let is_stopped = stopped.is_some_and(|(_, status)| status.stopped());
        is_stopped
            .then_some(())
            .ok_or_else(|| "a holder ended instead of being stopped".into())
    }

    fn resume(&self) -> Result<(), Box<dyn Error>> {
        Ok(kill_process(Pid::from_child(&self.process), Signal::CONT)?)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
