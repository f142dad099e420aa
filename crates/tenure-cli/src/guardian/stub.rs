//! The stub: ties its life to the guardian's, waits for its standard input, and becomes the command.
//! It never outlives a guardian that died, and holds nothing that the command could inherit.

use std::env::ArgsOs;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{Pid, getppid};

use super::handover;

/// What a command's missing error number is reported as.
const UNKNOWN: i32 = Errno::IO.raw_os_error();

/// `tenure-stub GUARDIAN-PID PROGRAM ARG…`, with the guardian's socket as standard input.
///
/// Returns only if there is no command: the error number has then gone over the socket, or nobody is there to
/// read it. The socket closes by itself when the command starts.
pub(super) fn main(mut args: ArgsOs) -> ExitCode {
    let guardian = args
        .next()
        .as_deref()
        .and_then(OsStr::to_str)
        .and_then(|pid| pid.parse().ok());
    let (Some(guardian), Some(program)) = (guardian.and_then(Pid::from_raw), args.next()) else {
        return ExitCode::FAILURE;
    };
    let Ok(mut socket) = handover::own_socket() else {
        return ExitCode::FAILURE;
    };
    if !dies_with(guardian) || !matches!(handover::take_stdin(&socket), Ok(Some(()))) {
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(args).exec();
    let errno = error.raw_os_error().unwrap_or(UNKNOWN);
    // If this fails the guardian is gone, and nobody waits for the reason.
    let _ = socket.write_all(&errno.to_ne_bytes());
    ExitCode::FAILURE
}

/// Asks for the parent-death signal, then checks that the parent had not died before.
fn dies_with(guardian: Pid) -> bool {
    #[cfg(target_os = "linux")]
    if rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).is_err() {
        return false;
    }
    getppid() == Some(guardian)
}
