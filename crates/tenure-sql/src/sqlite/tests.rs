//! Checks which commits are synced to the disk. Otherwise only a power failure would show a missing sync.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use smallvec::smallvec;
use tempfile::TempDir;
use tenure_backend::{Cause, ReleaseRequest, RenewRequest, Successor};

use super::config::Config;
use super::file::Contents;
use super::mailbox::Mailbox;
use super::origin::Origin;
use super::request::{Pending, Request, Write};
use super::validate;
use super::worker::Worker;
use crate::claims::tests::claim;

/// Creates a lock file in a temporary directory, as a process of this origin (machine and clock) does.
/// Connects to the file.
pub(super) fn create_file(origin: &Origin) -> (TempDir, PathBuf, Connection) {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let path = dir.path().join("locks.db");
    std::fs::write(&path, "").expect("this user owns the directory");
    let made = validate::open(&path, Contents::Empty, &Config::default(), origin);
    (dir, path, made.expect("the file is made"))
}

/// Serves the requests, one per transaction. Returns `PRAGMA synchronous` after the last commit.
fn synchronous_after(requests: impl IntoIterator<Item = Write>) -> i64 {
    let (_dir, path, connection) = create_file(&Origin::here().expect("/proc can be read"));
    let config = Config {
        max_group: 1,
        ..Config::default()
    };
    let mailbox = Arc::new(Mailbox::new(config.max_queue).expect("files can be opened"));
    let worker = Worker::new(&path, &connection, &config, mailbox.clone()).expect("the file is intact");
    for request in requests {
        mailbox.post(Request::Write(request));
    }
    mailbox.close();
    worker.run();
    connection
        .pragma_query_value(None, "synchronous", |row| row.get(0))
        .expect("it can be asked")
}

/// Tokens must survive a power failure, so a grant is synced even if the commit before it is not.
#[test]
fn a_commit_that_grants_is_synced() {
    const NORMAL: i64 = 1;
    const FULL: i64 = 2;
    let not_after = Config::default().clock.now() + Duration::from_secs(5);
    let [first, second] = [1, 2].map(|number| Arc::new(claim(1, number)));
    let acquire = || Write::Acquire(Pending::new((first.clone(), not_after)).0);
    let renew = || Write::Renew(Pending::new(smallvec![RenewRequest::of(&first)]).0);
    let release = |successor| {
        let request = ReleaseRequest {
            successor,
            ..ReleaseRequest::of(&first, Cause::Unlocked)
        };
        Write::Release(Pending::new(smallvec![request]).0)
    };
    let successor = || {
        let claim = second.clone();
        Some(Successor { claim, not_after })
    };
    assert_eq!(
        synchronous_after([acquire(), release(None)]),
        NORMAL,
        "the next boot ends all claims"
    );
    for granting in [acquire(), renew(), release(successor())] {
        let shown = format!("{granting:?}");
        let synchronous = synchronous_after([release(None), granting]);
        assert!(synchronous >= FULL, "{synchronous} after {shown}");
    }
}
