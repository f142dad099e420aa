//! Printing to stdout: whole, and without fear of a reader that has enough.
//! What is printed is made elsewhere.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use crate::words::Failure;

/// Prints to stdout. That the reader has enough, as `head` does, is no failure.
///
/// # Errors
/// Those of the device behind stdout, as a full disk.
pub fn print(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::system("cannot write to stdout", error))
        }
        _ => Ok(()),
    }
}

/// One JSON object as a line.
pub fn object(object: &impl Serialize) -> Vec<u8> {
    // Our objects have no map with keys that JSON refuses, so this cannot fail.
    let mut line = serde_json::to_vec(object).expect("an object of ours is representable in JSON");
    line.push(b'\n');
    line
}

/// A span in whole milliseconds, rounded down.
pub fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
