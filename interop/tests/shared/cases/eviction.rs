//! Evictions by Tenure.

use tenure::{HolderId, LockKey, ReleaseTarget};

use crate::shared::fixture::{LONG, PROMPT, Setting, within};

/// Evicts the other client's holder while Tenure waits, and then Tenure's holder while the other client waits.
pub(crate) async fn an_eviction_lets_the_next_waiter_in(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let key = LockKey::new(fixture.subject.key).unwrap();
    let evict = || fixture.client.evict(ReleaseTarget::All(key.clone()));
    let (ours, holder) = (fixture.ours(), fixture.theirs("anna"));
    holder.lock().await.unwrap();
    let waiting = tokio::spawn(async move { ours.lock().await });
    fixture.until(|store| store.queued() == 1).await;
    let evicted = evict().await.unwrap();
    assert!(matches!(evicted[..], [HolderId::Foreign(_)]), "{evicted:?}");
    let guard = within(PROMPT, "Tenure", waiting).await.unwrap().unwrap();
    let theirs = fixture.theirs("berta");
    let waiting = theirs.lock();
    fixture.until(|store| store.queued() == 1).await;
    // The evicted holder does not know that it lost the lock.
    holder.unlock().await.unwrap();
    assert!(guard.is_held());
    assert_eq!(fixture.data().len(), 2, "the late unlock removes no other key");
    evict().await.unwrap();
    within(PROMPT, "the other client", waiting).await.unwrap();
    fixture.until(|_| !guard.is_held()).await;
    theirs.unlock().await.unwrap();
    fixture.until_data(<[String]>::is_empty).await;
}
