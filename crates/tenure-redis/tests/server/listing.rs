//! Listings: each lock appears once, whatever other keys the server has, and Java's owners under the names that they
//! wrote.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::fixture::*;
use tenure_backend::{Call, Cursor, HolderId, LockStatus, Page, Query};
use tenure_testkit::suite::TestClient;
use tracing::Level;

/// A page of a listing of all locks.
fn page(client: &TestClient, after: Option<Cursor>, limit: u32) -> Call<Page<LockStatus>> {
    let query = Query::Prefix {
        prefix: "".into(),
        after,
        limit: NonZeroU32::new(limit).expect("not zero"),
    };
    client.backend().clone().inspect(query)
}

/// The limit may differ from page to page: names from a `SCAN` for which a page has no space go to the next page.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_shows_each_lock_once_at_any_page_size() {
    let fixture = Fixture::new().await;
    let client = fixture.store.client().await;
    let mut keys = Vec::new();
    for _ in 0..300 {
        keys.push(fixture.store.key());
        hold(&client, &keys[keys.len() - 1]).await;
    }
    let (mut listed, mut after) = (Vec::new(), None);
    for limit in [7, 50, 3].into_iter().cycle() {
        let page = page(&client, after.take(), limit).await.expect("it lists");
        // Deleting a lock that was on a page must not hide another one.
        if let Some(first) = page.items.first() {
            fixture.command(&["DEL", first.key.as_str()]);
        }
        listed.extend(page.items.into_iter().map(|status| status.key));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    listed.sort();
    keys.sort();
    assert_eq!(listed, keys);
}

/// Names of foreign owners are returned unchanged, to identify the owners; programs must escape them. Keys whose
/// names no lock of ours could have are left out.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_names_with_control_characters_are_listed_and_evicted() {
    let (fixture, client, key) = Fixture::one().await;
    for name in [key.as_str(), "bad\nkey", "bad\u{1b}[2Jkey"] {
        fixture.command(&["HSET", name, JAVA, "1"]);
        fixture.command(&["PEXPIRE", name, "60000"]);
    }
    fixture.command(&["RPUSH", "redisson_lock_queue:{bad\nkey}", JAVA]);
    // A waiter's name may be any text that a program has written to the list.
    let evil = "evil\u{1b}[2J\nline:1";
    java_enqueue(&fixture, &key, evil, Some(60_000));
    let page = page(&client, None, 1_000).await.expect("it lists");
    let [status] = &page.items[..] else {
        panic!("{page:?}")
    };
    let (holder, waiters) = (&status.holders[0].id, status.waiters.as_ref());
    assert_eq!((&status.key, holder), (&key, &HolderId::Foreign(JAVA.into())));
    let [waiter] = &waiters.expect("it shows waiters")[..] else {
        panic!("{status:?}")
    };
    assert_eq!(waiter.id, HolderId::Foreign(evil.into()));
    let by = "eve\u{1b}[2J\r\n";
    let ours = hold(&client, &fixture.store.key()).await;
    client.evict(&ours, by).await.freed_it(&ours);
    assert_evicted_by(&client.renew(&ours).await, by);
    client
        .send_release(eviction_of(waiter.id.clone().on(key.clone())))
        .await;
    let status = client.status(&key).await.expect("it is held");
    assert_eq!(status.waiters.map(|all| all.len()), Some(0), "it was evicted");
}

/// On one thread, because the log subscriber receives only the warnings of its thread.
#[tokio::test]
async fn a_listing_of_many_keys_logs_one_warning() {
    let fixture = Fixture::new().await;
    let client = fixture.store.client().await;
    let log = tempfile::NamedTempFile::new().expect("a file");
    let logger = tracing_subscriber::fmt()
        .with_max_level(Level::WARN)
        .with_writer(Arc::new(log.reopen().expect("it is open")));
    let _listening = tracing::subscriber::set_default(logger.finish());
    let warnings = || std::fs::read_to_string(log.path()).expect("it is text");
    let fill = |from: &str, to: &str| {
        let script = "for i = ARGV[1], ARGV[2] do redis.call('SET', 'x' .. i, '') end";
        fixture.command(&["EVAL", script, "0", from, to]);
    };
    let list = || page(&client, None, 1);
    fill("1", "100000");
    list().await.expect("it lists");
    assert_eq!(warnings(), "", "a hundred thousand are not many");
    fill("100001", "100001");
    list().await.expect("it lists");
    list().await.expect("it lists");
    let warnings = warnings();
    assert_eq!(warnings.lines().count(), 1, "{warnings}");
    assert!(warnings.contains("100001 keys"), "{warnings}");
}
