//! What belief is reckoned from, when replies are late.

use std::time::Duration;

use tenure::{Client, Guard};

use crate::stage::Verb;
use crate::world::{MS, SECOND, World, pass, settle};

/// The claim that holds `k` in the store, and how many hold it.
async fn holders(world: &World) -> Vec<tenure::ClaimId> {
    let status = world.status("k").await;
    let holders = status.into_iter().flat_map(|status| status.holders);
    holders
        .filter_map(|holder| match holder.id {
            tenure::HolderId::Claim(id) => Some(id),
            tenure::HolderId::Foreign(_) => None,
        })
        .collect()
}

async fn lock(client: &Client, lease: Duration) -> Guard {
    let locked = client.mutex("k").lease(lease).lock();
    tokio::time::timeout(60 * SECOND, locked)
        .await
        .expect("never locked")
        .unwrap()
}

/// R14, R22: a reply that comes late has used up belief, and does not begin it.
#[tokio::test(start_paused = true)]
async fn a_late_reply_does_not_lengthen_belief() {
    let world = World::new();
    let (client, stage) = world.staged();
    stage.act(Verb::Acquire).delay(4 * SECOND);
    let guard = lock(&client, 10 * SECOND).await;
    assert!(guard.remaining() <= 6 * SECOND, "{:?}", guard.remaining());
}

/// R14, R22: nor does a renewal whose reply comes late.
#[tokio::test(start_paused = true)]
async fn a_late_reply_to_a_renewal_does_not_lengthen_belief() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = lock(&client, 30 * SECOND).await;
    stage.act(Verb::Renew).delay(8 * SECOND);
    let sent = tokio::time::Instant::now();
    guard.verify().await.unwrap();
    assert!(sent.elapsed() >= 8 * SECOND);
    assert!(guard.remaining() <= 22 * SECOND, "{:?}", guard.remaining());
}

/// R19: a grant whose lease has ended on the way is nobody's, also if its caller was the one to read the reply.
#[tokio::test(start_paused = true)]
async fn a_grant_that_was_dead_when_its_caller_read_it_is_not_returned() {
    let world = World::new();
    let (client, stage) = world.staged();
    // Shorter than the offer window, so that the caller itself polls the call to its end.
    let lease = 60 * MS;
    stage.act(Verb::Acquire).hold_after();
    let waiting = tokio::spawn(client.mutex("k").lease(lease).lock());
    pass(80 * MS).await;
    stage.act(Verb::Acquire).go_on();
    let guard = tokio::time::timeout(SECOND, waiting)
        .await
        .expect("never locked")
        .unwrap()
        .unwrap();
    assert!(guard.is_held());
    assert_eq!(
        holders(&world).await,
        [guard.claim().id],
        "the store says the same"
    );
}

/// R13: an answer that is read after the deadline comes too late, though nobody had looked.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_read_after_the_deadline_does_not_bring_the_lock_back() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = lock(&client, 30 * SECOND).await;
    stage.act(Verb::Renew).hold_after();
    pass(11 * SECOND).await;
    assert_eq!(stage.act(Verb::Renew).count(), 1, "its renewal is on the way");
    world.clock.suspend(20 * SECOND);
    stage.act(Verb::Renew).go_on();
    settle().await;
    assert!(!guard.is_held());
}

/// A fixed lease ends in the store too, whatever was asked meanwhile, and though no release arrives.
#[tokio::test(start_paused = true)]
async fn verify_does_not_prolong_a_fixed_lease_in_the_store() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = client.mutex("k").fixed_lease(SECOND).lock().await.unwrap();
    stage.act(Verb::Release).hold_before();
    pass(500 * MS).await;
    guard.verify().await.unwrap();
    pass(510 * MS).await;
    assert!(world.is_free("k").await);
}
