//! NotificationListener between processes that share only a file: whoever lets others go on touches the file's times, and whoever
//! waits is told so by the kernel. What is new is read from the database, never from here.

use std::io;
use std::path::Path;
use std::time::Duration;

/// Tells every process that waits on the file to look.
///
/// It touches the times of the main file, which nothing else does: commits write to the `-wal` file, checkpoints
/// write contents. So a process that waits is not woken by the traffic of keys for which nobody waits. No file is
/// opened, so the POSIX locks of this process stay.
pub(super) fn notify_processes(path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};

    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    Ok(utimensat(CWD, path, &times, AtFlags::empty())?)
}

#[cfg(target_os = "linux")]
pub(super) use linux::{NotificationListener, ThreadWaker};

#[cfg(not(target_os = "linux"))]
pub(super) use polling::{NotificationListener, ThreadWaker};

/// Linux: inotify tells of rings, an event descriptor of requests; one `poll` sleeps on both.
#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::path::PathBuf;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use rustix::fs::inotify;
    use rustix::io::{read, write};
    use smallvec::SmallVec;

    /// Wakes the thread of this handle.
    #[derive(Debug)]
    pub(in super::super) struct ThreadWaker(OwnedFd);

    impl ThreadWaker {
        pub(in super::super) fn new() -> io::Result<Self> {
            Ok(ThreadWaker(eventfd(
                0,
                EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
            )?))
        }

        pub(in super::super) fn wake(&self) {
            // It fails only if the counter is full: then the thread is woken already.
            let _ = write(&self.0, &1u64.to_ne_bytes());
        }
    }

    /// What other processes have to tell.
    #[derive(Debug)]
    pub(in super::super) struct NotificationListener {
        path: PathBuf,
        inotify: Option<OwnedFd>,
    }

    impl NotificationListener {
        pub(in super::super) fn new(path: &Path) -> Self {
            NotificationListener {
                path: path.to_owned(),
                inotify: None,
            }
        }

        /// Starts to listen: rings from here on are heard.
        ///
        /// Where the kernel has no inotify left for this user, looking from time to time is all there is.
        pub(in super::super) fn start(&mut self) {
            if self.inotify.is_some() {
                return;
            }
            let listen = || {
                let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
                inotify::add_watch(&fd, &self.path, inotify::WatchFlags::ATTRIB)?;
                Ok::<_, rustix::io::Errno>(fd)
            };
            match listen() {
                Ok(fd) => self.inotify = Some(fd),
                Err(error) => {
                    tracing::debug!(%error, "no inotify: waiters look at the lock file from time to time")
                }
            }
        }

        /// How long the thread may sleep between two looks while somebody waits: a ring may be lost when the
        /// process that should ring is killed.
        pub(in super::super) fn fallback_interval(&self) -> Duration {
            match self.inotify {
                Some(_) => Duration::from_millis(500),
                None => Duration::from_millis(10),
            }
        }

        pub(in super::super) fn wait(&mut self, waker: &ThreadWaker, listen: bool, time: Option<Duration>) {
            let time = time.map(|time| Timespec {
                tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(time.subsec_nanos()),
            });
            let heard = self.inotify.as_ref().filter(|_| listen);
            let fds = [Some(&waker.0), heard].into_iter().flatten();
            let mut fds: SmallVec<[PollFd<'_>; 2]> = fds.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            // An interrupted wait is a spurious wake-up, which callers expect.
            let _ = poll(&mut fds, time.as_ref());
            if fds.first().is_some_and(|fd| !fd.revents().is_empty()) {
                let _ = read(&waker.0, &mut [0u8; 8]);
            }
        }

        /// Whether somebody rang since the last time.
        pub(in super::super) fn take(&mut self) -> bool {
            // Equal events are one event, so this is room for all that there are; if not, the next time has the rest.
            let heard = |fd: &OwnedFd| read(fd, &mut [0u8; 1024]).is_ok_and(|bytes| bytes > 0);
            self.inotify.as_ref().is_some_and(heard)
        }
    }
}

/// Elsewhere: the thread looks at the file's times every few milliseconds while somebody waits.
#[cfg(not(target_os = "linux"))]
mod polling {
    use super::*;
    use std::path::PathBuf;
    use std::time::SystemTime;

    use parking_lot::{Condvar, Mutex};

    /// Wakes the thread of this handle.
    #[derive(Debug)]
    pub(in super::super) struct ThreadWaker {
        woken: Mutex<bool>,
        signal: Condvar,
    }

    impl ThreadWaker {
        pub(in super::super) fn new() -> io::Result<Self> {
            Ok(ThreadWaker {
                woken: Mutex::new(false),
                signal: Condvar::new(),
            })
        }

        pub(in super::super) fn wake(&self) {
            *self.woken.lock() = true;
            self.signal.notify_one();
        }
    }

    /// What other processes have to tell.
    #[derive(Debug)]
    pub(in super::super) struct NotificationListener {
        path: PathBuf,
        seen: Option<SystemTime>,
        pause: Duration,
        is_notified: bool,
    }

    const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
    const LONGEST_PAUSE: Duration = Duration::from_millis(10);

    impl NotificationListener {
        pub(in super::super) fn new(path: &Path) -> Self {
            NotificationListener {
                path: path.to_owned(),
                seen: None,
                pause: SHORTEST_PAUSE,
                is_notified: false,
            }
        }

        pub(in super::super) fn start(&mut self) {
            self.pause = SHORTEST_PAUSE;
        }

        pub(in super::super) fn fallback_interval(&self) -> Duration {
            Duration::from_millis(500)
        }

        pub(in super::super) fn wait(&mut self, waker: &ThreadWaker, listen: bool, time: Option<Duration>) {
            let pause = self.pause;
            let time = match time {
                Some(time) if listen => Some(time.min(pause)),
                None if listen => Some(pause),
                time => time,
            };
            let mut woken = waker.woken.lock();
            if !*woken {
                match time {
                    Some(time) => {
                        waker.signal.wait_for(&mut woken, time);
                    }
                    None => waker.signal.wait(&mut woken),
                }
            }
            *woken = false;
            drop(woken);
            if listen {
                let touched = std::fs::metadata(&self.path)
                    .and_then(|file| file.modified())
                    .ok();
                if touched != self.seen {
                    self.seen = touched;
                    self.is_notified = true;
                    self.pause = SHORTEST_PAUSE;
                } else {
                    self.pause = (self.pause * 5 / 4).min(LONGEST_PAUSE);
                }
            }
        }

        pub(in super::super) fn take(&mut self) -> bool {
            std::mem::take(&mut self.is_notified)
        }
    }
}
