//! Running other programs.

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

/// Why a chore failed, in words.
pub(crate) type Failure = Box<dyn Error>;

/// Default handling of the signals that a shell makes background jobs ignore (`nohup` HUP): child processes inherit that,
/// and some tests send these signals. An option of `env`.
pub(crate) const DEFAULT_SIGNALS: &str = "--default-signal=HUP,INT,QUIT";

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    // `cargo run` names the folder of the checkout it runs in; two checkouts may share one target folder.
    let ours = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let mut root = ours.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    root.pop();
    root
}

/// The program of the cargo that runs this task.
pub(crate) fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Cargo in the root of the workspace, with these words as its arguments.
pub(crate) fn cargo(words: &str) -> Command {
    let mut command = Command::new(cargo_program());
    command.current_dir(root()).args(words.split(' '));
    command
}

/// Runs a command with our stdout and stderr; anything but success is a failure that repeats it.
pub(crate) fn run(mut command: Command) -> Result<(), Failure> {
    let status = command
        .status()
        .map_err(|error| format!("{command:?}: {error}"))?;
    succeeded(&command, status)
}

/// Any status but success is a failure that repeats the command.
pub(crate) fn succeeded(command: &Command, status: ExitStatus) -> Result<(), Failure> {
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?} failed ({status})").into()),
    }
}

/// Runs a command and gives out what it printed to stdout, which must be UTF-8.
pub(crate) fn output(mut command: Command) -> Result<String, Failure> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?} failed ({}):\n{said}", output.status).into())
}
