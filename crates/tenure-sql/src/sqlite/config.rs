//! The settings of a SQLite store.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{BackendError, Clock, Effect, Fault, SystemClock};

/// Settings of a SQLite store. The defaults suit every known use.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_sql::sqlite::Config;
///
/// let config = Config { busy_limit: Duration::from_secs(2), ..Config::default() };
/// assert_eq!(config.max_queue, 4096);
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// The lease clock. The default is the system's boot clock, which counts suspend. Every process that shares the
    /// file must read the same clock, so only tests set another one.
    pub clock: Arc<dyn Clock>,
    /// Time for which a request waits while another process holds SQLite's write lock. Then the request fails with
    /// `Unavailable`, and the error names the other process if possible. The default of 5 s is longer than any
    /// transaction of a running process.
    pub busy_limit: Duration,
    /// Maximum number of requests in the queue of the file's thread; renewals have a second queue of this size.
    /// The default is 4096. Further requests fail with `Unavailable`.
    pub max_queue: usize,
    /// Maximum number of claims in one transaction. The default of 64 keeps transactions short, because other
    /// processes wait for them. A batch is not divided, so it may have more.
    pub max_group: usize,
    /// Maximum size of the file in bytes. The default of 1 GiB is enough for several million claims. Writes
    /// beyond it fail as on a full disk.
    pub max_bytes: u64,
    /// Permissions of a file that the store creates, whatever the umask, such as `Some(0o660)`. The default `None` means
    /// 0600. SQLite gives its files beside it, `-wal` and `-shm`, the same permissions. The permissions of an existing
    /// file are not changed; if they lack some of these, a warning says so.
    ///
    /// Only permissions of owner, group and others, with read and write for the owner. Otherwise opening fails with
    /// `Invalid`.
    pub file_mode: Option<u32>,
    /// Whether to open a file that this user can read but not write. The store can then only inspect and examine; other
    /// calls fail with `Denied`. The default is `false`: such a file is refused.
    pub allow_read_only: bool,
}

impl Config {
    /// Refuses settings that no lock file can have.
    pub(super) fn check(&self) -> Result<(), BackendError> {
        let mode = self.mode_of_new_file();
        if mode & !0o777 == 0 && mode & 0o600 == 0o600 {
            return Ok(());
        }
        let message = format!(
            "a lock file cannot have mode {mode:04o}: give read and write to its owner, and no bits but the \
             permissions of owner, group and others, such as 0660"
        );
        Err(BackendError::new(Fault::Invalid, Effect::None, message))
    }

    /// Mode of a file that the store creates.
    pub(super) fn mode_of_new_file(&self) -> u32 {
        self.file_mode.unwrap_or(0o600)
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            clock: Arc::new(SystemClock),
            busy_limit: Duration::from_secs(5),
            max_queue: 4096,
            max_group: 64,
            max_bytes: 1 << 30,
            file_mode: None,
            allow_read_only: false,
        }
    }
}
