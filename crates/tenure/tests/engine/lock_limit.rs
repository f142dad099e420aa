//! `Settings::lock_limit`: the time limit of every lock method that has none of its own.

use tenure::{Error, Settings, multi};

use crate::faulty_backend::Verb;
use crate::fixture::{Fixture, MS, SECOND, assert_error, begun, pass, poll_once};

#[tokio::test(start_paused = true)]
async fn every_lock_method_ends_at_the_clients_limit() {
    let fixture = Fixture::new();
    let holder = fixture.client();
    let client = fixture.client_with(Settings::default().lock_limit(300 * MS));
    let _writer = holder.rwlock("rw").write().await.unwrap();
    let _permits = holder.semaphore("s", 2).acquire_many(2).await.unwrap();
    let _mutex = holder.mutex("m").lock().await.unwrap();
    let (mutex, rwlock, semaphore) = (client.mutex("m"), client.rwlock("rw"), client.semaphore("s", 2));
    let began = tokio::time::Instant::now();
    let (locked, read, written, acquired, fair, with, several) = tokio::join!(
        mutex.lock(),
        rwlock.read(),
        rwlock.write(),
        semaphore.acquire(),
        client.mutex("m").fair().lock(),
        mutex.with(async |_| ()),
        multi([client.mutex("free")]).and(mutex.clone()).lock(),
    );
    for ended in [locked, read, written, acquired, fair] {
        assert_error!(ended, Error::Timeout);
    }
    assert_error!(with, Error::Timeout);
    assert_error!(several, Error::Timeout);
    assert!(began.elapsed() >= 300 * MS && began.elapsed() < 320 * MS);
    // A limit of the call itself counts instead.
    let mut longer = begun(mutex.lock_within(SECOND)).await;
    let both = multi([client.mutex("free")]).and(mutex.clone());
    let mut all = begun(both.lock_within(SECOND)).await;
    pass(900 * MS).await;
    assert!(poll_once(&mut longer).await.is_none());
    assert!(poll_once(&mut all).await.is_none());
    assert_error!(longer.await, Error::Timeout);
    assert_error!(all.await, Error::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_is_not_waited_for_beyond_the_limit() {
    let fixture = Fixture::new();
    let (client, backend) = fixture.faulty_client_with(Settings::default().lock_limit(300 * MS));
    backend.control(Verb::Acquire).hold_before();
    let unanswered = client.mutex("k").lock().await;
    assert!(matches!(unanswered, Err(Error::Backend(_))), "{unanswered:?}");
    backend.control(Verb::Acquire).resume();
    fixture.freed("k", SECOND).await;
}
