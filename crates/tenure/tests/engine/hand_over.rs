//! Handing a claim over in memory: without a call, and not for so long that other clients starve.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::{ClaimRef, Client, Settings};
use tenure_backend::Reach;

use crate::stage::{Stage, Verb, stage_with_profile};
use crate::world::{MS, SECOND, World, evict, pass, served, settle, spawned};

/// Has tasks take the key again and again, and counts how often they had it.
async fn hammer(client: &Client, tasks: u32, hold: Duration) -> Arc<AtomicU32> {
    let turns = Arc::new(AtomicU32::new(0));
    for _ in 0..tasks {
        let (mutex, turns) = (client.mutex("k"), turns.clone());
        let task = async move {
            while let Ok(guard) = mutex.lock().await {
                turns.fetch_add(1, Ordering::Relaxed);
                if hold.is_zero() {
                    tokio::task::yield_now().await;
                } else {
                    pass(hold).await;
                }
                guard.unlock().await.unwrap();
            }
        };
        // They come one after the other, and end with the test.
        drop(spawned(task).await);
    }
    turns
}

/// The claims of a holder and of the waiter behind it, and the calls that the handover took.
async fn hand_over(client: &Client, stage: &Stage) -> ([ClaimRef; 2], usize) {
    let mutex = client.mutex("k").linger(10 * MS);
    let first = mutex.lock().await.unwrap();
    let next = spawned(mutex.lock()).await;
    let calls = || stage.act(Verb::Acquire).count() + stage.act(Verb::Release).count();
    let (claim, token, before) = (first.claim().clone(), first.token(), calls());
    first.unlock().await.unwrap();
    let next = served(next).await;
    assert!(next.token() > token);
    ([claim, next.claim().clone()], calls() - before)
}

#[tokio::test(start_paused = true)]
async fn a_local_handover_makes_no_call() {
    let (_, client, stage) = World::with_stage();
    let ([first, next], calls) = hand_over(&client, &stage).await;
    assert_eq!(first, next);
    assert_eq!(calls, 0);
}

#[tokio::test(start_paused = true)]
async fn without_local_handover_release_and_grant_are_one_call() {
    let (client, stage) = World::new().staged_with(Settings::default().passing(false));
    let ([first, next], calls) = hand_over(&client, &stage).await;
    assert_ne!(first, next);
    assert_eq!(calls, 1);
}

/// Somebody may be there who is not heard of: who only tries, or listens where the server does not count it.
#[tokio::test(start_paused = true)]
async fn on_a_network_a_key_that_is_handed_on_all_the_time_is_let_go_once_a_second() {
    for (reach, is_let_go) in [(Reach::Network, true), (Reach::Process, false)] {
        for passing in [true, false] {
            let world = World::new();
            let mut profile = world.backend().profile().clone();
            profile.reach = reach;
            let settings = Settings::default().passing(passing);
            let client = Client::new(stage_with_profile(world.backend(), profile), settings);
            hammer(&client, 4, 3 * MS).await;
            let (other, mut got) = (world.client().mutex("k"), 0);
            for _ in 0..1_500 {
                if let Some(guard) = other.try_lock().await.unwrap() {
                    got += 1;
                    guard.unlock().await.unwrap();
                }
                pass(2 * MS).await;
            }
            // More often than that it would cost the others their pace.
            let expected = if is_let_go { 2..=20 } else { 0..=0 };
            assert!(
                expected.contains(&got),
                "{reach:?}, {passing}: {got} times in 3 s"
            );
        }
    }
}

/// V3: for as long as the evicted client may hand its claim over, no other client is granted the key.
#[tokio::test(start_paused = true)]
async fn an_eviction_bars_the_key_for_the_pass_window() {
    let (_, [here, elsewhere]) = World::clients();
    let _guard = here.mutex("k").lock().await.unwrap();
    evict(&elsewhere, "k").await;
    pass(9 * MS).await;
    assert!(elsewhere.mutex("k").try_lock().await.unwrap().is_none());
    pass(2 * MS).await;
    assert!(elsewhere.mutex("k").try_lock().await.unwrap().is_some());
}

/// While others wait elsewhere, a client's run gives each of its tasks one turn, and not all grants that it could have.
#[tokio::test(start_paused = true)]
async fn a_client_does_not_keep_a_key_for_itself_while_another_waits() {
    let (_, [here, elsewhere]) = World::clients();
    let since = hammer(&here, 4, Duration::ZERO).await;
    let mut most = 0;
    for turn in 0..50 {
        let locked = tokio::time::timeout(10 * SECOND, elsewhere.mutex("k").lock());
        let guard = locked.await.expect("starved").unwrap();
        // The first turns are for learning that somebody waits.
        if turn >= 2 {
            most = most.max(since.load(Ordering::Relaxed));
        }
        // All of them come while it is held, and wait.
        settle().await;
        since.store(0, Ordering::Relaxed);
        guard.unlock().await.unwrap();
    }
    assert!((1..=2 * 4).contains(&most), "{most} turns in a row for 4 tasks");
}
