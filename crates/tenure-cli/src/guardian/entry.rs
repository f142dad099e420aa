//! Decides by `argv[0]` whether this process is `tenure`, its guardian, or the stub that becomes the command.

use std::env;
use std::process::ExitCode;

use super::helper::{GUARDIAN, STUB};
use super::{guardian_process, stub};

/// Runs the guardian or the stub if this process was started as one. Returns `None` in the `tenure` command itself.
///
/// Must be called first in `main`: before arguments are parsed, and before any thread is started.
pub fn run_helper() -> Option<ExitCode> {
    let mut args = env::args_os();
    let part = args.next()?;
    if part == GUARDIAN {
        Some(guardian_process::main())
    } else if part == STUB {
        Some(stub::main(args))
    } else {
        None
    }
}
