//! An older build of Tenure, which stores no leases in rows, shares a file with this build. The tests run the SQL
//! statements of that build.
#![cfg(target_os = "linux")]

mod fixture;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tenure_backend::{Backend, Clock, Loss, RenewReply, SystemClock};

use fixture::{TestClient, connect, number, open, temp_lock_file};

/// Inserts a claim with phase ?1, end of the lease ?2, and the time ?3 from which the row may be deleted.
const INSERT: &str = "INSERT INTO claim (key, client, number, live, phase, kind, take, size, place, until, reserved, \
                      forget, token, run, label, evictor) \
                      VALUES ('k', zeroblob(16), 1, 1, ?1, 0, 0, 0, 1, ?2, 0, ?3, 0, 0, 'older', NULL)";

const UPDATE: &str = "UPDATE claim SET live = 1, phase = ?1, kind = 0, take = 0, size = 0, place = 1, until = ?2, \
     reserved = 0, forget = ?3, token = 0, run = 0, label = 'older', evictor = NULL \
     WHERE key = 'k' AND live = 1 AND client = zeroblob(16) AND number = 1";

const WATCHING: i64 = 2;
const GRANTED: i64 = 4;

/// A process of an older build, with at most one claim, on the key `k`.
struct OlderBuild {
    file: Connection,
}

impl OlderBuild {
    /// Opens a lock file, which may have the columns that the older build lacks.
    fn open(path: &Path) -> Self {
        OlderBuild { file: connect(path) }
    }

    /// Creates a lock file as an older build does, without the newer columns.
    async fn make(path: &Path) -> Self {
        let store = open(path).await.expect("the file is made");
        store.close().await.expect("the file is closed");
        let build = OlderBuild::open(path);
        build
            .file
            .execute_batch("ALTER TABLE claim DROP COLUMN lease; ALTER TABLE store DROP COLUMN clock")
            .expect("columns can be dropped");
        build
    }

    fn insert(&self, phase: i64, lasts: Duration) {
        self.write(INSERT, phase, lasts);
    }

    fn update(&self, phase: i64, lasts: Duration) {
        self.write(UPDATE, phase, lasts);
    }

    fn write(&self, statement: &str, phase: i64, lasts: Duration) {
        let end =
            |lasts: Duration| i64::try_from((SystemClock.now() + lasts).as_nanos()).expect("it is soon");
        let forget = if phase == GRANTED {
            end(lasts + Duration::from_secs(10))
        } else {
            end(lasts)
        };
        let written = self.file.execute(statement, [phase, end(lasts), forget]);
        assert_eq!(written, Ok(1));
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_holder_in_a_file_of_an_older_build_excludes() {
    let (_dir, path) = temp_lock_file();
    let older = OlderBuild::make(&path).await;
    older.insert(GRANTED, MINUTE);
    for _ in 0..2 {
        let mut client = TestClient::new(open(&path).await.expect("the file of an older build opens"));
        assert!(!client.try_lock("k").await);
    }
}

#[tokio::test]
async fn both_builds_write_one_file() {
    let (_dir, path) = temp_lock_file();
    let older = OlderBuild::make(&path).await;
    let mut client = TestClient::new(open(&path).await.expect("the file of an older build opens"));
    let held = client.lock("other").await;
    let holders = "SELECT count(*) FROM claim WHERE key = 'other' AND live = 1 AND phase = 4 AND until > 0";
    assert_eq!(number(&older.file, holders), 1);
    client.unlock(&held).await;
    assert_eq!(number(&older.file, holders), 0);
    older.insert(GRANTED, Duration::from_secs(1));
    older.update(GRANTED, MINUTE);
    assert!(!client.try_lock("k").await);
    let released = older.file.execute("DELETE FROM claim WHERE key = 'k'", []);
    released.expect("the claim can be released");
    client.lock("k").await;
}

/// When this build reserves the freed key for an unfair waiter of the older build, it must not store a lease in the
/// waiter's row. The older build does not know the column `lease`, so its grant would leave the old value there. If the
/// grant ended later than that lease allows, this build would take the row for one of an earlier boot, and delete it.
#[tokio::test]
async fn a_granted_watcher_of_an_older_build_excludes() {
    let (_dir, path) = temp_lock_file();
    let older = OlderBuild::make(&path).await;
    let mut client = TestClient::new(open(&path).await.expect("the file of an older build opens"));
    let held = client.lock("k").await;
    older.insert(WATCHING, Duration::from_secs(10));
    client.unlock(&held).await;
    let reserved = "SELECT count(*) FROM claim WHERE phase = 2 AND reserved > 0";
    assert_eq!(
        number(&older.file, reserved),
        1,
        "this build reserves the key for it"
    );
    older.update(GRANTED, MINUTE);
    assert!(!client.try_lock("k").await);
    let mut newcomer = TestClient::new(open(&path).await.expect("the file opens"));
    assert!(!newcomer.try_lock("k").await);
}

#[tokio::test]
async fn a_claim_evicted_by_an_older_build_is_lost() {
    let (_dir, path) = temp_lock_file();
    let older = OlderBuild::make(&path).await;
    let mut client = TestClient::new(open(&path).await.expect("the file of an older build opens"));
    let held = client.lock("k").await;
    let evict = "UPDATE claim SET phase = 1, forget = until, evictor = 'older' WHERE key = 'k' AND phase = 4";
    assert_eq!(older.file.execute(evict, []), Ok(1));
    let renewed = client.renew(&held).await;
    let by_older = Some(Arc::from("older"));
    assert!(
        matches!(&renewed, RenewReply::Gone(Loss::Evicted { by }) if *by == by_older),
        "{renewed:?}"
    );
    client.lock("k").await;
}
