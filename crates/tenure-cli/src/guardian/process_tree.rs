//! Finds all descendants of this process. Identifies each so that a signal cannot reach a later process with the same
//! id.
//!
//! Only this process reaps its direct children, so their process ids are safe to use. Any other descendant can be
//! reaped by its own parent at any time, and its id can be reused. Such a process is identified by a pidfd, which is
//! opened *before* the process's parent is read from /proc. If the process still lives *after* the read, the parent
//! that was read is that of the identified process, and not that of a later process with the same id.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

/// A descendant of this process, identified so that `signal` reaches no other process.
#[derive(Debug)]
pub(super) struct Descendant {
    pub(super) pid: Pid,
    #[cfg(target_os = "linux")]
    handle: Option<std::os::fd::OwnedFd>,
}

impl Descendant {
    /// Identifies a direct child by its id. The caller must not have reaped it.
    pub(super) fn child(pid: Pid) -> Descendant {
        Descendant {
            pid,
            #[cfg(target_os = "linux")]
            handle: None,
        }
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        #[cfg(target_os = "linux")]
        if let Some(handle) = &self.handle {
            return rustix::process::pidfd_send_signal(handle, signal);
        }
        kill_process(self.pid, signal)
    }

    /// Returns the process group, `None` if the process has been reaped or /proc cannot be read.
    pub(super) fn group(&self) -> Option<Pid> {
        Stat::of(self.pid).ok()?.and_then(|stat| stat.group)
    }
}

/// Returns the direct children of this process, including zombies. Always empty on systems other than Linux.
///
/// # Errors
/// /proc exists but cannot be read, for example because no descriptor is free: there may be children.
pub(super) fn children() -> io::Result<Vec<Pid>> {
    proc::children_of(rustix::process::getpid())
}

/// Iterates over each direct child and all its descendants that can be identified safely.
pub(super) fn all_below() -> impl Iterator<Item = Descendant> {
    // As in `below`, a process may be missed.
    let children = children().unwrap_or_default().into_iter();
    children.flat_map(|child| std::iter::once(Descendant::child(child)).chain(below(child)))
}

/// Lists every descendant that one walk through /proc finds, by id and start time. Fails as `children` does.
pub(super) fn everything_below() -> io::Result<Vec<ProcessIdentity>> {
    let mut pids = children()?;
    let mut next = 0;
    while let Some(&parent) = pids.get(next) {
        pids.extend(proc::children_of(parent)?);
        next += 1;
    }
    let identities = pids.into_iter().map(ProcessIdentity::of);
    identities.filter_map(io::Result::transpose).collect()
}

/// A process id with a start time, which tells the process from a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProcessIdentity {
    pub(super) pid: Pid,
    started: u64,
}

impl ProcessIdentity {
    /// Returns the process that has this id at present, `None` if there is none.
    pub(super) fn of(pid: Pid) -> io::Result<Option<ProcessIdentity>> {
        let stat = Stat::of(pid)?;
        Ok(stat.map(|Stat { started, .. }| ProcessIdentity { pid, started }))
    }
}

/// The fields of `/proc/PID/stat` that place a process in the tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stat {
    pub(super) parent: Option<Pid>,
    pub(super) group: Option<Pid>,
    pub(super) session: Option<Pid>,
    /// Start time in clock ticks since boot.
    started: u64,
}

impl Stat {
    /// Reads the fields of a process. `None` if it has been reaped, or there is no /proc.
    pub(super) fn of(pid: Pid) -> io::Result<Option<Stat>> {
        let text = unless_gone(std::fs::read(format!("/proc/{}/stat", pid.as_raw_pid())))?;
        Ok(text.and_then(|text| Stat::parse(&String::from_utf8_lossy(&text))))
    }

    /// Parses the fields after the last `)`: the process name in front of them may itself hold brackets and spaces.
    fn parse(text: &str) -> Option<Stat> {
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(1);
        let mut pid = || fields.next()?.parse().ok().map(Pid::from_raw);
        Some(Stat {
            parent: pid()?,
            group: pid()?,
            session: pid()?,
            started: fields.nth(15)?.parse().ok()?,
        })
    }
}

/// Returns what was read in /proc, `None` if the process it belongs to is gone.
fn unless_gone<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(target_os = "linux")]
pub(super) use proc::below;

/// Returns nothing: on systems without /proc, signals reach only the command's process group.
#[cfg(not(target_os = "linux"))]
pub(super) fn below(_child: Pid) -> Vec<Descendant> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
mod proc {
    use rustix::process::Pid;

    pub(super) fn children_of(_parent: Pid) -> std::io::Result<Vec<Pid>> {
        Ok(Vec::new())
    }
}

#[cfg(target_os = "linux")]
mod proc {
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::sync::OnceLock;
    use std::{fs, io};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::{Descendant, Stat, unless_gone};

    /// Returns the descendants of a direct child that can be identified safely, nearest first.
    ///
    /// A process can be missed because it has just been created, has died, or because no descriptor was free. A
    /// missed process becomes a direct child of this process once all processes between the two are dead.
    pub(in super::super) fn below(child: Pid) -> Vec<Descendant> {
        let Ok(handle) = pidfd_open(child, PidfdFlags::empty()) else {
            return Vec::new();
        };
        let mut found = vec![Descendant {
            pid: child,
            handle: Some(handle),
        }];
        let mut next = 0;
        while let Some(parent) = found.get(next) {
            let offspring: Vec<Descendant> = children_of(parent.pid)
                .unwrap_or_default()
                .into_iter()
                .filter_map(|pid| proven_child(parent, pid))
                .collect();
            found.extend(offspring);
            next += 1;
        }
        found.remove(0);
        found
    }

    fn proven_child(parent: &Descendant, pid: Pid) -> Option<Descendant> {
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let stat = Stat::of(pid).ok()??;
        let proven =
            stat.parent == Some(parent.pid) && alive(&handle) && parent.handle.as_ref().is_some_and(alive);
        proven.then_some(Descendant {
            pid,
            handle: Some(handle),
        })
    }

    /// A pidfd becomes readable when its process ends.
    fn alive(handle: &OwnedFd) -> bool {
        let mut polled = [PollFd::new(handle, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready == 0)
    }

    pub(super) fn children_of(parent: Pid) -> io::Result<Vec<Pid>> {
        static LISTED: OnceLock<bool> = OnceLock::new();
        if *LISTED.get_or_init(|| Path::new("/proc/thread-self/children").exists()) {
            listed_children(parent)
        } else {
            searched_children(parent)
        }
    }

    /// Reads the kernel's list of children of each thread of `parent`. Fast, but only some kernels have such lists.
    fn listed_children(parent: Pid) -> io::Result<Vec<Pid>> {
        let mut children = Vec::new();
        let threads = unless_gone(fs::read_dir(format!("/proc/{}/task", parent.as_raw_pid())))?;
        for thread in threads.into_iter().flatten() {
            // The list of threads also ends with an error if the process ends.
            let Some(thread) = unless_gone(thread)? else { break };
            let list = unless_gone(fs::read_to_string(thread.path().join("children")))?;
            children.extend(
                list.iter()
                    .flat_map(|list| list.split_ascii_whitespace())
                    .filter_map(pid),
            );
        }
        Ok(children)
    }

    fn searched_children(parent: Pid) -> io::Result<Vec<Pid>> {
        let mut children = Vec::new();
        for entry in unless_gone(fs::read_dir("/proc"))?.into_iter().flatten() {
            let Some(candidate) = entry?.file_name().to_str().and_then(pid) else {
                continue;
            };
            if Stat::of(candidate)?.is_some_and(|stat| stat.parent == Some(parent)) {
                children.push(candidate);
            }
        }
        Ok(children)
    }

    fn pid(text: &str) -> Option<Pid> {
        text.parse().ok().and_then(Pid::from_raw)
    }

    #[cfg(test)]
    mod tests {
        use std::process::{Child, Command, Stdio};

        use super::*;

        fn sleeper() -> Child {
            let mut sleep = Command::new("sleep");
            sleep
                .arg("600")
                .stdin(Stdio::null())
                .spawn()
                .expect("sleep starts")
        }

        #[test]
        fn both_ways_of_listing_find_a_child() {
            let mut child = sleeper();
            let pid = Pid::from_child(&child);
            let me = rustix::process::getpid();
            let listed = listed_children(me).expect("/proc is readable");
            let searched = searched_children(me).expect("/proc is readable");
            child.kill().expect("the child is ours");
            child.wait().expect("the child is ours");
            assert!(listed.contains(&pid), "{listed:?}");
            assert!(searched.contains(&pid), "{searched:?}");
        }

        #[test]
        fn only_a_live_child_is_proven_to_be_one() {
            let mut child = sleeper();
            let pid = Pid::from_child(&child);
            let handle = pidfd_open(pid, PidfdFlags::empty()).expect("pidfds exist");
            let me = Descendant {
                pid: rustix::process::getpid(),
                handle: pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).ok(),
            };
            let stranger = Descendant {
                pid,
                handle: Some(handle),
            };
            let (own, foreign) = (
                proven_child(&me, pid).is_some(),
                proven_child(&stranger, me.pid).is_some(),
            );
            child.kill().expect("the child is ours");
            child.wait().expect("the child is ours");
            assert!(own && !foreign);
            assert!(proven_child(&me, pid).is_none(), "a dead child is not proven");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "42 (a) R 9 9) S 7 8 6 34816 8 4194560 100 0 0 0 1 2 3 4 20 0 1 0 5501 8192 1";
        let stat = Stat::parse(text).expect("it parses");
        assert_eq!(stat.parent, Pid::from_raw(7));
        assert_eq!(stat.group, Pid::from_raw(8));
        assert_eq!(stat.session, Pid::from_raw(6));
        assert_eq!(stat.started, 5501);
        assert_eq!(Stat::parse("42 (a) S x"), None);
    }
}
