//! `cargo xtask ci`: everything that must hold before a merge, the quick checks first.
//! Not here: what each check looks for.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::metadata::Metadata;
use crate::needs::is_in;
use crate::process::{Failure, cargo, run as run_command};
use crate::{lean, suite, tidy};

/// One step: its name, how to run it alone, and its work.
struct Step {
    name: &'static str,
    alone: &'static str,
    work: fn() -> Result<(), Failure>,
}

const STEPS: &[Step] = &[
    Step {
        name: "format",
        alone: "cargo fmt --all",
        work: format,
    },
    Step {
        name: "tidy",
        alone: "cargo xtask tidy",
        work: tidy::run,
    },
    Step {
        name: "lean",
        alone: "cargo xtask ci",
        work: lean::run,
    },
    Step {
        name: "clippy",
        alone: "cargo clippy --workspace --all-targets --all-features -- -D warnings",
        work: clippy,
    },
    Step {
        name: "features",
        alone: "cargo xtask ci",
        work: features,
    },
    Step {
        name: "docs",
        alone: "RUSTDOCFLAGS=\"-D warnings\" cargo doc --workspace --all-features --no-deps --lib",
        work: docs,
    },
    Step {
        name: "deny",
        alone: "cargo deny check",
        work: deny,
    },
    Step {
        name: "test",
        alone: "cargo xtask test",
        work: || suite::run(&[]),
    },
];

/// Runs the steps in order, stops at the first that fails, and says how long each took.
pub(crate) fn run() -> Result<(), Failure> {
    let mut times = Vec::with_capacity(STEPS.len());
    for step in STEPS {
        println!("\nci: {} …", step.name);
        let began = Instant::now();
        let outcome = (step.work)();
        times.push((step.name, began.elapsed()));
        if let Err(failure) = outcome {
            print_times(&times);
            return Err(
                failure.followed_by(&format!("the step `{}` failed; alone: {}", step.name, step.alone))
            );
        }
    }
    print_times(&times);
    Ok(())
}

fn print_times(times: &[(&str, Duration)]) {
    println!();
    for (name, time) in times {
        println!("ci: {name:<8} {:>7.1} s", time.as_secs_f64());
    }
}

fn format() -> Result<(), Failure> {
    run_command(cargo_with(&["fmt", "--all", "--", "--check"]))?;
    for (manifest, _) in suite::APART {
        run_command(cargo_with(&["fmt", "--manifest-path", manifest, "--", "--check"]))?;
    }
    Ok(())
}

fn clippy() -> Result<(), Failure> {
    let strict = ["--all-targets", "--all-features", "--", "-D", "warnings"];
    run_command(cargo_with(&[&["clippy", "--workspace"][..], &strict].concat()))?;
    for (manifest, _) in suite::APART {
        let apart = [
            "clippy",
            "--manifest-path",
            manifest,
            "--target-dir",
            "target/apart",
        ];
        run_command(cargo_with(&[&apart[..], &strict].concat()))?;
    }
    Ok(())
}

/// Builds `tenure` without features, and with each of its features alone.
fn features() -> Result<(), Failure> {
    let metadata = Metadata::read()?;
    let tenure = metadata.members().find(|package| package.name == "tenure");
    let tenure = tenure.ok_or_else(|| Failure::new("the workspace has no crate `tenure`"))?;
    for feature in [""].into_iter().chain(tenure.features.keys().map(String::as_str)) {
        println!("ci: features: `{feature}`");
        run_command(cargo_with(&[
            "clippy",
            "--quiet",
            "--package",
            "tenure",
            "--no-default-features",
            "--features",
            feature,
            "--",
            "-D",
            "warnings",
        ]))?;
    }
    Ok(())
}

fn docs() -> Result<(), Failure> {
    // The command's binary is called `tenure` too: only libraries have pages.
    let mut command = cargo_with(&["doc", "--workspace", "--all-features", "--no-deps", "--lib"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    run_command(command)
}

/// Checks licences, bans and advisories, where cargo-deny is installed.
fn deny() -> Result<(), Failure> {
    if is_in(&std::env::var_os("PATH").unwrap_or_default(), "cargo-deny") {
        return run_command(cargo_with(&["deny", "check"]));
    }
    println!("ci: deny: not run, cargo-deny is not installed: cargo install cargo-deny");
    Ok(())
}

fn cargo_with(args: &[&str]) -> Command {
    let mut command = cargo();
    command.args(args);
    command
}
