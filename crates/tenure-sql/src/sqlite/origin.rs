//! The origin of the times in a file: the machine and the clock on which they are counted.
//!
//! A time namespace adds a fixed offset to the boot clock. A file records the offset of its times, so processes of one
//! machine can compare and convert them. A process whose own offset is unknown is refused. The boot id is not used,
//! because a container may have one of its own.

use std::error::Error as StdError;
use std::fmt;
use std::fs;
use std::io;

use super::system_files::if_present;

/// Name of the initial time namespace, whose offsets are zero.
const INITIAL_NAMESPACE: &str = "time:[4026531834]";

/// Directory with the names of this process's namespaces.
const NAMESPACES: &str = "/proc/self/ns";

/// The machine and the boot clock of this process, or those on which the times in a file are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The machine id; `name:` and the host name if the machine has no id.
    pub(super) machine: String,
    /// The nanoseconds that the time namespace adds to `CLOCK_BOOTTIME`.
    pub(super) offset: i64,
}

/// Why the origin of this process's clock is unknown.
#[derive(Debug)]
pub(super) enum UnknownOrigin {
    /// A file of the system is there, but cannot be read.
    Unreadable(io::Error),
    /// The system does not show the offset of the time namespace.
    Offset,
}

impl UnknownOrigin {
    /// What to do if the offset is unknown.
    pub(super) const MAKE_OFFSET_KNOWN: &str =
        "mount /proc, or start the program as a child of the one that made the namespace (unshare --fork)";
}

impl fmt::Display for UnknownOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnknownOrigin::Unreadable(error) => error.fmt(f),
            UnknownOrigin::Offset => write!(
                f,
                "the offsets of this process's time namespace are not known, or its child processes have other ones: {}",
                Self::MAKE_OFFSET_KNOWN
            ),
        }
    }
}

impl StdError for UnknownOrigin {}

impl From<io::Error> for UnknownOrigin {
    fn from(error: io::Error) -> Self {
        UnknownOrigin::Unreadable(error)
    }
}

impl Origin {
    /// The machine and clock of this process.
    pub(super) fn here() -> Result<Self, UnknownOrigin> {
        let text = |path: &str| if_present(path, fs::read_to_string(path)).map(Option::unwrap_or_default);
        let link = |path: &str| {
            let link = if_present(path, fs::read_link(path))?;
            Ok::<_, io::Error>(link.map_or(String::new(), |link| link.to_string_lossy().into_owned()))
        };
        let shown = Namespace {
            is_shown: if_present(NAMESPACES, fs::metadata(NAMESPACES))?.is_some(),
            name: link("/proc/self/ns/time")?,
            of_children: link("/proc/self/ns/time_for_children")?,
            offsets: text("/proc/self/timens_offsets")?,
        };
        let offset = if cfg!(target_os = "linux") {
            shown.offset().ok_or(UnknownOrigin::Offset)?
        } else {
            0
        };
        let mut machine = text("/etc/machine-id")?.trim().to_owned();
        if machine.is_empty() {
            machine = format!("name:{}", rustix::system::uname().nodename().to_string_lossy());
        }
        Ok(Origin { machine, offset })
    }
}

/// What Linux shows of this process's time namespace.
#[derive(Clone, Debug, Default)]
struct Namespace {
    /// True if the directory [`NAMESPACES`] is there.
    is_shown: bool,
    /// Empty on kernels without time namespaces.
    name: String,
    /// Name of the namespace of child processes.
    of_children: String,
    /// Text of `timens_offsets`, which describes the namespace of child processes.
    offsets: String,
}

impl Namespace {
    /// Offset of `CLOCK_BOOTTIME` in this namespace; `None` if unknown.
    ///
    /// Without `/proc`, a process cannot tell whether it is in a time namespace. If child processes have another namespace,
    /// the offsets that the system shows are theirs.
    fn offset(&self) -> Option<i64> {
        if !self.is_shown || self.name != self.of_children {
            return None;
        }
        if ["", INITIAL_NAMESPACE].contains(&&*self.name) {
            return Some(0);
        }
        let line = self
            .offsets
            .lines()
            .find_map(|line| line.strip_prefix("boottime"))?;
        let mut numbers = line.split_whitespace().map(str::parse::<i64>);
        let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(name: &str, of_children: &str, offsets: &str) -> Namespace {
        Namespace {
            is_shown: true,
            name: name.to_owned(),
            of_children: of_children.to_owned(),
            offsets: offsets.to_owned(),
        }
    }

    #[test]
    fn the_offset_is_that_of_this_process() {
        let offsets = "monotonic           7         0\nboottime           90       500\n";
        for (name, of_children, offsets, offset) in [
            ("time:[1]", "time:[1]", offsets, Some(90_000_000_500)),
            ("time:[1]", "time:[2]", offsets, None),
            (INITIAL_NAMESPACE, "time:[2]", offsets, None),
            (INITIAL_NAMESPACE, INITIAL_NAMESPACE, "", Some(0)),
            ("time:[1]", "time:[1]", "", None),
            ("", "", "", Some(0)),
        ] {
            let found = namespace(name, of_children, offsets).offset();
            assert_eq!(found, offset, "{name}, {of_children}, {offsets:?}");
        }
    }

    /// Without `/proc`, a process in a time namespace looks like one on a kernel without time namespaces.
    #[test]
    fn the_offset_is_unknown_without_proc() {
        assert_eq!(Namespace::default().offset(), None);
    }
}
