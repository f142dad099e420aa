//! Waits for the end of stdin, by which another program asks `hold` to release its lock. All input before the end is
//! discarded.

use std::future::pending;
use std::io;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat, stat};
use rustix::io::{Errno, read};
use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::{isatty, tcgetpgrp};
use tokio::sync::watch;

/// Interval of the checks whether this process may read the terminal again.
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Stdin, whose end a caller can wait for.
pub(super) struct Stdin {
    /// Channel that the reading thread closes at the end of stdin. `None` if stdin is ignored.
    open: Option<watch::Receiver<()>>,
}

impl Stdin {
    /// Creates a stdin that never ends.
    pub(super) fn ignored() -> Stdin {
        Stdin { open: None }
    }

    /// Starts a thread that reads stdin. The thread ends with stdin or with the process: a blocking read cannot be
    /// cancelled.
    pub(super) fn watched() -> io::Result<Stdin> {
        let (ends, open) = watch::channel(());
        thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            read_to_end();
            drop(ends);
        })?;
        Ok(Stdin { open: Some(open) })
    }

    /// Waits for the end of stdin. Returns at once if stdin has ended before.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn ended(&mut self) {
        match &mut self.open {
            None => pending().await,
            // The sender sends nothing, so the only change is that the channel closes.
            Some(open) => drop(open.changed().await),
        }
    }
}

/// Reads until stdin ends. A read error counts as the end.
fn read_to_end() {
    let mut chunk = [0; 4096];
    loop {
        // Wait for input first. The kernel would stop this process if a shell moved it to the background during a
        // blocking read.
        let looked = poll(&mut [PollFd::new(&stdin(), PollFlags::IN)], None);
        if looked.is_ok() && is_anothers_terminal() {
            thread::sleep(RECHECK_INTERVAL);
            continue;
        }
        match read(stdin(), &mut chunk) {
            Ok(0) => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Returns whether stdin is a terminal with another job in the foreground. The kernel stops a background process that
/// reads from its terminal, and a stopped process cannot renew its lock.
fn is_anothers_terminal() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|foreground| foreground != getpgrp())
}

/// Returns whether stdin is a terminal from which this process may read.
pub(super) fn is_our_terminal() -> bool {
    isatty(stdin()) && !is_anothers_terminal()
}

/// Returns whether stdin is the null device, as under a service manager. The end of such a stdin is no request to
/// release the lock.
pub(super) fn is_the_null_device() -> bool {
    let (Ok(stdin), Ok(null)) = (fstat(stdin()), stat("/dev/null")) else {
        return false;
    };
    FileType::from_raw_mode(stdin.st_mode) == FileType::CharacterDevice && stdin.st_rdev == null.st_rdev
}
