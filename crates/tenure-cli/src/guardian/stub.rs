//! The stub: asks the kernel to kill it when the guardian dies, waits for the command's standard input, and becomes
//! the command (`exec`). It keeps no descriptor open that the command could inherit.

use std::env::ArgsOs;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{Pid, getppid};

use super::stdin_passing;

/// Error number that the stub reports if the error of `exec` has none.
const UNKNOWN: i32 = Errno::IO.raw_os_error();

/// Runs `tenure-stub GUARDIAN-PID PROGRAM ARG…`, with the guardian's socket as standard input.
///
/// Returns only if the command did not start. The guardian then gets an error number over the socket. When the command
/// does start, `exec` closes the socket.
pub(super) fn main(mut args: ArgsOs) -> ExitCode {
    let guardian = args
        .next()
        .as_deref()
        .and_then(OsStr::to_str)
        .and_then(|pid| pid.parse().ok());
    let (Some(guardian), Some(program)) = (guardian.and_then(Pid::from_raw), args.next()) else {
        return ExitCode::FAILURE;
    };
    let Ok(mut socket) = stdin_passing::own_socket() else {
        return ExitCode::FAILURE;
    };
    let error = if dies_with(guardian) {
        match stdin_passing::receive_stdin(&socket) {
            Ok(Some(())) => Command::new(program).args(args).exec().raw_os_error(),
            Ok(None) => None,
            Err(error) => error.raw_os_error(),
        }
    } else {
        None
    };
    let errno = error.unwrap_or(UNKNOWN);
    // Sending fails only if the guardian has died.
    let _ = socket.write_all(&errno.to_ne_bytes());
    ExitCode::FAILURE
}

/// Asks the kernel to kill this process when its parent dies. Returns false if the parent is not the guardian.
fn dies_with(guardian: Pid) -> bool {
    #[cfg(target_os = "linux")]
    if rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).is_err() {
        return false;
    }
    getppid() == Some(guardian)
}
