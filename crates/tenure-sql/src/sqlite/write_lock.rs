//! Finds the process that holds SQLite's write lock, to name it in errors. Reads the kernel's list of locks.

use std::fs;
use std::path::Path;

use tenure_backend::escape_control;

/// Byte of the `-shm` file on which SQLite takes its write lock in WAL mode.
const WRITE_LOCK_BYTE: u64 = 120;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pid: u32,
    name: String,
    /// True if the process is stopped, by a signal or a debugger.
    stopped: bool,
}

impl Owner {
    /// Names the process and says what to do about it. The text follows the word "by".
    pub(super) fn describe(&self) -> String {
        let (pid, name) = (self.pid, escape_control(&self.name));
        if self.stopped {
            format!(
                "process {pid} ({name}), which is stopped: continue it (kill -CONT {pid}) or end it (kill -KILL {pid})"
            )
        } else {
            format!("process {pid} ({name}): see what it does, or end it")
        }
    }
}

/// Number of times the list of locks is read. The kernel returns the list in pieces, and may omit a lock while
/// other processes take and release theirs.
const READINGS: u32 = 20;

/// The process that holds the write lock of the database at `path`. `None` if it is this process or cannot be found.
pub(super) fn owner(path: &Path) -> Option<Owner> {
    let (device, inode) = super::file::inode(&super::siblings::sibling(path, "-shm")).ok()??;
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let is_write_lock =
        |lock: &Lock| lock.device == device && lock.inode == inode && lock.covers(WRITE_LOCK_BYTE);
    let read = |_| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let lock = locks.lines().filter_map(parse).find(is_write_lock)?;
        u32::try_from(lock.pid).ok()
    };
    let pid = (0..READINGS).find_map(read)?;
    if pid == 0 || pid == std::process::id() {
        return None;
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    Some(Owner {
        pid,
        name: field("Name:")?.trim().to_owned(),
        stopped: field("State:")?.trim().starts_with(['T', 't']),
    })
}

/// An exclusive lock on a range of bytes of a file.
#[derive(Debug, PartialEq, Eq)]
struct Lock {
    pid: i64,
    device: (u32, u32),
    inode: u64,
    first: u64,
    last: u64,
}

impl Lock {
    fn covers(&self, byte: u64) -> bool {
        self.first <= byte && byte <= self.last
    }
}

/// Parses a line of `/proc/locks` such as `3: POSIX  ADVISORY  WRITE 741 fe:00:1310739 120 120`. Returns `None` for
/// read locks and for waiting processes (`->`).
fn parse(line: &str) -> Option<Lock> {
    let mut words = line.split_whitespace().skip(1);
    let (_class, _manner, access) = (words.next()?, words.next()?, words.next()?);
    if access != "WRITE" {
        return None;
    }
    let pid = words.next()?.parse().ok()?;
    let mut place = words.next()?.split(':');
    let major = u32::from_str_radix(place.next()?, 16).ok()?;
    let minor = u32::from_str_radix(place.next()?, 16).ok()?;
    let inode = place.next()?.parse().ok()?;
    let first = words.next()?.parse().ok()?;
    let last = match words.next()? {
        "EOF" => u64::MAX,
        last => last.parse().ok()?,
    };
    Some(Lock {
        pid,
        device: (major, minor),
        inode,
        first,
        last,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_write_locks_are_parsed() {
        let lock = Lock {
            pid: 741,
            device: (0xfe, 0),
            inode: 1_310_739,
            first: 120,
            last: 120,
        };
        for (line, found) in [
            ("3: POSIX  ADVISORY  WRITE 741 fe:00:1310739 120 120", Some(lock)),
            ("3: POSIX  ADVISORY  READ  741 fe:00:1310739 120 120", None),
            ("3: -> POSIX  ADVISORY  WRITE 741 fe:00:1310739 120 120", None),
            ("", None),
        ] {
            assert_eq!(parse(line), found, "{line}");
        }
        let whole = parse("1: FLOCK  ADVISORY  WRITE 9 00:1b:7 0 EOF");
        assert!(whole.is_some_and(|lock| lock.covers(WRITE_LOCK_BYTE)));
    }
}
