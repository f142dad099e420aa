//! Ends of leases: minimums, late changes, and locks that have no lease.

use tenure::{HolderId, LockKey, ReleaseTarget};
use tenure_interop::{Peer, Worker};

use crate::shared::cases::death::hold_of_tenure;
use crate::shared::fixture::{LONG, PROMPT, SHORT, Setting, assert_waits, within};

/// The lease of both sides is twice as long as the minimum, so that the row shows which of them counts.
pub(crate) async fn both_sides_keep_a_lock_for_its_minimum(setting: Setting) {
    const MINIMUM: std::time::Duration = LONG;
    let Some(fixture) = setting.fixture(LONG * 2).await else {
        return;
    };
    let kept = |key: &str| format!("name={key} lock_until=lease locked_at=now locked_by=ID");
    let lock = |key: &str| fixture.peer.owner("anna").lock(fixture.subject.kind, key);
    let theirs = lock("theirs");
    assert!(theirs.try_at_least(MINIMUM).await.unwrap());
    theirs.unlock().await.unwrap();
    assert_eq!(fixture.data(), [kept("theirs")], "what the other client leaves");
    let try_lock = fixture.client.mutex("theirs").try_lock().await;
    assert!(try_lock.unwrap().is_none(), "their minimum is not over");
    let ours = fixture.client.mutex("ours").at_least(MINIMUM);
    ours.lock().await.unwrap().unlock().await.unwrap();
    let both = [kept("ours"), kept("theirs")];
    fixture.until_data(|data| data == both).await;
    assert!(!lock("ours").try_lock().await.unwrap(), "our minimum is not over");
}

/// The other client extends one lock and unlocks another, after Tenure has acquired both at the end of their leases.
pub(crate) async fn a_late_extension_and_unlock_change_nothing(setting: Setting) {
    let Some(fixture) = setting.fixture(SHORT).await else {
        return;
    };
    let lock = |owner: &str, key: &str| fixture.peer.owner(owner).lock(fixture.subject.kind, key);
    let keys = ["extended", "unlocked"];
    for key in keys {
        lock("anna", key).lock().await.unwrap();
    }
    let ours = tenure::multi(keys.map(|key| fixture.client.mutex(key)));
    let guard = within(SHORT + PROMPT, "Tenure", ours.lock()).await.unwrap();
    assert!(!lock("anna", "extended").extend().await.unwrap());
    lock("anna", "unlocked").unlock().await.unwrap();
    for key in keys {
        assert!(!lock("berta", key).try_lock().await.unwrap(), "{key}");
    }
    guard.unlock().await.unwrap();
}

/// The other client knows no `expire_time`: its lock ends neither with a lease of its own nor with that of Tenure's lock
/// before it. An eviction frees the row for both sides.
pub(crate) async fn only_an_eviction_frees_a_lock_without_a_lease(setting: Setting) {
    let Some(worker) = Worker::start(setting.driver) else {
        return;
    };
    let Some(fixture) = setting.fixture_in(&worker, SHORT).await else {
        return;
    };
    let key = LockKey::new(fixture.subject.key).unwrap();
    let evict = || fixture.client.evict(ReleaseTarget::All(key.clone()));
    fixture.ours().lock().await.unwrap().unlock().await.unwrap();
    fixture.theirs("anna").lock().await.unwrap();
    let ours = fixture.ours();
    let mut waiting = tokio::spawn(async move { ours.lock().await });
    worker.kill();
    assert_waits(SHORT * 2, "Tenure", &mut waiting).await;
    assert_eq!(evict().await.unwrap(), [HolderId::Foreign("anna".into())]);
    let guard = within(PROMPT, "Tenure", waiting).await.unwrap().unwrap();
    let worker = Worker::shared(setting.driver).expect("the driver is not skipped");
    let peer = Peer::open(&worker, &fixture.store.url(), SHORT).await.unwrap();
    let theirs = peer
        .owner("berta")
        .lock(fixture.subject.kind, fixture.subject.key);
    let waiting = theirs.lock();
    evict().await.unwrap();
    within(PROMPT, "the other client", waiting).await.unwrap();
    fixture.until(|_| !guard.is_held()).await;
    theirs.unlock().await.unwrap();
}

/// The other client does not take over a lock whose lease has ended. It waits until a client of Tenure has done so.
pub(crate) async fn a_death_of_tenure_is_ended_by_tenure(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let hold = hold_of_tenure(&fixture);
    let theirs = fixture.theirs("anna");
    let mut waiting = theirs.lock();
    hold.kill();
    assert_waits(SHORT * 2, "the other client", &mut waiting).await;
    let guard = within(PROMPT, "Tenure", fixture.ours().lock()).await.unwrap();
    guard.unlock().await.unwrap();
    within(PROMPT, "the other client", waiting).await.unwrap();
    theirs.unlock().await.unwrap();
}
