//! Linger: a claim that stays in its client after an unlock, for the next local caller.

use std::time::Duration;

use tenure::{Client, Error, Settings};

use crate::stage::{Stage, Verb};
use crate::world::{MS, SECOND, World, pass, settle};

const LINGER: Duration = Duration::from_millis(10);

fn calls(stage: &Stage) -> (usize, usize) {
    (stage.act(Verb::Acquire).count(), stage.act(Verb::Release).count())
}

/// Locks the key `k` with linger, and unlocks it; returns the token.
async fn turn(client: &Client) -> u64 {
    let guard = client
        .mutex("k")
        .linger(LINGER)
        .lock()
        .await
        .expect("the key is free");
    let token = guard.token().expect("memory has tokens").get();
    guard.unlock().await.expect("the lock is held");
    token
}

#[tokio::test(start_paused = true)]
async fn a_lone_task_takes_its_lock_again_without_a_call() {
    let (world, client, stage) = World::with_stage();
    let first = turn(&client).await;
    assert_eq!(
        turn(&client).await,
        first + 1,
        "the first claim reserves two grants"
    );
    settle().await;
    assert_eq!(calls(&stage), (1, 1), "a run without tokens left is released");
    let mut last = turn(&client).await;
    for _ in 1..4 {
        let next = turn(&client).await;
        assert_eq!(next, last + 1);
        last = next;
    }
    settle().await;
    assert_eq!(calls(&stage), (2, 2), "the second claim reserves four");
    assert!(world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_claim_lingers_for_its_time_and_no_longer() {
    let (world, client, stage) = World::with_stage();
    let other = world.client();
    turn(&client).await;
    pass(9 * MS).await;
    assert!(other.mutex("k").try_lock().await.unwrap().is_none(), "it lingers");
    pass(3 * MS).await;
    assert_eq!(calls(&stage), (1, 1));
    assert!(
        other.mutex("k").try_lock().await.unwrap().is_some(),
        "it was released"
    );
}

#[tokio::test(start_paused = true)]
async fn the_time_counts_from_the_grant_and_not_from_the_unlock_or_a_renewal() {
    let (world, client, _) = World::with_stage();
    let guard = client.mutex("k").linger(LINGER).lock().await.unwrap();
    pass(11 * MS).await;
    guard.verify().await.unwrap();
    guard.unlock().await.unwrap();
    assert!(world.is_free("k").await, "nothing lingers 11 ms after the grant");
}

#[tokio::test(start_paused = true)]
async fn without_linger_or_local_hand_over_nothing_lingers() {
    let world = World::new();
    let off = Settings::default().linger(LINGER).passing(false);
    for (name, client) in [
        ("by default", world.client()),
        ("without local hand-over", world.client_with(off)),
    ] {
        client.mutex("k").lock().await.unwrap().unlock().await.unwrap();
        assert!(world.is_free("k").await, "{name}");
    }
    let client = world.client_with(Settings::default().linger(LINGER));
    let owner = client.owner("importer");
    let mutex = || client.mutex("k");
    for (name, mutex) in [
        ("fair", mutex().fair()),
        ("a fixed lease", mutex().fixed_lease(SECOND)),
        ("max_hold", mutex().max_hold(SECOND)),
        ("an owner", mutex().owned_by(&owner)),
    ] {
        mutex.lock().await.unwrap().unlock().await.unwrap();
        assert!(world.is_free("k").await, "{name}");
    }
    mutex().lock().await.unwrap().unlock().await.unwrap();
    assert!(!world.is_free("k").await, "the setting holds for plain locks");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_dropped_releases_a_claim_that_lingers() {
    let (world, client, _) = World::with_stage();
    turn(&client).await;
    drop(client);
    world.freed("k", 12 * MS).await;
}

#[tokio::test(start_paused = true)]
async fn closing_releases_a_claim_that_lingers() {
    let (world, client, _) = World::with_stage();
    turn(&client).await;
    assert!(!world.is_free("k").await);
    client.close(SECOND).await.unwrap();
    assert!(world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_linger_of_more_than_ten_milliseconds_is_invalid() {
    let world = World::new();
    let locked = world.client().mutex("k").linger(11 * MS).lock().await;
    assert!(matches!(locked, Err(Error::Invalid(why)) if why.contains("10 ms")));
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_other_options_is_not_refused_by_what_lingers() {
    let (_, client, _) = World::with_stage();
    let lingering = client.mutex("k").linger(LINGER);
    for name in [
        "a plain try",
        "a limit of zero",
        "a fair try",
        "a multi-lock",
        "a plain lock",
    ] {
        lingering.lock().await.unwrap().unlock().await.unwrap();
        let plain = client.mutex("k");
        let got = match name {
            "a plain try" => plain.try_lock().await.unwrap().is_some(),
            "a limit of zero" => plain.lock_within(Duration::ZERO).await.is_ok(),
            "a fair try" => plain.fair().try_lock().await.unwrap().is_some(),
            "a multi-lock" => tenure::multi([&lingering]).try_lock().await.unwrap().is_some(),
            _ => plain.lock().await.is_ok(),
        };
        assert!(got, "{name} found the key busy");
        settle().await;
    }
}
