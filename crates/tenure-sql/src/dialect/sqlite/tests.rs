//! What only a power failure would show: whether a commit waited for the disk.
//! The contract is in the conformance suite, and what a file has to be in `tests/files.rs`.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use tenure_backend::{
    Cause, Claim, ClaimId, ClaimRef, ClientId, Departure, Fairness, Heir, Holder, LockKey, Mode, OwnerId,
    Phase, Renewal,
};

use super::file::Found;
use super::mailbox::Mailbox;
use super::origin::Origin;
use super::schema;
use super::worker::Worker;
use crate::config::Config;
use crate::request::{Ask, Request, Write};

/// Serves those requests one after the other, and answers how the last commit waited for the disk: `PRAGMA synchronous`.
fn synchronous_after(requests: impl IntoIterator<Item = Write>) -> i64 {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let path = dir.path().join("locks.db");
    std::fs::write(&path, "").expect("the directory is ours");
    let config = Config {
        max_group: 1,
        ..Config::default()
    };
    let connection = schema::open(&path, Found::Empty, &config, &Origin::here()).expect("the file is made");
    let mailbox = Arc::new(Mailbox::new(config.max_queue).expect("files can be opened"));
    let worker = Worker::new(&path, &connection, &config, mailbox.clone()).expect("the file is sound");
    for request in requests {
        mailbox.post(Request::Write(request));
    }
    mailbox.close();
    worker.run();
    connection
        .pragma_query_value(None, "synchronous", |row| row.get(0))
        .expect("it can be asked")
}

fn claim(number: u64) -> Arc<Claim> {
    Arc::new(Claim {
        at: ClaimRef {
            key: LockKey::new("k").expect("a good key"),
            id: ClaimId::new(ClientId::from_random([1; 16]), number),
        },
        owner: OwnerId(0),
        label: "".into(),
        mode: Mode::Exclusive,
        fairness: Fairness::Unfair,
        lease: Duration::from_secs(30),
        grants: NonZeroU32::MIN,
    })
}

/// A token that was given out is never given out again: whatever grants waits for the disk, also after what does not.
#[test]
fn a_commit_that_grants_waits_for_the_disk() {
    const NORMAL: i64 = 1;
    const FULL: i64 = 2;
    let place_by = Config::default().clock.now() + Duration::from_secs(5);
    let acquire = || Write::Acquire(Ask::new((claim(1), place_by)).0);
    let renew = || {
        let renewal = Renewal {
            who: claim(1).at.clone(),
            lease: Duration::from_secs(30),
            only: Phase::Granted,
            shorten_only: false,
            raise: None,
        };
        Write::Renew(Ask::new(smallvec![renewal]).0)
    };
    let release = |heir| {
        let departure = Departure {
            who: Holder::Claim(claim(1).at.clone()),
            cause: Cause::Unlocked,
            heir,
            bar: Duration::ZERO,
        };
        Write::Release(Ask::new(smallvec![departure]).0)
    };
    let heir = || {
        let claim = claim(2);
        Some(Heir { claim, place_by })
    };
    assert_eq!(
        synchronous_after([acquire(), release(None)]),
        NORMAL,
        "the next boot ends all claims"
    );
    for granting in [acquire(), renew(), release(heir())] {
        let shown = format!("{granting:?}");
        let synchronous = synchronous_after([release(None), granting]);
        assert!(synchronous >= FULL, "{synchronous} after {shown}");
    }
}
