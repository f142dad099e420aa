//! The contract's suite on SQLite, in fair weather and foul.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure_backend::{Backend, Call, Clock};
use tenure_sql::{Config, sqlite};
use tenure_testkit::{Ailment, ManualClock, Subject};

/// How long clients wait for each other: longer than users would, for a disk that stalls is no test's matter.
const BUSY_LIMIT: Duration = Duration::from_secs(60);

/// A lock file in a directory of its own, with a clock that is moved by hand.
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

/// Changes the lock file of a directory by other means than a store.
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

    /// Pretends that the machine was started again: all times in the file then lie further ahead of the clock.
    fn restart(&self) -> Option<Call<()>> {
        let year = 365 * 24 * 3600 * 1_000_000_000_i64;
        let later = format!("UPDATE claim SET until = until + {year}, forget = forget + {year}");
        Some(change(self.dir.path(), later))
    }

    /// Takes a table away and brings it back. Rights are not tried: they bind no superuser.
    fn ail(&self, ailment: Option<Ailment>) -> Option<Call<()>> {
        let statement = match ailment {
            Some(Ailment::Denies) => return None,
            Some(Ailment::OutOfOrder) => "ALTER TABLE claim RENAME TO claim_away",
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
