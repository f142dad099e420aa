//! Tests of the guardian with real processes, without a lock or a store: the tests set the deadlines. The test binary
//! also runs as the probe, which takes the place of `tenure`.

#[cfg(unix)]
#[path = "../common/mod.rs"]
mod common;
#[cfg(unix)]
mod endings;
#[cfg(unix)]
mod fixture;
#[cfg(unix)]
mod guardian_dies;
#[cfg(unix)]
mod inheritance;
#[cfg(unix)]
mod probe;
#[cfg(unix)]
mod terminal;

/// Runs the tests, or the probe if started under its name.
///
/// The probe is a process of its own, because tests kill it, stop it and make it a subreaper.
#[cfg(unix)]
fn main() -> std::process::ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == probe::NAME) {
        return probe::main();
    }
    let arguments = libtest_mimic::Arguments::from_args();
    let mut trials = endings::trials();
    trials.extend(guardian_dies::trials());
    trials.extend(inheritance::trials());
    trials.extend(terminal::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

#[cfg(not(unix))]
fn main() {}
