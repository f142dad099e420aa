//! Locks that are kept for at least their time: beyond their guards, and beyond their client.
//! How they are handed on and lost meanwhile is in the files of those subjects.

use std::time::Duration;

use tenure::{Error, LostCause, Settings, multi};

use crate::stage::Verb;
use crate::world::{
    MS, SECOND, World, assert_error, assert_weather, begun, evict, pass, poll_once, queued, settle, spawned,
};

const LEAST: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn at_least_outlives_the_guard_and_the_client() {
    // Shorter and longer than the lease.
    for least in [LEAST, 40 * SECOND] {
        for (ending, closes) in [
            ("drop", true),
            ("unlock", true),
            ("neither", true),
            ("drop", false),
        ] {
            let case = format!("{ending} for {least:?}, closes: {closes}");
            let (world, [client, other]) = World::clients();
            let guard = client.mutex("k").at_least(least).lock().await.unwrap();
            let mut alive = None;
            match ending {
                "drop" => drop(guard),
                "unlock" => guard.unlock().await.unwrap(),
                _ => alive = Some(guard),
            }
            if closes {
                client.close(SECOND).await.unwrap();
            }
            assert!(alive.is_none_or(|guard| !guard.is_held()), "{case}");
            assert!(other.mutex("k").try_lock().await.unwrap().is_none(), "{case}");
            pass(least - 100 * MS).await;
            assert!(!world.is_free("k").await, "{case}");
            pass(200 * MS).await;
            assert!(other.mutex("k").try_lock().await.unwrap().is_some(), "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_key_that_is_kept_has_it_as_soon_as_the_time_is_over() {
    let (_, [holder, client]) = World::clients();
    let guard = holder.mutex("k").at_least(LEAST).lock().await.unwrap();
    let waiting = spawned(client.mutex("k").lock()).await;
    let start = tokio::time::Instant::now();
    guard.unlock().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    let waited = start.elapsed();
    assert!(waited > LEAST - 50 * MS && waited < LEAST + 50 * MS, "{waited:?}");
    drop(next);
}

/// The store then keeps the claim for longer than it was asked to.
#[tokio::test(start_paused = true)]
async fn a_kept_key_is_released_on_time_where_leases_are_rounded_up() {
    let (world, client, stage) = World::with_stage();
    stage.round_up_to(60 * SECOND);
    drop(client.mutex("k").at_least(LEAST).lock().await.unwrap());
    pass(LEAST - 100 * MS).await;
    assert!(!world.is_free("k").await);
    pass(200 * MS).await;
    assert!(world.is_free("k").await);
}

/// Its client believes that the key is kept, but not longer than it takes to ask.
#[tokio::test(start_paused = true)]
async fn who_evicts_what_is_kept_for_its_own_client_may_have_it_at_once() {
    let (world, [client]) = World::clients();
    let guard = client.mutex("k").at_least(60 * SECOND).lock().await.unwrap();
    guard.unlock().await.unwrap();
    let waiting = spawned(client.mutex("k").lock()).await;
    evict(&client, "k").await;
    let evicted = tokio::time::Instant::now();
    let next = waiting.await.unwrap().unwrap();
    assert!(evicted.elapsed() <= SECOND, "{:?}", evicted.elapsed());
    next.unlock().await.unwrap();
    assert!(world.is_free("k").await, "nothing of it is left");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_kept_for_longer_than_the_longest_lease_while_its_client_lives() {
    let world = World::new();
    let longest = 10 * SECOND;
    let (client, _) = world.staged_where(|profile| profile.limits.max_lease = longest);
    let mutex = client.mutex("k").lease(longest).at_least(3 * longest);
    drop(mutex.lock().await.unwrap());
    pass(longest + longest / 2).await;
    assert!(!world.is_free("k").await);
    client.close(SECOND).await.unwrap();
    pass(longest).await;
    assert!(world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn an_unlock_says_whether_the_store_keeps_what_it_was_to_keep() {
    let (world, client, stage) = World::with_stage();
    let guard = client.mutex("k").at_least(600 * SECOND).lock().await.unwrap();
    stage.act(Verb::Renew).fail_before(usize::MAX);
    let start = tokio::time::Instant::now();
    assert_weather(&guard.unlock().await, "an unlock that fails");
    let took = start.elapsed();
    assert!(took <= Settings::default().unlock_limit + SECOND, "{took:?}");
    stage.act(Verb::Renew).fail_before(0);
    pass(100 * SECOND).await;
    assert!(!world.is_free("k").await, "the watchdog goes on");

    let mutex = client.mutex("refused").at_least(600 * SECOND);
    let guard = mutex.lock().await.unwrap();
    stage.act(Verb::Renew).refuse(1);
    let unlocked = guard.unlock().await;
    assert!(
        matches!(&unlocked, Err(Error::Backend(error)) if !error.is_transient()),
        "{unlocked:?}"
    );

    let guard = client.mutex("l").at_least(600 * SECOND).lock().await.unwrap();
    evict(&world.client(), "l").await;
    match guard.unlock().await {
        Err(Error::Lost(lost)) => assert!(matches!(lost.cause, LostCause::Evicted { .. }), "{lost:?}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_search_that_fails_keeps_no_member_however_long_it_was_to_be_held() {
    let (world, [client]) = World::clients();
    let _reader = world.client().rwlock("of another kind").read().await.unwrap();
    let members = [client.mutex("k").at_least(LEAST), client.mutex("of another kind")];
    assert_error!(multi(members).lock().await, Error::Mismatch { .. });
    settle().await;
    assert!(world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_search_that_is_dropped_keeps_no_member_however_long_it_was_to_be_held() {
    let (world, client, stage) = World::with_stage();
    stage.yield_everywhere(1);
    for polls in 1..12 {
        let members = ["k", "l"].map(|key| client.mutex(key).at_least(LEAST));
        let mut lock = multi(members).lock();
        for _ in 0..polls {
            if let Some(guards) = poll_once(&mut lock).await {
                // Found: these are kept, as was asked.
                drop(guards);
                return;
            }
        }
        drop(lock);
        world.freed("k", 100 * MS).await;
        world.freed("l", 100 * MS).await;
    }
    panic!("twelve polls find two free keys");
}

#[tokio::test(start_paused = true)]
async fn a_search_that_waits_keeps_no_member_however_long_it_was_to_be_held() {
    let (world, [client]) = World::clients();
    let _busy = world.client().mutex("l").lock().await.unwrap();
    let both = multi(["k", "l"].map(|key| client.mutex(key).at_least(LEAST)));
    assert!(both.try_lock().await.unwrap().is_none());
    assert!(world.is_free("k").await);
    let _waiting = begun(queued(both.lock()).await).await;
    assert!(world.is_free("k").await);
}

/// A client that closes has not done its part before the store has said that it keeps what is to be kept.
#[tokio::test(start_paused = true)]
async fn a_client_that_closes_in_bad_weather_does_not_forget_what_is_to_be_kept() {
    for dropped_before in [false, true] {
        let (world, client, stage) = World::with_stage();
        let guard = client.mutex("k").at_least(60 * SECOND).lock().await.unwrap();
        stage.act(Verb::Renew).fail_before(3);
        let mut alive = Some(guard);
        if dropped_before {
            alive = None;
            settle().await;
        }
        client.close(10 * SECOND).await.unwrap();
        assert_eq!(stage.act(Verb::Renew).count(), 4);
        // Longer than the lease that it had from the start.
        pass(55 * SECOND).await;
        assert!(!world.is_free("k").await, "dropped before {dropped_before}");
        drop(alive);
    }
}
