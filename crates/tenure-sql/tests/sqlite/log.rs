//! The log that SQLite keeps next to the file: how long it gets, and which process empties it.

use std::fs;

use tenure_backend::Backend;

use crate::fixture::{TestClient, open, sibling, temp_lock_file};

/// The last process leaves a short log to the next one, which reads it: the token of the next grant is greater. Programs
/// that take one lock each write to one log in turns, which gets no longer than 512 KiB.
#[tokio::test]
async fn programs_that_take_one_lock_share_a_short_log() {
    let (_dir, path) = temp_lock_file();
    let log = sibling(&path, "-wal");
    let (mut last, mut longest, mut overwritten) = (None, 0, 0);
    for number in 0..60 {
        let store = open(&path).await.expect("it opens");
        let mut client = TestClient::new(store.clone());
        let claim = client.lock(&format!("k{number}")).await;
        client.unlock(&claim).await;
        let token = Some(client.token(&format!("k{number}")).await);
        assert!(last < token, "{last:?} {token:?}");
        last = token;
        store.close().await.expect("it closes");
        let length = fs::metadata(&log).expect("the log stays").len();
        overwritten += u32::from(length == longest);
        longest = length;
    }
    assert!((128 << 10..=512 << 10).contains(&longest), "{longest}");
    assert!(overwritten > 20, "later commits write to the start of the log");
}

/// A process that commits often lets the log get longer. When it closes the file, such a log is moved into the file.
#[tokio::test]
async fn a_long_log_is_moved_into_the_file_when_it_is_closed() {
    let (_dir, path) = temp_lock_file();
    let log = sibling(&path, "-wal");
    let store = open(&path).await.expect("it opens");
    let mut client = TestClient::new(store.clone());
    for _ in 0..100 {
        let claim = client.lock("k").await;
        client.unlock(&claim).await;
    }
    assert!(fs::metadata(&log).unwrap().len() > 512 << 10);
    store.close().await.expect("it closes");
    assert!(!log.exists(), "a long log is moved into the file");
}

/// The row of a new claim follows that of the key's claim that ended last. So a lock and its unlock write three pages, one of
/// them that of the token counters, even if the key has had many claims.
#[tokio::test]
async fn a_lock_and_its_unlock_write_three_pages() {
    const PAIRS: u64 = 100;
    /// A page in the log has a header.
    const FRAME: u64 = 4096 + 24;
    let (_dir, path) = temp_lock_file();
    let store = open(&path).await.expect("it opens");
    let mut client = TestClient::new(store.clone());
    let mut pairs = async || {
        for _ in 0..PAIRS {
            let claim = client.lock("k").await;
            client.unlock(&claim).await;
        }
        fs::metadata(sibling(&path, "-wal"))
            .expect("there is a log")
            .len()
    };
    // The rows of a hundred claims that ended fill several pages.
    let before = pairs().await;
    let pages = (pairs().await - before) / FRAME;
    assert!((2 * PAIRS..=3 * PAIRS + PAIRS / 3).contains(&pages), "{pages}");
    store.close().await.expect("it closes");
}
