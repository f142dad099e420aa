//! The end of stdin, as the wish of another program that a lock be released.
//! What stdin says before its end is read and forgotten.

use std::future::pending;
use std::io;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat, stat};
use rustix::io::{Errno, read};
use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::tcgetpgrp;
use tokio::sync::watch;

/// How soon a stdin that may not be read is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Waits for the end of stdin.
pub(super) struct Stdin {
    /// Closed at its end. None where its end means nothing.
    open: Option<watch::Receiver<()>>,
}

impl Stdin {
    /// A stdin whose end means nothing.
    pub(super) fn ignored() -> Stdin {
        Stdin { open: None }
    }

    /// Starts to read it, on a thread that ends with the process: a read cannot be taken back.
    pub(super) fn watched() -> io::Result<Stdin> {
        let (ends, open) = watch::channel(());
        thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            read_to_end();
            drop(ends);
        })?;
        Ok(Stdin { open: Some(open) })
    }

    /// Waits for its end, which stays.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn ended(&mut self) {
        match &mut self.open {
            None => pending().await,
            // Nothing is ever sent, so only its end is a change.
            Some(open) => drop(open.changed().await),
        }
    }
}

/// Reads until stdin ends. One that cannot be read has nothing more to say either.
fn read_to_end() {
    let mut chunk = [0; 4096];
    loop {
        // A read that has begun would stop us too if we were sent to the background meanwhile.
        let looked = poll(&mut [PollFd::new(&stdin(), PollFlags::IN)], None);
        if looked.is_ok() && is_anothers_terminal() {
            thread::sleep(LOOK_AGAIN);
            continue;
        }
        match read(stdin(), &mut chunk) {
            Ok(0) => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Whether stdin is a terminal with another job in its foreground, whose keys are not ours: the system stops whoever
/// reads them, and a hold that is stopped is lost.
fn is_anothers_terminal() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|foreground| foreground != getpgrp())
}

/// Whether stdin is the null device, as under a service manager: its end says nothing about anybody's wish.
pub(super) fn is_the_null_device() -> bool {
    let (Ok(stdin), Ok(null)) = (fstat(stdin()), stat("/dev/null")) else {
        return false;
    };
    FileType::from_raw_mode(stdin.st_mode) == FileType::CharacterDevice && stdin.st_rdev == null.st_rdev
}
