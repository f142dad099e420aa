//! Locks that several holders share: readers of Tenure and of the other client.

use std::time::Duration;

use crate::shared::fixture::{LONG, PROMPT, Setting, assert_waits, within};

/// Time for which a test observes that a waiter still waits.
const MOMENT: Duration = Duration::from_millis(300);

/// The longest time between two polls of a reader of Tenure.
const POLLS: Duration = Duration::from_secs(1);

pub(crate) async fn readers_of_both_sides_hold_together(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let key = fixture.subject.key;
    let lock = fixture.client.rwlock(key);
    let reader = fixture.peer.owner("anna").lock("read", key);
    let ours = lock.read().await.unwrap();
    assert_eq!(
        fixture.data(),
        fixture.subject.read,
        "what a reader of Tenure writes"
    );
    within(PROMPT, "the other reader", reader.lock()).await.unwrap();
    assert!(!fixture.theirs("berta").try_lock().await.unwrap(), "their writer");
    assert!(lock.try_write().await.unwrap().is_none(), "our writer");
    ours.unlock().await.unwrap();
    let read = fixture.subject.read;
    fixture.until_data(|data| data == read).await;
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
    // On Redis, the writer also holds as a reader, so its unlock publishes no message, and Tenure's reader learns of it by a
    // poll.
    writer.unlock().await.unwrap();
    let ours = within(POLLS + MOMENT, "our reader", ours).await.unwrap().unwrap();
    reader.unlock().await.unwrap();
    ours.unlock().await.unwrap();
    fixture.until_data(<[String]>::is_empty).await;
}
