//! The end of stdin, as the wish of another program that a lock be released.
//! What stdin says before its end is read and forgotten.

use std::future::{pending, poll_fn};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;

use rustix::fs::{FileType, fstat, stat};
use tokio::sync::oneshot;

/// Waits for the end of stdin.
pub(super) struct Stdin {
    /// None where its end means nothing.
    ending: Option<oneshot::Receiver<()>>,
    ended: bool,
}

impl Stdin {
    /// A stdin whose end means nothing.
    pub(super) fn ignored() -> Stdin {
        Stdin {
            ending: None,
            ended: false,
        }
    }

    /// Starts to read it, on a thread that ends with the process: a read cannot be taken back.
    pub(super) fn watched() -> io::Result<Stdin> {
        let (tell, ending) = oneshot::channel();
        thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            // A stdin that cannot be read has nothing more to say either.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            let _ = tell.send(());
        })?;
        Ok(Stdin {
            ending: Some(ending),
            ended: false,
        })
    }

    /// Waits for its end, which stays.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn ended(&mut self) {
        match &mut self.ending {
            None => pending().await,
            Some(_) if self.ended => {}
            Some(ending) => {
                let _ = ending.await;
                self.ended = true;
            }
        }
    }

    /// Waits for its end, and until `waits` is set: a lock that is free is had, whatever stdin does.
    ///
    /// Whoever sets `waits` does so in the same task, in its turn before this one.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn ended_in_vain(&mut self, waits: &Arc<AtomicBool>) {
        self.ended().await;
        poll_fn(|_| {
            if waits.load(Ordering::Relaxed) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// Whether stdin is the null device, as under a service manager: its end says nothing about anybody's wish.
pub(super) fn is_the_null_device() -> bool {
    let (Ok(stdin), Ok(null)) = (fstat(rustix::stdio::stdin()), stat("/dev/null")) else {
        return false;
    };
    FileType::from_raw_mode(stdin.st_mode) == FileType::CharacterDevice && stdin.st_rdev == null.st_rdev
}
