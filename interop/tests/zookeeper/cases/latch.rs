//! Participants of Curator's `LeaderLatch` at the path of a lock.

use std::time::Duration;

use tenure::inspect::Query;
use tenure::{HolderId, LockKey};

use crate::shared::fixture::{LONG, PROMPT, Setting, assert_waits, within};

/// Time for which a test observes that a waiter still waits.
const MOMENT: Duration = Duration::from_millis(300);

/// Tenure waits for the leader and for a participant that came before, and lists both. A latch does not see Tenure's claims.
pub(crate) async fn tenure_waits_for_the_participants_of_a_latch(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let key = fixture.subject.key;
    let participant = |owner: &str| fixture.peer.owner(owner).lock("latch", key);
    let (leader, second) = (participant("anna"), participant("berta"));
    leader.lock().await.unwrap();
    let mut waiting = second.lock();
    fixture.until(|store| store.queued() == 1).await;
    assert_eq!(fixture.data(), ["k/_c_UUID-latch-N"; 2]);
    let ours = fixture.ours();
    assert!(ours.try_lock().await.unwrap().is_none());
    let query = Query::Key(LockKey::new(key).unwrap());
    let status = fixture.client.inspect(query).await.unwrap().items.pop().unwrap();
    let is_participant = |id: &HolderId| matches!(id, HolderId::Foreign(node) if node.contains("-latch-"));
    let [holders, waiters] = [
        status
            .holders
            .iter()
            .map(|one| is_participant(&one.id))
            .collect::<Vec<_>>(),
        status
            .waiters
            .iter()
            .flatten()
            .map(|one| is_participant(&one.id))
            .collect(),
    ];
    assert_eq!([holders, waiters], [[true], [true]], "{status:?}");
    let mut our_turn = tokio::spawn(async move { ours.lock().await });
    fixture.until(|store| store.queued() == 2).await;
    assert_waits(MOMENT, "the second participant", &mut waiting).await;
    leader.unlock().await.unwrap();
    within(PROMPT, "the second participant", waiting).await.unwrap();
    assert_waits(MOMENT, "Tenure", &mut our_turn).await;
    second.unlock().await.unwrap();
    let guard = within(PROMPT, "Tenure", our_turn).await.unwrap().unwrap();
    within(PROMPT, "a participant, which does not see Tenure", leader.lock())
        .await
        .unwrap();
    leader.unlock().await.unwrap();
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
    fixture.until_data(<[String]>::is_empty).await;
}
