//! `cargo xtask test`: runs all tests, and prints how many passed and failed in all.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use crate::process::{DEFAULT_SIGNALS, Failure, cargo, cargo_program, root, run as run_command, succeeded};
use crate::setup::{self, is_installed};

/// A package outside the workspace with its own lock file, because its sqlx needs an older libsqlite3-sys.
pub(crate) const APART: &str = "examples/fenced-write/sqlx/Cargo.toml";

/// Tests everything with all features, with cargo-nextest if it is installed. With `args`, runs `cargo test` with them.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let skipped = setup::run(true)?;
    let mut total = Total::default();
    let mut outcome = Ok(());
    for call in calls(args, is_installed("cargo-nextest")) {
        outcome = outcome.and(test(&call, &mut total));
    }
    println!();
    for skipped in skipped {
        println!("test: {skipped}");
    }
    println!("test: {}", total.describe());
    outcome
}

/// Runs the cases of `tenure-interop` with every client. Unless one fails, they write the table of docs/interop.md.
pub(crate) fn interop_table() -> Result<(), Failure> {
    if let Some(skipped) = setup::run(true)?.first() {
        return Err(format!("{skipped}; the table needs every client").into());
    }
    let mut command = cargo("test --package tenure-interop --all-features --test clients");
    command.env("TENURE_INTEROP_TABLE", "write");
    run_command(command)
}

fn calls<'a>(args: &[&'a str], nextest: bool) -> Vec<Vec<&'a str>> {
    let words = |call: &'static str| call.split(' ').collect::<Vec<&str>>();
    let all = words("--all-features --no-fail-fast");
    if !args.is_empty() {
        // Adds `--workspace` unless `args` name a package: otherwise cargo would test only the package in the current
        // folder.
        let mut ours = args.iter().take_while(|arg| **arg != "--");
        let names_package = ours.any(|arg| arg.starts_with("-p") || arg.starts_with("--package"));
        let test = words(if names_package { "test" } else { "test --workspace" });
        return vec![[&test, &all, args].concat()];
    }
    let calls = match nextest {
        true => vec!["nextest run --retries=0 --workspace", "test --doc --workspace"],
        false => vec!["test --workspace"],
    };
    let apart = words("test --locked --target-dir target/apart --manifest-path");
    let mut calls: Vec<_> = calls
        .into_iter()
        .map(|call| [words(call), all.clone()].concat())
        .collect();
    calls.push([&apart[..], &[APART], &all].concat());
    calls
}

fn test(args: &[&str], total: &mut Total) -> Result<(), Failure> {
    println!("\ntest: cargo {}", args.join(" "));
    let mut command = Command::new("env");
    command.arg(DEFAULT_SIGNALS).arg(cargo_program()).args(args);
    command.current_dir(root());
    // `cargo test` prints the numbers of tests on stdout, nextest on stderr.
    let mut child = match args[0] {
        "nextest" => command.stderr(Stdio::piped()).spawn()?,
        _ => command.stdout(Stdio::piped()).spawn()?,
    };
    if let Some(stdout) = child.stdout.take() {
        copy(stdout, &mut io::stdout(), total)?;
    }
    if let Some(stderr) = child.stderr.take() {
        copy(stderr, &mut io::stderr(), total)?;
    }
    succeeded(&command, child.wait()?)
}

/// Copies the output line by line, and adds the counts of tests in it to `total`.
fn copy(from: impl Read, to: &mut impl Write, total: &mut Total) -> io::Result<()> {
    for line in BufReader::new(from).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        writeln!(to, "{line}")?;
        total.add(&line);
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Total {
    passed: u64,
    failed: u64,
}

impl Total {
    /// Adds the counts in the last line of a test run: `test result: ok. 3 passed; 1 failed; 2 filtered out; …` of
    /// `cargo test`, or `Summary [1.5s] 6 tests run: 3 passed (1 slow), 1 failed, 2 timed out, 0 skipped` of nextest.
    fn add(&mut self, line: &str) {
        if !line.contains("test result: ") && !line.trim_start().starts_with("Summary [") {
            return;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<u64>() else {
                continue;
            };
            match pair[1].trim_end_matches([',', ';']) {
                "passed" => self.passed += number,
                "failed" | "exec" | "timed" => self.failed += number,
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

    const PRINTED: &str = "\nrunning 2 tests\ntest a ... ok\ntest x 9 failed ... FAILED\n\
        test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.00s\n\
        test result: ok. 40 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.00s\n\
        \x20    Summary [   1.5s] 7 tests run: 3 passed (1 slow), 2 failed, 1 exec failed, 1 timed out, 4 skipped\n";

    #[test]
    fn output_is_copied_and_counted() {
        let (mut copied, mut total) = (Vec::new(), Total::default());
        copy(PRINTED.as_bytes(), &mut copied, &mut total).unwrap();
        assert_eq!(String::from_utf8(copied).unwrap(), PRINTED);
        assert_eq!(total.describe(), "44 passed, 5 failed");
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
            let calls = calls(&args, true);
            assert_eq!((calls.len(), calls[0].join(" ")), (1, expected));
        }
        assert_eq!(calls(&[], false).len(), 2);
        assert_eq!(calls(&[], true).len(), 3);
    }
}
