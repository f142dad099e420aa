//! The folder of the embedded store: its creation, and whose it is.

use std::path::Path;
use std::{fs, io};

/// Creates the folder of the user's own SQLite file (the embedded store), accessible to its owner only. An existing
/// folder is left as it is.
///
/// # Errors
/// If the folder cannot be created.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        other => other,
    }
}

/// Returns the owner of the folder, or of its nearest parent that exists, unless that is root.
#[cfg(unix)]
pub(crate) fn other_owner(folder: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let there = folder.ancestors().find_map(|folder| fs::metadata(folder).ok())?;
    Some(there.uid()).filter(|owner| *owner != 0)
}

#[cfg(not(unix))]
pub(crate) fn other_owner(_: &Path) -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[cfg(unix)]
    #[test]
    fn the_folder_is_private_and_created_once() {
        use std::os::unix::fs::PermissionsExt;
        let machine = Machine::new();
        let folder = machine.folder.path().join("a/b/tenure");
        create_folder(&folder).expect("the folder is ours");
        create_folder(&folder).expect("it is there already");
        let mode = fs::metadata(&folder).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        machine.write("plain", "", 0o600);
        assert!(create_folder(&machine.folder.path().join("plain")).is_err());
    }
}
