//! Small libraries that change how a server calls the system, loaded with `LD_PRELOAD`. The build script compiles them.

use std::io;
use std::path::Path;

/// The compiled library of `shim/NAME.c`.
macro_rules! library {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".so"))
    };
}

/// Moves the time of day.
pub(crate) const CLOCK: &[u8] = library!("clock");

/// Keeps a server's own ports on the loopback.
pub(crate) const LOOPBACK: &[u8] = library!("loopback");

/// Writes a library to a folder that the server can read, and returns the environment variable that loads it into a server.
pub(crate) fn preload(folder: &Path, library: &[u8]) -> io::Result<(String, String)> {
    let file = folder.join("preload.so");
    std::fs::write(&file, library)?;
    Ok(("LD_PRELOAD".to_owned(), file.display().to_string()))
}
