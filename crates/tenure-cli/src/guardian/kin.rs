//! Finds the processes below this one, and names each so that a signal can hit no other.
//!
//! A subreaper's direct children are reaped by it alone, so their process ids are safe to use. A deeper
//! process can be reaped by its own parent at any moment and its id given away; it is therefore held by a
//! pidfd, opened *before* its ancestry is read and found alive *after*: what was read was then read from
//! this very process.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

/// A process that is, and stays, below this one.
#[derive(Debug)]
pub(super) struct Kin {
    pub(super) pid: Pid,
    #[cfg(target_os = "linux")]
    handle: Option<std::os::fd::OwnedFd>,
}

impl Kin {
    /// A child that nobody but the calling process reaps, and that it has not reaped.
    pub(super) fn child(pid: Pid) -> Kin {
        Kin {
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

    /// Its process group, while it lives.
    pub(super) fn group(&self) -> Option<Pid> {
        Stat::of(self.pid).and_then(|stat| stat.group)
    }
}

/// The direct children of this process, zombies included.
pub(super) fn children() -> Vec<Pid> {
    proc::children_of(rustix::process::getpid())
}

/// The direct children, each with all that is below it and can be proven to be.
pub(super) fn all_below() -> impl Iterator<Item = Kin> {
    let children = children().into_iter();
    children.flat_map(|child| std::iter::once(Kin::child(child)).chain(below(child)))
}

/// Every process below this one, as far as one walk through /proc shows them.
pub(super) fn everything_below() -> Vec<Identity> {
    let mut pids = children();
    let mut next = 0;
    while let Some(&parent) = pids.get(next) {
        pids.extend(proc::children_of(parent));
        next += 1;
    }
    pids.into_iter().filter_map(Identity::of).collect()
}

/// A process id and what tells its process from a later one of the same id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Identity {
    pub(super) pid: Pid,
    started: u64,
}

impl Identity {
    /// The process that has this id now, if any has.
    pub(super) fn of(pid: Pid) -> Option<Identity> {
        let started = Stat::of(pid)?.started;
        Some(Identity { pid, started })
    }
}

/// What `/proc/PID/stat` tells of a process's place among others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stat {
    pub(super) parent: Option<Pid>,
    pub(super) group: Option<Pid>,
    pub(super) session: Option<Pid>,
    /// When it was started, in ticks of the kernel since boot.
    started: u64,
}

impl Stat {
    pub(super) fn of(pid: Pid) -> Option<Stat> {
        let text = std::fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
        Stat::parse(&String::from_utf8_lossy(&text))
    }

    /// The name may hold anything, also `)` and spaces: the fields begin after its last bracket.
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

#[cfg(target_os = "linux")]
pub(super) use proc::below;

/// Without /proc nothing but the process group is reached.
#[cfg(not(target_os = "linux"))]
pub(super) fn below(_child: Pid) -> Vec<Kin> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
mod proc {
    use rustix::process::Pid;

    pub(super) fn children_of(_parent: Pid) -> Vec<Pid> {
        Vec::new()
    }
}

#[cfg(target_os = "linux")]
mod proc {
    use std::fs;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::sync::OnceLock;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::{Kin, Stat};

    /// All processes below a direct child of this one, nearest first, as far as they can be proven to be.
    ///
    /// What is missed (it died, it was just born, or descriptors ran out) ends up as a direct child
    /// once those above it are dead.
    pub(in super::super) fn below(child: Pid) -> Vec<Kin> {
        let Ok(handle) = pidfd_open(child, PidfdFlags::empty()) else {
            return Vec::new();
        };
        let mut found = vec![Kin {
            pid: child,
            handle: Some(handle),
        }];
        let mut next = 0;
        while let Some(parent) = found.get(next) {
            let offspring: Vec<Kin> = children_of(parent.pid)
                .into_iter()
                .filter_map(|pid| proven_child(parent, pid))
                .collect();
            found.extend(offspring);
            next += 1;
        }
        found.remove(0);
        found
    }

    fn proven_child(parent: &Kin, pid: Pid) -> Option<Kin> {
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let stat = Stat::of(pid)?;
        let proven =
            stat.parent == Some(parent.pid) && alive(&handle) && parent.handle.as_ref().is_some_and(alive);
        proven.then_some(Kin {
            pid,
            handle: Some(handle),
        })
    }

    /// A pidfd becomes readable when its process ends.
    fn alive(handle: &OwnedFd) -> bool {
        let mut polled = [PollFd::new(handle, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready == 0)
    }

    pub(super) fn children_of(parent: Pid) -> Vec<Pid> {
        static LISTED: OnceLock<bool> = OnceLock::new();
        if *LISTED.get_or_init(|| Path::new("/proc/thread-self/children").exists()) {
            listed_children(parent)
        } else {
            searched_children(parent)
        }
    }

    /// From each thread's own list: fast, but a kernel option.
    fn listed_children(parent: Pid) -> Vec<Pid> {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", parent.as_raw_pid())) else {
            return Vec::new();
        };
        let lists = threads
            .flatten()
            .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        lists
            .flat_map(|list| list.split_ascii_whitespace().filter_map(pid).collect::<Vec<_>>())
            .collect()
    }

    fn searched_children(parent: Pid) -> Vec<Pid> {
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        let all = entries
            .flatten()
            .filter_map(|entry| pid(entry.file_name().to_str()?));
        all.filter(|&candidate| Stat::of(candidate).is_some_and(|stat| stat.parent == Some(parent)))
            .collect()
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
            let (listed, searched) = (listed_children(me), searched_children(me));
            child.kill().expect("the child is ours");
            child.wait().expect("the child is ours");
            assert!(listed.contains(&pid), "{listed:?}");
            assert!(searched.contains(&pid), "{searched:?}");
        }

        #[test]
        fn a_process_that_is_not_its_child_is_never_taken_for_one() {
            let mut child = sleeper();
            let pid = Pid::from_child(&child);
            let handle = pidfd_open(pid, PidfdFlags::empty()).expect("pidfds exist");
            let me = Kin {
                pid: rustix::process::getpid(),
                handle: pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).ok(),
            };
            let stranger = Kin {
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
            assert!(proven_child(&me, pid).is_none(), "a dead child is nobody's");
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
