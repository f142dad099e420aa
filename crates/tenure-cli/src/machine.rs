//! Test fixture: a machine on which all files that can name a store lie in one temporary folder.

use std::fs;
use std::path::PathBuf;

use crate::home::Home;
use crate::store_choice::Environment;

pub(crate) struct Machine {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) environment: Environment,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        let folder = tempfile::tempdir().expect("a folder");
        let environment = Environment {
            home: Home::Known(folder.path().join("home")),
            etc_url: folder.path().join("etc/tenure/url"),
            ..Environment::default()
        };
        Machine { folder, environment }
    }

    /// Writes a file in the folder, with these permissions.
    pub(crate) fn write(&self, path: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("the folder is ours");
        fs::write(&path, text).expect("the folder is ours");
        #[cfg(unix)]
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode))
            .expect("the file is ours");
        #[cfg(not(unix))]
        let _ = mode;
        path
    }
}
