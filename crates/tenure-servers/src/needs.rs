//! Programs that a test cannot do without. How they are installed is `cargo xtask setup`'s.

use std::io;

/// Whether a test that needs this program is to run: not if `TENURE_SKIP` names it, which it then says.
///
/// # Panics
/// If it is not there: a test is never left out in silence.
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

/// Whether a folder of `PATH` has a file with this name.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// What the system says of a program that cannot be started, with the program's name: it says none.
pub(crate) fn cannot_start(program: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{program}` cannot be started: {error}"))
}
