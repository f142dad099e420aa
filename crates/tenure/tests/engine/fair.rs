//! Fair locks: first come, first served, across clients.

use tenure::{Client, Settings};
use tenure_backend::Order;

use crate::stage::{Verb, stage_with_profile};
use crate::world::{MS, SECOND, World, pass, poll_once, settle};

#[tokio::test(start_paused = true)]
async fn fair_waiters_enter_in_the_order_of_their_arrival() {
    let world = World::new();
    let (here, elsewhere) = (world.client(), world.client());
    let guard = here.mutex("k").fair().lock().await.unwrap();
    let order = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for n in 0..10 {
        let mutex = if n % 2 == 0 {
            here.mutex("k").fair()
        } else {
            elsewhere.mutex("k").fair()
        };
        let order = order.clone();
        waiters.push(tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            order.lock().push(n);
            guard.unlock().await.unwrap();
        }));
        settle().await;
    }
    guard.unlock().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock(), (0..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_live_fair_queue_bars_who_does_not_queue() {
    let world = World::new();
    let (here, elsewhere) = (world.client(), world.client());
    let guard = here.mutex("k").fair().lock().await.unwrap();
    let mut waiting = here.mutex("k").fair().lock();
    assert!(poll_once(&mut waiting).await.is_none());
    settle().await;
    guard.unlock().await.unwrap();
    assert!(elsewhere.mutex("k").try_lock().await.unwrap().is_none());
    assert!(elsewhere.mutex("k").fair().try_lock().await.unwrap().is_none());
    drop(waiting.await.unwrap());
}

/// R26: a cancelled waiter leaves no ghost.
#[tokio::test(start_paused = true)]
async fn a_cancelled_fair_waiter_leaves_the_queue() {
    let world = World::new();
    let client = world.client();
    let guard = client.mutex("k").fair().lock().await.unwrap();
    let mut gone = client.mutex("k").fair().lock();
    assert!(poll_once(&mut gone).await.is_none());
    settle().await;
    assert_eq!(world.status("k").await.unwrap().waiters.unwrap().len(), 1);
    drop(gone);
    settle().await;
    assert_eq!(world.status("k").await.unwrap().waiters.unwrap().len(), 0);
    guard.unlock().await.unwrap();
    world.freed("k", MS).await;
}

/// R19, R26: a waiter keeps its place behind a holder that renews for long.
#[tokio::test(start_paused = true)]
async fn a_fair_waiter_keeps_its_place_for_longer_than_its_lease() {
    let world = World::new();
    let (here, elsewhere) = (world.client(), world.client());
    let guard = here.mutex("k").fair().lock().await.unwrap();
    let first = tokio::spawn(elsewhere.mutex("k").fair().lock());
    settle().await;
    let second = tokio::spawn(here.mutex("k").fair().lock());
    pass(200 * SECOND).await;
    guard.unlock().await.unwrap();
    settle().await;
    assert!(first.is_finished() && !second.is_finished());
    first.await.unwrap().unwrap().unlock().await.unwrap();
    second.await.unwrap().unwrap().unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_evicted_fair_waiter_is_placed_again_at_the_tail() {
    let world = World::new();
    let client = world.client();
    let guard = client.mutex("k").fair().lock().await.unwrap();
    let waiting = tokio::spawn(client.mutex("k").fair().lock());
    settle().await;
    let was = world.status("k").await.unwrap().waiters.unwrap()[0].id.clone();
    client.evict(was.clone().on(guard.key().clone())).await.unwrap();
    pass(11 * SECOND).await;
    let now = world.status("k").await.unwrap().waiters.unwrap()[0].id.clone();
    assert_ne!(was, now, "a claim is used once");
    guard.unlock().await.unwrap();
    waiting.await.unwrap().unwrap().unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fair_wait_that_times_out_leaves_the_queue() {
    let world = World::new();
    let client = world.client();
    let guard = client.mutex("k").fair().lock().await.unwrap();
    assert!(client.mutex("k").fair().lock_within(SECOND).await.is_err());
    settle().await;
    assert_eq!(world.status("k").await.unwrap().waiters.unwrap().len(), 0);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_fair_read_write_lock_serves_a_writer_before_later_readers() {
    let world = World::new();
    let client = world.client();
    let lock = client.rwlock("k").fair();
    let reader = lock.read().await.unwrap();
    let writer = tokio::spawn(lock.write());
    settle().await;
    let late = tokio::spawn(lock.read());
    settle().await;
    assert!(!late.is_finished(), "a later reader does not overtake the writer");
    reader.unlock().await.unwrap();
    let writer = writer.await.unwrap().unwrap();
    assert!(!late.is_finished());
    writer.unlock().await.unwrap();
    late.await.unwrap().unwrap().unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fair_try_on_a_busy_lock_does_not_queue() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = world.client().mutex("k").lock().await.unwrap();
    assert!(client.mutex("k").fair().try_lock().await.unwrap().is_none());
    settle().await;
    assert_eq!(
        stage.act(Verb::Release).count(),
        0,
        "there is nothing to withdraw"
    );
    guard.unlock().await.unwrap();
}

/// R26: where whoever asks has a place in the queue, one that only tries gives it up.
#[tokio::test(start_paused = true)]
async fn where_a_store_has_one_order_a_try_leaves_no_place_in_its_queue() {
    let world = World::new();
    let mut profile = world.backend().profile().clone();
    profile.mutex = Order::FifoForBoth;
    let client = Client::new(stage_with_profile(world.backend(), profile), Settings::default());
    let guard = world.client().mutex("k").lock().await.unwrap();
    for mutex in [client.mutex("k"), client.mutex("k").fair()] {
        assert!(mutex.try_lock().await.unwrap().is_none());
        settle().await;
        assert_eq!(world.status("k").await.unwrap().waiters.unwrap().len(), 0);
    }
    guard.unlock().await.unwrap();
}
