//! Why a command did not start, and the exit code for it.

use std::ffi::OsStr;
use std::path::Path;
use std::{env, io};

use tenure::Lost;
use thiserror::Error;

use super::Status;

/// Why the command did not start. No process of the command is left.
#[derive(Debug, Error)]
pub enum StartError {
    /// The system could not execute the program.
    #[error("the command could not be executed")]
    Exec(#[source] io::Error),
    /// The guardian refused to start the command, because it had received no deadline or `term_at` had passed, or it has
    /// not answered by the deadline.
    #[error("the lock's deadline had passed before the command could start")]
    TooLate,
    /// The lock was lost before the command could start.
    #[error(transparent)]
    Lost(Lost),
    /// `tenure` got this signal, which asks it to end, before the command could start.
    #[error("signal {0} came before the command could start")]
    Signal(i32),
    /// The guardian has died.
    #[error("the guardian process ended before the command could start")]
    Guardian,
    /// No handler for the signals of job control could be installed.
    #[error("the signals that stop and continue the command could not be handled")]
    JobControl(#[source] io::Error),
    /// /proc could not be read, so `tenure` cannot tell the command's processes from earlier ones.
    #[error("the processes of this system could not be listed in /proc")]
    Processes(#[source] io::Error),
}

impl StartError {
    /// Returns the exit code of `tenure run`: 127 if there is no such program, 126 if it cannot be executed, 123 if the
    /// lock was lost or its deadline passed before the start, 128 plus the signal's number, 125 if the guardian, job
    /// control or /proc failed.
    pub fn exit_code(&self, program: &OsStr) -> u8 {
        match self {
            StartError::Exec(error) if error.kind() == io::ErrorKind::NotFound && !is_there(program) => 127,
            StartError::Exec(_) => 126,
            StartError::TooLate | StartError::Lost(_) => 123,
            StartError::Signal(signal) => Status::Signaled(*signal).exit_code(),
            StartError::Guardian | StartError::JobControl(_) | StartError::Processes(_) => 125,
        }
    }
}

/// Returns whether the program exists. The system also reports "not found" if a script's interpreter is missing.
fn is_there(program: &OsStr) -> bool {
    let direct = Path::new(program);
    if direct.components().count() > 1 || direct.has_root() {
        return direct.exists();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    !program.is_empty() && env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
