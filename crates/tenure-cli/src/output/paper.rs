//! Printing to stdout: whole, and without fear of a reader that has enough.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use crate::words::Failure;

/// Whether anybody reads what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// As far as anybody can tell.
    Reads,
    /// The pipe's other end is closed.
    Gone,
}

/// Prints to stdout. That the reader has enough, as `head` does, is no failure.
///
/// # Errors
/// Those of the device behind stdout, as a full disk.
pub fn print(text: &[u8]) -> Result<(), Failure> {
    write(text).map(|_| ())
}

/// Prints an object for programs, or the words for people.
///
/// # Errors
/// As [`print()`].
pub fn tell(
    json: bool,
    for_programs: &impl Serialize,
    for_people: impl FnOnce() -> String,
) -> Result<(), Failure> {
    print(&if json {
        object(for_programs)
    } else {
        for_people().into_bytes()
    })
}

/// Prints to stdout, and says whether it was read.
///
/// # Errors
/// As [`print()`].
pub fn write(text: &[u8]) -> Result<Reader, Failure> {
    let mut out = io::stdout();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::Reads),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::system("cannot write to stdout", error)),
    }
}

/// Whether anybody would read what is printed next. Elsewhere than on Unix only printing tells.
pub fn reader() -> Reader {
    #[cfg(unix)]
    {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let stdout = rustix::stdio::stdout();
        let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let gone = PollFlags::ERR | PollFlags::HUP;
        if poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(gone) {
            return Reader::Gone;
        }
    }
    Reader::Reads
}

/// One JSON object as a line.
#[expect(
    clippy::missing_panics_doc,
    reason = "our objects have no map with keys that JSON refuses"
)]
pub fn object(object: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(object).expect("an object of ours is representable in JSON");
    line.push(b'\n');
    line
}

/// A span in whole milliseconds, rounded down.
pub fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
