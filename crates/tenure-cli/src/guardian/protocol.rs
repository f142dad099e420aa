//! What `tenure` and its guardian say to each other: one JSON object a line, over a socket pair.

use std::ffi::OsString;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Deadline, Why};

/// From `tenure` to the guardian.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Order {
    /// The deadline from here on. Must come before `Start`, and again after each renewal.
    Arm(Deadline),
    /// No deadline for as long as `tenure` lives.
    Waive,
    /// Make the command's process, and hold it before its first instruction.
    Start(Launch),
    /// The terminal is the command's, if it is to have it: let it run.
    Go,
    Signal {
        signal: i32,
        to: Recipient,
    },
    /// TERM now and KILL a grace later; without grace KILL now.
    Stop {
        why: Why,
        grace: Duration,
    },
}

/// From the guardian to `tenure`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Report {
    /// The process exists, leads a group of its own, and waits for `Go`.
    Spawned {
        pid: i32,
    },
    /// The command runs.
    Started,
    /// There is no command; nothing was left behind.
    ExecFailed {
        errno: i32,
    },
    /// No deadline was armed, or it had passed.
    Refused,
    /// The command's leader was stopped by this signal; the terminal is the caller's again. `continued`
    /// is how many CONTs had been ordered before.
    Stopped {
        signal: i32,
        continued: u64,
    },
    Continued,
    /// TERM is being sent.
    Terming {
        why: Why,
    },
    /// KILL is being sent.
    Killing {
        why: Why,
    },
    /// No process is left. The guardian's last word.
    Ended(Ended),
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The program, looked up in `PATH`, and its arguments. Any bytes.
    pub argv: Vec<OsString>,
    /// Added to the environment that `tenure` was started with.
    pub env: Vec<(OsString, OsString)>,
    /// The process group to which the terminal returns; none where the command never gets it.
    pub(super) terminal_owner: Option<i32>,
}

impl Launch {
    /// The command `argv` with `env` added to its environment.
    pub fn new(argv: Vec<OsString>, env: Vec<(OsString, OsString)>) -> Launch {
        Launch {
            argv,
            env,
            terminal_owner: None,
        }
    }
}

/// Who gets a forwarded signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipient {
    /// The command's process group.
    Group,
    /// The command alone.
    Leader,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
}

impl Status {
    /// The code a shell would give: the command's own, or 128 and the signal's number.
    pub fn exit_code(self) -> u8 {
        let code = match self {
            Status::Exited(code) => code,
            Status::Signaled(signal) => 128 + signal,
        };
        // Both lie below 256: the kernel keeps eight bits of a code, and signals end at 64.
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

/// The end of a command and of everything it started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How the command itself ended; none if it could not be ended, or nobody saw it end.
    pub status: Option<Status>,
    /// Why TERM or KILL was sent to it, if it was. Set even where the command exited by itself after TERM.
    pub stopped_by: Option<Why>,
    /// Descendants that live on because they belong to another user.
    pub unreached: Vec<i32>,
    /// Whether `tenure` itself was suspended (job control) when the deadline came.
    #[serde(default)]
    pub while_suspended: bool,
}

/// One message as a line.
pub(super) fn line<T: Serialize>(message: &T) -> Vec<u8> {
    // Our messages have no map with keys that JSON refuses, so this cannot fail.
    let mut line = serde_json::to_vec(message).expect("a message is representable in JSON");
    line.push(b'\n');
    line
}

/// Bytes that arrived and are not yet messages.
#[derive(Debug, Default)]
pub(super) struct Inflow {
    bytes: Vec<u8>,
    /// Up to here there is no end of line.
    searched: usize,
}

impl Inflow {
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The next whole message. `Err` means that the peer is not ours.
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
