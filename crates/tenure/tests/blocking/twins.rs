//! Every async method has a blocking method of the same name. Without one, `Deref` would find the async method, and its
//! future would be dropped without being polled. The type of each result shows which one was called.

use tenure::blocking::{Guard, Leader, Lock, multi};
use tenure::inspect::Query;
use tenure::{Error, LockKey, ReleaseTarget};

use crate::fixture::{MS, SOON, assert_error, client};

#[test]
fn every_method_of_a_client_and_of_an_election_blocks() {
    let client = client();
    let key = LockKey::new("k").expect("a valid key");
    let page = client.inspect(Query::Key(key.clone())).expect("memory answers");
    assert_eq!(page.items, []);
    assert_eq!(client.evict(ReleaseTarget::All(key)).expect("memory answers"), []);
    assert!(!client.examine().expect("memory answers").is_empty());
    let mut changes = client.watch("k");
    assert!(changes.next_within(MS).expect("memory answers").is_none());

    let election = client.election("chair");
    assert!(election.leader().expect("memory answers").is_none());
    assert_eq!(election.lead(|_leader| 1).expect("elected"), 1);
    let output: Result<u32, Error> = election.try_lead(|_leader| Ok(2));
    assert_eq!(output.expect("elected"), 2);
    let leader: Leader = election.campaign_within(SOON).expect("elected");
    assert!(leader.lost_within(MS).is_none());
    leader.verify().expect("it leads");
    leader.while_held(|_leader| ()).expect("it leads");
    assert_error!(leader.downgrade(), Error::Invalid(_));
    leader.resign().expect("it leads");
    election.campaign().expect("elected").unlock().expect("it leads");
    client.close(SOON).expect("memory answers");
}

/// Downgrades a guard, and calls its other methods that wait.
macro_rules! downgrade {
    ($guard:expr) => {{
        $guard.downgrade().expect("it is held for writing");
        assert_eq!($guard.mode(), tenure::Mode::Read);
        $guard.verify().expect("it is held");
        assert!($guard.lost_within(MS).is_none());
        $guard.while_held(|_guard| ()).expect("it is held");
    }};
}

#[test]
fn every_method_of_a_guard_and_of_a_member_blocks() {
    let client = client();
    let lock = client.rwlock("k");
    let guard: Guard = lock.write().expect("it is free");
    downgrade!(guard);
    let reader = lock.try_read().expect("memory answers");
    reader.expect("readers share it").unlock().expect("it is held");
    guard.unlock().expect("it is held");

    let guards = multi([client.rwlock("a").writer(), lock.writer()]).lock();
    let guards = guards.expect("both are free");
    for member in guards.members() {
        downgrade!(member);
    }
    assert!(lock.try_read().expect("memory answers").is_some());
    guards.verify().expect("both are held");
    guards.unlock().expect("both are held");
}

/// Acquires a lock by each of its methods that wait.
macro_rules! acquire {
    ($lock:expr, $acquire:ident, $within:ident, $try:ident) => {{
        let lock = $lock;
        lock.$acquire().expect("it is free").unlock().expect("it is held");
        lock.$within(SOON)
            .expect("it is free")
            .unlock()
            .expect("it is held");
        let guard = lock.$try().expect("memory answers");
        guard.expect("it is free").unlock().expect("it is held");
    }};
}

/// Runs work under a lock by each of the lock's methods for that.
macro_rules! run {
    ($lock:expr) => {{
        let lock = $lock;
        assert_eq!(lock.with(|_guard| 1).expect("it is free"), 1);
        assert_eq!(lock.with_or_else(SOON, |_guard| 1, || 2).expect("it is free"), 1);
        let output: Result<u32, Error> = lock.try_with(|_guard| Ok(1));
        assert_eq!(output.expect("it is free"), 1);
        let output: Result<u32, Error> = lock.try_with_or_else(SOON, |_guard| Ok(1), || Ok(2));
        assert_eq!(output.expect("it is free"), 1);
    }};
}

#[test]
fn every_method_of_a_lock_blocks() {
    let client = client();
    let (mutex, rwlock, semaphore) = (client.mutex("a"), client.rwlock("b"), client.semaphore("c", 2));
    acquire!(&mutex, lock, lock_within, try_lock);
    acquire!(Lock::from(&mutex), lock, lock_within, try_lock);
    acquire!(multi([&mutex]), lock, lock_within, try_lock);
    acquire!(client.striped("d", 2).mutex("name"), lock, lock_within, try_lock);
    acquire!(&rwlock, read, read_within, try_read);
    acquire!(&rwlock, write, write_within, try_write);
    acquire!(&semaphore, acquire, acquire_within, try_acquire);
    let two = semaphore.acquire_many(2).expect("both are free");
    two.unlock().expect("they are held");
    let two = semaphore.acquire_many_within(2, SOON).expect("both are free");
    two.unlock().expect("they are held");
    let two = semaphore.try_acquire_many(2).expect("memory answers");
    two.expect("both are free").unlock().expect("they are held");
    run!(&mutex);
    run!(rwlock.writer());
    run!(semaphore.permits(2));
    run!(&semaphore);
    run!(multi([mutex]));
}
