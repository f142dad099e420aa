//! Where and when a file's claims were made: the machine, its present boot, and its time namespace.
//! Leases are counted on the boot's clock, so they mean nothing elsewhere.

use std::fs;

/// What a reading of the lease clock belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// Changes with each start of the kernel: all claims of another boot are dead.
    pub(super) boot: String,
    /// Which machine: its identifier, or its name.
    pub(super) machine: String,
    /// Which time namespace: readings of two of them cannot be compared.
    pub(super) namespace: String,
}

impl Origin {
    /// The one of this process. What cannot be found out is empty, and then the same for all.
    pub(super) fn here() -> Self {
        let line = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).ok();
        let named = |path: &str| line(path).filter(|text| !text.is_empty());
        let name = || format!("name:{}", rustix::system::uname().nodename().to_string_lossy());
        let namespace = fs::read_link("/proc/self/ns/time").ok();
        Origin {
            boot: named("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
            machine: named("/etc/machine-id").unwrap_or_else(name),
            namespace: namespace.map_or_else(String::new, |link| link.to_string_lossy().into_owned()),
        }
    }
}
