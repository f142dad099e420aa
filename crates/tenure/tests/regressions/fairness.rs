//! Who goes next, when several clients and several tasks of one of them want the same key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::world::{SECOND, World, settle};

/// How many tasks of one client want the key at once.
const TASKS: u32 = 4;

/// While others wait elsewhere, a client's run gives each of its tasks one turn, and not all grants that it could have.
#[tokio::test(start_paused = true)]
async fn a_client_does_not_keep_a_key_for_itself_while_another_waits() {
    let world = World::new();
    let (here, elsewhere) = (world.client(), world.client());
    let since = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (mutex, since) = (here.mutex("k"), since.clone());
            tokio::spawn(async move {
                loop {
                    let guard = mutex.lock().await.unwrap();
                    since.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    guard.unlock().await.unwrap();
                }
            })
        })
        .collect();
    settle().await;
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
    assert!(
        (1..=2 * TASKS).contains(&most),
        "{most} turns in a row for {TASKS} tasks"
    );
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}
