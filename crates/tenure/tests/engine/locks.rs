//! Taking and giving back: mutexes, read-write locks, semaphores, stripes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tenure::{Client, Error, Guarantee, Mode, Settings, multi};
use tenure_backend::Order;

use crate::stage::{Verb, stage_with_profile};
use crate::world::{MS, SECOND, World, pass, poll_once, settle};

#[tokio::test(start_paused = true)]
async fn a_second_lock_waits_until_the_first_is_given_back() {
    let world = World::new();
    let mutex = world.client().mutex("k");
    let first = mutex.lock().await.unwrap();
    let mut second = mutex.lock();
    assert!(poll_once(&mut second).await.is_none());
    pass(SECOND).await;
    assert!(poll_once(&mut second).await.is_none());
    first.unlock().await.unwrap();
    let second = second.await.unwrap();
    assert!(second.is_held());
}

/// R3: nothing keeps a lock whose guard is gone.
#[tokio::test(start_paused = true)]
async fn a_dropped_guard_frees_the_key() {
    let world = World::new();
    let client = world.client();
    drop(client.mutex("k").lock().await.unwrap());
    world.freed("k", MS).await;
    assert!(client.mutex("k").try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_try_on_a_busy_lock_fails_at_once_here_and_elsewhere() {
    let world = World::new();
    let (here, elsewhere) = (world.client(), world.client());
    let _guard = here.mutex("k").lock().await.unwrap();
    let before = tokio::time::Instant::now();
    assert!(here.mutex("k").try_lock().await.unwrap().is_none());
    assert!(elsewhere.mutex("k").try_lock().await.unwrap().is_none());
    assert_eq!(before.elapsed(), std::time::Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_try_on_a_lock_held_by_this_client_costs_no_call() {
    let world = World::new();
    let (client, stage) = world.staged();
    let _guard = client.mutex("k").lock().await.unwrap();
    let calls = stage.act(Verb::Acquire).count();
    assert!(client.mutex("k").try_lock().await.unwrap().is_none());
    assert_eq!(stage.act(Verb::Acquire).count(), calls);
}

#[tokio::test(start_paused = true)]
async fn an_uncontended_lock_is_one_call_and_its_unlock_another() {
    let world = World::new();
    let (client, stage) = world.staged();
    client.mutex("k").lock().await.unwrap().unlock().await.unwrap();
    let counts = [Verb::Acquire, Verb::Release, Verb::Renew, Verb::Watch].map(|verb| stage.act(verb).count());
    assert_eq!(counts, [1, 1, 0, 0]);
}

/// R1: granted exactly as the wait times out, the lock must not leak.
#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_leaves_nothing() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = client.mutex("k").lock().await.unwrap();
    let before = tokio::time::Instant::now();
    let timed_out = client.mutex("k").lock_within(500 * MS).await;
    assert!(matches!(timed_out, Err(Error::Timeout)));
    assert!(before.elapsed() >= 500 * MS && before.elapsed() < 510 * MS);
    guard.unlock().await.unwrap();
    settle().await;
    assert!(world.is_free("k").await);

    stage.act(Verb::Acquire).hold_after();
    let unanswered = client.mutex("k").lock_within(50 * MS).await;
    assert!(matches!(unanswered, Err(Error::Backend(_))), "{unanswered:?}");
    assert!(!world.is_free("k").await, "the store granted it");
    stage.act(Verb::Acquire).go_on();
    world.freed("k", MS).await;
}

#[tokio::test(start_paused = true)]
async fn bad_keys_and_senseless_wishes_are_refused_before_anything_is_sent() {
    let world = World::new();
    let (client, stage) = world.staged();
    for key in ["", "a\nb", &"x".repeat(201)] {
        assert!(
            matches!(client.mutex(key).lock().await, Err(Error::Invalid(_))),
            "{key:?}"
        );
        assert!(
            matches!(client.rwlock(key).try_read().await, Err(Error::Invalid(_))),
            "{key:?}"
        );
    }
    assert!(matches!(
        client.semaphore("s", 0).acquire().await,
        Err(Error::Invalid(_))
    ));
    assert!(matches!(
        client.semaphore("s", 3).acquire_many(4).await,
        Err(Error::Invalid(_))
    ));
    assert!(matches!(
        client.semaphore("s", 3).acquire_many(0).await,
        Err(Error::Invalid(_))
    ));
    assert!(matches!(
        client.mutex("k").lease(MS).lock().await,
        Err(Error::Invalid(_))
    ));
    assert!(matches!(
        multi([client.mutex("k"), client.mutex("k")])
            .lock_within(SECOND)
            .await,
        Err(Error::Invalid(_))
    ));
    assert_eq!(stage.act(Verb::Acquire).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_one_kind_is_refused_as_another_with_both_named() {
    let world = World::new();
    let client = world.client();
    let _mutex = client.mutex("k").lock().await.unwrap();
    let Err(error) = client.rwlock("k").read().await else {
        panic!("a mutex is no read-write lock")
    };
    assert!(matches!(error, Error::Mismatch { .. }));
    let words = error.to_string();
    assert!(
        words.contains("a mutex") && words.contains("a read-write lock"),
        "{words}"
    );
}

#[tokio::test(start_paused = true)]
async fn readers_share_and_writers_do_not() {
    let world = World::new();
    let (here, elsewhere) = (world.client().rwlock("k"), world.client().rwlock("k"));
    let (one, two, three) = (
        here.read().await.unwrap(),
        here.read().await.unwrap(),
        elsewhere.read().await.unwrap(),
    );
    assert_eq!(one.mode(), Mode::Read);
    assert!(elsewhere.try_write().await.unwrap().is_none());
    let mut writer = here.write();
    assert!(poll_once(&mut writer).await.is_none());
    one.unlock().await.unwrap();
    two.unlock().await.unwrap();
    settle().await;
    assert!(
        poll_once(&mut writer).await.is_none(),
        "a reader elsewhere still holds it"
    );
    three.unlock().await.unwrap();
    let writer = writer.await.unwrap();
    assert!(here.try_read().await.unwrap().is_none() && elsewhere.try_read().await.unwrap().is_none());
    writer.unlock().await.unwrap();
    assert!(elsewhere.try_write().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn concurrent_tries_to_read_all_succeed() {
    let world = World::new();
    let (client, stage) = world.staged();
    stage.yield_everywhere(3);
    let lock = client.rwlock("k");
    let (one, two) = tokio::join!(lock.try_read(), lock.try_read());
    assert!(one.unwrap().is_some() && two.unwrap().is_some());
    settle().await;
    let (waits, tries) = tokio::join!(lock.read(), lock.try_read());
    assert!(waits.is_ok() && tries.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn permits_add_up_and_come_back() {
    let world = World::new();
    let semaphore = world.client().semaphore("s", 3);
    let (one, two) = (
        semaphore.acquire().await.unwrap(),
        semaphore.acquire_many(2).await.unwrap(),
    );
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    let mut waiting = semaphore.acquire();
    assert!(poll_once(&mut waiting).await.is_none());
    two.unlock().await.unwrap();
    let three = waiting.await.unwrap();
    drop((one, three));
    settle().await;
    assert!(semaphore.try_acquire_many(3).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn tokens_rise_from_holder_to_holder() {
    let world = World::new();
    let (here, elsewhere) = (world.client(), world.client());
    let mut last = None;
    for round in 0..50 {
        let client = if round % 3 == 0 { &elsewhere } else { &here };
        let guard = client.mutex("k").lock().await.unwrap();
        assert!(guard.token() > last, "{:?} after {last:?}", guard.token());
        last = guard.token();
        guard.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn with_runs_its_work_under_the_lock_and_gives_it_back() {
    let world = World::new();
    let client = world.client();
    let mutex = client.mutex("k");
    let inside = mutex
        .with(async |guard| guard.is_held() && mutex.try_lock().await.unwrap().is_none())
        .await;
    assert!(inside.unwrap());
    assert!(world.is_free("k").await);
}

#[tokio::test]
async fn with_can_be_spawned() {
    let client = tenure::connect("memory:").await.unwrap();
    let task = tokio::spawn(async move {
        let mutex = client.mutex("k");
        mutex.with(async |_| 7).await
    });
    assert_eq!(task.await.unwrap().unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn the_fallback_runs_only_when_the_lock_is_busy() {
    let world = World::new();
    let (client, stage) = world.staged();
    let mutex = client.mutex("k");
    let free = mutex
        .with_or_else(50 * MS, async |_| "work", async || "fallback")
        .await;
    assert_eq!(free.unwrap(), "work");
    let guard = mutex.lock().await.unwrap();
    for limit in [std::time::Duration::ZERO, 50 * MS] {
        let busy = mutex
            .with_or_else(limit, async |_| "work", async || "fallback")
            .await;
        assert_eq!(busy.unwrap(), "fallback");
    }
    guard.unlock().await.unwrap();
    for limit in [std::time::Duration::ZERO, 50 * MS] {
        stage.act(Verb::Acquire).refuse(1);
        let broken = mutex
            .with_or_else(limit, async |_| "work", async || "fallback")
            .await;
        assert!(
            matches!(broken, Err(Error::Backend(_))),
            "a store's fault is not busy"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_while_the_work_runs_is_an_error_and_not_the_fallback() {
    let world = World::new();
    let mutex = world.client().mutex("k").fixed_lease(SECOND);
    let work = async |_: &tenure::Guard| {
        pass(5 * SECOND).await;
        "work"
    };
    let lost = mutex.with_or_else(SECOND, work, async || "fallback").await;
    assert!(matches!(lost, Err(Error::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn a_striped_key_serves_all_names_or_none() {
    let world = World::new();
    for (length, fits) in [(197, true), (198, false), (200, false)] {
        let striped = world.client().striped("k".repeat(length), 16);
        for stripe in striped.stripes() {
            assert_eq!(stripe.try_lock().await.is_ok(), fits, "{length} bytes");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_striped_name_always_has_the_same_stripe() {
    let world = World::new();
    let (here, elsewhere) = (
        world.client().striped("cart", 8),
        world.client().striped("cart", 8),
    );
    let guard = here.mutex("customer 1").lock().await.unwrap();
    assert!(elsewhere.mutex("customer 1").try_lock().await.unwrap().is_none());
    assert!(guard.key().as_str().starts_with("cart#"));
    let free = here.stripes().iter().map(|stripe| stripe.try_lock());
    let taken = futures_util::future::join_all(free).await;
    assert_eq!(
        taken.iter().filter(|guard| matches!(guard, Ok(Some(_)))).count(),
        7
    );
}

/// R17: two names never share a lock in the process.
#[tokio::test(start_paused = true)]
async fn names_that_differ_in_anything_are_different_locks() {
    let world = World::new();
    let client = world.client();
    let mut guards = Vec::new();
    for key in ["k", "K", "k ", " k", "k\u{301}", "{k}", "k:1", "k1"] {
        guards.push(client.mutex(key).try_lock().await.unwrap().expect(key));
    }
    assert_eq!(guards.len(), 8);
}

#[tokio::test(start_paused = true)]
async fn more_claims_than_the_limit_are_refused_until_one_is_given_back() {
    let world = World::new();
    let client = world.client_with(Settings::default().max_claims(2));
    let one = client.mutex("a").lock().await.unwrap();
    let _two = client.mutex("b").lock().await.unwrap();
    assert!(matches!(client.mutex("c").lock().await, Err(Error::Limit(_))));
    one.unlock().await.unwrap();
    assert!(client.mutex("c").lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_guarantee_that_the_store_does_not_give_can_be_demanded_in_vain() {
    let client = World::new().client();
    assert!(client.require(Guarantee::Fencing).is_ok());
    assert!(matches!(
        client.require(Guarantee::BetweenMachines),
        Err(Error::Unsupported(_))
    ));
}

/// The order is named only where the store knows the other.
#[tokio::test(start_paused = true)]
async fn a_lock_that_the_store_has_not_is_refused_in_words() {
    for (order, fair, words) in [
        (Order::None, false, "has no locks of mode read"),
        (Order::None, true, "has no locks of mode read"),
        (Order::Unfair, true, "has no fair locks of mode read"),
        (Order::Fifo, false, "has no unfair locks of mode read"),
    ] {
        let world = World::new();
        let mut profile = world.backend().profile().clone();
        profile.read_write = order;
        let client = Client::new(stage_with_profile(world.backend(), profile), Settings::default());
        let lock = client.rwlock("k");
        let lock = if fair { lock.fair() } else { lock };
        let refused = lock.read().await.unwrap_err();
        assert!(matches!(refused, Error::Unsupported(_)), "{refused:?}");
        assert!(format!("{refused:?}").contains(words), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_once_with_the_claim_that_waits() {
    let world = World::new();
    let (here, elsewhere) = (world.client(), world.client());
    let guard = here.mutex("k").fair().lock().await.unwrap();
    let told = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let tell = told.clone();
    let waiting = elsewhere
        .mutex("k")
        .fair()
        .lock()
        .on_waiting(move |claim| tell.lock().push(claim.id));
    let waiting = tokio::spawn(waiting);
    settle().await;
    let queue = world.status("k").await.unwrap().waiters.unwrap();
    assert_eq!(told.lock().len(), 1);
    assert_eq!(queue[0].id, tenure::HolderId::Claim(told.lock()[0]));
    guard.unlock().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(guard.claim().id, told.lock()[0]);
    assert_eq!(told.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_label_is_shown_and_at_most_one_watch_is_armed_for_many_waiters() {
    let world = World::new();
    let (client, stage) = world.staged();
    let elsewhere = world.client_with(Settings::default().label("somebody else"));
    let guard = elsewhere.mutex("k").lock().await.unwrap();
    let waiters: Vec<_> = (0..20).map(|_| tokio::spawn(client.mutex("k").lock())).collect();
    pass(SECOND).await;
    let status = world.status("k").await.unwrap();
    assert_eq!(status.holders[0].label.as_deref(), Some("somebody else"));
    assert_eq!(
        stage.act(Verb::Watch).count(),
        1,
        "one waiter talks to the store for all"
    );
    assert!(stage.act(Verb::Acquire).calls.load(Ordering::Relaxed) <= 3);
    guard.unlock().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap().unlock().await.unwrap();
    }
}
