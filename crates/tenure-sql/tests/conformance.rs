//! Runs the conformance suite on SQLite, with and without injected faults.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure_backend::{Backend, Call, Clock};
use tenure_sql::sqlite::{self, Config};
use tenure_testkit::{ManualClock, StoreFailure, Subject};

/// Time limit of a wait for SQLite's write lock. Longer than the default, so that a slow disk fails no test.
const BUSY_LIMIT: Duration = Duration::from_secs(60);

/// A lock file in a temporary directory, with a clock that the tests advance.
struct LockFile {
    dir: TempDir,
    clock: ManualClock,
}

fn client(dir: &Path, name: &str, clock: Arc<dyn Clock>) -> Call<Arc<dyn Backend>> {
    let path = dir.join(name);
    let config = Config {
        clock,
        busy_limit: BUSY_LIMIT,
        ..Config::default()
    };
    Call::new(async move {
        let store = sqlite::open_with(Some(path), config).await?;
        Ok(store as Arc<dyn Backend>)
    })
}

/// Runs a statement on the lock file with plain SQLite.
fn change(dir: &Path, statement: String) -> Call<()> {
    let path = dir.join("locks.db");
    Call::new(async move {
        let file = rusqlite::Connection::open(path).expect("the lock file opens");
        file.busy_timeout(BUSY_LIMIT).expect("a time limit can be set");
        file.execute_batch(&statement)
            .expect("the statement fits the file");
        Ok(())
    })
}

impl Subject for LockFile {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        client(self.dir.path(), "locks.db", Arc::new(self.clock.clone()))
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.clock.advance(time);
        Box::pin(std::future::ready(()))
    }

    fn client_on(&self, clock: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        Some(client(self.dir.path(), "other.db", clock))
    }

    /// Simulates a restart of the machine, at which the lease clock starts again. The test's clock goes on, so this
    /// adds a year to all times in the file instead.
    fn restart(&self) -> Option<Call<()>> {
        let year = 365 * 24 * 3600 * 1_000_000_000_i64;
        let later = format!(
            "UPDATE claim SET written_at = written_at + {year}, expires_at = expires_at + {year}, \
             forget_at = forget_at + {year}"
        );
        Some(change(self.dir.path(), later))
    }

    /// Renames a table, so that all statements fail, or renames it back. Missing permissions are not simulated,
    /// because they have no effect for root.
    fn set_failure(&self, failure: Option<StoreFailure>) -> Option<Call<()>> {
        let statement = match failure {
            Some(StoreFailure::AccessDenied) => return None,
            Some(StoreFailure::Broken) => "ALTER TABLE claim RENAME TO claim_away",
            None => "ALTER TABLE claim_away RENAME TO claim",
        };
        Some(change(self.dir.path(), statement.to_owned()))
    }
}

async fn subject() -> impl Subject {
    LockFile {
        dir: tempfile::tempdir().expect("a temporary directory can be made"),
        clock: ManualClock::new(),
    }
}

tenure_testkit::conformance!(subject);
tenure_testkit::conformance_under_chaos!(subject);
tenure_testkit::agrees_with_the_model!(subject, walks: 60);
