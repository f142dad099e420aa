//! The resource that nothing fences: a number in a file, read, thought about, and written. Updates are lost whenever two
//! believe that they are alone.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file of a key's counter.
pub(crate) fn file(folder: &Path, key: &str) -> PathBuf {
    folder.join(key)
}

/// What the counter of a key says; 0 if nobody has written it.
pub(crate) fn counted(folder: &Path, key: &str) -> io::Result<u64> {
    read(&file(folder, key))
}

fn read(file: &Path) -> io::Result<u64> {
    match std::fs::read_to_string(file) {
        Ok(number) => number.parse().map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// Adds one, with a while between reading and writing. `scratch` is this task's own file beside the counter: it takes
/// the counter's place as a whole, so that no reader finds half a number.
pub(crate) async fn bump(file: &Path, scratch: &Path, meanwhile: Duration) -> io::Result<()> {
    let number = read(file)?;
    tokio::time::sleep(meanwhile).await;
    std::fs::write(scratch, (number + 1).to_string())?;
    std::fs::rename(scratch, file)
}
