//! Small libraries that change how a server calls the system, loaded with `LD_PRELOAD`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::needs::cannot_start;

/// Compiles a library with the system's C compiler, and returns its path.
pub(crate) fn compile(folder: &Path, name: &str, source: &str) -> io::Result<PathBuf> {
    let file = folder.join(name).with_extension("c");
    let library = folder.join(name).with_extension("so");
    std::fs::write(&file, source)?;
    let made = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .args([&library, &file])
        .output()
        .map_err(|error| cannot_start("cc", error))?;
    match made.status.success() {
        true => Ok(library),
        false => Err(io::Error::other(
            String::from_utf8_lossy(&made.stderr).into_owned(),
        )),
    }
}

/// The environment variable that loads a library into a server.
pub(crate) fn preload(library: &Path) -> (String, String) {
    ("LD_PRELOAD".to_owned(), library.display().to_string())
}
