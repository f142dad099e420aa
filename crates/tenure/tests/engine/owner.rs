//! Re-entrant locks: an owner may lock again what it holds, in any task or thread.

use tenure::Error;

use crate::faulty_backend::Verb;
use crate::fixture::{Fixture, SECOND, assert_error, begun, pass, served, served_within, settle, spawned};

#[tokio::test(start_paused = true)]
async fn an_owner_locks_again_without_a_call() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let owner = client.owner("o");
    let mutex = client.mutex("k").owned_by(&owner);
    let outer = mutex.lock().await.unwrap();
    let calls = backend.control(Verb::Acquire).count();
    let inner = mutex.lock().await.unwrap();
    let tried = mutex.try_lock().await.unwrap().unwrap();
    assert_eq!(backend.control(Verb::Acquire).count(), calls);
    assert_eq!((inner.token(), inner.claim()), (outer.token(), outer.claim()));
    outer.unlock().await.unwrap();
    tried.unlock().await.unwrap();
    assert!(
        inner.is_held() && !fixture.is_free("k").await,
        "the last guard gives it back"
    );
    inner.unlock().await.unwrap();
    assert!(fixture.is_free("k").await);
}

/// R23: two owners with the same name are different: a name is a text for people.
#[tokio::test(start_paused = true)]
async fn two_owners_of_one_name_exclude_each_other() {
    let (_, [client]) = Fixture::clients();
    let (one, two) = (client.owner("o"), client.owner("o"));
    let _guard = client.mutex("k").owned_by(&one).lock().await.unwrap();
    let theirs = client.mutex("k").owned_by(&two).try_lock().await;
    assert!(theirs.unwrap().is_none());
    assert!(client.mutex("k").try_lock().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_write_lock_inside_a_read_lock_would_deadlock() {
    let (_, [client]) = Fixture::clients();
    let owner = client.owner("o");
    let lock = client.rwlock("k").owned_by(&owner);
    let read = lock.read().await.unwrap();
    assert_error!(lock.write().await, Error::WouldDeadlock);
    let nested = lock.read().await.unwrap();
    drop((read, nested));
    settle().await;
    let write = lock.write().await.unwrap();
    let read_inside = lock.read().await.unwrap();
    assert_eq!(read_inside.token(), write.token());
}

/// R27: a nested unlock neither shortens the lease of the outer lock nor stops its renewals.
#[tokio::test(start_paused = true)]
async fn a_nested_unlock_leaves_the_watchdog_running() {
    let (_, [client]) = Fixture::clients();
    let owner = client.owner("o");
    let lock = client.rwlock("k").owned_by(&owner);
    let write = lock.write().await.unwrap();
    lock.read().await.unwrap().unlock().await.unwrap();
    pass(100 * SECOND).await;
    assert!(write.is_held());
    write.verify().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_attempts_of_one_owner_at_once_share_the_claim() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    backend.yield_everywhere(2);
    let owner = client.owner("o");
    let mutex = client.mutex("k").owned_by(&owner);
    let (one, two) = (tokio::spawn(mutex.lock()), tokio::spawn(mutex.lock()));
    let (one, two) = (served(one).await, served(two).await);
    assert_eq!(one.claim(), two.claim());
    assert_eq!(backend.control(Verb::Acquire).count(), 1);
}

/// One waiting attempt is dropped before the grant. The owner's other attempts all get guards of the granted claim.
#[tokio::test(start_paused = true)]
async fn a_grant_wakes_every_waiting_attempt_of_its_owner() {
    let (_, [client]) = Fixture::clients();
    let guard = client.mutex("k").lock().await.unwrap();
    let mutex = client.mutex("k").owned_by(&client.owner("o"));
    let dropped = begun(mutex.lock()).await;
    let first = spawned(mutex.lock()).await;
    drop(dropped);
    let others = [spawned(mutex.lock()).await, spawned(mutex.lock()).await];
    guard.unlock().await.unwrap();
    let first = served_within(SECOND, first).await;
    for other in others {
        assert_eq!(served_within(SECOND, other).await.claim(), first.claim());
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_acquires_a_lost_lock_again() {
    let (fixture, [client]) = Fixture::clients();
    let owner = client.owner("o");
    let mutex = client.mutex("k").owned_by(&owner).fixed_lease(SECOND);
    let lost = mutex.lock().await.unwrap();
    // The lease ends, but the watchdog has not noticed it.
    fixture.clock.suspend(2 * SECOND);
    let fresh = mutex.lock().await.unwrap();
    assert!(!lost.is_held() && fresh.is_held() && fresh.token() > lost.token());
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_attempt_does_not_block_its_owners_others() {
    let (_, [client]) = Fixture::clients();
    let owner = client.owner("o");
    let guard = client.mutex("k").lock().await.unwrap();
    let mutex = client.mutex("k").owned_by(&owner);
    let _unpolled = begun(mutex.lock()).await;
    let other = spawned(mutex.lock()).await;
    guard.unlock().await.unwrap();
    drop(served_within(SECOND, other).await);
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_another_client_is_refused() {
    let (_, [here, elsewhere]) = Fixture::clients();
    let owner = here.owner("o");
    let _guard = here.mutex("k").owned_by(&owner).lock().await.unwrap();
    assert_error!(
        elsewhere.mutex("k").owned_by(&owner).try_lock().await,
        Error::Invalid(_)
    );
}
