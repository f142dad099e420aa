//! Functions of a test's [`Fixture`]: they start the probe with a command to supervise, and wait for its events. The
//! probe is a test program that takes the place of `tenure run`.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

pub(crate) use crate::common::process::{LIMIT, Process, wait_for};
pub(crate) use crate::common::{Done, Fixture, alive, assert_dead, send, stat_field};
use crate::probe;

/// Deadlines for TERM and KILL that no test reaches: 10 minutes.
pub(crate) const FAR: [&str; 2] = ["term=600000", "kill=600000"];

impl Fixture {
    /// Prepares a probe in the fixture's folder: `words` before the `--`, `argv` after it.
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

    /// Starts a Python program that becomes the probe. The program gets the probe's path and arguments as its own.
    pub(crate) fn called_by_python(&self, program: &str, argv: &[&str]) -> Process {
        let probe = std::env::current_exe().expect("our own path");
        let mut python = Command::new("python3");
        python.args(["-c", program]).arg(probe).arg(probe::NAME).args(FAR);
        python.arg("--").args(argv).current_dir(self.folder.path());
        run(python)
    }
}

/// Starts a probe, with pipes for its input and output.
pub(crate) fn run(mut command: Command) -> Process {
    command.stderr(Stdio::piped());
    Process::start(command)
}

impl Process {
    /// Waits for a line on stderr with this beginning, and returns its last word if that is a number, else 0.
    pub(crate) fn wait_for_line(&self, start: &str) -> i32 {
        let mut lines = Vec::new();
        let found = self.stderr().find(|line| {
            lines.push(line.clone());
            line.starts_with(start)
        });
        let line = found.unwrap_or_else(|| panic!("{start:?} was not printed, but {lines:?}"));
        let number = line.rsplit(' ').next().and_then(|word| word.parse().ok());
        number.unwrap_or(0)
    }
}

impl Done {
    /// Asserts the exit code of the probe, and the reason that it printed for the end of its command.
    pub(crate) fn assert_ended(&self, code: i32, stopped_by: &str) {
        assert_eq!(self.code, code, "{}", self.stderr);
        let words = format!("stopped_by: {stopped_by}");
        assert!(self.stderr.contains(&words), "{}", self.stderr);
    }
}

/// Defines a function `trials` that lists the named functions as tests, each under its own name.
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
