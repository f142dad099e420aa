//! A number in a file, for stores without a number that clients can read and write.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub(crate) struct NumberFile(TempDir);

impl NumberFile {
    /// A file with the number 0.
    pub(crate) fn new() -> NumberFile {
        let number = NumberFile(tempfile::tempdir().unwrap());
        fs::write(number.file(), "0").unwrap();
        number
    }

    /// The file's name for the other client.
    pub(crate) fn name(&self) -> String {
        self.file().display().to_string()
    }

    /// Returns a function that increments the number by reading and then writing it.
    pub(crate) fn counter(&self) -> Box<dyn FnMut() + Send> {
        let file = self.file();
        Box::new(move || fs::write(&file, (read(&file) + 1).to_string()).unwrap())
    }

    pub(crate) fn read(&self) -> u32 {
        read(&self.file())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("counter")
    }
}

fn read(file: &Path) -> u32 {
    fs::read_to_string(file).unwrap().trim().parse().unwrap()
}
