//! A store may want an early first renewal of each claim. The client sends it once, even for a fixed lease, which
//! gets no other renewal, but not for a lock that is released before the renewal is due.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Client, LostCause};

use crate::faulty_backend::{FaultyBackend, Verb};
use crate::fixture::{Fixture, MS, SECOND, pass, settle};

const WANTED: Duration = Duration::from_millis(100);

/// A client of a store that wants an early first renewal of each claim.
fn client(fixture: &Fixture) -> (Client, Arc<FaultyBackend>) {
    fixture.faulty_client_where(|profile| profile.first_renewal = Some(WANTED))
}

#[tokio::test(start_paused = true)]
async fn the_first_renewal_is_sent_when_the_store_wants_it() {
    let fixture = Fixture::new();
    let (client, backend) = client(&fixture);
    let guard = client.mutex("k").lock().await.unwrap();
    pass(WANTED / 2).await;
    assert_eq!(backend.control(Verb::Renew).count(), 0);
    pass(WANTED).await;
    assert_eq!(backend.control(Verb::Renew).count(), 1);
    pass(8 * SECOND).await;
    let renewals = backend.control(Verb::Renew).count();
    assert_eq!(renewals, 1, "the next comes at a third of 30 s");
    pass(3 * SECOND).await;
    assert_eq!(backend.control(Verb::Renew).count(), 2);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_is_renewed_at_its_third() {
    let fixture = Fixture::new();
    let (client, backend) = client(&fixture);
    let guard = client.mutex("k").lease(90 * MS).lock().await.unwrap();
    pass(50 * MS).await;
    assert!(backend.control(Verb::Renew).count() >= 1);
    pass(SECOND).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_renewed_once_and_not_lengthened() {
    let fixture = Fixture::new();
    let (client, backend) = client(&fixture);
    let start = tokio::time::Instant::now();
    let guard = client.mutex("k").fixed_lease(2 * SECOND).lock().await.unwrap();
    let lost = guard.lost().await;
    // The local deadline is a hundredth of the lease early for clock drift, and another hundredth as a margin.
    let held = start.elapsed();
    assert!(held > 1_950 * MS && held <= 1_960 * MS + MS, "{held:?}");
    assert!(matches!(lost.cause, LostCause::Expired), "{lost}");
    assert_eq!(backend.control(Verb::Renew).count(), 1);
    pass(50 * MS).await;
    assert!(
        fixture.is_free("k").await,
        "the store does not keep it for longer"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_first_renewal_keeps_a_fixed_lease() {
    let fixture = Fixture::new();
    let (client, backend) = client(&fixture);
    backend.control(Verb::Renew).fail_before(3);
    let guard = client.mutex("k").fixed_lease(3 * SECOND).lock().await.unwrap();
    pass(2 * SECOND).await;
    assert_eq!(backend.control(Verb::Renew).count(), 4, "until one is confirmed");
    assert!(guard.is_held());
    backend.control(Verb::Renew).fail_before(usize::MAX);
    let silent = client.mutex("l").fixed_lease(SECOND).lock().await.unwrap();
    pass(900 * MS).await;
    assert!(silent.is_held());
    assert!(matches!(silent.lost().await.cause, LostCause::Expired));
}

/// No renewal is sent for a lock that is released before its first renewal, not even later.
#[tokio::test(start_paused = true)]
async fn a_lock_shorter_than_the_first_renewal_is_not_renewed() {
    let fixture = Fixture::new();
    let (client, backend) = client(&fixture);
    for _ in 0..40 {
        let guard = client.mutex("k").lock().await.unwrap();
        pass(WANTED / 2).await;
        guard.unlock().await.unwrap();
        pass(10 * MS).await;
    }
    settle().await;
    assert_eq!(backend.control(Verb::Renew).count(), 0);
}

/// Of 200 claims granted 1 ms apart, those that are due soon after each other share a call.
#[tokio::test(start_paused = true)]
async fn first_renewals_share_a_batch() {
    let fixture = Fixture::new();
    let (client, backend) = client(&fixture);
    let mut guards = Vec::new();
    for n in 0..200 {
        guards.push(client.mutex(format!("k{n}")).lock().await.unwrap());
        pass(MS).await;
    }
    pass(2 * WANTED).await;
    let calls = backend.control(Verb::Renew).count();
    assert!(calls <= 20, "{calls} calls for 200 claims within 200 ms");
}
