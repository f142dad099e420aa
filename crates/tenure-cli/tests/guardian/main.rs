//! The guardian's promises, tried on real processes: one test binary that also plays the part of `tenure`.
//! No lock and no store: deadlines are given by the tests.

#[cfg(unix)]
#[path = "../common/mod.rs"]
mod common;
#[cfg(unix)]
mod endings;
#[cfg(unix)]
mod guardian_dies;
#[cfg(unix)]
mod inheritance;
#[cfg(unix)]
mod probe;
#[cfg(unix)]
mod scene;
#[cfg(unix)]
mod terminal;

/// Runs the tests, or plays `tenure` if started under the probe's name.
///
/// The probe must be a process of its own: tests kill it, stop it and make it a subreaper.
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
