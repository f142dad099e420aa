//! Reads a password from the file that the option `password_file` of a store URL names.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::secret::Secret;

pub(crate) const PASSWORD_FILE: &str = "password_file";

/// The greatest size of a password file, in bytes. Long tokens fit; a larger file is most likely the wrong one.
const MAX_LEN: u64 = 64 * 1024;

/// The password from a file, and whether every user can read the file.
///
/// # Examples
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("password");
/// use tenure_endpoint::read_password_file;
///
/// std::fs::write(&path, "s3cr3t\nthe other lines are ignored\n")?;
/// let file = read_password_file(&path)?;
/// assert_eq!(file.password.expose(), "s3cr3t");
/// assert!(!format!("{file:?}").contains("s3cr3t"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct PasswordFile {
    /// The first line, without its line end.
    pub password: Secret,
    /// Whether every user of this machine may read the file. Always `false` on systems without Unix permissions.
    pub readable_by_all: bool,
}

/// The reason why no password could be read from a file.
///
/// # Examples
/// ```
/// use tenure_endpoint::{PasswordFileError, read_password_file};
///
/// let refused = read_password_file("/nowhere/password".as_ref()).unwrap_err();
/// assert!(matches!(refused, PasswordFileError::Read { .. }));
/// assert_eq!(refused.to_string(), "the password file /nowhere/password cannot be read");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PasswordFileError {
    /// The file cannot be read, or its text is not UTF-8.
    #[error("the password file {} cannot be read", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the read.
        source: io::Error,
    },
    /// The first line of the file is empty.
    #[error("the password file {} has an empty first line: write the password there", path.display())]
    Empty {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file is larger than 64 KiB, too large for a password.
    #[error("the password file {} is larger than {MAX_LEN} bytes: is it the right file?", path.display())]
    TooLarge {
        /// The path of the file.
        path: PathBuf,
    },
}

/// Reads the first line of a password file, without its line end (`\n` or `\r\n`). Spaces are kept.
///
/// # Errors
///
/// [`PasswordFileError`] names the file. The error never contains text of the file.
///
/// # Examples
///
/// ```no_run
/// let file = tenure_endpoint::read_password_file("/etc/tenure/password".as_ref())?;
/// if file.readable_by_all {
///     eprintln!("warning: everyone can read the password file: chmod 600 it");
/// }
/// # Ok::<(), tenure_endpoint::PasswordFileError>(())
/// ```
pub fn read_password_file(path: &Path) -> Result<PasswordFile, PasswordFileError> {
    let read = read(path);
    let path = path.to_owned();
    let (text, readable_by_all) = match read {
        Ok(read) => read,
        Err(source) => return Err(PasswordFileError::Read { path, source }),
    };
    if text.len() as u64 > MAX_LEN {
        return Err(PasswordFileError::TooLarge { path });
    }
    let password = text.lines().next().unwrap_or_default();
    if password.is_empty() {
        return Err(PasswordFileError::Empty { path });
    }
    Ok(PasswordFile {
        password: Secret::new(password),
        readable_by_all,
    })
}

/// Reads at most one byte more than allowed, so that the caller detects a file that is too large.
fn read(path: &Path) -> io::Result<(String, bool)> {
    let file = File::open(path)?;
    let readable_by_all = is_readable_by_all(&file)?;
    let mut text = String::new();
    file.take(MAX_LEN + 1).read_to_string(&mut text)?;
    Ok((text, readable_by_all))
}

#[cfg(unix)]
fn is_readable_by_all(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    Ok(file.metadata()?.permissions().mode() & 0o004 != 0)
}

#[cfg(not(unix))]
fn is_readable_by_all(_: &File) -> io::Result<bool> {
    Ok(false)
}
