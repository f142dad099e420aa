//! Locks that several holders share: readers of Tenure and of the other client, and permits.

use std::time::Duration;

use crate::shared::fixture::{LONG, PROMPT, Setting, assert_waits, within};

/// Time for which a test observes that a waiter still waits.
const MOMENT: Duration = Duration::from_millis(300);

/// The longest time between two polls of a reader of Tenure.
const POLLS: Duration = Duration::from_secs(1);

/// The data in Redis of one reader.
const READ: [&str; 2] = ["k hash ID=1 mode=read", "{k}:ID:rwlock_timeout:1 string 1"];

pub(crate) async fn readers_of_both_sides_hold_together(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let key = fixture.subject.key;
    let lock = fixture.client.rwlock(key);
    let reader = fixture.peer.owner("anna").lock("read", key);
    let ours = lock.read().await.unwrap();
    assert_eq!(fixture.data(), READ, "what a reader of Tenure writes");
    within(PROMPT, "the other reader", reader.lock()).await.unwrap();
    assert!(!fixture.theirs("berta").try_lock().await.unwrap(), "their writer");
    assert!(lock.try_write().await.unwrap().is_none(), "our writer");
    ours.unlock().await.unwrap();
    fixture.until_data(|data| data == READ).await;
    // The other client's reader still holds, so a writer of Tenure waits. Later the other client's writer waits for a
    // reader of Tenure.
    let mut writer = tokio::spawn(async move { lock.write().await });
    assert_waits(MOMENT, "our writer", &mut writer).await;
    reader.unlock().await.unwrap();
    let writer = within(PROMPT, "our writer", writer).await.unwrap().unwrap();
    assert!(!reader.try_lock().await.unwrap(), "their reader");
    writer.unlock().await.unwrap();
    let ours = fixture.client.rwlock(key).read().await.unwrap();
    let theirs = fixture.theirs("berta");
    let mut writer = theirs.lock();
    assert_waits(MOMENT, "their writer", &mut writer).await;
    ours.unlock().await.unwrap();
    within(PROMPT, "their writer", writer).await.unwrap();
    assert!(
        fixture.client.rwlock(key).try_read().await.unwrap().is_none(),
        "our reader"
    );
    theirs.unlock().await.unwrap();
    fixture.until_data(<[String]>::is_empty).await;
}

pub(crate) async fn a_downgrade_of_theirs_lets_readers_in(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let (key, writer) = (fixture.subject.key, fixture.theirs("anna"));
    let reader = fixture.peer.owner("anna").lock("read", key);
    writer.lock().await.unwrap();
    reader.lock().await.unwrap();
    let lock = fixture.client.rwlock(key);
    let mut ours = tokio::spawn(async move { lock.read().await });
    assert_waits(MOMENT, "our reader", &mut ours).await;
    // The writer also holds as a reader, so its unlock publishes no message, and Tenure's reader learns of it by a poll.
    writer.unlock().await.unwrap();
    let ours = within(POLLS + MOMENT, "our reader", ours).await.unwrap().unwrap();
    reader.unlock().await.unwrap();
    ours.unlock().await.unwrap();
    fixture.until_data(<[String]>::is_empty).await;
}

pub(crate) async fn both_sides_take_permits_of_one_semaphore(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let key = fixture.subject.key;
    let semaphore = fixture.client.semaphore(key, 3);
    let theirs = ["anna", "berta", "clara"].map(|owner| fixture.peer.owner(owner).lock("permits:3", key));
    let ours = semaphore.acquire().await.unwrap();
    assert_eq!(theirs[0].free().await, Ok(2));
    assert!(theirs[0].try_lock().await.unwrap());
    assert!(theirs[1].try_lock().await.unwrap());
    assert!(!theirs[2].try_lock().await.unwrap());
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    let mut two = tokio::spawn(semaphore.acquire_many(2));
    theirs[0].unlock().await.unwrap();
    assert_waits(MOMENT, "our waiter for two", &mut two).await;
    theirs[1].unlock().await.unwrap();
    let two = within(PROMPT, "our waiter for two", two).await.unwrap().unwrap();
    let mut waiting = theirs[2].lock();
    assert_waits(MOMENT, "their waiter", &mut waiting).await;
    two.unlock().await.unwrap();
    within(PROMPT, "their waiter", waiting).await.unwrap();
    theirs[2].unlock().await.unwrap();
    ours.unlock().await.unwrap();
    // Tenure created the key `k` with an expiry, so `data` shows it without `, for ever`.
    fixture.until_data(|data| data == ["k string 3"]).await;
}
