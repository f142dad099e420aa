//! Runs test programs, four at a time. Most programs wait for leases, failovers and other processes, so several of them
//! together keep two cores busy. Programs that only compute get the time that those leave. When they have ended, a fifth
//! program uses that time. The output of a program goes to a file, and is printed when the program ends.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// The number of programs that run at the same time, as long as others compute.
const LANES: usize = 4;

/// A program that runs tests.
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) command: Command,
    pub(crate) company: Company,
}

/// Which other programs may run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// Some: the program takes a lane.
    Some,
    /// All: the program takes no lane, and should compute only while no other program does.
    All,
    None,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) name: String,
    output: PathBuf,
    status: io::Result<ExitStatus>,
    took: Duration,
}

/// Runs all programs: first those that may share the machine, in lanes and in the given order, then the others one by
/// one. The output of each goes to a file in `folder`; `print` gets it when the program ends. Returns the programs that
/// failed.
pub(crate) fn run(
    programs: Vec<Program>,
    folder: &Path,
    print: impl FnMut(&str) + Send,
) -> io::Result<Vec<Ended>> {
    fs::create_dir_all(folder)?;
    let (alone, others) = parted(programs, Company::None);
    let (behind, shared) = parted(others, Company::All);
    let [alone, behind, shared] =
        [alone, behind, shared].map(|programs| Mutex::new(VecDeque::from(programs)));
    let report = Mutex::new(Report {
        print,
        failed: Vec::new(),
    });
    let run_all = |programs: &Mutex<VecDeque<Program>>| {
        let next = || programs.lock().expect("no lane panics").pop_front();
        while let Some(program) = next() {
            let ended = program.run(folder);
            report.lock().expect("no lane panics").add(ended);
        }
    };
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| run_all(&shared));
        }
        run_all(&behind);
        run_all(&shared);
    });
    run_all(&alone);
    Ok(report.into_inner().expect("no lane panics").failed)
}

/// The programs with this company, and the others.
fn parted(programs: Vec<Program>, company: Company) -> (Vec<Program>, Vec<Program>) {
    programs
        .into_iter()
        .partition(|program| program.company == company)
}

impl Program {
    /// Runs the program to its end. It reads nothing from stdin.
    fn run(mut self, folder: &Path) -> Ended {
        let output = folder.join(format!("{}.txt", self.name.replace(['/', ' '], "-")));
        let began = Instant::now();
        let status = File::create(&output).and_then(|stdout| {
            let stderr = stdout.try_clone()?;
            let command = self.command.stdin(Stdio::null());
            command.stdout(stdout).stderr(stderr).status()
        });
        Ended {
            name: self.name,
            output,
            status,
            took: began.elapsed(),
        }
    }
}

impl Ended {
    /// All that the program printed.
    pub(crate) fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }
}

struct Report<P> {
    print: P,
    failed: Vec<Ended>,
}

impl<P: FnMut(&str)> Report<P> {
    /// Prints the output of a program, and keeps it if it failed.
    fn add(&mut self, ended: Ended) {
        let outcome = match &ended.status {
            Ok(status) if status.success() => "passed".to_owned(),
            Ok(status) => format!("FAILED ({status})"),
            Err(error) => format!("FAILED: it cannot be started: {error}"),
        };
        let took = ended.took.as_secs_f64();
        (self.print)(&format!(
            "{}test: {}, {took:.1} s: {outcome}\n",
            ended.output(),
            ended.name
        ));
        if outcome != "passed" {
            self.failed.push(ended);
        }
    }
}

/// Prints a text to stdout at once.
pub(crate) fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    // An error means that nothing reads our output any more; the exit code still tells the outcome.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, script: &str, company: Company) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program {
            name: name.to_owned(),
            command,
            company,
        }
    }

    fn folder() -> PathBuf {
        std::env::temp_dir().join(format!("tenure-lanes-{}", std::process::id()))
    }

    #[test]
    fn each_output_is_whole_and_failures_are_named() {
        let mut printed = Vec::new();
        let programs = vec![
            program("a/b", "echo out; echo err >&2", Company::Some),
            program("bad", "echo no; exit 3", Company::All),
            program("gone", "kill -9 $$", Company::None),
        ];
        let folder = folder().join("whole");
        let failed = run(programs, &folder, |text| printed.push(text.to_owned())).unwrap();
        let failed: Vec<_> = failed
            .iter()
            .map(|ended| (ended.name.as_str(), ended.output()))
            .collect();
        assert_eq!(failed, [("bad", "no\n".to_owned()), ("gone", String::new())]);
        let whole = printed
            .iter()
            .any(|text| text.starts_with("out\nerr\ntest: a/b, "));
        assert!(whole, "{printed:?}");
        let missing = Command::new("/no such program");
        let missing = Program {
            name: "missing".into(),
            command: missing,
            company: Company::Some,
        };
        assert_eq!(run(vec![missing], &folder, |_| {}).unwrap().len(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_program_alone_starts_after_all_others_ended() {
        let folder = folder().join("alone");
        fs::create_dir_all(&folder).unwrap();
        let log = folder.join("log");
        let say = |word: &str| format!("echo {word} >>'{}'", log.display());
        // Each of two programs waits until the other one runs too, so they pass only together.
        let meet = |mine: &str, other: &str| {
            let [mine, other] = [mine, other].map(|name| folder.join(name).display().to_string());
            let wait = format!("touch '{mine}'; until [ -e '{other}' ]; do sleep 0.01; done");
            format!("{wait}; {}", say("shared"))
        };
        let programs = vec![
            program("alone", &say("alone"), Company::None),
            program("one", &meet("x", "y"), Company::Some),
            program("two", &meet("y", "x"), Company::Some),
            program("three", &meet("v", "w"), Company::All),
            program("four", &meet("w", "v"), Company::Some),
        ];
        assert!(run(programs, &folder, |_| {}).unwrap().is_empty());
        let expected = "shared\n".repeat(4) + "alone\n";
        assert_eq!(fs::read_to_string(&log).unwrap(), expected);
        fs::remove_dir_all(folder).unwrap();
    }
}
