//! Recognizes file systems in memory, and network file systems, on which SQLite's locks do not work across machines. Finds
//! the file system by its magic number on Linux, by its name on macOS and most BSDs.

#[cfg(target_os = "linux")]
use std::fs;
use std::io;
use std::path::Path;

use super::names::display_path;
use super::system_files::if_present;

/// Words that occur in the names of network file systems.
const REMOTE: &[&str] = &[
    "sshfs",
    "gluster",
    "ceph",
    "s3",
    "gcs",
    "nfs",
    "smb",
    "cifs",
    "9p",
    "p9fs",
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

/// Names of file systems in memory, whose files are lost when the machine restarts.
const MEMORY: [&str; 3] = ["tmpfs", "ramfs", "mfs"];

/// Name of the network file system on which `path` lies, or `None` on a local or unknown one.
pub(super) fn network_kind(path: &Path) -> io::Result<Option<String>> {
    let mount = mount(path)?.filter(is_remote);
    Ok(mount.map(|mount| mount.kind))
}

/// Returns whether `path` is on a file system in memory, such as tmpfs.
pub(super) fn is_memory(path: &Path) -> bool {
    let is_in_memory = |mount: Mount| MEMORY.contains(&&*mount.kind);
    mount(path).is_ok_and(|mount| mount.is_some_and(is_in_memory))
}

fn is_remote(mount: &Mount) -> bool {
    let name = mount.kind.to_lowercase();
    let sounds_remote = || REMOTE.iter().any(|word| name.contains(word));
    !MEMORY.contains(&&*name) && (!mount.is_local || sounds_remote())
}

/// The file system on which a path lies.
struct Mount {
    /// Name of the file system, such as NFS. Empty on Linux for a local file system on disk.
    kind: String,
    /// True if the kernel considers the file system local. One in user space (FUSE) may still be remote.
    is_local: bool,
}

/// Linux's magic numbers of network file systems, with their names.
#[cfg(target_os = "linux")]
const NETWORK_MAGIC: &[(u32, &str)] = &[
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
const MEMORY_MAGIC: &[(u32, &str)] = &[(0x0102_1994, "tmpfs"), (0x8584_58F6, "ramfs")];

/// Linux's magic number of all file systems in user space. Their names in `mountinfo` show which are remote.
#[cfg(target_os = "linux")]
const FUSE: u32 = 0x6573_5546;

#[cfg(target_os = "linux")]
fn mount(path: &Path) -> io::Result<Option<Mount>> {
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
    if let Some(kind) = name_in(NETWORK_MAGIC) {
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
        name_in(MEMORY_MAGIC)
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
fn mount(path: &Path) -> io::Result<Option<Mount>> {
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
fn mount(_: &Path) -> io::Result<Option<Mount>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw
40 22 0:35 / /mnt rw - tmpfs tmpfs rw
41 40 0:36 / /mnt/far\\040away rw shared:1 - fuse.sshfs me@far: rw
42 40 0:37 / /mnt/stick rw - fuseblk /dev/sdb1 rw";

    #[test]
    fn network_file_systems_are_recognized() {
        for (is_local, is_refused, kinds) in [
            (true, true, "fuse.sshfs virtiofs fusefs.sshfs p9fs"),
            (true, false, "fuseblk fuse.ntfs-3g fusefs.ntfs"),
            (true, false, "apfs hfs ufs zfs ffs hammer2 tmpfs mfs"),
            (true, false, ""),
            (false, true, "nfs smbfs afpfs webdav macfuse"),
        ] {
            for kind in kinds.split(' ').map(str::to_owned) {
                let mount = Mount { kind, is_local };
                assert_eq!(is_remote(&mount), is_refused, "{}", mount.kind);
            }
        }
    }

    #[test]
    fn a_local_directory_is_no_network_file_system() {
        let kind = network_kind(&std::env::temp_dir());
        assert_eq!(kind.expect("it can be looked up"), None);
    }

    #[cfg(target_os = "linux")]
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
