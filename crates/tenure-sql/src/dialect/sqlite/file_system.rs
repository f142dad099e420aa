//! Recognizes file systems in memory, and network file systems, on which SQLite's locks do not work across machines.

use std::io;
use std::path::Path;

use super::mounts::{Mount, mount};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
