//! The home directory of the user, under which the store is looked for.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, io};

use crate::account::Account;

/// The home directory: `HOME`, or else the one in the user database.
#[derive(Clone, Debug, Default)]
pub enum Home {
    /// Neither names one.
    #[default]
    Unknown,
    /// The directory, which need not exist.
    Known(PathBuf),
    /// `HOME` names none, and the user database cannot be read.
    Unreadable(Arc<io::Error>),
}

impl Home {
    pub(crate) fn of_this_user() -> Home {
        if let Some(home) = absolute(env::var_os("HOME").as_deref()) {
            return Home::Known(home);
        }
        match Account::of_this_user() {
            Ok(account) => account
                .and_then(|account| account.home)
                .map_or(Home::Unknown, Home::Known),
            Err(error) => Home::Unreadable(Arc::new(error)),
        }
    }

    /// Returns the directory, `None` if it is unknown.
    pub(crate) fn path(&self) -> Result<Option<&Path>, Arc<io::Error>> {
        match self {
            Home::Unknown => Ok(None),
            Home::Known(home) => Ok(Some(home)),
            Home::Unreadable(error) => Err(error.clone()),
        }
    }
}

/// Returns the path if it is absolute. Ignores a relative one, as the XDG specification demands for variables that
/// name folders.
pub(crate) fn absolute(value: Option<&OsStr>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}
