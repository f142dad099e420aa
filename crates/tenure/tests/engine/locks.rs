//! Acquiring and releasing mutexes, read-write locks, semaphores and striped locks.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Error, Guarantee, Mode, Settings, multi};
use tenure_backend::Order;

use crate::faulty_backend::Verb;
use crate::fixture::{Fixture, MS, SECOND, assert_error, begun, pass, poll_once, served, settle, spawned};

/// A second lock waits, even in the task that holds the first: only the locks of an owner are re-entrant.
#[tokio::test(start_paused = true)]
async fn a_second_lock_waits_until_the_first_is_released() {
    let mutex = Fixture::new().client().mutex("k");
    let first = mutex.lock().await.unwrap();
    let mut second = begun(mutex.lock()).await;
    pass(SECOND).await;
    assert!(poll_once(&mut second).await.is_none());
    first.unlock().await.unwrap();
    assert!(second.await.unwrap().is_held());
}

/// R3: dropping the guard releases the lock.
#[tokio::test(start_paused = true)]
async fn a_dropped_guard_frees_the_key() {
    let (fixture, [client]) = Fixture::clients();
    drop(client.mutex("k").lock().await.unwrap());
    fixture.freed("k", MS).await;
    assert!(client.mutex("k").try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_try_on_a_key_held_here_fails_without_a_call() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let _guard = client.mutex("k").lock().await.unwrap();
    let (before, calls) = (
        tokio::time::Instant::now(),
        backend.control(Verb::Acquire).count(),
    );
    assert!(client.mutex("k").try_lock().await.unwrap().is_none());
    assert_eq!(backend.control(Verb::Acquire).count(), calls);
    assert!(fixture.client().mutex("k").try_lock().await.unwrap().is_none());
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_uncontended_lock_is_one_call_and_its_unlock_another() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    client.mutex("k").lock().await.unwrap().unlock().await.unwrap();
    let counts =
        [Verb::Acquire, Verb::Release, Verb::Renew, Verb::Watch].map(|verb| backend.control(verb).count());
    assert_eq!(counts, [1, 1, 0, 0]);
}

/// R1: a wait leaves no claim after its time-out, even if a grant arrives later.
#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_leaves_nothing() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    let before = tokio::time::Instant::now();
    let timed_out = client.mutex("k").lock_within(500 * MS).await;
    assert_error!(timed_out, Error::Timeout);
    assert!(before.elapsed() >= 500 * MS && before.elapsed() < 510 * MS);
    guard.unlock().await.unwrap();
    settle().await;
    assert!(fixture.is_free("k").await);

    backend.control(Verb::Acquire).hold_after();
    let unanswered = client.mutex("k").lock_within(50 * MS).await;
    assert!(matches!(unanswered, Err(Error::Backend(_))), "{unanswered:?}");
    assert!(!fixture.is_free("k").await, "the store granted it");
    backend.control(Verb::Acquire).resume();
    fixture.freed("k", MS).await;
}

#[tokio::test(start_paused = true)]
async fn bad_keys_and_options_are_refused_before_any_call() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    for key in ["", "a\nb", &"x".repeat(201)] {
        assert_error!(client.mutex(key).lock().await, Error::Invalid(_));
        assert_error!(client.rwlock(key).try_read().await, Error::Invalid(_));
    }
    assert_error!(client.semaphore("s", 0).acquire().await, Error::Invalid(_));
    assert_error!(client.semaphore("s", 3).acquire_many(4).await, Error::Invalid(_));
    assert_error!(client.semaphore("s", 3).acquire_many(0).await, Error::Invalid(_));
    assert_error!(client.mutex("k").lease(MS).lock().await, Error::Invalid(_));
    let twice = multi([client.mutex("k"), client.mutex("k")]);
    assert_error!(twice.lock_within(SECOND).await, Error::Invalid(_));
    assert_eq!(backend.control(Verb::Acquire).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_in_use_as_another_kind_names_both_kinds() {
    let (_, [client]) = Fixture::clients();
    let _mutex = client.mutex("k").lock().await.unwrap();
    let error = client.rwlock("k").read().await.unwrap_err();
    let words = error.to_string();
    assert!(matches!(error, Error::Mismatch { .. }), "{error:?}");
    assert!(words.contains("a mutex"), "{words}");
    assert!(words.contains("a read-write lock"), "{words}");
}

#[tokio::test(start_paused = true)]
async fn readers_share_and_writers_do_not() {
    let (_, clients) = Fixture::clients::<2>();
    let [here, elsewhere] = clients.map(|client| client.rwlock("k"));
    let (one, two) = (here.read().await.unwrap(), here.read().await.unwrap());
    let three = elsewhere.read().await.unwrap();
    assert_eq!(one.mode(), Mode::Read);
    assert!(elsewhere.try_write().await.unwrap().is_none());
    let mut writer = begun(here.write()).await;
    one.unlock().await.unwrap();
    two.unlock().await.unwrap();
    settle().await;
    let early = poll_once(&mut writer).await;
    assert!(early.is_none(), "a reader elsewhere still holds it");
    three.unlock().await.unwrap();
    let writer = writer.await.unwrap();
    assert!(here.try_read().await.unwrap().is_none() && elsewhere.try_read().await.unwrap().is_none());
    writer.unlock().await.unwrap();
    assert!(elsewhere.try_write().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn concurrent_tries_to_read_all_succeed() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    backend.yield_everywhere(3);
    let lock = client.rwlock("k");
    let (one, two) = tokio::join!(lock.try_read(), lock.try_read());
    assert!(one.unwrap().is_some() && two.unwrap().is_some());
    settle().await;
    let (waits, tries) = tokio::join!(lock.read(), lock.try_read());
    assert!(waits.is_ok() && tries.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn permits_add_up_and_come_back() {
    let semaphore = Fixture::new().client().semaphore("s", 3);
    let one = semaphore.acquire().await.unwrap();
    let two = semaphore.acquire_many(2).await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    let waiting = begun(semaphore.acquire()).await;
    two.unlock().await.unwrap();
    drop((one, waiting.await.unwrap()));
    settle().await;
    assert!(semaphore.try_acquire_many(3).await.unwrap().is_some());
}

/// `mutex` accepts the key that a guard returns, and a token converts to and from `i64`.
#[tokio::test(start_paused = true)]
async fn keys_and_tokens_convert_without_detours() {
    let client = Fixture::new().client();
    let key: tenure::LockKey = "k".parse().unwrap();
    let guard = client.mutex(&key).lock().await.unwrap();
    assert!(client.mutex(guard.key()).try_lock().await.unwrap().is_none());
    let number: i64 = guard.require_token().unwrap().into();
    assert_eq!(tenure::FencingToken::try_from(number).ok(), guard.token());
}

#[tokio::test(start_paused = true)]
async fn with_runs_work_under_the_lock_and_releases_it() {
    let (fixture, [client]) = Fixture::clients();
    let mutex = client.mutex("k");
    let inside = mutex
        .with(async |guard| guard.is_held() && mutex.try_lock().await.unwrap().is_none())
        .await;
    assert!(inside.unwrap());
    assert!(fixture.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn the_fallback_runs_only_when_the_lock_is_busy() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let mutex = client.mutex("k");
    let work = |limit| mutex.with_or_else(limit, async |_| "work", async || "fallback");
    assert_eq!(work(50 * MS).await.unwrap(), "work");
    let guard = mutex.lock().await.unwrap();
    for limit in [Duration::ZERO, 50 * MS] {
        assert_eq!(work(limit).await.unwrap(), "fallback");
    }
    guard.unlock().await.unwrap();
    // After an error of the store, `with_or_else` returns the error and does not run its fallback.
    for limit in [Duration::ZERO, 50 * MS] {
        backend.control(Verb::Acquire).refuse(1);
        assert_error!(work(limit).await, Error::Backend(_));
    }
}

#[tokio::test(start_paused = true)]
async fn losing_the_lock_during_work_is_an_error_not_the_fallback() {
    let mutex = Fixture::new().client().mutex("k").fixed_lease(SECOND);
    let work = async |_: &tenure::Guard| {
        pass(5 * SECOND).await;
        "work"
    };
    let lost = mutex.with_or_else(SECOND, work, async || "fallback").await;
    assert_error!(lost, Error::Lost(_));
}

#[tokio::test(start_paused = true)]
async fn a_striped_key_serves_all_names_or_none() {
    let fixture = Fixture::new();
    for (length, fits) in [(197, true), (198, false), (200, false)] {
        let striped = fixture.client().striped("k".repeat(length), 16);
        for stripe in striped.stripes() {
            assert_eq!(stripe.try_lock().await.is_ok(), fits, "{length} bytes");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_stripes_are_refused_at_first_use() {
    let client = Fixture::new().client();
    let most = client.striped("k", tenure::Striped::MAX_STRIPES);
    most.mutex("name").lock().await.unwrap().unlock().await.unwrap();
    let striped = client.striped("k", tenure::Striped::MAX_STRIPES + 1);
    assert_error!(striped.mutex("name").lock().await, Error::Invalid(_));
    assert_error!(striped.mutex("name").try_lock().await, Error::Invalid(_));
}

#[tokio::test(start_paused = true)]
async fn a_striped_name_always_has_the_same_stripe() {
    let (_, clients) = Fixture::clients::<2>();
    let [here, elsewhere] = clients.map(|client| client.striped("cart", 8));
    let guard = here.mutex("customer 1").lock().await.unwrap();
    assert!(elsewhere.mutex("customer 1").try_lock().await.unwrap().is_none());
    assert!(guard.key().as_str().starts_with("cart#"));
    let free = here.stripes().iter().map(|stripe| stripe.try_lock());
    let taken = futures_util::future::join_all(free).await;
    let taken = taken.iter().filter(|guard| matches!(guard, Ok(Some(_))));
    assert_eq!(taken.count(), 7);
}

/// R17: similar but different names are different locks.
#[tokio::test(start_paused = true)]
async fn different_names_are_different_locks() {
    let (_, [client]) = Fixture::clients();
    let mut guards = Vec::new();
    for key in ["k", "K", "k ", " k", "k\u{301}", "{k}", "k:1", "k1"] {
        guards.push(client.mutex(key).try_lock().await.unwrap().expect(key));
    }
    assert_eq!(guards.len(), 8);
}

#[tokio::test(start_paused = true)]
async fn claims_over_the_limit_are_refused_until_a_release() {
    let fixture = Fixture::new();
    let client = fixture.client_with(Settings::default().max_claims(2));
    let one = client.mutex("a").lock().await.unwrap();
    let _two = client.mutex("b").lock().await.unwrap();
    assert_error!(client.mutex("c").lock().await, Error::Limit(_));
    one.unlock().await.unwrap();
    assert!(client.mutex("c").lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn demanding_a_missing_guarantee_is_refused() {
    let client = Fixture::new().client();
    assert!(client.require(Guarantee::Fencing).is_ok());
    assert_error!(client.require(Guarantee::BetweenMachines), Error::Unsupported(_));
}

/// The message says "no fair locks" only if the store has unfair ones, and "no unfair locks" only if it has fair
/// ones.
#[tokio::test(start_paused = true)]
async fn an_unsupported_lock_is_refused_with_a_message() {
    for (order, fair, words) in [
        (Order::None, false, "has no locks of mode read"),
        (Order::None, true, "has no locks of mode read"),
        (Order::Unfair, true, "has no fair locks of mode read"),
        (Order::Fifo, false, "has no unfair locks of mode read"),
    ] {
        let (client, _) = Fixture::new().faulty_client_where(|profile| profile.read_write = order);
        let lock = client.rwlock("k");
        let lock = if fair { lock.fair() } else { lock };
        let refused = lock.read().await.unwrap_err();
        assert!(matches!(refused, Error::Unsupported(_)), "{refused:?}");
        assert!(format!("{refused:?}").contains(words), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn on_waiting_runs_once_with_the_waiting_claim() {
    let (fixture, [here, elsewhere]) = Fixture::clients();
    let guard = here.mutex("k").fair().lock().await.unwrap();
    let told = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let tell = told.clone();
    let waiting = elsewhere.mutex("k").fair().lock();
    let waiting = spawned(waiting.on_waiting(move |claim| tell.lock().push(claim.id))).await;
    let queue = fixture.queue("k").await;
    assert_eq!(told.lock().len(), 1);
    assert_eq!(queue[0].id, tenure::HolderId::Claim(told.lock()[0]));
    guard.unlock().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(guard.claim().id, told.lock()[0]);
    assert_eq!(told.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn labels_are_shown_and_waiters_share_one_watch() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let elsewhere = fixture.client_with(Settings::default().label("another client"));
    let guard = elsewhere.mutex("k").lock().await.unwrap();
    let waiters: Vec<_> = (0..20).map(|_| tokio::spawn(client.mutex("k").lock())).collect();
    pass(SECOND).await;
    let status = fixture.status("k").await.unwrap();
    assert_eq!(status.holders[0].label.as_deref(), Some("another client"));
    let watches = backend.control(Verb::Watch).count();
    assert_eq!(watches, 1, "one waiter talks to the store for all");
    assert!(backend.control(Verb::Acquire).count() <= 3);
    guard.unlock().await.unwrap();
    for waiter in waiters {
        served(waiter).await.unlock().await.unwrap();
    }
}

/// No other caller waits when they come, so each of them asks the store itself.
#[tokio::test(start_paused = true)]
async fn callers_of_permits_that_ask_together_are_served_in_order() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let mut permits = Vec::new();
    for _ in 0..3 {
        permits.push(fixture.client().semaphore("s", 3).acquire().await.unwrap());
    }
    let semaphore = client.semaphore("s", 3);
    backend.control(Verb::Acquire).hold_before();
    let (first, second, third) = (
        tokio::spawn(semaphore.acquire()),
        tokio::spawn(semaphore.acquire()),
        tokio::spawn(semaphore.acquire()),
    );
    settle().await;
    assert_eq!(backend.control(Verb::Acquire).count(), 3);
    backend.control(Verb::Acquire).resume();
    settle().await;
    let mut waiting = [first, second, third];
    let mut granted = Vec::new();
    for served in 0..waiting.len() {
        drop(permits.pop());
        pass(SECOND).await;
        let done = waiting.each_ref().map(|caller| caller.is_finished());
        assert_eq!(done, [0, 1, 2].map(|caller| caller <= served));
        granted.push((&mut waiting[served]).await.unwrap().unwrap());
    }
}
