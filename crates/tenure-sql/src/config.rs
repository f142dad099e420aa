//! The settings of a SQLite store.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Clock, SystemClock};

/// Settings of a SQLite store. The defaults suit every known use.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_sql::Config;
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
}

impl Default for Config {
    fn default() -> Self {
        Config {
            clock: Arc::new(SystemClock),
            busy_limit: Duration::from_secs(5),
            max_queue: 4096,
            max_group: 64,
            max_bytes: 1 << 30,
        }
    }
}
