//! What the programs of the examples share: where their locks are, and how they end.
//! Each takes this file as a module by its path.
#![allow(dead_code, reason = "each program uses its own part of it")]

use std::error::Error;
use std::iter::successors;
use std::process::ExitCode;

/// `TENURE_URL`, as for the command: an empty one counts as not set. What is no text is no URL, and refused as such.
pub(crate) fn named_store() -> Option<String> {
    let url = std::env::var_os("TENURE_URL").filter(|url| !url.is_empty())?;
    Some(url.to_string_lossy().into_owned())
}

/// `TENURE_URL`; without it, a file of that name, which the processes of this machine share.
pub(crate) fn store_or_file(name: &str) -> String {
    let file = std::env::temp_dir().join(name);
    named_store().unwrap_or_else(|| format!("sqlite:{}", file.display()))
}

/// The exit code of a program that ended so: 0, or 1 with the error in words on stderr.
pub(crate) fn end<E: Error + ?Sized>(outcome: Result<(), Box<E>>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", words(&*error));
            ExitCode::FAILURE
        }
    }
}

/// An error and its sources: it does not repeat what caused it.
pub(crate) fn words<E: Error + ?Sized>(error: &E) -> String {
    let sources = successors(error.source(), |source| (*source).source()).map(ToString::to_string);
    let all: Vec<String> = [error.to_string()].into_iter().chain(sources).collect();
    all.join(": ")
}
