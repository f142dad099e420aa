//! Every kind of lock of the blocking API: exclusion, rising tokens, options, multi-locks, and work under a lock.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use tenure::backend::{Clock, SystemClock};
use tenure::blocking::{
    self, Changes, Client, Election, Guard, Leader, Lock, Multi, MultiGuard, Mutex, RwLock, Semaphore,
    Striped, multi,
};
use tenure::{Error, Guarantee, Kind, LostCause, Mode, Settings};
use tenure_memory::MemoryStore;

use crate::fixture::{
    MS, SOON, assert_error, client, client_of, held, is_free, one_queues, statuses_of, two_clients, until,
};

#[test]
fn locks_exclude_and_tokens_increase() {
    let client = client();
    let mutex = client.mutex("k");
    let mut last = None;
    for _ in 0..3 {
        let guard = mutex.lock().expect("it is free");
        assert!(guard.is_held() && guard.remaining() > Duration::from_secs(20));
        assert_eq!(guard.key().as_str(), "k");
        assert!(guard.token() > last, "{:?} after {last:?}", guard.token());
        last = guard.token();
        assert!(!is_free(&client, "k"));
        assert_error!(mutex.lock_within(20 * MS), Error::Timeout);
        guard.verify().expect("it is held");
        guard.unlock().expect("it is held");
    }
}

#[test]
fn thirty_two_threads_on_one_key_exclude_each_other() {
    let client = client();
    let inside = AtomicUsize::new(0);
    let sum = AtomicU64::new(0);
    let greatest = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let guard = client.mutex("hot").lock().expect("it becomes free");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two threads are inside");
                    let token = guard.token().expect("memory has tokens").get();
                    assert!(greatest.swap(token, Ordering::SeqCst) < token, "tokens rise");
                    // Not atomic on purpose: if two threads were inside, one increment would be lost.
                    let before = sum.load(Ordering::Relaxed);
                    std::thread::yield_now();
                    sum.store(before + 1, Ordering::Relaxed);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().expect("it is held");
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), 32 * 50);
}

#[test]
fn a_downgrade_lets_readers_in_and_keeps_writers_out() {
    let (one, other) = two_clients();
    let guard = one.rwlock("k").write().expect("it is free");
    assert!(other.rwlock("k").try_read().expect("memory answers").is_none());
    guard.downgrade().expect("it is held");
    assert_eq!((guard.mode(), guard.is_held()), (Mode::Read, true));
    let reader = other.rwlock("k").read().expect("readers share it");
    assert!(other.rwlock("k").try_write().expect("memory answers").is_none());
    reader.unlock().expect("it is held");
    guard.unlock().expect("it is held");
    let mutex = one.mutex("m").lock().expect("it is free");
    assert_error!(mutex.downgrade(), Error::Invalid(_));
}

#[test]
fn an_owner_nests_its_locks_across_threads() {
    let client = client();
    let owner = client.owner("importer");
    let mutex = client.mutex("k").owned_by(&owner);
    let outer = mutex.lock().expect("it is free");
    let inner = std::thread::scope(|scope| {
        let nested = scope.spawn(|| mutex.lock_within(SOON).expect("the owner has it"));
        nested.join().expect("the thread does not panic")
    });
    assert_eq!(inner.token(), outer.token());
    outer.unlock().expect("it is held");
    assert!(!is_free(&client, "k"), "the inner guard holds it");
    inner.unlock().expect("it is held");
    assert!(is_free(&client, "k"));

    let lock = client.rwlock("rw").owned_by(&owner);
    let _reading = lock.read().expect("it is free");
    assert_error!(lock.write(), Error::WouldDeadlock);
}

#[test]
fn a_fallback_runs_only_when_the_lock_is_busy() {
    let client = client();
    let mutex = client.mutex("k");
    let work = |limit| mutex.with_or_else(limit, |_| "work", || "busy");
    assert!(matches!(work(Duration::ZERO), Ok("work")));
    let guard = mutex.lock().expect("it is free");
    for limit in [Duration::ZERO, 10 * MS] {
        assert!(matches!(work(limit), Ok("busy")), "{limit:?}");
    }
    drop(guard);
    for limit in [Duration::ZERO, 10 * MS] {
        let bad = client.mutex("").with_or_else(limit, |_| "work", || "busy");
        assert_error!(bad, Error::Invalid(_));
    }
}

#[test]
fn work_runs_under_every_kind_of_lock() {
    let client = client();
    let (lock, permits) = (client.rwlock("rw"), client.semaphore("s", 2));
    let alone = lock
        .writer()
        .with(|_| lock.try_read().map(|guard| guard.is_none()));
    assert!(matches!(alone, Ok(Ok(true))), "{alone:?}");
    let failed: Result<(), Error> = permits.try_with(|_| Err(Error::WouldDeadlock));
    assert_error!(failed, Error::WouldDeadlock);
    let all = multi([client.mutex("m")])
        .and(lock.reader())
        .and(permits.permits(2));
    assert!(matches!(all.with(|guards| guards.members().len()), Ok(3)));
    let _held = permits.acquire_many(2).expect("they came back");
    let busy = all.try_with_or_else(10 * MS, |_| Err(Error::WouldDeadlock), || Ok("busy"));
    assert!(matches!(busy, Ok("busy")), "{busy:?}");
    let term: Result<(), Error> = client.election("e").try_lead(|_| Err(Error::WouldDeadlock));
    assert_error!(term, Error::WouldDeadlock);
}

#[test]
fn every_option_reaches_the_lock() {
    let (one, other) = two_clients();
    let holder = |key: &str| statuses_of(&other, key)[0].holders[0].clone();

    let guard = held(one.mutex("label").label("the importer"));
    assert_eq!(holder("label").label.as_deref(), Some("the importer"));
    drop(guard);

    let seven = Duration::from_secs(7);
    let guard = held(one.mutex("lease").lease(seven));
    assert!(guard.remaining() <= seven && holder("lease").remaining <= Some(seven));
    drop(guard);

    let guard = held(one.mutex("fixed").fixed_lease(50 * MS));
    assert_eq!(guard.lost().cause, LostCause::Expired);

    let guard = held(one.mutex("most").max_hold(50 * MS));
    assert_eq!(guard.lost().cause, LostCause::MaxHold);

    let began = Instant::now();
    let guard = held(one.mutex("least").at_least(200 * MS));
    guard.unlock().expect("it is held");
    drop(other.mutex("least").lock_within(SOON).expect("it becomes free"));
    assert!(began.elapsed() >= 200 * MS, "{:?}", began.elapsed());

    let guard = held(one.mutex("fair").fair());
    std::thread::scope(|scope| {
        let second = scope.spawn(|| one.mutex("fair").fair().lock().map(|_| ()));
        until("the fair waiter queues in the store", || {
            one_queues(&other, "fair")
        });
        drop(guard);
        let second = second.join().expect("the thread does not panic");
        second.expect("it becomes free");
    });
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let lock = client().rwlock("rw");
    let readers = (
        lock.read().expect("free"),
        lock.try_read().expect("memory answers").expect("shared"),
    );
    assert!(lock.try_write().expect("memory answers").is_none());
    assert_error!(lock.write_within(10 * MS), Error::Timeout);
    drop(readers);
    let writer = lock.write_within(SOON).expect("it becomes free");
    assert_error!(lock.read_within(10 * MS), Error::Timeout);
    writer.unlock().expect("it is held");
    lock.write().expect("free").unlock().expect("held");
}

#[test]
fn a_semaphore_grants_up_to_its_permits() {
    let semaphore = client().semaphore("s", 3);
    let one = semaphore.acquire().expect("free");
    let two = semaphore.acquire_many_within(2, SOON).expect("free");
    assert!(semaphore.try_acquire().expect("memory answers").is_none());
    assert_error!(semaphore.acquire_within(10 * MS), Error::Timeout);
    drop(two);
    let more = semaphore.acquire_many(2).expect("they come back");
    assert!(semaphore.try_acquire_many(1).expect("memory answers").is_none());
    assert_error!(semaphore.acquire_many(4), Error::Invalid(_) | Error::Limit(_));
    drop((one, more));
}

#[test]
fn a_name_has_the_same_stripe_here_and_in_async() {
    let store = MemoryStore::new(Arc::new(SystemClock));
    let threads = client_of(&store);
    let tasks = tenure::Client::new(store.client(Arc::new(SystemClock)), Settings::default());
    let carts = threads.striped("carts", 8);
    let guard = carts.mutex("customer 4711").lock().expect("it is free");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("tokio starts");
    let theirs = tasks.striped("carts", 8);
    let taken = runtime
        .block_on(theirs.mutex("customer 4711").try_lock())
        .expect("memory answers");
    assert!(taken.is_none(), "{guard:?} excludes it");
    // These checks come last: they drop the guards that `try_lock` returns, which are released in the background, so
    // the locks stay held for a while.
    assert_eq!(carts.stripes().len(), 8);
    let free = carts
        .stripes()
        .filter(|stripe| stripe.try_lock().expect("memory answers").is_some());
    assert_eq!(free.count(), 7);
}

#[test]
fn a_multi_lock_of_several_clients_is_all_or_nothing() {
    let (one, other) = (client(), client());
    let members = || {
        [
            Lock::from(one.mutex("a")),
            other.rwlock("b").writer(),
            one.rwlock("c").reader(),
            other.semaphore("d", 2).permits(2),
        ]
    };
    let guards = multi(members()).lock().expect("all are free");
    assert_eq!(guards.members().len(), 4);
    assert!(guards.is_held() && guards.check().is_ok());
    assert_eq!(guards.while_held(|all| all.members().len()), Ok(4));
    for (guard, key) in guards.members().iter().zip(["a", "b", "c", "d"]) {
        assert_eq!(guard.key().as_str(), key);
        guard.verify().expect("a member is a guard of threads, and held");
    }
    assert_eq!(guards.lost_within(10 * MS), None);
    assert!(multi(members()).try_lock().expect("memory answers").is_none());
    assert_error!(multi(members()).lock_within(20 * MS), Error::Timeout);
    guards.unlock().expect("all are held");

    let guards = multi(members()).lock_within(SOON).expect("all are free");
    let lost = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| guards.lost());
        one.close(SOON).expect("it is confirmed");
        watcher.join().expect("the thread does not panic")
    });
    assert_eq!(lost.cause, LostCause::Closed);
    assert_eq!(guards.check(), Err(lost.clone()));
    assert_eq!(guards.lost_within(SOON), Some(lost));
    assert!(guards.while_held(|_| unreachable!("a member is lost")).is_err());

    let no_members: [Mutex; 0] = [];
    let empty = multi(no_members);
    assert_error!(empty.lock(), Error::Invalid(_));
    assert_error!(empty.lock_within(SOON), Error::Invalid(_));
    assert_error!(empty.try_lock(), Error::Invalid(_));
    let twice = multi([other.mutex("x"), other.mutex("x")]);
    assert_error!(twice.lock(), Error::Invalid(_));
}

#[test]
fn a_multi_lock_survives_the_end_of_another_clients_thread() {
    let (one, other) = (client(), client());
    let both = multi([one.mutex("a"), other.mutex("b")]).lock();
    let both = both.expect("both are free");
    both.unlock().expect("both are held");
    one.close(SOON).expect("it is confirmed");
    drop(one);
    let guard = held(other.mutex("b").lease(3000 * MS));
    let lost = guard.lost_within(4000 * MS);
    assert_eq!(lost, None, "its own watchdog renews it");
    guard.unlock().expect("it is held");
}

#[test]
fn the_blocking_client_shows_profile_and_settings() {
    let client = client();
    assert_eq!(client.profile().store, "memory");
    assert!(!client.examine().expect("memory answers").is_empty());
    assert_error!(client.require(Guarantee::SurvivesFailover), Error::Unsupported(_));
    let guard = client.mutex("k").lock().expect("it is free");
    assert_eq!(guard.require_token().ok(), guard.token());
    assert_eq!(guard.lease(), Settings::DEFAULT_LEASE);
    let now = SystemClock.now();
    assert!(guard.local_deadline() > now && guard.local_deadline() < now + guard.lease());
    let seen = statuses_of(&client, "k");
    assert_eq!((seen[0].kind, seen[0].holders.len()), (Kind::Mutex, 1));
    assert_eq!(seen[0].holders[0].token, guard.token());
    let nowhere = blocking::connect("nowhere://");
    assert_error!(nowhere, Error::Unsupported(_) | Error::Invalid(_));
}

#[test]
fn a_waiting_thread_is_woken_by_the_thread_that_unlocks() {
    let client = client();
    let ready = Barrier::new(2);
    let unlocked = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let guard = client.mutex("k").lock().expect("it is free");
        let waiter = scope.spawn(|| {
            ready.wait();
            let guard = client.mutex("k").lock_within(SOON).expect("it becomes free");
            assert!(unlocked.load(Ordering::SeqCst), "it did not hold before");
            guard.unlock().expect("it is held");
        });
        ready.wait();
        unlocked.store(true, Ordering::SeqCst);
        guard.unlock().expect("it is held");
        waiter.join().expect("the thread does not panic");
    });
}

#[test]
fn all_blocking_types_are_send() {
    fn travels<T: Send + Sync + 'static>() {}
    travels::<Client>();
    travels::<Mutex>();
    travels::<RwLock>();
    travels::<Semaphore>();
    travels::<Striped>();
    travels::<Election>();
    travels::<Leader>();
    fn is_sent<T: Send + 'static>() {}
    is_sent::<Changes>();
    travels::<Multi>();
    travels::<Lock>();
    travels::<Guard>();
    travels::<MultiGuard>();
    travels::<blocking::Owner>();
}
