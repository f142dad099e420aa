//! Hand-over: a release grants its successor in the same step, unless other clients wait.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{AcquireReply, Claim, Fairness, Grant, HolderId, LockKey, Mode, Phase, WakeUp};

use super::client::is_woken;
use super::{Fixture, ReleaseOutcome, TestClient};

/// If no other client waits, the release grants its successor at once, with greater tokens.
pub async fn a_release_grants_its_successor_if_no_other_waits(fixture: Fixture) {
    let ([client, other], key) = (fixture.two().await, fixture.key());
    let [held, successor] = [(), ()].map(|()| client.claim(&key, Mode::Exclusive));
    let before = client.granted(&held).await;
    let released = client.hand_over(&held, &successor).await;
    released.freed_it(&held);
    let grant = granted_successor(&released);
    if let (Some(before), Some(after)) = (before.tokens, grant.tokens) {
        assert!(
            after.first() > before.last(),
            "{after:?} is not greater than {before:?}"
        );
    }
    let status = other.status(&key).await.expect("the successor holds the key");
    assert_eq!(status.holders.len(), 1, "{status:?}");
    assert_eq!(status.holders[0].id, HolderId::Claim(successor.at.id));
    other.finds_busy(&key, Mode::Exclusive).await;
    assert_eq!(client.granted(&successor).await.tokens, grant.tokens);
    client.release(&successor).await.freed_it(&successor);
    other.finds_free(&key, Mode::Exclusive).await;
}

/// A repeated hand-over gets the same reply: the successor holds the key with the same tokens.
pub async fn a_repeated_hand_over_gives_the_same_answer(fixture: Fixture) {
    let ([client, other], key) = (fixture.two().await, fixture.key());
    let (held, successor) = held_with_successor(&client, &key).await;
    let first = granted_successor(&client.hand_over(&held, &successor).await);
    let again = client.hand_over(&held, &successor).await;
    again.freed_nothing();
    assert_eq!(granted_successor(&again).tokens, first.tokens);
    other.finds_busy(&key, Mode::Exclusive).await;
    client.release(&successor).await.freed_it(&successor);
    other.finds_free(&key, Mode::Exclusive).await;
}

/// If another client's claim queues, it is granted first, and a fair successor queues behind it.
pub async fn a_successor_waits_when_another_client_queues(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let ([client, other], key) = (fixture.two().await, fixture.key());
    let [held, successor] = [(), ()].map(|()| client.fair(&key, Mode::Exclusive));
    client.granted(&held).await;
    let waiting = other.queues(&key, Mode::Exclusive).await;
    let released = client.hand_over(&held, &successor).await;
    released.freed_it(&held);
    waits(&released);
    other.granted_soon(&waiting).await;
    client.waits(&successor).await;
    other.release(&waiting).await.freed_it(&waiting);
    client.granted_soon(&successor).await;
}

/// A release names an unfair claim as its successor while another client queues: the successor must wait, and the queued
/// claim is granted. The successor leaves nothing in the store.
pub async fn an_unfair_successor_does_not_overtake_a_queue(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Unfair).await);
    let ([client, other], key) = (fixture.two().await, fixture.key());
    let (held, successor) = held_with_successor(&client, &key).await;
    let waiting = other.queues(&key, Mode::Exclusive).await;
    waits(&client.hand_over(&held, &successor).await);
    client.withdraw(&successor).await;
    other.granted_soon(&waiting).await;
    other.release(&waiting).await.freed_it(&waiting);
    other.finds_free(&key, Mode::Exclusive).await;
}

/// If the store reports waiters, a successor is not granted while another client watches the key. That client is woken.
pub async fn a_successor_waits_when_another_client_watches(fixture: Fixture) {
    let ([client, other], key) = (fixture.two().await, fixture.key());
    let (held, successor) = held_with_successor(&client, &key).await;
    let waiting = other.claim(&key, Mode::Exclusive);
    let mut wakes = other.watch(&waiting).await;
    other.waits(&waiting).await;
    let released = client.hand_over(&held, &successor).await;
    if let Some(wakes) = &mut wakes
        && fixture.profile().wake_up == WakeUp::Reliable
    {
        assert!(is_woken(wakes).await, "the wake-up did not arrive");
    }
    if wakes.is_some() && fixture.profile().reports_waiters {
        waits(&released);
        assert_eq!(released.others, Some(1));
    }
    client.withdraw(&successor).await;
    other.granted_soon(&waiting).await;
}

/// A client's own watches do not prevent the grant of its successor.
pub async fn the_clients_own_watchers_do_not_block_its_successor(fixture: Fixture) {
    let (client, key) = (fixture.client().await, fixture.key());
    let (held, successor) = held_with_successor(&client, &key).await;
    let third = client.claim(&key, Mode::Exclusive);
    let successors_own = client.watch(&successor).await;
    let another = client.watch(&third).await;
    granted_successor(&client.hand_over(&held, &successor).await);
    drop((successors_own, another));
}

/// A successor is not placed after its `not_after`, but the old claim is released.
pub async fn a_late_successor_is_not_placed(fixture: Fixture) {
    let ([client, other], key) = (fixture.two().await, fixture.key());
    let (held, successor) = held_with_successor(&client, &key).await;
    let not_after = client.now() + Duration::from_millis(50);
    fixture.pass(Duration::from_millis(100)).await;
    let released = client.hand_over_by(&held, &successor, not_after).await;
    released.freed_it(&held);
    assert!(
        matches!(released.successor, Some(AcquireReply::TooLate)),
        "{released:?}"
    );
    other.finds_nothing(&key).await;
}

/// A successor that was withdrawn earlier is not granted, but the old claim is released (R1, R2).
pub async fn an_ended_successor_is_not_granted(fixture: Fixture) {
    if !fixture.profile().remembers_ended {
        return a_late_successor_is_not_placed(fixture).await;
    }
    let ([client, other], key) = (fixture.two().await, fixture.key());
    let (held, successor) = held_with_successor(&client, &key).await;
    client.withdraw(&successor).await;
    let released = client.hand_over(&held, &successor).await;
    released.freed_it(&held);
    assert!(
        matches!(released.successor, Some(AcquireReply::Ended)),
        "{released:?}"
    );
    other.finds_nothing(&key).await;
}

/// A successor waits if its mode conflicts with the holders that remain.
pub async fn a_successor_that_is_not_admitted_waits(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Read).await);
    let ([client, reader], key) = (fixture.two().await, fixture.key());
    let held = client.holds(&key, Mode::Read).await;
    let successor = client.claim(&key, Mode::Write);
    let other = reader.holds(&key, Mode::Read).await;
    let released = client.hand_over(&held, &successor).await;
    released.freed_it(&held);
    waits(&released);
    client.waits(&successor).await;
    reader.release(&other).await.freed_it(&other);
    client.granted_soon(&successor).await;
}

/// If the released claim has already ended, its successor is placed as `acquire` would place it.
pub async fn the_successor_of_an_absent_claim_is_placed(fixture: Fixture) {
    let ([client, other], key) = (fixture.two().await, fixture.key());
    let (held, successor) = held_with_successor(&client, &key).await;
    client.release(&held).await.freed_it(&held);
    let released = client.hand_over(&held, &successor).await;
    released.freed_nothing();
    granted_successor(&released);
    other.finds_busy(&key, Mode::Exclusive).await;
}

/// While another claim holds the key, releasing a waiting claim does not grant the key to that claim's successor.
pub async fn a_waiters_successor_does_not_bypass_the_holder(fixture: Fixture) {
    let ([holder, client], key) = (fixture.two().await, fixture.key());
    let held = holder.holds(&key, Mode::Exclusive).await;
    let [waiting, successor] = [(), ()].map(|()| client.claim(&key, Mode::Exclusive));
    client.waits(&waiting).await;
    waits(&client.hand_over(&waiting, &successor).await);
    client.withdraw(&successor).await;
    holder.stays_alive(&held, Phase::Granted).await;
    client.finds_busy(&key, Mode::Exclusive).await;
}

/// The key is never free while a client releases claim after claim to successors.
pub async fn a_chain_of_hand_overs_keeps_the_key_held(fixture: Fixture) {
    let ([client, other], key) = (fixture.two().await, fixture.key());
    let mut held = client.holds(&key, Mode::Exclusive).await;
    for _ in 0..20 {
        let successor = client.claim(&key, Mode::Exclusive);
        granted_successor(&client.hand_over(&held, &successor).await);
        held = successor;
        other.finds_busy(&key, Mode::Exclusive).await;
    }
    client.release(&held).await.freed_it(&held);
    other.finds_free(&key, Mode::Exclusive).await;
}

/// A claim that holds the key, and a new claim of the same client as its successor.
async fn held_with_successor(client: &TestClient, key: &LockKey) -> (Arc<Claim>, Arc<Claim>) {
    let held = client.holds(key, Mode::Exclusive).await;
    (held, client.claim(key, Mode::Exclusive))
}

fn granted_successor(released: &ReleaseOutcome) -> Grant {
    match &released.successor {
        Some(AcquireReply::Granted(grant)) => grant.clone(),
        other => panic!("the successor must be granted, but is {other:?}"),
    }
}

fn waits(released: &ReleaseOutcome) {
    let waits = matches!(released.successor, Some(AcquireReply::Waiting { .. }));
    assert!(waits, "the successor must wait, but is {:?}", released.successor);
}
