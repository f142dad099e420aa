//! A scene for one test: a folder, a probe with its command, and ways to wait for what must happen.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

pub(crate) use crate::common::process::{LIMIT, Process, wait_for};
pub(crate) use crate::common::{Done, Scene, alive, assert_dead, send, stat_field};
use crate::probe;

/// A deadline that no test reaches.
pub(crate) const FAR: [&str; 2] = ["term=600000", "kill=600000"];

impl Scene {
    /// A probe command, not yet started: `words` before the `--`, `argv` after it, in the scene's folder.
    pub(crate) fn command(&self, words: &[&str], argv: &[&str]) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("our own path"));
        command
            .arg0(probe::NAME)
            .args(words)
            .arg("--")
            .args(argv)
            .current_dir(self.folder.path());
        command
    }

    pub(crate) fn start(&self, words: &[&str], argv: &[&str]) -> Process {
        run(self.command(words, argv))
    }

    pub(crate) fn shell(&self, words: &[&str], script: &str) -> Process {
        self.start(words, &["sh", "-c", script])
    }

    /// A probe that was started by this Python program, which is given the probe's path and arguments.
    pub(crate) fn called_by_python(&self, program: &str, argv: &[&str]) -> Process {
        let probe = std::env::current_exe().expect("our own path");
        let mut python = Command::new("python3");
        python.args(["-c", program]).arg(probe).arg(probe::NAME).args(FAR);
        python.arg("--").args(argv).current_dir(self.folder.path());
        run(python)
    }
}

/// Starts a probe, with pipes.
pub(crate) fn run(mut command: Command) -> Process {
    command.stderr(Stdio::piped());
    Process::start(command)
}

impl Process {
    /// Waits for a line on stderr that begins so, and gives its last word as a number, if it is one.
    pub(crate) fn told(&self, start: &str) -> i32 {
        let mut heard = Vec::new();
        let found = self.stderr().find(|line| {
            heard.push(line.clone());
            line.starts_with(start)
        });
        let line = found.unwrap_or_else(|| panic!("{start:?} was never told, but {heard:?}"));
        let number = line.rsplit(' ').next().and_then(|word| word.parse().ok());
        number.unwrap_or(0)
    }
}

impl Done {
    /// Asserts the exit code of a probe, and what was told of the command's end.
    pub(crate) fn assert_ended(&self, code: i32, stopped_by: &str) {
        assert_eq!(self.code, code, "{}", self.stderr);
        let words = format!("stopped_by: {stopped_by}");
        assert!(self.stderr.contains(&words), "{}", self.stderr);
    }
}

/// Lists functions as tests under their own names.
#[macro_export]
macro_rules! trials {
    ($($name:ident),* $(,)?) => {
        pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
            vec![$(libtest_mimic::Trial::test(stringify!($name), || {
                $name();
                Ok(())
            })),*]
        }
    };
}
