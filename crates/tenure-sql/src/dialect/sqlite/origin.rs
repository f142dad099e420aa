//! Where and when a file's claims were made: the machine, its present boot, and its time namespace.
//! Leases are counted on the boot's clock, so they mean nothing elsewhere.

use std::fs;
use std::path::Path;

use tenure_backend::BackendError;

use super::file::refused;

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
    /// The one of this process. What the system does not tell is empty.
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

    /// Refuses to use the file where this boot cannot be told from another, as it can elsewhere on this machine: every
    /// claim of the others would be taken for dead.
    pub(super) fn check(&self, path: &Path) -> Result<(), BackendError> {
        if !cfg!(target_os = "linux") || !self.boot.is_empty() {
            return Ok(());
        }
        let why = "cannot be used where /proc/sys/kernel/random/boot_id is not there: this boot of the machine cannot be \
                   told from another";
        let then = "mount all of /proc (systemd: ProcSubset=all), or name a store with a server";
        Err(refused(path, why, then))
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn a_boot_that_is_not_known_is_not_taken_for_another() {
        let here = Origin::here();
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
}
