//! `cargo xtask setup`: finds the programs that the tests need, and installs missing ones where it may.

use std::process::{Command, Stdio};

use crate::process::Failure;

/// What the tests need: a program in `PATH`, the Debian package that brings it, and what it does.
const NEEDS: &str = "\
cc            build-essential       compiles the bundled SQLite
bash          bash                  tries its completions
zsh           zsh                   tries its completions
fish          fish                  tries its completions
flock         util-linux            is compared with `tenure run` in a guide
setsid        util-linux            starts processes that try to escape from `tenure run`
setpriv       util-linux            starts servers so that none outlives the tests
mandoc        mandoc                checks the manual pages
redis-server  redis-server          is a server that the tests start
redis-cli     redis-tools           reads what is in that server
openssl       openssl               makes the certificates of a server with TLS
python3       python3               starts commands with unusual signal masks
javac         default-jdk-headless  compiles the worker that drives Redisson, and brings the Java that runs it
mvn           maven                 fetches Redisson and builds the worker that drives it
prometheus    prometheus            reads the metrics that the example exports
promtool      prometheus            checks the alert rules";

/// The environment variable that lists programs to do without, separated by commas.
const SKIP: &str = "TENURE_SKIP";

/// Installs packages as root, or as a user whom sudo asks for no password.
const INSTALL: &str = r#"
if [ "$(id -u)" = 0 ]; then sudo=; elif sudo -n true; then sudo='sudo -n'; else exit 1; fi
$sudo apt-get update &&
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@"
"#;

/// One line of `NEEDS`.
#[derive(Debug, Clone, Copy)]
struct Need {
    program: &'static str,
    package: &'static str,
    does: &'static str,
}

/// The needs that `TENURE_SKIP` names, and those of the others that are not installed.
struct Found {
    skipped: Vec<Need>,
    missing: Vec<Need>,
}

/// Fails if a need is missing. Returns a line for each that `TENURE_SKIP` names.
pub(crate) fn check() -> Result<Vec<String>, Failure> {
    let found = look(&std::env::var(SKIP).unwrap_or_default(), is_installed)?;
    if !found.missing.is_empty() {
        return Err(Failure::new(advice(&found.missing)));
    }
    println!("setup: nothing is missing");
    let line = |need: &Need| format!("without `{}`, which {}: {SKIP} names it", need.program, need.does);
    Ok(found.skipped.iter().map(line).collect())
}

/// Installs what is missing where it may, and checks.
pub(crate) fn install() -> Result<Vec<String>, Failure> {
    let missing = look(&std::env::var(SKIP).unwrap_or_default(), is_installed)?.missing;
    if !missing.is_empty() && is_installed("apt-get") {
        let mut shell = Command::new("sh");
        shell.args(["-c", INSTALL, "setup"]).args(packages(&missing));
        // The check below says what is missing if this fails.
        let _ = shell.stdin(Stdio::null()).status();
    }
    check()
}

/// Fails if `skip`, the value of `TENURE_SKIP`, names a program that no test needs.
fn look(skip: &str, is_installed: fn(&str) -> bool) -> Result<Found, Failure> {
    let mut names: Vec<&str> = skip.split(',').map(str::trim).collect();
    names.retain(|name| !name.is_empty());
    let all = NEEDS.lines().filter_map(|line| {
        let (program, rest) = line.split_once(' ')?;
        let (package, does) = rest.trim_start().split_once(' ')?;
        let does = does.trim_start();
        Some(Need {
            program,
            package,
            does,
        })
    });
    let (skipped, needs): (Vec<_>, Vec<_>) = all.partition(|need| names.contains(&need.program));
    names.retain(|name| skipped.iter().all(|need| need.program != *name));
    if let Some(unknown) = names.first() {
        let known: Vec<_> = needs.iter().map(|need| need.program).collect();
        let known = known.join(", ");
        return Err(Failure::new(format!(
            "{SKIP} names `{unknown}`; it may also name: {known}"
        )));
    }
    let missing = needs
        .into_iter()
        .filter(|need| !is_installed(need.program))
        .collect();
    Ok(Found { skipped, missing })
}

/// Says what is missing, what for, and how to get it or do without it.
fn advice(missing: &[Need]) -> String {
    let line = |need: &Need| format!("`{}` is missing: it {}\n", need.program, need.does);
    let programs: Vec<_> = missing.iter().map(|need| need.program).collect();
    format!(
        "{}  on Debian or Ubuntu:  sudo apt-get install {}\n  or do without:        {SKIP}={}",
        missing.iter().map(line).collect::<String>(),
        packages(missing).join(" "),
        programs.join(",")
    )
}

fn packages(missing: &[Need]) -> Vec<&'static str> {
    let mut packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Whether a folder of `PATH` has a file with this name.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_come_with_the_way_to_get_them() {
        let found = look("mvn , cc,", |program| !program.starts_with("prom")).unwrap();
        assert_eq!(found.skipped.len(), 2);
        assert_eq!(
            advice(&found.missing),
            "`prometheus` is missing: it reads the metrics that the example exports\n\
             `promtool` is missing: it checks the alert rules\n  \
             on Debian or Ubuntu:  sudo apt-get install prometheus\n  \
             or do without:        TENURE_SKIP=prometheus,promtool",
        );
    }

    #[test]
    fn only_known_programs_are_skipped() {
        let failure = look("cc,reddis", |_| true).err().unwrap().to_string();
        assert!(
            failure.starts_with("TENURE_SKIP names `reddis`; it may also name: bash,"),
            "{failure}"
        );
    }
}
