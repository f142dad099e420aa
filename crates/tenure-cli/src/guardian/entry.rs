//! Tells by `argv[0]` which of the three processes this one is.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::{env, os::fd::OwnedFd};

use super::{keeper, stub};

pub(super) const GUARDIAN: &str = "tenure-guardian";
pub(super) const STUB: &str = "tenure-stub";

/// Runs as guardian or stub if this process was started as one; `None` in the `tenure` command itself.
///
/// Must come first in `main`: before arguments are parsed, and before any thread is started.
pub fn play_part() -> Option<ExitCode> {
    let mut args = env::args_os();
    let part = args.next()?;
    if part == GUARDIAN {
        Some(keeper::main())
    } else if part == STUB {
        Some(stub::main(args))
    } else {
        None
    }
}

/// The binary to re-execute.
///
/// On Linux the running file itself, also when another was installed in its place meanwhile.
///
/// # Errors
/// Elsewhere, when the system cannot tell the path.
pub fn own_binary() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        Ok(PathBuf::from("/proc/self/exe"))
    } else {
        env::current_exe()
    }
}

/// A helper of ours: in its own process group, spoken to through its standard input.
pub(super) fn helper(binary: OsString, part: &str, socket: OwnedFd) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(binary);
    command.arg0(part).process_group(0).stdin(socket);
    command
}
