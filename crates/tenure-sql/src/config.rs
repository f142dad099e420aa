//! The settings of a store, with their defaults and why.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Clock, SystemClock};

/// How a SQLite store behaves. The defaults suit every use that we know of.
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
    /// The clock that counts leases: the system's, which counts suspend. Every process that shares the file must
    /// read the same one; only tests have another.
    pub clock: Arc<dyn Clock>,
    /// How long a request waits for another process to leave the file, before it is answered `Unavailable` with
    /// the name of that process: 5 s, longer than any transaction of a process that runs.
    pub busy_limit: Duration,
    /// How many requests may wait for the thread that serves the file, and how many renewals besides: 4096. Further
    /// ones are answered `Unavailable`.
    pub max_queue: usize,
    /// How many claims share one transaction: 64, so that other processes get their turn. A batch is not divided.
    pub max_group: usize,
    /// How large the file may become: 1 GiB, enough for several million claims at a time. What would make it
    /// larger is refused as on a full disk.
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
