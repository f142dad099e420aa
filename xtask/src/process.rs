//! Running other programs, and the one way in which a chore fails.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output};

/// Why a chore failed, in words, and the exit code to end with.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    message: String,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            code: 1,
            message: message.into(),
        }
    }

    /// Ends with the exit code of a program that failed; a program ended by a signal counts as 1.
    pub(crate) fn of(status: ExitStatus, message: impl Into<String>) -> Self {
        let code = status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1);
        Self {
            code,
            message: message.into(),
        }
    }

    /// Adds a paragraph.
    pub(crate) fn followed_by(mut self, advice: &str) -> Self {
        self.message += &format!("\n\n{advice}");
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    // `cargo run` names the folder of the checkout it runs in; two checkouts may share one target folder.
    let ours = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let mut root = ours.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    root.pop();
    root
}

/// The cargo that runs this task, in the root of the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command with our stdout and stderr; anything but success is a failure that repeats it.
pub(crate) fn run(mut command: Command) -> Result<(), Failure> {
    let shown = show(&command);
    let status = command
        .status()
        .map_err(|error| Failure::new(format!("`{shown}` cannot be run: {error}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::of(status, format!("`{shown}` failed ({status})")))
    }
}

/// Runs a command and gives out what it printed to stdout, which must be UTF-8.
pub(crate) fn output(mut command: Command) -> Result<String, Failure> {
    let shown = show(&command);
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .map_err(|error| Failure::new(format!("`{shown}` cannot be run: {error}")))?;
    if !status.success() {
        let said = String::from_utf8_lossy(&stderr);
        return Err(Failure::of(
            status,
            format!("`{shown}` failed ({status}):\n{said}"),
        ));
    }
    String::from_utf8(stdout).map_err(|_| Failure::new(format!("`{shown}` printed what is not UTF-8")))
}

/// Writes a command as one would type it, with `cargo` for the path of cargo.
pub(crate) fn show(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let name = program
        .file_name()
        .unwrap_or(program.as_os_str())
        .to_string_lossy()
        .into_owned();
    let set = command.get_envs().filter_map(|(key, value)| {
        let (key, value) = (key.to_string_lossy(), value?.to_string_lossy());
        Some(if value.contains(' ') {
            format!("{key}=\"{value}\"")
        } else {
            format!("{key}={value}")
        })
    });
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    set.chain([name]).chain(args).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command
            .args(["doc", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(show(&command), "RUSTDOCFLAGS=\"-D warnings\" cargo doc --no-deps");
    }
}
