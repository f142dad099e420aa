//! Kinds of file systems: those that other machines write too, on which neither locks nor shared memory of SQLite
//! can be trusted, and those in memory.

use std::path::Path;

use super::mounts::{Mount, mount};

/// Words in the names of file systems that reach other machines.
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

/// The names of file systems that are gone when the machine stops.
const MEMORY: [&str; 3] = ["tmpfs", "ramfs", "mfs"];

/// The name of the network file system that holds `path`, if one does.
pub(super) fn network_kind(path: &Path) -> Option<String> {
    let mount = mount(path)?;
    is_remote(&mount).then_some(mount.kind)
}

/// Whether `path` is on a file system in memory, such as a tmpfs.
pub(super) fn is_memory(path: &Path) -> bool {
    mount(path).is_some_and(|mount| MEMORY.contains(&&*mount.kind))
}

fn is_remote(mount: &Mount) -> bool {
    let name = mount.kind.to_lowercase();
    let sounds_remote = || REMOTE.iter().any(|word| name.contains(word));
    !MEMORY.contains(&&*name) && (!mount.is_local || sounds_remote())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_refused_by_their_name_or_if_they_are_not_local() {
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
        assert_eq!(network_kind(&std::env::temp_dir()), None);
    }
}
