//! The public functions that open a lock file as a store.

use std::path::PathBuf;
use std::sync::Arc;

use tenure_backend::{BackendError, Clock, Effect, Fault};

use super::mailbox::Mailbox;
use super::thread;
use crate::backend::SqlStore;
use crate::config::Config;

/// Opens a lock file, and creates it if it does not exist.
///
/// `None` opens the default file of this user, see [`default_path`](super::default_path). An existing file must be
/// empty or a lock file of Tenure. Any other file is refused and left unchanged.
///
/// # Guarantees
/// All access to the file runs on a thread of its own, which ends when the store is dropped. Any number of processes
/// may open the same file, and one process may open it several times.
///
/// # Cancel safety
/// Dropping the future leaves at most a lock file without claims behind.
///
/// # Errors
/// Each error says what to do.
///
/// - [`Fault::Store`]: the file is damaged, of another program or machine, on a read-only file system, in use in another
///   time namespace, on a network file system, not a regular file, or has several names.
/// - [`Fault::Denied`]: this user may not use the file. The message names the file or directory, its owner and its mode.
/// - [`Fault::Unavailable`]: another process keeps the file locked. Try again.
/// - [`Fault::Invalid`]: no file was named, and this user has no home directory.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), tenure_backend::BackendError> {
/// use std::sync::Arc;
/// use tenure_backend::SystemClock;
///
/// let store = tenure_sql::sqlite::open(None, Arc::new(SystemClock)).await?;
/// # drop(store); Ok(()) }
/// ```
pub async fn open(path: Option<PathBuf>, clock: Arc<dyn Clock>) -> Result<Arc<SqlStore>, BackendError> {
    let config = Config {
        clock,
        ..Config::default()
    };
    open_with(path, config).await
}

/// Opens a lock file like [`open`], with other settings.
///
/// # Cancel safety
/// As for [`open`]: dropping the future leaves at most a lock file without claims behind.
///
/// # Errors
/// As for [`open`]; [`Fault::Invalid`] also for a [`Config::file_mode`] that a lock file cannot have.
pub async fn open_with(path: Option<PathBuf>, config: Config) -> Result<Arc<SqlStore>, BackendError> {
    config.check()?;
    let mailbox = Mailbox::new(config.max_queue).map_err(|error| {
        let message = "no more files can be opened in this process: close some, or raise its limit";
        BackendError::because(Fault::Store, Effect::None, message, error)
    })?;
    let store = Arc::new(SqlStore {
        mailbox: Arc::new(mailbox),
        clock: config.clock.clone(),
        process: std::process::id(),
    });
    thread::start(path, config, store.mailbox.clone()).await?;
    Ok(store)
}
