//! The origin of the times in a file: the machine and the clock on which they are counted.
//!
//! A time namespace adds a fixed offset to the boot clock. Times of two processes of one machine can be compared if
//! both offsets are known. The boot id is compared only for older builds and where an offset is unknown, because a
//! container may have a boot id of its own.

use std::fs;
use std::io;
use std::path::Path;

use tenure_backend::BackendError;

use super::file::refused;
use super::system_files::if_present;

/// Name of the initial time namespace, whose offsets are zero.
const INITIAL_NAMESPACE: &str = "time:[4026531834]";

/// The machine, the boot and the time namespace that belong to a clock: that of this process, or the one on which the
/// times in a file are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The boot id, which changes with each start of the kernel. Older builds delete all claims of another boot id.
    pub(super) boot: String,
    /// The machine id; `name:` and the host name if the machine has no id.
    pub(super) machine: String,
    /// Name of the time namespace, unique within a boot.
    pub(super) namespace: String,
    /// The nanoseconds that the time namespace adds to the boot clock; `None` if unknown.
    pub(super) offset: Option<i64>,
}

impl Origin {
    /// The machine, boot and clock of this process. Values that the system does not report are empty.
    ///
    /// Fails if a file of the system is there, but cannot be read.
    pub(super) fn here() -> io::Result<Self> {
        let text = |path: &str| if_present(path, fs::read_to_string(path)).map(Option::unwrap_or_default);
        let line = |path: &str| text(path).map(|text| text.trim().to_owned());
        let link = |path: &str| {
            let link = if_present(path, fs::read_link(path))?;
            Ok::<_, io::Error>(link.map_or(String::new(), |link| link.to_string_lossy().into_owned()))
        };
        let namespace = link("/proc/self/ns/time")?;
        let of_children = link("/proc/self/ns/time_for_children")?;
        let mut machine = line("/etc/machine-id")?;
        if machine.is_empty() {
            machine = format!("name:{}", rustix::system::uname().nodename().to_string_lossy());
        }
        Ok(Origin {
            boot: line("/proc/sys/kernel/random/boot_id")?,
            machine,
            offset: offset_here(&namespace, &of_children, &text("/proc/self/timens_offsets")?),
            namespace,
        })
    }

    /// The machine, boot and clock recorded in a file's table `store`.
    pub(super) fn stored(boot: String, machine: String, namespace: String, clock: Option<&str>) -> Self {
        let mut origin = Origin {
            boot,
            machine,
            namespace,
            offset: None,
        };
        // An older build updates `boot` and `namespace` but not `clock`, which has a copy of both. The offset in
        // `clock` is used only if the copy matches them.
        let offset = clock.and_then(|clock| clock.strip_suffix(&origin.names())?.parse().ok());
        origin.offset = offset.or_else(|| known_offset(&origin.namespace));
        origin
    }

    /// Value of the column `clock`: the offset, then the boot id and namespace for which it holds.
    pub(super) fn clock(&self) -> String {
        format!("{}{}", self.offset.unwrap_or(0), self.names())
    }

    fn names(&self) -> String {
        format!(" {} {}", self.boot, self.namespace)
    }

    /// Returns whether both origins have the same clock: the same offset of `CLOCK_BOOTTIME` or, if the offset of
    /// one is not known, the same boot id and time namespace.
    pub(super) fn shares_clock_with(&self, other: &Origin) -> bool {
        match (self.offset, other.offset) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self.boot == other.boot && self.namespace == other.namespace,
        }
    }

    /// Refuses the file if this process cannot find out its clock's offset or, on Linux, its boot id.
    pub(super) fn check(&self, path: &Path) -> Result<(), BackendError> {
        if self.offset.is_none() {
            let why = "cannot be used in a time namespace whose offsets are not known, or where child processes have \
                       another one";
            let then = "start the program as a child of the one that made the namespace (unshare --fork)";
            return Err(refused(path, why, then));
        }
        if !cfg!(target_os = "linux") || !self.boot.is_empty() {
            return Ok(());
        }
        let why = "cannot be used where /proc/sys/kernel/random/boot_id is not there: older builds of Tenure would take \
                   every claim in it for dead";
        let then = "mount all of /proc (systemd: ProcSubset=all), or name a store with a server";
        Err(refused(path, why, then))
    }
}

/// Offset that follows from the namespace's name alone: zero for the initial namespace, and for the empty name of
/// kernels without time namespaces.
fn known_offset(namespace: &str) -> Option<i64> {
    ["", INITIAL_NAMESPACE].contains(&namespace).then_some(0)
}

/// Offset of this process's namespace. `offsets` (`timens_offsets`) describes `of_children`, the namespace of child
/// processes, so the offset is unknown unless this process is in the same namespace.
fn offset_here(namespace: &str, of_children: &str, offsets: &str) -> Option<i64> {
    if namespace != of_children {
        return None;
    }
    known_offset(namespace).or_else(|| {
        let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"))?;
        let mut numbers = line.split_whitespace().map(str::parse::<i64>);
        let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(boot: &str, namespace: &str, offset: Option<i64>) -> Origin {
        Origin {
            boot: boot.to_owned(),
            machine: "m".to_owned(),
            namespace: namespace.to_owned(),
            offset,
        }
    }

    fn stored(boot: &str, namespace: &str, clock: Option<&str>) -> Origin {
        Origin::stored(boot.to_owned(), "m".to_owned(), namespace.to_owned(), clock)
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_without_a_boot_id_is_refused() {
        let here = Origin::here().expect("/proc can be read");
        let path = Path::new("/locks.db");
        assert!(here.check(path).is_ok(), "{here:?}");
        let blind = Origin {
            boot: String::new(),
            ..here
        };
        let error = blind.check(path).expect_err("it is refused").to_string();
        assert!(
            error.contains("boot_id") && error.contains("/locks.db"),
            "{error}"
        );
    }

    #[test]
    fn another_namespace_of_child_processes_is_refused() {
        let offsets = "monotonic           7         0\nboottime           90       500\n";
        assert_eq!(offset_here("time:[1]", "time:[1]", offsets), Some(90_000_000_500));
        assert_eq!(offset_here("time:[1]", "time:[2]", offsets), None);
        assert_eq!(offset_here(INITIAL_NAMESPACE, "time:[2]", offsets), None);
        assert_eq!(offset_here("time:[1]", "time:[1]", ""), None);
        assert_eq!(offset_here("", "", ""), Some(0));
        let error = origin("b", "time:[1]", None).check(Path::new("/locks.db"));
        assert!(error.is_err_and(|error| error.to_string().contains("time namespace")));
    }

    #[test]
    fn an_offset_is_read_as_it_was_written() {
        for offset in [0, 90_000_000_500, -5] {
            let here = origin("b", "time:[1]", Some(offset));
            assert_eq!(stored("b", "time:[1]", Some(&here.clock())), here);
        }
    }

    #[test]
    fn an_offset_of_an_older_build_is_ignored() {
        let before = origin("b", INITIAL_NAMESPACE, Some(0)).clock();
        assert_eq!(stored("c", "time:[1]", Some(&before)).offset, None);
        assert_eq!(stored("b", "time:[1]", None).offset, None);
        assert_eq!(stored("b", INITIAL_NAMESPACE, None).offset, Some(0));
    }

    #[test]
    fn clocks_are_compared_by_their_offsets() {
        let here = origin("b", "time:[1]", Some(5));
        assert!(here.shares_clock_with(&origin("c", "time:[2]", Some(5))));
        assert!(here.shares_clock_with(&origin("b", "time:[1]", None)));
        assert!(!here.shares_clock_with(&origin("b", "time:[2]", None)));
        assert!(!here.shares_clock_with(&origin("b", "time:[2]", Some(6))));
        assert!(!here.shares_clock_with(&origin("c", "time:[1]", None)));
    }
}
