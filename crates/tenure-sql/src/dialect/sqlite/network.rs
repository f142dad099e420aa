//! Kinds of file systems: those that other machines write too, on which neither locks nor shared memory of SQLite
//! can be trusted, and those in memory. What follows from a kind is decided by whoever asks.

use std::fs;
use std::path::Path;

/// The kernel's numbers for network file systems, with their names.
const NETWORK: &[(u64, &str)] = &[
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

/// File systems that are gone when the machine stops.
const MEMORY: &[u32] = &[0x0102_1994, 0x8584_58F6];

/// File systems in user space: some are local, some are not; their names tell.
const FUSE: u64 = 0x6573_5546;

/// Words in the names of file systems in user space that reach other machines.
const REMOTE_FUSE: &[&str] = &[
    "sshfs",
    "gluster",
    "ceph",
    "s3",
    "gcs",
    "nfs",
    "smb",
    "cifs",
    "9p",
    "virtiofs",
    "rclone",
    "davfs",
    "curlftp",
    "moose",
    "lizard",
    "juice",
    "seaweed",
    "hdfs",
    "osxfs",
    "grpcfuse",
    "fakeowner",
    "prl_fs",
    "vmhgfs",
    "blob",
    "goofys",
    "mfs",
    "beegfs",
    "lustre",
    "afs",
];

/// The name of the network file system that holds `path`, if one does.
pub(super) fn find(path: &Path) -> Option<String> {
    let number = u64::from(kind(path)?);
    if number == FUSE {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        return remote_fuse(mount_of(&mounts, path)?);
    }
    let known = NETWORK.iter().find(|(magic, _)| *magic == number);
    known.map(|(_, name)| (*name).to_owned())
}

/// Whether `path` is on a file system in memory, such as a tmpfs.
pub(super) fn is_memory(path: &Path) -> bool {
    kind(path).is_some_and(|number| MEMORY.contains(&number))
}

/// The number of the file system's kind, as the kernel has it in 32 bits.
#[cfg(target_os = "linux")]
fn kind(path: &Path) -> Option<u32> {
    let kind = rustix::fs::statfs(path).ok()?.f_type;
    // Some architectures have it signed, in which case the upper half repeats the sign.
    Some((kind & 0xFFFF_FFFF) as u32)
}

#[cfg(not(target_os = "linux"))]
fn kind(_: &Path) -> Option<u32> {
    None
}

/// The type of the mount that holds an absolute path without links, from the text of `mountinfo`.
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

/// `mountinfo` writes blanks and the like as three octal digits.
fn unescape(point: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes
        .iter()
        .fold(point.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

fn remote_fuse(kind: &str) -> Option<String> {
    let name = kind.to_lowercase();
    let remote = REMOTE_FUSE.iter().any(|word| name.contains(word));
    remote.then(|| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw
40 22 0:35 / /mnt rw - tmpfs tmpfs rw
41 40 0:36 / /mnt/far\\040away rw shared:1 - fuse.sshfs me@far: rw
42 40 0:37 / /mnt/stick rw - fuseblk /dev/sdb1 rw";

    #[test]
    fn the_mount_that_holds_a_path_is_the_deepest_one() {
        assert_eq!(mount_of(MOUNTS, Path::new("/home/me/locks.db")), Some("ext4"));
        assert_eq!(
            mount_of(MOUNTS, Path::new("/mnt/far away/locks.db")),
            Some("fuse.sshfs")
        );
        assert_eq!(mount_of(MOUNTS, Path::new("/mnt/far")), Some("tmpfs"));
    }

    #[test]
    fn file_systems_in_user_space_are_refused_by_name() {
        assert_eq!(remote_fuse("fuse.sshfs").as_deref(), Some("fuse.sshfs"));
        assert_eq!(remote_fuse("virtiofs").as_deref(), Some("virtiofs"));
        assert_eq!(remote_fuse("fuseblk"), None);
        assert_eq!(remote_fuse("fuse.ntfs-3g"), None);
    }

    #[test]
    fn a_local_directory_is_no_network_file_system() {
        assert_eq!(find(&std::env::temp_dir()), None);
    }
}
