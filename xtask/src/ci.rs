//! `cargo xtask ci`: runs all checks that must pass before a merge, the quick ones first.

use std::time::Instant;

use crate::metadata::Metadata;
use crate::process::{Failure, cargo, run as run_command, succeeded};
use crate::setup::is_installed;
use crate::suite::APART;
use crate::{lean, publish, suite, tidy};

pub(crate) fn run() -> Result<(), Failure> {
    step("format", || everywhere("fmt", "--all", "-- --check"))?;
    step("tidy", tidy::run)?;
    step("lean", lean::run)?;
    step("packages", publish::run)?;
    // `--locked`: without it cargo would mend a stale lock file here, and CI would not notice it.
    let options = "--locked --all-targets --all-features -- -D warnings";
    step("clippy", || everywhere("clippy", "--workspace", options))?;
    step("features", features)?;
    step("docs", docs)?;
    step("deny", deny)?;
    step("test", || suite::run(&[]))
}

fn step(name: &str, work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    println!("\nci: {name} …");
    let began = Instant::now();
    let outcome = work();
    println!("ci: {name} took {:.1} s", began.elapsed().as_secs_f64());
    outcome.map_err(|failure| format!("{failure}\n\nthe step `{name}` of `cargo xtask ci` failed").into())
}

/// Runs a cargo command on all packages of the workspace, and on `APART`, the package outside the workspace.
fn everywhere(verb: &str, all: &str, options: &str) -> Result<(), Failure> {
    run_command(cargo(&format!("{verb} {all} {options}")))?;
    let mut apart = cargo(&format!("{verb} --manifest-path {APART} {options}"));
    apart.env("CARGO_TARGET_DIR", "target/apart");
    run_command(apart)
}

/// Checks the crate `tenure` without features by clippy. With each feature alone, and with TLS for the store that uses
/// it, the compiler checks it: its warnings find what only other features use.
fn features() -> Result<(), Failure> {
    let metadata = Metadata::read()?;
    let tenure = metadata.members().find(|package| package.name == "tenure");
    let tenure = tenure.ok_or("the workspace has no crate `tenure`")?;
    let alone = "--quiet --package tenure --no-default-features";
    run_command(cargo(&format!("clippy {alone} -- -D warnings")))?;
    let pair = "redis,tls".to_owned();
    for feature in tenure.features.keys().chain([&pair]) {
        println!("ci: feature {feature}");
        let mut check = cargo(&format!("check {alone} --features {feature}"));
        let output = check.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        print!("{said}");
        succeeded(&check, output.status)?;
        // Not by `RUSTFLAGS`, which would compile every dependency once more.
        if said.contains("warning: ") {
            return Err(format!("{check:?} printed a warning").into());
        }
    }
    Ok(())
}

/// Builds the documentation of the libraries only: the pages of the binary `tenure` would replace those of the library.
fn docs() -> Result<(), Failure> {
    let mut command = cargo("doc --workspace --all-features --no-deps --lib");
    command.env("RUSTDOCFLAGS", "-D warnings");
    run_command(command)
}

/// Checks licences, banned crates and security advisories, if cargo-deny is installed.
fn deny() -> Result<(), Failure> {
    if is_installed("cargo-deny") {
        return run_command(cargo("deny check"));
    }
    println!("ci: cargo-deny is not installed: `cargo install cargo-deny`");
    Ok(())
}
