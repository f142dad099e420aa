//! The stub: asks the kernel to kill it when the guardian dies, waits for the command line and the standard input, and
//! becomes the command (`exec`). It keeps no descriptor open that the command could inherit.
//!
//! The guardian starts it while `tenure` waits for the lock. The command line follows when the lock is granted, because
//! the command's environment holds the lock's token.

use std::env::ArgsOs;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, getpid, getppid};

use super::helper::{STUB, helper, own_binary};
use super::protocol::Launch;
use super::stdin_passing;

/// Time limit for writing the command line to the stub. The write blocks, for example, while the stub is stopped.
const TAKE_LIMIT: Duration = Duration::from_secs(1);

/// The guardian's handle of a stub.
pub(super) struct Stub {
    pub(super) pid: Pid,
    pub(super) socket: UnixStream,
}

impl Stub {
    /// Starts a stub in a process group of its own. The stub waits for [`take`](Self::take), then for the command's
    /// standard input.
    pub(super) fn spawn() -> io::Result<Stub> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_write_timeout(Some(TAKE_LIMIT))?;
        let child = helper(&own_binary()?, STUB, OwnedFd::from(theirs))
            .arg(getpid().as_raw_pid().to_string())
            .spawn()?;
        Ok(Stub {
            pid: Pid::from_child(&child),
            socket: ours,
        })
    }

    /// Sends the stub the command line and the additional environment variables. Afterwards, reads of the socket do
    /// not block.
    pub(super) fn take(&mut self, launch: &Launch) -> io::Result<()> {
        let launch = serde_json::to_vec(launch)?;
        self.socket.write_all(&(launch.len() as u64).to_ne_bytes())?;
        self.socket.write_all(&launch)?;
        self.socket.set_nonblocking(true)
    }
}

/// Error number that the stub reports if the error of `exec` has none.
const UNKNOWN: i32 = Errno::IO.raw_os_error();

/// Runs `tenure-stub GUARDIAN-PID`, with the guardian's socket as standard input.
///
/// Returns only if the command did not start. In this case the guardian, if it lives, gets an error number over the
/// socket. If the command starts, `exec` closes the socket, and the guardian gets no number.
pub(super) fn main(mut args: ArgsOs) -> ExitCode {
    let guardian = args
        .next()
        .as_deref()
        .and_then(OsStr::to_str)
        .and_then(|pid| pid.parse().ok());
    let Some(guardian) = guardian.and_then(Pid::from_raw) else {
        return ExitCode::FAILURE;
    };
    let Ok(mut socket) = stdin_passing::own_socket() else {
        return ExitCode::FAILURE;
    };
    let error = if dies_with(guardian) {
        become_the_command(&mut socket).raw_os_error()
    } else {
        None
    };
    let errno = error.unwrap_or(UNKNOWN);
    // Sending fails only if the guardian has died.
    let _ = socket.write_all(&errno.to_ne_bytes());
    ExitCode::FAILURE
}

/// Waits for the command line and the standard input, and executes the command. Returns only if that fails.
fn become_the_command(socket: &mut UnixStream) -> io::Error {
    let launch = match read_launch(socket) {
        Ok(launch) => launch,
        Err(error) => return error,
    };
    let [program, args @ ..] = &launch.argv[..] else {
        return io::ErrorKind::InvalidInput.into();
    };
    match stdin_passing::receive_stdin(socket) {
        Ok(Some(())) => Command::new(program).args(args).envs(launch.env).exec(),
        Ok(None) => io::ErrorKind::UnexpectedEof.into(),
        Err(error) => error,
    }
}

/// Reads what [`Stub::take`] sent, and no byte more: the next byte comes with the descriptor of the standard input.
fn read_launch(socket: &mut UnixStream) -> io::Result<Launch> {
    let mut length = [0; 8];
    socket.read_exact(&mut length)?;
    let mut launch = Vec::new();
    let length = u64::from_ne_bytes(length);
    Read::by_ref(socket).take(length).read_to_end(&mut launch)?;
    Ok(serde_json::from_slice(&launch)?)
}

/// Asks the kernel to kill this process when its parent dies (Linux). Returns false if the kernel refuses, or if the
/// parent is not the guardian.
fn dies_with(guardian: Pid) -> bool {
    #[cfg(target_os = "linux")]
    if rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).is_err() {
        return false;
    }
    getppid() == Some(guardian)
}
