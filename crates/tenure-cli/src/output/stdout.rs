//! Prints to stdout. A reader that closes the pipe early is no error.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use crate::messages::Failure;

/// The reader of stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Stdout has a reader, as far as the system tells.
    Reads,
    /// The reader has left so much unread that a write would wait for it.
    Behind,
    /// The reader has closed its end of the pipe.
    Gone,
}

/// Prints to stdout. A pipe whose reader has closed it, as `head` does, is no failure.
///
/// # Errors
/// Any other error of stdout, for example a full disk.
pub fn print(text: &[u8]) -> Result<(), Failure> {
    write(text).map(|_| ())
}

/// Prints a JSON object or the text for people.
///
/// # Errors
/// The errors of [`print()`].
pub fn print_json_or_text(
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

/// Prints to stdout, and returns whether stdout has a reader.
///
/// # Errors
/// The errors of [`print()`].
pub fn write(text: &[u8]) -> Result<Reader, Failure> {
    let mut out = io::stdout();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::Reads),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::system("cannot write to stdout", error)),
    }
}

/// Returns what the reader of stdout does, without writing. Only Unix can tell; other systems always return `Reads`.
pub fn reader() -> Reader {
    #[cfg(unix)]
    {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let stdout = rustix::stdio::stdout();
        let mut fds = [PollFd::new(&stdout, PollFlags::OUT)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if let Ok(ready) = poll(&mut fds, Some(&at_once)) {
            let gone = PollFlags::ERR | PollFlags::HUP;
            return match fds[0].revents() {
                flags if flags.intersects(gone) => Reader::Gone,
                _ if ready == 0 => Reader::Behind,
                _ => Reader::Reads,
            };
        }
    }
    Reader::Reads
}

/// Serializes an object as one line of JSON.
#[expect(
    clippy::missing_panics_doc,
    reason = "our objects have no map with keys that JSON refuses"
)]
pub fn object(object: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(object).expect("an object of ours is representable in JSON");
    line.push(b'\n');
    line
}

/// Converts a duration to whole milliseconds, rounded down.
pub fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
