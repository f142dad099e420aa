//! Reads of the system's files, such as those in /proc. Only a missing file counts as absent.

use std::io;

/// Returns `None` if there is no such file. Any other error names the file.
pub(super) fn if_present<T>(file: &str, read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(contents) => Ok(Some(contents)),
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
            Ok(None)
        }
        Err(error) => Err(named(file, &error)),
    }
}

/// The error with the name of the file, or of the program, in front.
pub(super) fn named(file: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{file}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_file_is_absent() {
        let read = std::fs::read_to_string("/nonexistent/file");
        assert_eq!(if_present("file", read).expect("it is only missing"), None);
        let read = std::fs::read_to_string("/");
        let error = if_present("the root", read).expect_err("it is a directory");
        assert!(error.to_string().starts_with("the root: "), "{error}");
    }
}
