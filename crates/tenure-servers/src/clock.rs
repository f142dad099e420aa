//! A wall clock for one server, which a test can step while the server runs. It works for programs that ask the C
//! library for the time: Redis, PostgreSQL, MariaDB and the JVM, but not etcd. Monotonic clocks are not changed.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::shim::{self, preload};

/// A server's wall clock: the system's clock plus an offset.
#[derive(Debug)]
pub struct SteppedClock {
    folder: TempDir,
    preload: (String, String),
    offset: std::fs::File,
    nanos: Mutex<i64>,
}

impl SteppedClock {
    /// Makes a clock with the offset 0.
    ///
    /// # Errors
    /// The system's error if its files cannot be written.
    pub fn new() -> io::Result<SteppedClock> {
        let folder = tempfile::tempdir()?;
        // A server that runs as another user reads the files too.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let preload = preload(folder.path(), shim::CLOCK)?;
        let offset = std::fs::File::options()
            .create_new(true)
            .write(true)
            .open(folder.path().join("offset"))?;
        offset.write_all_at(&0_i64.to_ne_bytes(), 0)?;
        Ok(SteppedClock {
            folder,
            preload,
            offset,
            nanos: Mutex::new(0),
        })
    }

    /// The environment variables for a server that is to read this clock.
    pub fn environment(&self) -> Vec<(String, String)> {
        let offset = self.folder.path().join("offset").display().to_string();
        vec![self.preload.clone(), ("TENURE_CLOCK_OFFSET".to_owned(), offset)]
    }

    /// Moves the clock forward, or back if `milliseconds` is negative. The running server reads the new time at once.
    ///
    /// # Errors
    /// The system's error if the offset cannot be written.
    pub fn step_ms(&self, milliseconds: i64) -> io::Result<()> {
        let mut nanos = self.nanos.lock();
        *nanos += milliseconds * 1_000_000;
        self.offset.write_all_at(&nanos.to_ne_bytes(), 0)
    }
}
