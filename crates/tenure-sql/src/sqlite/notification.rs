//! Notifications between processes that share only a file.
//!
//! A process that may have made a claim grantable updates the lock file's timestamps. Processes with waiters notice it
//! by inotify on Linux, and elsewhere by polling the timestamps. A notification carries no data: its receiver reads the
//! tables.

use std::io;
use std::path::Path;
use std::time::Duration;

/// Notifies all processes that have waiters in this file, by setting the timestamps of the main file.
///
/// SQLite itself never changes only the attributes of that file: commits write to `-wal`, and checkpoints write
/// contents. A commit without this call therefore wakes no other process. This function opens no file, because closing
/// it would drop the POSIX locks of this process.
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

/// Linux: the thread that serves the file sleeps in one `poll` on two descriptors: inotify, for changes by other
/// processes, and an eventfd, for requests.
#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::path::PathBuf;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use rustix::fs::inotify;
    use rustix::io::{read, write};
    use smallvec::SmallVec;

    /// Wakes the thread that serves the file when a request is posted.
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
            // The write fails only if the eventfd's counter is full, and then the thread is woken anyway.
            let _ = write(&self.0, &1u64.to_ne_bytes());
        }
    }

    /// Receives the notifications of other processes.
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

        /// Starts to receive notifications. If inotify fails, for example because this user has used up its inotify
        /// instances, keys are checked every 10 ms instead.
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
                    tracing::debug!(%error, "no inotify: waiters poll the lock file every 10 ms")
                }
            }
        }

        /// Interval at which keys are checked even without a notification: if the releasing process is killed before
        /// it notifies, no notification comes.
        pub(in super::super) fn fallback_interval(&self) -> Duration {
            match self.inotify {
                Some(_) => Duration::from_millis(500),
                None => Duration::from_millis(10),
            }
        }

        /// Sleeps until the waker is used, a notification arrives (if `listen` is set) or `time` is over.
        pub(in super::super) fn wait(&mut self, waker: &ThreadWaker, listen: bool, time: Option<Duration>) {
            let time = time.map(|time| Timespec {
                tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(time.subsec_nanos()),
            });
            let notifications = self.inotify.as_ref().filter(|_| listen);
            let fds = [Some(&waker.0), notifications].into_iter().flatten();
            let mut fds: SmallVec<[PollFd<'_>; 2]> = fds.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            // A signal may end the wait early. The caller expects that.
            let _ = poll(&mut fds, time.as_ref());
            if fds.first().is_some_and(|fd| !fd.revents().is_empty()) {
                let _ = read(&waker.0, &mut [0u8; 8]);
            }
        }

        /// Takes the notifications that have arrived. Returns whether there were any.
        pub(in super::super) fn take(&mut self) -> bool {
            // The kernel merges equal events, so all should fit into the buffer. The next call reads any rest.
            let has_events = |fd: &OwnedFd| read(fd, &mut [0u8; 1024]).is_ok_and(|bytes| bytes > 0);
            self.inotify.as_ref().is_some_and(has_events)
        }
    }
}

/// Other systems: the thread that serves the file polls the file's timestamps every 2 to 10 ms while it has waiters.
#[cfg(not(target_os = "linux"))]
mod polling {
    use super::*;
    use std::path::PathBuf;
    use std::time::SystemTime;

    use parking_lot::{Condvar, Mutex};

    /// Wakes the thread that serves the file when a request is posted.
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

    /// Receives the notifications of other processes.
    #[derive(Debug)]
    pub(in super::super) struct NotificationListener {
        path: PathBuf,
        /// The modification time of the file at the last poll.
        seen: Option<SystemTime>,
        /// Time until the next poll. Grows from 2 to 10 ms while the modification time of the file does not change.
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

        /// Sleeps until the waker is used, `time` is over or, if `listen` is set, the timestamp must be polled again.
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
