//! Opening a lock file, and the handle that callers hold. What its thread does is in `worker.rs`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{BackendError, Clock, Effect, Fault, Profile};

use crate::backend::{Dialect, SqlStore};
use crate::config::Config;
use crate::dialect::sqlite::mailbox::Mailbox;
use crate::dialect::sqlite::opening;
use crate::profile;
use crate::request::Request;

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
    let mailbox = Arc::new(mailbox);
    let handle = Sqlite {
        mailbox: mailbox.clone(),
        clock: config.clock.clone(),
        process: std::process::id(),
    };
    opening::start(path, config, mailbox).await?;
    Ok(SqlStore::new(handle))
}

/// The handle of one open file. Its thread ends with it.
#[derive(Debug)]
struct Sqlite {
    mailbox: Arc<Mailbox>,
    clock: Arc<dyn Clock>,
    /// The process that opened it: a child made by `fork` has this handle, but not its thread.
    process: u32,
}

impl Dialect for Sqlite {
    fn profile(&self) -> &'static Profile {
        &profile::SQLITE
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn submit(&self, request: Request) {
        if self.process == std::process::id() {
            self.mailbox.post(request);
        } else {
            request.fail(&forked());
        }
    }

    fn patience(&self) -> Duration {
        self.mailbox.patience()
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // In a child made by `fork`, another process's locks would be none of our business.
        if self.process == std::process::id() {
            self.mailbox.close();
        }
    }
}

fn forked() -> BackendError {
    BackendError::new(
        Fault::Closed,
        Effect::None,
        "this connection to the store belongs to the parent process: connect again after a fork",
    )
}
