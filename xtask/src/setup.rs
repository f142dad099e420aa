//! `cargo xtask setup`: finds what the tests need, and installs what is missing where it may.
//! Not here: the table of needs (`needs`).

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use crate::needs::{Need, SKIP, Wanted, is_in};
use crate::process::{Failure, run};

/// Looks, and fails when something is missing.
pub(crate) fn check() -> Result<(), Failure> {
    let wanted = Wanted::read()?;
    let missing = wanted.missing();
    report(&wanted, &missing);
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(advice(&missing)))
    }
}

/// Looks, installs what is missing, and looks again.
pub(crate) fn install() -> Result<(), Failure> {
    let missing = Wanted::read()?.missing();
    if !missing.is_empty() {
        let Some(apt_get) = apt_get() else {
            return check();
        };
        println!("setup: installing {}", packages(&missing).join(" "));
        run(apt_get_with(&apt_get, &["update"]))?;
        let install = ["install", "--yes", "--no-install-recommends"];
        run(apt_get_with(
            &apt_get,
            &[&install[..], &packages(&missing)].concat(),
        ))?;
    }
    check()
}

/// Prints one line for each need.
fn report(wanted: &Wanted, missing: &[&Need]) {
    for need in &wanted.needs {
        let state = if missing.contains(need) {
            "missing"
        } else {
            "found"
        };
        println!("setup: {state} {} ({})", need.program, need.why);
    }
    for need in &wanted.skipped {
        println!("setup: skipped {} by {SKIP} ({})", need.program, need.why);
    }
}

/// Says what is missing, why it matters, and how to get it or do without it.
fn advice(missing: &[&Need]) -> String {
    let mut text = String::new();
    for need in missing {
        text += &format!("`{}` is missing: it {}\n", need.program, need.why);
    }
    let programs: Vec<_> = missing.iter().map(|need| need.program).collect();
    text += &format!(
        "  on Debian or Ubuntu:  sudo apt-get install {}\n",
        packages(missing).join(" ")
    );
    text + &format!("  or do without:        {SKIP}={}", programs.join(","))
}

fn packages(missing: &[&Need]) -> Vec<&'static str> {
    let mut packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// The words before apt-get's own arguments, if we may run it without being asked for a password.
fn apt_get() -> Option<Vec<&'static str>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !is_in(&path, "apt-get") {
        return None;
    }
    let succeeds = |program: &str, args: &[&str]| {
        let quiet = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        quiet
            .ok()
            .filter(|output| output.status.success())
            .map(|output| output.stdout)
    };
    if succeeds("id", &["-u"]).is_some_and(|uid| uid.trim_ascii() == b"0") {
        Some(vec!["apt-get"])
    } else {
        succeeds("sudo", &["-n", "true"]).map(|_| vec!["sudo", "-n", "apt-get"])
    }
}

fn apt_get_with(apt_get: &[&str], args: &[&str]) -> Command {
    let mut command = Command::new(apt_get[0]);
    command.args(&apt_get[1..]).args(args).stdin(Stdio::null());
    command.env("DEBIAN_FRONTEND", OsStr::new("noninteractive"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    const CC: Need = Need {
        program: "cc",
        package: "gcc",
        why: "compiles",
    };
    const REDIS: Need = Need {
        program: "redis-server",
        package: "redis",
        why: "is the store",
    };
    const CLI: Need = Need {
        program: "redis-cli",
        package: "redis",
        why: "looks into it",
    };

    #[test]
    fn what_is_missing_is_said_with_the_way_to_get_it() {
        assert_eq!(
            advice(&[&REDIS, &CC]),
            "`redis-server` is missing: it is the store\n`cc` is missing: it compiles\n  \
             on Debian or Ubuntu:  sudo apt-get install gcc redis\n  or do without:        \
             TENURE_SKIP=redis-server,cc",
        );
    }

    #[test]
    fn a_package_is_asked_for_once() {
        assert_eq!(packages(&[&REDIS, &CLI]), ["redis"]);
    }
}
