//! Programs that tests need. `cargo xtask setup` installs them.

use std::io;

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

/// Returns whether a folder of `PATH` contains a file with the program's name.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Adds the program's name to the error with which its start failed.
pub(crate) fn cannot_start(program: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{program}` cannot be started: {error}"))
}
