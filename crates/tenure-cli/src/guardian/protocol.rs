//! Messages between `tenure` and its guardian: one JSON object per line, over a socket pair.

use std::ffi::OsString;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Deadline, StopReason};

/// A message from `tenure` to the guardian.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Sets or moves the deadline. Must come before `Start`.
    Arm(Deadline),
    /// Removes the deadline of a command that has begun. The guardian still kills the command when `tenure` dies.
    Waive,
    /// Gives the stub its command line. The stub waits for `Go` before it becomes the command.
    Start(Launch),
    /// Lets the stub become the command. Before this, `tenure` lists its own older descendants, and gives the terminal to
    /// a command that may have it. If it has no such descendants and no terminal to give, it does not wait for `Spawned`.
    Go,
    Signal {
        signal: i32,
        to: Recipient,
    },
    /// Sends TERM now, and KILL after `grace` or at the deadline, whichever is sooner. If `grace` is zero: KILL now.
    Stop {
        why: StopReason,
        grace: Duration,
    },
}

/// A message from the guardian to `tenure`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Report {
    /// The stub exists, leads a process group of its own, and waits for `Go`.
    Spawned {
        pid: i32,
    },
    /// The stub has become the command, or has died: then `Ended` follows.
    Started,
    /// The stub or the command could not be executed, or the stub could not get the standard input. No process of the
    /// command is left.
    ExecFailed {
        errno: i32,
    },
    /// The guardian refused to start the command, at `Start` or at `Go`: it had received no deadline, or `term_at` had
    /// passed.
    Refused,
    /// `signal`, such as TSTP, stopped the command's first process, and `tenure` has the terminal back. `continued`
    /// is the number of CONTs that the guardian had sent by then: if `tenure` has ordered more, a later one has
    /// undone the stop.
    Stopped {
        signal: i32,
        continued: u64,
    },
    Continued,
    /// The guardian sends TERM.
    TermSent {
        why: StopReason,
    },
    /// The guardian sends KILL.
    KillSent {
        why: StopReason,
    },
    /// No process is left, except those in `unreached`. This is the guardian's last message.
    Ended(Ended),
}

/// The command to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The program, looked up in `PATH`, and its arguments. They need not be UTF-8.
    pub argv: Vec<OsString>,
    /// Variables added to the environment that `tenure` was started with.
    pub env: Vec<(OsString, OsString)>,
    /// The process group of `tenure`, which gets the terminal back. `None` if the command never gets the terminal.
    pub(super) terminal_owner: Option<i32>,
}

impl Launch {
    /// Creates the launch of `argv`, with `env` added to the environment.
    pub fn new(argv: Vec<OsString>, env: Vec<(OsString, OsString)>) -> Launch {
        Launch {
            argv,
            env,
            terminal_owner: None,
        }
    }
}

/// The receiver of a forwarded signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipient {
    /// The command's process group.
    Group,
    /// The command's first process alone.
    Leader,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// The process exited with this code.
    Exited(i32),
    /// This signal ended the process.
    Signaled(i32),
}

impl Status {
    /// Returns the exit code that a shell would show: the command's own, or 128 plus the signal's number.
    pub fn exit_code(self) -> u8 {
        let code = match self {
            Status::Exited(code) => code,
            Status::Signaled(signal) => 128 + signal,
        };
        // Every code fits in eight bits: an exit code has eight, and signal numbers end at 64.
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

/// The end of a command and of all its descendants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How the command itself ended. `None` if the guardian could not kill it, or could not read its status.
    pub status: Option<Status>,
    /// Why the command got TERM or KILL. Also set if it exited by itself after TERM.
    pub stopped_by: Option<StopReason>,
    /// Process ids of descendants that still live, because they belong to another user.
    pub unreached: Vec<i32>,
    /// True if job control had stopped `tenure` when the command got TERM or KILL.
    #[serde(default)]
    pub while_suspended: bool,
}

/// Serializes a message as one line.
pub(super) fn line<T: Serialize>(message: &T) -> Vec<u8> {
    // Cannot fail: no message has a map with keys that JSON refuses.
    let mut line = serde_json::to_vec(message).expect("a message is representable in JSON");
    line.push(b'\n');
    line
}

/// Collects received bytes and splits them into messages.
#[derive(Debug, Default)]
pub(super) struct MessageBuffer {
    bytes: Vec<u8>,
    /// Number of bytes searched already: they hold no line end.
    searched: usize,
}

impl MessageBuffer {
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Returns the next complete message, if any. An error means that the peer is not `tenure` or its guardian.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Option<Result<T, serde_json::Error>> {
        let Some(end) = self.bytes[self.searched..].iter().position(|&b| b == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        let line: Vec<u8> = self.bytes.drain(..=self.searched + end).collect();
        self.searched = 0;
        Some(serde_json::from_slice(&line))
    }
}
