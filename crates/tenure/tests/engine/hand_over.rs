//! A client hands a held key to its own waiters without a call to the store, within limits that protect other clients.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::{ClaimRef, Client, Guard, Settings};
use tenure_backend::Reach;

use crate::faulty_backend::{FaultyBackend, Verb, faulty_with_profile};
use crate::fixture::{Fixture, MS, SECOND, evict, lost, pass, served, settle, spawned};

/// Starts `tasks` tasks that lock the key in a loop. Returns the counter of their grants.
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
        // Starts the tasks one after the other. They run until the test ends.
        drop(spawned(task).await);
    }
    turns
}

/// Hands the key from a holder to a waiter of the same client. Returns both claims and the number of calls.
async fn hand_over(client: &Client, backend: &FaultyBackend) -> ([ClaimRef; 2], usize) {
    let mutex = client.mutex("k").linger(10 * MS);
    let first = mutex.lock().await.unwrap();
    let next = spawned(mutex.lock()).await;
    let calls = || backend.control(Verb::Acquire).count() + backend.control(Verb::Release).count();
    let (claim, token, before) = (first.claim().clone(), first.token(), calls());
    first.unlock().await.unwrap();
    let next = served(next).await;
    assert!(next.token() > token);
    ([claim, next.claim().clone()], calls() - before)
}

#[tokio::test(start_paused = true)]
async fn a_local_handover_makes_no_call() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let ([first, next], calls) = hand_over(&client, &backend).await;
    assert_eq!(first, next);
    assert_eq!(calls, 0);
}

#[tokio::test(start_paused = true)]
async fn without_local_hand_over_the_release_grants_in_one_call() {
    let (client, backend) = Fixture::new().faulty_client_with(Settings::default().local_handover(false));
    let ([first, next], calls) = hand_over(&client, &backend).await;
    assert_ne!(first, next);
    assert_eq!(calls, 1);
}

/// The client of a holder does not learn of other clients that only try to lock. So that these get a turn, it
/// releases a hot key of a store on a network once a second.
#[tokio::test(start_paused = true)]
async fn a_client_on_a_network_releases_a_hot_key_once_a_second() {
    for (reach, is_let_go) in [(Reach::Network, true), (Reach::Process, false)] {
        for local_hand_over in [true, false] {
            let fixture = Fixture::new();
            let mut profile = fixture.backend().profile().clone();
            profile.reach = reach;
            let settings = Settings::default().local_handover(local_hand_over);
            let client = Client::new(faulty_with_profile(fixture.backend(), profile), settings);
            hammer(&client, 4, 3 * MS).await;
            let (other, mut got) = (fixture.client().mutex("k"), 0);
            for _ in 0..1_500 {
                if let Some(guard) = other.try_lock().await.unwrap() {
                    got += 1;
                    guard.unlock().await.unwrap();
                }
                pass(2 * MS).await;
            }
            // At most 20 times: a client that let the key go more often would be slow.
            let expected = if is_let_go { 2..=20 } else { 0..=0 };
            assert!(
                expected.contains(&got),
                "{reach:?}, {local_hand_over}: {got} times in 3 s"
            );
        }
    }
}

/// V3: an evicted client may hand its claim over locally for 10 ms more. In this time the store grants the key to no
/// client.
#[tokio::test(start_paused = true)]
async fn an_eviction_blocks_grants_for_the_handover_window() {
    let (_, [here, elsewhere]) = Fixture::clients();
    let _guard = here.mutex("k").lock().await.unwrap();
    evict(&elsewhere, "k").await;
    pass(9 * MS).await;
    assert!(elsewhere.mutex("k").try_lock().await.unwrap().is_none());
    pass(2 * MS).await;
    assert!(elsewhere.mutex("k").try_lock().await.unwrap().is_some());
}

/// Readers that waited together share a claim, each with its own token. The claim ends with its last reader, and an
/// eviction ends the holds of all.
#[tokio::test(start_paused = true)]
async fn readers_that_waited_together_share_a_claim() {
    let (_, [here, elsewhere]) = Fixture::clients();
    let lock = here.rwlock("k");
    let writer = lock.write().await.unwrap();
    let mut readers = Vec::new();
    for _ in 0..3 {
        readers.push(spawned(lock.read()).await);
    }
    writer.unlock().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(served(reader).await);
    }
    let tokens: BTreeSet<_> = guards.iter().map(Guard::token).collect();
    assert_eq!(tokens.len(), 3, "{tokens:?}");
    let first = guards.remove(0);
    assert!(guards.iter().all(|guard| guard.claim() == first.claim()));
    first.unlock().await.unwrap();
    assert!(elsewhere.rwlock("k").try_write().await.unwrap().is_none());
    assert_eq!(evict(&elsewhere, "k").await.len(), 1, "one holder");
    for guard in &guards {
        lost(guard).await;
    }
}

/// A client gives the key to a waiting client after each of its own tasks has had one turn.
#[tokio::test(start_paused = true)]
async fn a_client_yields_a_hot_key_to_a_waiting_client() {
    let (_, [here, elsewhere]) = Fixture::clients();
    let since = hammer(&here, 4, MS).await;
    let mut most = 0;
    for turn in 0..50 {
        let locked = tokio::time::timeout(10 * SECOND, elsewhere.mutex("k").lock());
        let guard = locked.await.expect("starved").unwrap();
        // The first two rounds do not count: in them, the client with four tasks learns that another client waits.
        if turn >= 2 {
            most = most.max(since.load(Ordering::Relaxed));
        }
        // Lets all local tasks queue while the other client holds the key.
        settle().await;
        since.store(0, Ordering::Relaxed);
        guard.unlock().await.unwrap();
    }
    assert_eq!(most, 4, "turns in a row for 4 tasks");
}
