//! `cargo xtask test`: every test of the workspace, with one line at the end that counts them.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::Stdio;

use crate::process::{Failure, cargo, show};
use crate::setup::{self, is_installed};

/// Packages that cannot share the workspace's lock file, each with one of its own, and why.
pub(crate) const APART: &[(&str, &str)] = &[(
    "examples/fenced-write/sqlx/Cargo.toml",
    "sqlx needs an older libsqlite3-sys than the rest",
)];

/// Tests everything with all features, by cargo-nextest where it is installed. With `args`, hands them to `cargo test`.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let skipped = setup::install()?;
    let mut total = Total::default();
    let mut outcome = Ok(());
    for args in calls(args, is_installed("cargo-nextest")) {
        outcome = outcome.and(test(&args, &mut total));
    }
    println!();
    for skipped in skipped {
        println!("test: {skipped}");
    }
    println!("test: {total}");
    outcome
}

/// The arguments of each call of cargo.
fn calls<'a>(args: &[&'a str], nextest: bool) -> Vec<Vec<&'a str>> {
    let all = ["--all-features", "--no-fail-fast"];
    if !args.is_empty() {
        // Without a package, cargo would test the one in the current folder.
        let mut ours = args.iter().take_while(|arg| **arg != "--");
        let names_package = ours.any(|arg| arg.starts_with("-p") || arg.starts_with("--package"));
        let scope: &[&str] = if names_package { &[] } else { &["--workspace"] };
        return vec![[&["test"], &all[..], scope, args].concat()];
    }
    let mut calls = if nextest {
        let doc = [&["test", "--doc", "--workspace"], &all[..]].concat();
        vec![
            [&["nextest", "run", "--retries=0", "--workspace"], &all[..]].concat(),
            doc,
        ]
    } else {
        vec![[&["test", "--workspace"], &all[..]].concat()]
    };
    for (manifest, _) in APART {
        let apart = [
            "--manifest-path",
            manifest,
            "--target-dir",
            "target/apart",
            "--locked",
        ];
        calls.push([&["test"], &all[..], &apart].concat());
    }
    calls
}

/// Runs cargo, passes its output through, and adds its results up.
fn test(args: &[&str], total: &mut Total) -> Result<(), Failure> {
    let nextest = args[0] == "nextest";
    let (verb, args) = args.split_at(if nextest { 2 } else { 1 });
    let mut command = cargo();
    command.args(verb);
    if ignores_signals(&std::fs::read_to_string("/proc/self/status").unwrap_or_default()) {
        command.args(["--config", DEFAULT_SIGNALS]);
    }
    command.args(args);
    let shown = show(&command);
    println!("\ntest: {shown}");
    let cannot = |error: io::Error| Failure::new(format!("`{shown}` cannot be run: {error}"));
    // The test harness reports on stdout, nextest on stderr.
    let (mut child, copied);
    if nextest {
        child = command.stderr(Stdio::piped()).spawn().map_err(cannot)?;
        copied = copy(child.stderr.take(), &mut io::stderr(), total);
    } else {
        child = command.stdout(Stdio::piped()).spawn().map_err(cannot)?;
        copied = copy(child.stdout.take(), &mut io::stdout(), total);
    }
    copied.map_err(cannot)?;
    let status = child.wait().map_err(cannot)?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::of(status, format!("`{shown}` failed ({status})")))
}

/// Starts the tests with default signal handling. A shell makes background jobs ignore signals (`nohup` HUP), child
/// processes inherit that, and some tests send these signals.
const DEFAULT_SIGNALS: &str =
    r#"target."cfg(target_os = \"linux\")".runner = ["env", "--default-signal=HUP,INT,QUIT"]"#;

/// Whether HUP, INT or QUIT is ignored, according to `/proc/self/status`.
fn ignores_signals(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 0b111 != 0)
}

/// Copies line by line, and counts.
fn copy(from: Option<impl Read>, to: &mut impl Write, total: &mut Total) -> io::Result<()> {
    let Some(from) = from else { return Ok(()) };
    let (mut from, mut line) = (BufReader::new(from), Vec::new());
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        to.flush()?;
        total.add(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(())
}

/// The sum of all runs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Total {
    passed: u64,
    failed: u64,
    /// Left out by `#[ignore]` or by a filter.
    skipped: u64,
}

impl Total {
    /// Adds the closing line of a run: `test result: ok. 3 passed; 1 failed; 2 filtered out; …` of the test harness,
    /// `Summary [1.5s] 6 tests run: 3 passed (1 slow), 1 failed, 2 timed out, 0 skipped` of nextest.
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
                "ignored" | "filtered" | "skipped" => self.skipped += number,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        match self.skipped {
            0 => Ok(()),
            skipped => write!(f, ", {skipped} left out"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &[u8] = b"\nrunning 2 tests\ntest a ... ok\ntest \xff 9 failed ... FAILED\n\
        test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.00s\n\
        test result: ok. 40 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.00s\n\
        \x20    Summary [   1.5s] 7 tests run: 3 passed (1 slow), 2 failed, 1 exec failed, 1 timed out, 4 skipped\nno end";

    #[test]
    fn output_is_copied_and_counted() {
        let (mut copied, mut total) = (Vec::new(), Total::default());
        copy(Some(PRINTED), &mut copied, &mut total).unwrap();
        assert_eq!(copied, PRINTED);
        assert_eq!(total.to_string(), "44 passed, 5 failed, 9 left out");
        assert_eq!(Total::default().to_string(), "0 passed, 0 failed");
    }

    #[test]
    fn everything_is_tested_unless_packages_are_named() {
        for (args, first) in [
            (
                &["fifo"][..],
                "test --all-features --no-fail-fast --workspace fifo",
            ),
            (
                &["x", "--", "-p"],
                "test --all-features --no-fail-fast --workspace x -- -p",
            ),
            (&["-p", "tenure"], "test --all-features --no-fail-fast -p tenure"),
            (
                &["--package=a", "b"],
                "test --all-features --no-fail-fast --package=a b",
            ),
        ] {
            let calls = calls(args, true);
            assert_eq!((calls.len(), calls[0].join(" ").as_str()), (1, first));
        }
        assert_eq!(calls(&[], false).len(), 1 + APART.len());
        assert_eq!(calls(&[], true).len(), 2 + APART.len());
    }

    #[test]
    fn ignored_signals_are_noticed() {
        assert!(!ignores_signals("Name:\tcargo\nSigIgn:\t0000000000001000\n"));
        assert!(ignores_signals("Name:\tcargo\nSigIgn:\t0000000000001006\n"));
        assert!(!ignores_signals(""));
    }
}
