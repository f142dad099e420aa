//! `linger`: a client keeps its claim after an unlock, so that its next `lock` needs no call.

use std::time::Duration;

use tenure::{Client, Error, Settings};

use crate::faulty_backend::{FaultyBackend, Verb};
use crate::fixture::{Fixture, MS, SECOND, pass, settle};

const LINGER: Duration = Duration::from_millis(10);

fn calls(backend: &FaultyBackend) -> (usize, usize) {
    (
        backend.control(Verb::Acquire).count(),
        backend.control(Verb::Release).count(),
    )
}

/// Locks the key `k` with a linger time, and unlocks it. Returns the token.
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
async fn a_lone_task_locks_again_without_a_call() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let first = turn(&client).await;
    assert_eq!(
        turn(&client).await,
        first + 1,
        "the first claim reserves two grants"
    );
    settle().await;
    assert_eq!(calls(&backend), (1, 1), "a run without tokens left is released");
    let mut last = turn(&client).await;
    for _ in 1..4 {
        let next = turn(&client).await;
        assert_eq!(next, last + 1);
        last = next;
    }
    settle().await;
    assert_eq!(calls(&backend), (2, 2), "the second claim reserves four");
    assert!(fixture.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_claim_lingers_for_its_time_and_no_longer() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let other = fixture.client();
    turn(&client).await;
    pass(9 * MS).await;
    assert!(other.mutex("k").try_lock().await.unwrap().is_none(), "it lingers");
    pass(3 * MS).await;
    assert_eq!(calls(&backend), (1, 1));
    assert!(
        other.mutex("k").try_lock().await.unwrap().is_some(),
        "it was released"
    );
}

#[tokio::test(start_paused = true)]
async fn the_linger_time_counts_from_the_grant() {
    let (fixture, client, _) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").linger(LINGER).lock().await.unwrap();
    pass(11 * MS).await;
    guard.verify().await.unwrap();
    guard.unlock().await.unwrap();
    assert!(
        fixture.is_free("k").await,
        "nothing lingers 11 ms after the grant"
    );
}

#[tokio::test(start_paused = true)]
async fn without_linger_or_local_hand_over_nothing_lingers() {
    let fixture = Fixture::new();
    let off = Settings::default().linger(LINGER).local_handover(false);
    for (name, client) in [
        ("by default", fixture.client()),
        ("without local hand-over", fixture.client_with(off)),
    ] {
        client.mutex("k").lock().await.unwrap().unlock().await.unwrap();
        assert!(fixture.is_free("k").await, "{name}");
    }
    let client = fixture.client_with(Settings::default().linger(LINGER));
    let owner = client.owner("importer");
    let mutex = || client.mutex("k");
    for (name, mutex) in [
        ("fair", mutex().fair()),
        ("a fixed lease", mutex().fixed_lease(SECOND)),
        ("max_hold", mutex().max_hold(SECOND)),
        ("an owner", mutex().owned_by(&owner)),
    ] {
        mutex.lock().await.unwrap().unlock().await.unwrap();
        assert!(fixture.is_free("k").await, "{name}");
    }
    mutex().lock().await.unwrap().unlock().await.unwrap();
    assert!(!fixture.is_free("k").await, "the setting holds for plain locks");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_client_releases_a_lingering_claim() {
    let (fixture, client, _) = Fixture::with_faulty_backend();
    turn(&client).await;
    drop(client);
    fixture.freed("k", 12 * MS).await;
}

#[tokio::test(start_paused = true)]
async fn closing_releases_a_lingering_claim() {
    let (fixture, client, _) = Fixture::with_faulty_backend();
    turn(&client).await;
    assert!(!fixture.is_free("k").await);
    client.close(SECOND).await.unwrap();
    assert!(fixture.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_linger_above_ten_milliseconds_is_invalid() {
    let fixture = Fixture::new();
    let locked = fixture.client().mutex("k").linger(11 * MS).lock().await;
    assert!(matches!(locked, Err(Error::Invalid(why)) if why.contains("10 ms")));
}

#[tokio::test(start_paused = true)]
async fn a_lingering_claim_does_not_refuse_other_options() {
    let (_, client, _) = Fixture::with_faulty_backend();
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
