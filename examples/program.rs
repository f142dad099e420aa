//! What the programs of the examples share: the URL of the lock store, and the exit code. Each program includes this
//! file as a module by its path.
#![allow(dead_code, reason = "each program uses its own part of it")]

use std::error::Error;
use std::iter::successors;
use std::process::ExitCode;

/// `TENURE_URL`, as the `tenure` command reads it: an empty value counts as not set, and one that is not UTF-8 is later
/// refused as a URL.
pub(crate) fn named_store() -> Option<String> {
    let url = std::env::var_os("TENURE_URL").filter(|url| !url.is_empty())?;
    Some(url.to_string_lossy().into_owned())
}

/// `TENURE_URL` or, if it is not set, a SQLite file of this name in the temporary folder of this machine.
pub(crate) fn store_or_file(name: &str) -> String {
    let file = std::env::temp_dir().join(name);
    named_store().unwrap_or_else(|| format!("sqlite:{}", file.display()))
}

/// Prints the usage to stdout and returns true, if the first argument is `-h` or `--help`.
pub(crate) fn has_printed(usage: &str) -> bool {
    let is_asked = std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == "-h" || first == "--help");
    if is_asked {
        println!("{usage}");
    }
    is_asked
}

/// Exit code of a program: 0, or 1 after printing the error's message to stderr.
pub(crate) fn end<E: Error + ?Sized>(outcome: Result<(), Box<E>>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", words(&*error));
            ExitCode::FAILURE
        }
    }
}

/// The message of an error, followed by the messages of its sources.
pub(crate) fn words<E: Error + ?Sized>(error: &E) -> String {
    let sources = successors(error.source(), |source| (*source).source()).map(ToString::to_string);
    let all: Vec<String> = [error.to_string()].into_iter().chain(sources).collect();
    all.join(": ")
}
