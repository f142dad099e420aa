//! The helper processes of `tenure`: the names by which they are started, and how to start one.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;
use std::{env, io};

/// Name (`argv[0]`) of the guardian process.
pub(super) const GUARDIAN: &str = "tenure-guardian";
/// Name (`argv[0]`) of the stub.
pub(super) const STUB: &str = "tenure-stub";

/// Returns the path of the running binary, to be executed again.
///
/// On Linux this is the running file itself, even if another version was installed in its place since.
///
/// # Errors
/// Outside of Linux, if the system does not know the path.
pub fn own_binary() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        Ok(PathBuf::from("/proc/self/exe"))
    } else {
        env::current_exe()
    }
}

/// Prepares a helper process in a process group of its own. Its standard input is the socket for messages.
pub(super) fn helper(binary: OsString, part: &str, socket: OwnedFd) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(binary);
    command.arg0(part).process_group(0).stdin(socket);
    command
}
