//! Permits of one semaphore.

use std::time::Duration;

use crate::shared::fixture::{LONG, PROMPT, Setting, assert_waits, within};

/// Time for which a test observes that a waiter still waits.
const MOMENT: Duration = Duration::from_millis(300);

pub(crate) async fn both_sides_take_permits_of_one_semaphore(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let key = fixture.subject.key;
    let semaphore = fixture.client.semaphore(key, 3);
    let theirs = ["anna", "berta", "clara"].map(|owner| fixture.peer.owner(owner).lock("permits:3", key));
    let ours = semaphore.acquire().await.unwrap();
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
    fixture.until_data(<[String]>::is_empty).await;
}
