//! Finds the file system on which a path lies: by its magic number on Linux, by its name on macOS and most BSDs.

#[cfg(target_os = "linux")]
use std::fs;
use std::io;
use std::path::Path;

use super::system_files::if_present;
use crate::display::display_path;

/// The file system on which a path lies.
pub(super) struct Mount {
    /// Name of the file system, such as NFS. Empty on Linux for a local file system on disk.
    pub(super) kind: String,
    /// True if the kernel considers the file system local. One in user space (FUSE) may still be remote.
    pub(super) is_local: bool,
}

/// Linux's magic numbers of network file systems, with their names.
#[cfg(target_os = "linux")]
const NETWORK: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB"),
    (0x0102_1997, "9p"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x786F_4256, "VirtualBox shared folder"),
    (0xBACB_ACBC, "VMware shared folder"),
    (0x564C, "NCP"),
    (0xAAD7_AAEA, "PanFS"),
    (0x2003_0528, "OrangeFS"),
];

/// Linux's magic numbers of file systems in memory, with their names.
#[cfg(target_os = "linux")]
const MEMORY: &[(u32, &str)] = &[(0x0102_1994, "tmpfs"), (0x8584_58F6, "ramfs")];

/// Linux's magic number of all file systems in user space. Their names in `mountinfo` show which are remote.
#[cfg(target_os = "linux")]
const FUSE: u32 = 0x6573_5546;

#[cfg(target_os = "linux")]
pub(super) fn mount(path: &Path) -> io::Result<Option<Mount>> {
    let Some(status) = status(path)? else {
        return Ok(None);
    };
    let number = status.f_type;
    // The magic number has 32 bits. On architectures where the field is signed, the upper half repeats the sign bit.
    let number = (number & 0xFFFF_FFFF) as u32;
    let name_in = |names: &[(u32, &'static str)]| {
        let known = names.iter().find(|(known, _)| *known == number);
        known.map(|(_, name)| (*name).to_owned())
    };
    if let Some(kind) = name_in(NETWORK) {
        return Ok(Some(Mount {
            kind,
            is_local: false,
        }));
    }
    let kind = if number == FUSE {
        let table = "/proc/self/mountinfo";
        let mounts = if_present(table, fs::read_to_string(table))?;
        mounts.and_then(|mounts| mount_of(&mounts, path).map(str::to_owned))
    } else {
        name_in(MEMORY)
    };
    Ok(Some(Mount {
        kind: kind.unwrap_or_default(),
        is_local: true,
    }))
}

#[cfg(any(
    target_os = "linux",
    target_vendor = "apple",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "openbsd"
))]
fn status(path: &Path) -> io::Result<Option<rustix::fs::StatFs>> {
    if_present(
        &display_path(path).to_string(),
        rustix::fs::statfs(path).map_err(io::Error::from),
    )
}

/// On these systems, the kernel reports the name of the file system, and whether it is local.
#[cfg(any(
    target_vendor = "apple",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "openbsd"
))]
pub(super) fn mount(path: &Path) -> io::Result<Option<Mount>> {
    const MNT_LOCAL: u64 = 0x1000;
    let Some(status) = status(path)? else {
        return Ok(None);
    };
    let name = status.f_fstypename.iter().map(|byte| *byte as u8);
    let name = name.take_while(|byte| *byte != 0);
    Ok(Some(Mount {
        kind: name.map(char::from).collect(),
        is_local: status.f_flags as u64 & MNT_LOCAL != 0,
    }))
}

#[cfg(not(any(
    target_os = "linux",
    target_vendor = "apple",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "openbsd"
)))]
pub(super) fn mount(_: &Path) -> io::Result<Option<Mount>> {
    Ok(None)
}

/// The file system type of the deepest mount that contains the path. `mounts` is the text of `mountinfo`. The path is
/// absolute and has no links.
#[cfg(target_os = "linux")]
fn mount_of<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let point = |line: &'a str| {
        let (place, kind) = line.split_once(" - ")?;
        let point = place.split(' ').nth(4)?;
        Some((point, kind.split(' ').next()?))
    };
    let holds = |(point, _): &(&str, &str)| path.starts_with(unescape(point));
    let mounts = mounts.lines().filter_map(point).filter(holds);
    mounts.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind)
}

/// Decodes the characters that `mountinfo` escapes as octal numbers, such as a space (`\040`).
#[cfg(target_os = "linux")]
fn unescape(point: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes
        .iter()
        .fold(point.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw
40 22 0:35 / /mnt rw - tmpfs tmpfs rw
41 40 0:36 / /mnt/far\\040away rw shared:1 - fuse.sshfs me@far: rw
42 40 0:37 / /mnt/stick rw - fuseblk /dev/sdb1 rw";

    #[test]
    fn the_deepest_mount_contains_the_path() {
        assert_eq!(mount_of(MOUNTS, Path::new("/home/me/locks.db")), Some("ext4"));
        assert_eq!(
            mount_of(MOUNTS, Path::new("/mnt/far away/locks.db")),
            Some("fuse.sshfs")
        );
        assert_eq!(mount_of(MOUNTS, Path::new("/mnt/far")), Some("tmpfs"));
    }
}
