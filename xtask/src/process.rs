//! Runs cargo and other programs for the tasks.

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

/// The reason why a task failed, as text.
pub(crate) type Failure = Box<dyn Error>;

/// An option of `env` that restores the default handling of signals. A shell or `nohup` may start us with some of them
/// ignored; child processes inherit this, and some tests send these signals.
pub(crate) const DEFAULT_SIGNALS: &str = "--default-signal=HUP,INT,QUIT";

pub(crate) fn root() -> PathBuf {
    // `cargo run` sets this to the package of its own checkout. The path compiled in may be that of another checkout.
    let ours = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let mut root = ours.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    root.pop();
    root
}

pub(crate) fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Makes a cargo command in the root of the workspace. `words` are its arguments, separated by spaces.
pub(crate) fn cargo(words: &str) -> Command {
    let mut command = Command::new(cargo_program());
    command.current_dir(root()).args(words.split(' '));
    without_our_package(&mut command);
    command
}

/// Removes what `cargo run` tells about this package from the environment of a cargo command. Build scripts that watch
/// these variables would otherwise run again, and all that depends on them.
pub(crate) fn without_our_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let is_ours = name.to_str().is_some_and(|name| {
            ["CARGO_PKG_", "CARGO_MANIFEST_"]
                .iter()
                .any(|start| name.starts_with(start))
        });
        if is_ours {
            command.env_remove(name);
        }
    }
}

/// Runs a command with our stdout and stderr. Fails, with the command in the message, unless it succeeds.
pub(crate) fn run(mut command: Command) -> Result<(), Failure> {
    let status = command
        .status()
        .map_err(|error| format!("{command:?}: {error}"))?;
    succeeded(&command, status)
}

pub(crate) fn succeeded(command: &Command, status: ExitStatus) -> Result<(), Failure> {
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?} failed ({status})").into()),
    }
}

/// Runs a command and returns its stdout, which must be UTF-8.
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
