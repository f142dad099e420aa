//! An older build of Tenure, which keeps no leases in rows, shares a file with this one. The tests run its statements.
#![cfg(target_os = "linux")]

mod scene;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tenure_backend::{Backend, Clock, Loss, Phase, Renewal, Renewed, SystemClock};

use scene::{Client, DEADLINE, open, scratch};

const INSERT: &str = "INSERT INTO claim (key, client, number, live, phase, kind, take, size, place, until, reserved, \
                      forget, token, run, label, evictor) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";

const UPDATE: &str = "UPDATE claim SET live = ?4, phase = ?5, kind = ?6, take = ?7, size = ?8, place = ?9, until = ?10, \
     reserved = ?11, forget = ?12, token = ?13, run = ?14, label = ?15, evictor = ?16 \
     WHERE key = ?1 AND live = ?17 AND client = ?2 AND number = ?3";

const WATCHING: i64 = 2;
const GRANTED: i64 = 4;

/// A process of an older build, and its one claim on the key `k`.
struct OlderBuild {
    file: Connection,
}

impl OlderBuild {
    /// Opens a file.
    fn open(path: &Path) -> Self {
        let file = Connection::open(path).expect("the file opens");
        file.busy_timeout(DEADLINE).expect("a time limit can be set");
        OlderBuild { file }
    }

    /// Makes a file as older builds do: it lacks what they do not know.
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
        let mut statement = self.file.prepare(statement).expect("the statement fits the file");
        let (none, number, live) = (rusqlite::types::Null, 1, 1);
        let values: [&dyn rusqlite::ToSql; 16] = [
            &"k",
            &[7_u8; 16],
            &number,
            &live,
            &phase,
            &0,
            &0,
            &0,
            &1,
            &end(lasts),
            &0,
            &forget,
            &0,
            &0,
            &"older",
            &none,
        ];
        for (at, value) in values.into_iter().enumerate() {
            statement
                .raw_bind_parameter(at + 1, value)
                .expect("it has a place");
        }
        if statement.parameter_count() == 17 {
            statement.raw_bind_parameter(17, live).expect("it has a place");
        }
        assert_eq!(statement.raw_execute(), Ok(1));
    }

    fn number(&self, select: &str) -> Option<i64> {
        self.file
            .query_row(select, [], |row| row.get(0))
            .expect("the statement fits the file")
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_holder_in_a_file_of_an_older_build_excludes() {
    let (_dir, path) = scratch();
    let older = OlderBuild::make(&path).await;
    older.insert(GRANTED, MINUTE);
    for _ in 0..2 {
        let mut client = Client::new(open(&path).await.expect("the file of an older build opens"));
        assert!(!client.try_lock("k").await);
    }
}

#[tokio::test]
async fn both_builds_write_one_file() {
    let (_dir, path) = scratch();
    let older = OlderBuild::make(&path).await;
    let mut client = Client::new(open(&path).await.expect("the file of an older build opens"));
    let held = client.lock("other").await;
    let holders = "SELECT count(*) FROM claim WHERE key = 'other' AND live = 1 AND phase = 4 AND until > 0";
    assert_eq!(older.number(holders), Some(1));
    client.unlock(&held).await;
    assert_eq!(older.number(holders), Some(0));
    older.insert(GRANTED, Duration::from_secs(1));
    older.update(GRANTED, MINUTE);
    assert!(!client.try_lock("k").await);
    older
        .file
        .execute("DELETE FROM claim WHERE key = 'k'", [])
        .expect("the claim can be released");
    client.lock("k").await;
}

/// The watcher's turn is written by this build. If a lease went with it, the grant that the older build then writes
/// would lie further ahead than the lease, and would be deleted.
#[tokio::test]
async fn a_watcher_of_an_older_build_that_is_granted_excludes() {
    let (_dir, path) = scratch();
    let older = OlderBuild::make(&path).await;
    let mut client = Client::new(open(&path).await.expect("the file of an older build opens"));
    let held = client.lock("k").await;
    older.insert(WATCHING, Duration::from_secs(10));
    client.unlock(&held).await;
    let turns = "SELECT count(*) FROM claim WHERE phase = 2 AND reserved > 0";
    assert_eq!(older.number(turns), Some(1), "this build gives it a turn");
    older.update(GRANTED, MINUTE);
    assert!(!client.try_lock("k").await);
    let mut newcomer = Client::new(open(&path).await.expect("the file opens"));
    assert!(!newcomer.try_lock("k").await);
}

#[tokio::test]
async fn a_claim_that_an_older_build_evicts_is_lost() {
    let (_dir, path) = scratch();
    let older = OlderBuild::make(&path).await;
    let mut client = Client::new(open(&path).await.expect("the file of an older build opens"));
    let held = client.lock("k").await;
    let evict = "UPDATE claim SET phase = 1, forget = until, evictor = 'older' WHERE key = 'k' AND phase = 4";
    assert_eq!(older.file.execute(evict, []), Ok(1));
    let renewal = Renewal {
        who: held.at.clone(),
        lease: held.lease,
        only: Phase::Granted,
        raise: None,
        shorten_only: false,
    };
    let renewed = client.store.clone().renew([renewal].into_iter().collect()).await;
    let by_older = Some(Arc::from("older"));
    assert!(
        matches!(&renewed[0], Renewed::Gone(Loss::Evicted { by }) if *by == by_older),
        "{renewed:?}"
    );
    client.lock("k").await;
}
