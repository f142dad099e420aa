//! `cargo xtask test`: builds all tests once, runs them, and prints how many passed and failed in all.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::lanes::{self, Company, Program};
use crate::memory_folder::MemoryFolder;
use crate::process::{
    DEFAULT_SIGNALS, Failure, cargo, cargo_program, root, run as run_command, succeeded, without_our_package,
};
use crate::setup;

/// A package outside the workspace with its own lock file, because its sqlx needs an older libsqlite3-sys.
pub(crate) const APART: &str = "examples/fenced-write/sqlx/Cargo.toml";

/// The tests in the documentation.
const DOCUMENTATION: &str = "documentation";

/// Test programs that need the machine for themselves: they check what a workload measures, or would fail if the system
/// paused a program for longer than the safety margin of a lease.
const ALONE: [&str; 2] = ["tenure-bench/smoke", "guides/other_languages"];

/// Test programs that only compute, on every core, in simulated time. They run while the others leave a core idle.
const COMPUTING: [&str; 2] = ["tenure/simulation", "tenure/quorum"];

/// Lets tests go before a compiler that runs meanwhile: it would use all cores for a minute, and tests have leases of 3 s.
const AFTER_TESTS: [&str; 3] = ["nice", "-n", "10"];

/// Runs a program only on cores that no other program wants.
const ON_IDLE_CORES: [&str; 3] = ["chrt", "--idle", "0"];

/// Test programs that take longest. They start first, so that none of them runs on when all others have ended.
const FIRST: [&str; 24] = [
    "tenure-faults/zookeeper",
    "tenure-sql/postgres_conformance",
    APART,
    "interop/clients",
    "tenure-sql/postgres",
    "tenure-sql/mysql_conformance",
    "interop/etcd",
    "tenure-zookeeper/ensemble",
    "tenure-cli/command",
    "tenure-redis/outages",
    "tenure-faults/databases",
    "tenure-faults/etcd",
    "interop/databases",
    "interop/zookeeper",
    "tenure-faults/topologies",
    "tenure-etcd/conformance",
    "tenure-zookeeper/conformance",
    "tenure-faults/planted",
    "tenure-sql/postgres_pooler",
    "tenure-zookeeper/layouts",
    DOCUMENTATION,
    "tenure-servers/sentinel",
    "tenure-servers/zookeeper",
    "tenure-servers/cluster",
];

/// Test programs whose tests wait more than they compute: for leases, wake-ups and servers. More of these tests run at a time
/// than there are cores.
const WAITING: [&str; 10] = [
    "tenure-bench/smoke",
    "tenure-etcd/conformance",
    "tenure-etcd/cluster_conformance",
    "tenure-zookeeper/conformance",
    "tenure-zookeeper/layouts",
    "tenure-redis/conformance",
    "tenure-redis/string_conformance",
    "tenure-redis/server",
    "tenure-quorum/redis",
    "interop/redisson",
];

/// The number of tests of such a program that run at the same time.
const THREADS: &str = "6";

/// The module of tests that only `cargo xtask test --long` runs.
pub(crate) const LONG: &str = "long::";

/// Tests everything with all features, except the modules [`LONG`]. With `args`, runs `cargo test` with them.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let skipped = setup::run(true)?;
    if !args.is_empty() {
        return run_command(chosen(args));
    }
    let mut total = Total::default();
    let mut programs = programs()?;
    let memory = MemoryFolder::make();
    if let Some(memory) = &memory {
        for program in &mut programs {
            program.command.env("TMPDIR", memory.path());
        }
    }
    let failed = lanes::run(programs, &root().join("target/test-output"), |text| {
        text.lines().for_each(|line| total.add(line));
        lanes::print(text);
    })?;
    for program in &failed {
        println!(
            "\ntest: what failed in {}, once more:\n{}",
            program.name,
            failures(&program.output())
        );
    }
    println!();
    for skipped in skipped {
        println!("test: {skipped}");
    }
    println!("test: {}", total.describe());
    if failed.is_empty() {
        return Ok(());
    }
    if let Some(memory) = memory {
        memory.keep();
    }
    let names: Vec<&str> = failed.iter().map(|program| program.name.as_str()).collect();
    Err(format!("these test programs failed: {}", names.join(", ")).into())
}

/// The last part of a test program's output, which tells of the tests that failed, without backtraces.
fn failures(output: &str) -> String {
    let from = output.find("\nfailures:\n").unwrap_or_default();
    let mut is_trace = false;
    let told = output[from..].lines().filter(|line| {
        is_trace = match is_trace {
            // A backtrace has numbered functions, and the places of their calls.
            true => line.starts_with("  "),
            false => *line == "stack backtrace:",
        };
        !is_trace
    });
    told.collect::<Vec<_>>().join("\n")
}

/// `cargo test` with `args`.
fn chosen(args: &[&str]) -> Command {
    // Adds `--workspace` unless `args` name a package: otherwise cargo would test only the package in the current
    // folder.
    let mut ours = args.iter().take_while(|arg| **arg != "--");
    let names_package = ours.any(|arg| arg.starts_with("-p") || arg.starts_with("--package"));
    let mut command = test_command(&[], if names_package { "test" } else { "test --workspace" });
    command.args(args);
    command
}

/// Runs the cases of `tenure-interop` with every client. Unless one fails, they write the tables of docs/interop.md.
pub(crate) fn interop_table() -> Result<(), Failure> {
    if let Some(skipped) = setup::run(true)?.first() {
        return Err(format!("{skipped}; the tables need every client").into());
    }
    let programs = "--test clients --test databases --test etcd --test zookeeper";
    let mut command = cargo(&format!(
        "test --package tenure-interop --all-features {programs}"
    ));
    command.env("TENURE_INTEROP_TABLE", "write");
    run_command(command)
}

/// A command of cargo, given by words, with all features, and with the signals that tests expect. `through` is a command
/// line that runs it.
fn test_command(through: &[&str], words: &str) -> Command {
    let mut command = Command::new("env");
    command.arg(DEFAULT_SIGNALS).args(through).arg(cargo_program());
    command
        .args(words.split(' '))
        .args(["--all-features", "--no-fail-fast"]);
    command.current_dir(root());
    without_our_package(&mut command);
    command
}

/// Builds all test programs of the workspace, and returns them in the order in which they start. Cargo itself runs the
/// tests in the documentation, and those of the package apart.
fn programs() -> Result<Vec<Program>, Failure> {
    let words = "test --workspace --no-run --message-format=json-render-diagnostics";
    let mut build = test_command(&[], words);
    println!("\ntest: {build:?}");
    let output = build.stderr(Stdio::inherit()).output()?;
    succeeded(&build, output.status)?;
    let mut programs: Vec<Program> = String::from_utf8(output.stdout)?
        .lines()
        .filter_map(program)
        .collect();
    for (name, words) in [
        (DOCUMENTATION, "test --doc --workspace".to_owned()),
        (
            APART,
            format!("test --locked --target-dir target/apart --manifest-path {APART}"),
        ),
    ] {
        programs.push(Program {
            name: name.to_owned(),
            command: test_command(&AFTER_TESTS, &words),
            company: Company::Some,
        });
    }
    programs.sort_by_key(|program| {
        let place = FIRST.iter().position(|name| *name == program.name);
        place.unwrap_or(FIRST.len())
    });
    Ok(programs)
}

/// A message of a build, as far as it tells of a test program.
#[derive(Deserialize)]
struct Message {
    executable: Option<String>,
    manifest_path: Option<String>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// The test program that a message of a build names. `None` for a message about something else.
fn program(message: &str) -> Option<Program> {
    let message: Message = serde_json::from_str(message).ok()?;
    message.profile.filter(|profile| profile.test)?;
    let (executable, manifest) = (message.executable?, message.manifest_path?);
    let (target, folder) = (message.target?, Path::new(&manifest).parent()?);
    let package = folder.file_name()?.to_string_lossy();
    let name = match target.kind.first()?.as_str() {
        "test" => format!("{package}/{}", target.name),
        kind => format!("{package}/{} ({kind})", target.name),
    };
    // A test program expects what `cargo test` sets: the folder of its package, and its path in the environment.
    let company = match name.as_str() {
        name if ALONE.contains(&name) => Company::None,
        name if COMPUTING.contains(&name) => Company::All,
        _ => Company::Some,
    };
    let mut command = Command::new("env");
    command.arg(DEFAULT_SIGNALS);
    if company == Company::All {
        command.args(ON_IDLE_CORES);
    }
    command.arg(executable).args(["--skip", LONG]);
    if WAITING.contains(&name.as_str()) {
        command.args(["--test-threads", THREADS]);
    }
    command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
    Some(Program {
        name,
        command,
        company,
    })
}

#[derive(Debug, Default)]
struct Total {
    passed: u64,
    failed: u64,
}

impl Total {
    /// Adds the counts in the last line of a test program: `test result: ok. 3 passed; 1 failed; 2 filtered out; …`.
    fn add(&mut self, line: &str) {
        if !line.contains("test result: ") {
            return;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<u64>() else {
                continue;
            };
            match pair[1] {
                "passed;" => self.passed += number,
                "failed;" => self.failed += number,
                _ => {}
            }
        }
    }

    fn describe(&self) -> String {
        format!("{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let mut total = Total::default();
        "test x 9 failed ... FAILED\n\
         test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.00s\n\
         test result: ok. 40 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.00s"
            .lines()
            .for_each(|line| total.add(line));
        assert_eq!(total.describe(), "41 passed, 1 failed");
    }

    #[test]
    fn failures_are_told_without_backtraces() {
        let output = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\n\
                      thread 'b' panicked at x.rs:1:2:\nit waits\nstack backtrace:\n   0: f\n             at x.rs:1:2\n\
                      note: more\n\n\nfailures:\n    b\n\ntest result: FAILED";
        let told = failures(output);
        assert_eq!(
            told,
            "\nfailures:\n\n---- b stdout ----\nthread 'b' panicked at x.rs:1:2:\nit waits\nnote: more\n\n\nfailures:\n    b\n\n\
             test result: FAILED"
        );
        assert_eq!(failures("it was killed"), "it was killed");
    }

    #[test]
    fn everything_is_tested_unless_packages_are_named() {
        let all = "--all-features --no-fail-fast";
        for (args, expected) in [
            ("fifo", format!("test --workspace {all} fifo")),
            ("x -- -p", format!("test --workspace {all} x -- -p")),
            ("-p tenure", format!("test {all} -p tenure")),
            ("--package=a b", format!("test {all} --package=a b")),
        ] {
            let args: Vec<&str> = args.split(' ').collect();
            let command = chosen(&args);
            let words: Vec<_> = command
                .get_args()
                .skip(2)
                .map(|arg| arg.to_string_lossy())
                .collect();
            assert_eq!(words.join(" "), expected);
        }
    }

    #[test]
    fn a_test_program_is_found_in_the_messages_of_a_build() {
        let message = |kind: &str, name: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/tenure/Cargo.toml","executable":"/t/x",
                "target":{{"kind":["{kind}"],"name":"{name}"}},"profile":{{"test":{test}}}}}"#
            )
        };
        let found = |text: String| program(&text).map(|program| (program.name, program.company));
        assert_eq!(
            found(message("test", "quorum", true)),
            Some(("tenure/quorum".into(), Company::All))
        );
        assert_eq!(
            found(message("lib", "tenure", true)),
            Some(("tenure/tenure (lib)".into(), Company::Some))
        );
        assert_eq!(found(message("bin", "tenure", false)), None);
        assert_eq!(
            found(r#"{"reason":"build-finished","success":true}"#.into()),
            None
        );
    }
}
