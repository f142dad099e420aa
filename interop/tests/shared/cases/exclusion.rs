//! Mutual exclusion: a lock that one side holds, Tenure or the other client, cannot be acquired by the other side.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::shared::fixture::{LIMIT, LONG, PROMPT, Setting, assert_waits, within};

/// Several rounds, because a side whose clock is less exact may see the end of the other's lock a moment too late.
pub(crate) async fn neither_side_acquires_a_lock_of_the_other(setting: Setting) {
    const ROUNDS: usize = 10;
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let (ours, theirs) = (fixture.ours(), fixture.theirs("anna"));
    theirs.lock().await.unwrap();
    for _ in 0..ROUNDS {
        assert!(ours.try_lock().await.unwrap().is_none());
        theirs.unlock().await.unwrap();
        let guard = ours.try_lock().await.unwrap().expect("it is free");
        assert!(!theirs.try_lock().await.unwrap());
        guard.unlock().await.unwrap();
        assert!(theirs.try_lock().await.unwrap(), "it is free");
    }
    theirs.unlock().await.unwrap();
}

pub(crate) async fn re_entry_ends_at_their_second_unlock(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let (ours, theirs) = (fixture.ours(), fixture.theirs("anna"));
    theirs.lock().await.unwrap();
    theirs.lock().await.unwrap();
    let mut waiting = tokio::spawn(async move { ours.lock().await });
    theirs.unlock().await.unwrap();
    assert_waits(Duration::from_millis(500), "Tenure", &mut waiting).await;
    theirs.unlock().await.unwrap();
    let guard = within(PROMPT, "the lock", waiting).await.unwrap();
    guard.unwrap().unlock().await.unwrap();
}

/// Two owners of the other client, and two tasks of each of two Tenure clients, increment a number by reading and then
/// writing it. Two holders at a time would lose an increment.
pub(crate) async fn no_increment_is_lost(setting: Setting) {
    const TURNS: u32 = 40;
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let theirs = ["anna", "berta"].map(|owner| fixture.theirs(owner).count(&fixture.store.number(), TURNS));
    let mut tasks = JoinSet::new();
    for client in [
        fixture.client.clone(),
        tenure::connect(&fixture.url()).await.unwrap(),
    ] {
        for _ in 0..2 {
            let ours = fixture.subject.ours(&client);
            let mut raise = fixture
                .store
                .counter(&fixture.theirs(&format!("counter-{}", tasks.len())));
            tasks.spawn(async move {
                for _ in 0..TURNS {
                    let guard = ours.lock().await.unwrap();
                    tokio::task::block_in_place(&mut raise);
                    guard.unlock().await.unwrap();
                }
            });
        }
    }
    within(LIMIT, "all turns of Tenure", tasks.join_all()).await;
    for turns in theirs {
        within(LIMIT, "all turns of the other client", turns)
            .await
            .unwrap();
    }
    assert_eq!(fixture.store.counted(), 6 * TURNS);
}

pub(crate) async fn no_side_keeps_one_of_two_locks_while_it_waits(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let (first, second) = fixture
        .subject
        .key
        .split_once(',')
        .expect("the subject has two keys");
    // Each side in turn holds the second of the two locks, while the other side waits for both.
    let single = fixture.client.mutex(second).lock().await.unwrap();
    let waiting = fixture.theirs("anna").lock();
    // Redisson waits for both locks together, for 1.5 to 3 s, and keeps the first one meanwhile. Then it releases the
    // first one and tries again at once, so Tenure may miss that moment and need another round.
    within(LIMIT, "the other lock", fixture.client.mutex(first).lock())
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    single.unlock().await.unwrap();
    within(PROMPT, "both locks", waiting).await.unwrap();
    fixture.theirs("anna").unlock().await.unwrap();
    let single = fixture.peer.owner("berta").lock("plain", second);
    single.lock().await.unwrap();
    let ours = fixture.ours();
    let waiting = tokio::spawn(async move { ours.lock().await });
    let other = fixture.peer.owner("clara").lock("plain", first);
    within(PROMPT, "the other lock", other.lock()).await.unwrap();
    other.unlock().await.unwrap();
    single.unlock().await.unwrap();
    let guard = within(PROMPT, "both locks", waiting).await.unwrap();
    guard.unwrap().unlock().await.unwrap();
}
