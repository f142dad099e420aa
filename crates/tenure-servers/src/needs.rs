//! Programs that tests need. `cargo xtask setup` installs them.

use std::io;
use std::path::{Path, PathBuf};

/// The folders with a folder for each version of PostgreSQL. Debian keeps the server's programs out of `PATH`, because
/// a machine may have several versions.
const POSTGRES: &str = "/usr/lib/postgresql";

/// The folder of most servers. It is often missing in the `PATH` of users other than root.
const SERVERS: &str = "/usr/sbin";

/// The folder with the jars of Debian's packages. A server in Java has no program of its own there.
pub const JAVA_LIBRARIES: &str = "/usr/share/java";

/// Returns whether a test that needs this program must run: false, with a message, if `TENURE_SKIP` names the program.
///
/// # Panics
/// If the program is not installed: no test is skipped silently.
pub fn needs(program: &str, package: &str) -> bool {
    let skip = std::env::var("TENURE_SKIP").unwrap_or_default();
    if skip.split(',').any(|name| name.trim() == program) {
        eprintln!("not tried with `{program}`: TENURE_SKIP names it");
        return false;
    }
    assert!(
        is_installed(program),
        "`{program}` is not installed: `cargo xtask setup` or `apt-get install {package}` brings it, \
         TENURE_SKIP={program} does without"
    );
    true
}

/// Returns whether a folder of `PATH`, or another folder with servers, contains a file with the program's name, or the
/// folder of Java's libraries a jar with it.
pub fn is_installed(program: &str) -> bool {
    find(program).is_some() || Path::new(JAVA_LIBRARIES).join(format!("{program}.jar")).is_file()
}

/// The path of a program, or its name if it is not installed.
pub(crate) fn program(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| name.into())
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = postgres_folder(Path::new(POSTGRES)).into_iter();
    let folders = folders.chain(std::env::split_paths(&path));
    let mut files = folders.chain([SERVERS.into()]).map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

/// The folder with the programs of the newest version.
fn postgres_folder(versions: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(versions).into_iter().flatten().flatten();
    let version = |name: &std::ffi::OsStr| name.to_str()?.parse::<u32>().ok();
    let newest = entries
        .filter_map(|entry| version(&entry.file_name()))
        .filter(|version| versions.join(version.to_string()).join("bin/postgres").is_file())
        .max()?;
    Some(versions.join(newest.to_string()).join("bin"))
}

/// Adds the program's name to the error with which its start failed.
pub(crate) fn cannot_start(program: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{program}` cannot be started: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_postgres_that_has_a_server_is_found() {
        let versions = tempfile::tempdir().unwrap();
        assert_eq!(postgres_folder(&versions.path().join("absent")), None);
        for folder in ["9.6/bin", "9/bin", "15/bin", "16/lib"] {
            std::fs::create_dir_all(versions.path().join(folder)).unwrap();
        }
        assert_eq!(postgres_folder(versions.path()), None);
        for version in ["9", "15"] {
            std::fs::write(versions.path().join(version).join("bin/postgres"), "").unwrap();
        }
        let found = postgres_folder(versions.path());
        assert_eq!(found, Some(versions.path().join("15/bin")));
    }
}
