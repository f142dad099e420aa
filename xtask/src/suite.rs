//! `cargo xtask test`: every test of the workspace, with a summary that hides nothing.
//! Not here: what the tests need (`needs`) and how it is installed (`setup`).

use std::io::{self, BufRead, BufReader, Write};
use std::process::Stdio;

use crate::needs::{SKIP, Wanted};
use crate::process::{Failure, cargo, show};
use crate::setup;

/// Packages that cannot share the workspace's lock file, each with one of its own, and why.
pub(crate) const APART: &[(&str, &str)] = &[(
    "examples/fenced-write/sqlx/Cargo.toml",
    "sqlx needs an older libsqlite3-sys than the rest",
)];

/// Runs unit, integration and documentation tests and builds the examples, with all features; `args` are cargo's.
/// Without any it also tests what is apart.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    setup::install()?;
    let wanted = Wanted::read()?;
    let mut total = Total::default();
    let mut outcome = test(&[scope(args).as_slice(), args].concat(), &mut total);
    if args.is_empty() {
        for (manifest, why) in APART {
            println!("\ntest: {manifest}, apart: {why}");
            let apart = [
                "--manifest-path",
                manifest,
                "--target-dir",
                "target/apart",
                "--locked",
            ];
            outcome = outcome.and(test(&apart, &mut total));
        }
    }
    println!("\ntest: {}", total.sentence());
    for need in wanted.skipped {
        println!(
            "test: without `{}`, which {}: {SKIP} names it",
            need.program, need.why
        );
    }
    outcome
}

/// One run of `cargo test`, whose results are added up.
fn test(args: &[&str], total: &mut Total) -> Result<(), Failure> {
    let mut command = cargo();
    if ignores_signals(&std::fs::read_to_string("/proc/self/status").unwrap_or_default()) {
        command.args(["--config", HEAR_SIGNALS]);
    }
    command
        .args(["test", "--all-features", "--no-fail-fast"])
        .args(args);
    command.stdout(Stdio::piped());
    let shown = show(&command);
    println!("test: {shown}");
    let cannot = |error: io::Error| Failure::new(format!("`{shown}` cannot be run: {error}"));
    let mut child = command.spawn().map_err(cannot)?;
    if let Some(stdout) = child.stdout.take() {
        pass_through(BufReader::new(stdout), &mut io::stdout(), total).map_err(cannot)?;
    }
    let status = child.wait().map_err(cannot)?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::of(status, format!("`{shown}` failed ({status})")))
}

/// Has the tests started with the signals set back that a shell makes its background jobs ignore (`nohup` HUP): whoever
/// is started inherits that, the command leaves ignored what its caller ignores, and tests send these signals to it.
const HEAR_SIGNALS: &str =
    r#"target."cfg(target_os = \"linux\")".runner = ["env", "--default-signal=HUP,INT,QUIT"]"#;

/// Whether one of these signals is ignored, by what the kernel shows of a process.
fn ignores_signals(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 0b111 != 0)
}

/// The whole workspace, unless packages are named; cargo would otherwise test both.
fn scope(args: &[&str]) -> Vec<&'static str> {
    let mut ours = args.iter().take_while(|arg| **arg != "--");
    let names_packages = ours.any(|arg| arg.starts_with("-p") || arg.starts_with("--package"));
    if names_packages {
        Vec::new()
    } else {
        vec!["--workspace"]
    }
}

/// Copies line by line, and counts what the `test result:` lines say.
fn pass_through(mut from: impl BufRead, to: &mut impl Write, total: &mut Total) -> io::Result<()> {
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        to.flush()?;
        total.add(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(())
}

/// The sum of all `test result:` lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct Total {
    suites: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
    filtered: u64,
}

impl Total {
    /// Adds one line: `test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; …`.
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ") else {
            return;
        };
        self.suites += 1;
        let counts = counts.split_once(". ").map_or(counts, |(_, counts)| counts);
        for count in counts.split(';') {
            let (number, what) = count.trim().split_once(' ').unwrap_or_default();
            let number: u64 = number.parse().unwrap_or(0);
            match what.trim() {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                "filtered out" => self.filtered += number,
                _ => {}
            }
        }
    }

    fn sentence(&self) -> String {
        let Self {
            suites,
            passed,
            failed,
            ignored,
            filtered,
        } = self;
        let mut text = format!("{passed} passed, {failed} failed in {suites} suites");
        for (count, what) in [(ignored, "ignored"), (filtered, "filtered out")] {
            if *count > 0 {
                text += &format!(", {count} {what}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &[u8] = b"\nrunning 2 tests\ntest a ... ok\ntest \xff ... FAILED\n\
        test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.00s\n\
        test result: ok. 40 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.00s\nno end";

    #[test]
    fn a_background_job_of_a_shell_is_known_by_what_it_ignores() {
        assert!(!ignores_signals("Name:\tcargo\nSigIgn:\t0000000000001000\n"));
        assert!(ignores_signals("Name:\tcargo\nSigIgn:\t0000000000001006\n"));
        assert!(!ignores_signals(""));
    }

    #[test]
    fn what_the_tests_print_is_passed_through_and_counted() {
        let (mut copy, mut total) = (Vec::new(), Total::default());
        pass_through(PRINTED, &mut copy, &mut total).unwrap();
        assert_eq!(copy, PRINTED);
        assert_eq!(
            total,
            Total {
                suites: 2,
                passed: 41,
                failed: 1,
                ignored: 2,
                filtered: 3
            }
        );
        assert_eq!(
            total.sentence(),
            "41 passed, 1 failed in 2 suites, 2 ignored, 3 filtered out"
        );
    }

    #[test]
    fn every_package_is_tested_unless_some_are_named() {
        for args in [
            &[][..],
            &["fifo"],
            &["--profile", "release"],
            &["fifo", "--", "-p"],
        ] {
            assert_eq!(scope(args), ["--workspace"], "{args:?}");
        }
        for args in [["-p", "tenure"], ["--package=tenure", "fifo"]] {
            assert!(scope(&args).is_empty(), "{args:?}");
        }
    }

    #[test]
    fn the_summary_of_no_test_is_not_a_success_story() {
        assert_eq!(Total::default().sentence(), "0 passed, 0 failed in 0 suites");
    }
}
