//! Opening a lock file as a store. What its thread does is in `worker.rs`.

use std::path::PathBuf;
use std::sync::Arc;

use tenure_backend::{BackendError, Clock, Effect, Fault};

use super::mailbox::Mailbox;
use super::thread;
use crate::backend::SqlStore;
use crate::config::Config;

/// Opens a lock file, and makes it if it is not there.
///
/// `None` is the file of this user on this machine, see [`default_path`](super::default_path). A file that exists is
/// opened only if it is empty or a lock file of ours; anything else is refused and left as it is.
///
/// # Guarantees
/// Everything that touches the file runs on a thread of its own, which ends with the store. Any number of
/// processes, and of stores in one process, may open the same file.
///
/// # Cancel safety
/// Dropping the future leaves at most an empty lock file behind.
///
/// # Errors
/// [`Fault::Store`] if the file is damaged, foreign, read-only, of another machine, in use in another time namespace,
/// on a network file system, no regular file, or known by several names; [`Fault::Denied`] if this user may not use it; [`Fault::Unavailable`] if
/// another process keeps it to itself. Each says what to do.
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

/// Opens a lock file with settings of one's own. Otherwise it is [`open`].
///
/// # Cancel safety
/// As [`open`]: dropping the future leaves at most an empty lock file behind.
///
/// # Errors
/// As [`open`].
pub async fn open_with(path: Option<PathBuf>, config: Config) -> Result<Arc<SqlStore>, BackendError> {
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
