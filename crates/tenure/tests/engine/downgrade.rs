//! Turning a write lock into a read lock: readers get in, writers do not, whatever happens to the request.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tenure::{Client, Error, Guard, Mode, Settings};

use crate::faulty_backend::{FaultyBackend, Verb};
use crate::fixture::{
    Fixture, LOCAL_LEASE, MS, SECOND, assert_error, assert_transient, evict, lost, pass, poll_once, queued,
    served_within, settle, spawned,
};

/// A client that holds the key `k` for writing, and whose calls the test can hold and fail.
async fn writing() -> (Fixture, Client, Arc<FaultyBackend>, Guard) {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.rwlock("k").write().await.unwrap();
    (fixture, client, backend, guard)
}

/// The modes of the claims that hold `k` in the store.
async fn held(fixture: &Fixture) -> Vec<Mode> {
    let status = fixture.status("k").await.expect("the key is held");
    status.holders.iter().map(|holder| holder.mode).collect()
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_lets_waiting_readers_in_at_once() {
    let (fixture, clients) = Fixture::clients::<2>();
    let [here, elsewhere] = clients.map(|client| client.rwlock("k"));
    let writer = here.write().await.unwrap();
    let token = writer.token();
    let mut readers = Vec::new();
    for lock in [&here, &here, &elsewhere] {
        readers.push(spawned(lock.read()).await);
    }
    let start = tokio::time::Instant::now();
    writer.downgrade().await.unwrap();
    assert_eq!((writer.mode(), writer.token()), (Mode::Read, token));
    let mut guards = Vec::new();
    for reader in readers {
        let guard = served_within(SECOND, reader).await;
        assert!(guard.token() > token, "a later grant has a greater token");
        guards.push(guard);
    }
    assert!(start.elapsed() < 15 * MS, "{:?}", start.elapsed());
    // One claim was downgraded. Both readers of the same client share one, and the other client's reader has its own.
    assert_eq!(held(&fixture).await, [Mode::Read; 3]);
    assert!(here.try_write().await.unwrap().is_none() && elsewhere.try_write().await.unwrap().is_none());
    drop(guards);
    settle().await;
    assert!(elsewhere.try_write().await.unwrap().is_none());
    writer.unlock().await.unwrap();
    let next = elsewhere
        .try_write()
        .await
        .unwrap()
        .expect("the last reader left");
    assert!(next.token() > token);
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_lets_no_reader_past_a_waiting_writer() {
    let (_, clients) = Fixture::clients::<2>();
    let [here, elsewhere] = clients.map(|client| client.rwlock("k").fair());
    let guard = here.write().await.unwrap();
    let first = queued(elsewhere.read()).await;
    let mut writer = queued(elsewhere.write()).await;
    let mut second = queued(here.read()).await;
    guard.downgrade().await.unwrap();
    let first = first.await.unwrap();
    settle().await;
    assert!(poll_once(&mut writer).await.is_none() && poll_once(&mut second).await.is_none());
    drop((guard, first));
    let writer = writer.await.unwrap();
    assert!(poll_once(&mut second).await.is_none());
    drop(writer);
    drop(second.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_local_reader_waits_behind_a_local_writer() {
    let (_, client, _, guard) = writing().await;
    let lock = client.rwlock("k");
    let writer = spawned(lock.write()).await;
    let mut reader = queued(lock.read()).await;
    guard.downgrade().await.unwrap();
    pass(SECOND).await;
    assert!(poll_once(&mut reader).await.is_none());
    drop(guard);
    served_within(SECOND, writer).await.unlock().await.unwrap();
    drop(reader.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn only_a_write_guard_can_be_downgraded() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let mutex = client.mutex("m").lock().await.unwrap();
    let permit = client.semaphore("s", 2).acquire().await.unwrap();
    for guard in [&mutex, &permit] {
        assert_error!(guard.downgrade().await, Error::Invalid(_));
    }
    let reader = client.rwlock("k").read().await.unwrap();
    reader.downgrade().await.unwrap();
    assert_eq!(backend.control(Verb::Renew).count(), 0, "refused before any call");
}

#[tokio::test(start_paused = true)]
async fn a_downgraded_lock_is_renewed_until_it_is_lost() {
    let (fixture, client, _, guard) = writing().await;
    guard.downgrade().await.unwrap();
    guard.downgrade().await.unwrap();
    pass(5 * LOCAL_LEASE).await;
    assert!(guard.is_held());
    assert_eq!(
        (held(&fixture).await, guard.mode()),
        (vec![Mode::Read], Mode::Read)
    );
    evict(&client, "k").await;
    guard.verify().await.unwrap_err();
    lost(&guard).await;
    assert_error!(guard.downgrade().await, Error::Lost(_));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_downgrade_is_completed() {
    let (fixture, client, backend, guard) = writing().await;
    backend.control(Verb::Renew).hold_before();
    let mut downgrade = Box::pin(guard.downgrade());
    assert!(poll_once(&mut downgrade).await.is_none());
    drop(downgrade);
    settle().await;
    assert!(guard.is_held() && guard.mode() == Mode::Write);
    assert!(client.rwlock("k").try_read().await.unwrap().is_none());
    backend.control(Verb::Renew).resume();
    settle().await;
    assert_eq!(
        (held(&fixture).await, guard.mode()),
        (vec![Mode::Read], Mode::Read)
    );
    drop(client.rwlock("k").read().await.unwrap());
}

/// The engine repeats a failed downgrade with a renewal, which it sends even for a fixed lease. Until a reply confirms
/// the downgrade, the claim counts as a write claim.
#[tokio::test(start_paused = true)]
async fn an_unanswered_downgrade_is_repeated() {
    for (fails_after, fixed) in [(false, false), (true, false), (false, true), (true, true)] {
        let (_, client, backend) = Fixture::with_faulty_backend();
        let lock = client.rwlock("k");
        let writer = if fixed {
            lock.clone().fixed_lease(30 * SECOND)
        } else {
            lock.clone()
        };
        let guard = writer.write().await.unwrap();
        let deadline = guard.local_deadline();
        let renewals = backend.control(Verb::Renew);
        if fails_after {
            renewals.fail_after(1);
        } else {
            renewals.fail_before(1);
        }
        let reader = spawned(lock.read()).await;
        assert_transient(&guard.downgrade().await, (fails_after, fixed));
        assert!(guard.is_held() && guard.mode() == Mode::Write);
        settle().await;
        assert!(!reader.is_finished());
        drop(served_within(3 * SECOND, reader).await);
        assert!(guard.is_held() && guard.mode() == Mode::Read);
        assert_eq!(
            guard.local_deadline() == deadline,
            fixed,
            "a fixed lease does not grow"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_downgrade_leaves_the_write_lock() {
    let (fixture, _client, backend, guard) = writing().await;
    backend.keeps_writers.store(true, Ordering::Relaxed);
    assert_error!(guard.downgrade().await, Error::Unsupported(_));
    pass(2 * LOCAL_LEASE).await;
    assert!(guard.is_held() && guard.mode() == Mode::Write);
    assert_eq!(held(&fixture).await, [Mode::Write]);
}

/// A claim that the store may count as a read claim serves no other writer of this client.
#[tokio::test(start_paused = true)]
async fn a_claim_that_may_be_downgraded_is_not_handed_over() {
    let fixture = Fixture::new();
    // With `linger` a claim reserves tokens for hand-overs from the start.
    let (client, backend) = fixture.faulty_client_with(Settings::default().linger(10 * MS));
    let guard = client.rwlock("k").write().await.unwrap();
    let next = spawned(client.rwlock("k").write()).await;
    backend.control(Verb::Renew).fail_after(1);
    assert_transient(&guard.downgrade().await, "the reply is lost");
    let claim = guard.claim().clone();
    drop(guard);
    let next = served_within(SECOND, next).await;
    assert_ne!(*next.claim(), claim);
    assert_eq!(held(&fixture).await, [Mode::Write]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_downgrades_only_with_its_last_guard() {
    let (_, client, _) = Fixture::with_faulty_backend();
    let lock = client.rwlock("k").owned_by(&client.owner("o"));
    let outer = lock.write().await.unwrap();
    let inner = lock.write().await.unwrap();
    assert_error!(outer.downgrade().await, Error::Invalid(_));
    assert_error!(inner.downgrade().await, Error::Invalid(_));
    assert_eq!(outer.mode(), Mode::Write);
    drop(inner);
    outer.downgrade().await.unwrap();
    let again = lock.read().await.unwrap();
    assert_eq!((again.claim(), again.mode()), (outer.claim(), Mode::Read));
    assert_error!(lock.write().await, Error::WouldDeadlock);
    assert!(client.rwlock("k").try_read().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn an_owner_cannot_write_once_it_asked_to_downgrade() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let lock = client.rwlock("k").owned_by(&client.owner("o"));
    let guard = lock.write().await.unwrap();
    backend.control(Verb::Renew).fail_before(1);
    assert_transient(&guard.downgrade().await, "the request is lost");
    assert_error!(lock.write().await, Error::WouldDeadlock);
    drop(lock.read().await.unwrap());
}
