//! The hand-over: a release that grants its successor in the same step, unless others wait.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{AcquireReply, Claim, Fairness, Grant, HolderId, LockKey, Mode, Phase, WakeUp};

use super::client::hears;
use super::{Client, Departed, Trial};

/// With nobody else waiting the successor is granted by the release itself, with greater tokens.
pub async fn a_release_grants_its_successor_if_no_other_waits(trial: Trial) {
    let ([client, other], key) = (trial.two().await, trial.key());
    let [held, successor] = [(), ()].map(|()| client.claim(&key, Mode::Exclusive));
    let before = client.granted(&held).await;
    let departed = client.hand_over(&held, &successor).await;
    departed.freed_it(&held);
    let grant = inherits(&departed);
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

/// A hand-over that is repeated gives the same answer: the successor holds, with the same tokens.
pub async fn a_repeated_hand_over_gives_the_same_answer(trial: Trial) {
    let ([client, other], key) = (trial.two().await, trial.key());
    let (held, successor) = held_with_successor(&client, &key).await;
    let first = inherits(&client.hand_over(&held, &successor).await);
    let again = client.hand_over(&held, &successor).await;
    again.freed_nobody();
    assert_eq!(inherits(&again).tokens, first.tokens);
    other.finds_busy(&key, Mode::Exclusive).await;
    client.release(&successor).await.freed_it(&successor);
    other.finds_free(&key, Mode::Exclusive).await;
}

/// Another client that queues goes first; a fair successor stands in the queue behind it.
pub async fn a_successor_waits_when_another_client_queues(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let ([client, other], key) = (trial.two().await, trial.key());
    let [held, successor] = [(), ()].map(|()| client.fair(&key, Mode::Exclusive));
    client.granted(&held).await;
    let waiting = other.queues(&key, Mode::Exclusive).await;
    let departed = client.hand_over(&held, &successor).await;
    departed.freed_it(&held);
    waits(&departed);
    other.granted_soon(&waiting).await;
    client.waits(&successor).await;
    other.release(&waiting).await.freed_it(&waiting);
    client.granted_soon(&successor).await;
}

/// An unfair successor waits for a queue as any unfair claim does, and leaves nothing.
pub async fn an_unfair_successor_does_not_overtake_a_queue(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Unfair).await);
    let ([client, other], key) = (trial.two().await, trial.key());
    let (held, successor) = held_with_successor(&client, &key).await;
    let waiting = other.queues(&key, Mode::Exclusive).await;
    waits(&client.hand_over(&held, &successor).await);
    client.withdraw(&successor).await;
    other.granted_soon(&waiting).await;
    other.release(&waiting).await.freed_it(&waiting);
    other.finds_free(&key, Mode::Exclusive).await;
}

/// Another client that watches is woken and goes first, where the store can tell.
pub async fn a_successor_waits_when_another_client_watches(trial: Trial) {
    let ([client, other], key) = (trial.two().await, trial.key());
    let (held, successor) = held_with_successor(&client, &key).await;
    let waiting = other.claim(&key, Mode::Exclusive);
    let mut wakes = other.watch(&waiting).await;
    other.waits(&waiting).await;
    let departed = client.hand_over(&held, &successor).await;
    if let Some(wakes) = &mut wakes
        && trial.profile().wake_up == WakeUp::Reliable
    {
        assert!(hears(wakes).await, "the wake-up never came");
    }
    if wakes.is_some() && trial.profile().reports_waiters {
        waits(&departed);
        assert_eq!(departed.others, Some(1));
    }
    client.withdraw(&successor).await;
    other.granted_soon(&waiting).await;
}

/// Waiters of the releasing client are in its own hands and do not stand in the successor's way.
pub async fn the_clients_own_watchers_do_not_block_its_successor(trial: Trial) {
    let (client, key) = (trial.client().await, trial.key());
    let (held, successor) = held_with_successor(&client, &key).await;
    let third = client.claim(&key, Mode::Exclusive);
    let heirs_own = client.watch(&successor).await;
    let another = client.watch(&third).await;
    inherits(&client.hand_over(&held, &successor).await);
    drop((heirs_own, another));
}

/// After its `not_after` a successor is not placed, though the release takes effect.
pub async fn a_late_successor_is_not_placed(trial: Trial) {
    let ([client, other], key) = (trial.two().await, trial.key());
    let (held, successor) = held_with_successor(&client, &key).await;
    let not_after = client.now() + Duration::from_millis(50);
    trial.pass(Duration::from_millis(100)).await;
    let departed = client.hand_over_by(&held, &successor, not_after).await;
    departed.freed_it(&held);
    assert!(
        matches!(departed.successor, Some(AcquireReply::TooLate)),
        "{departed:?}"
    );
    other.finds_nothing(&key).await;
}

/// A successor that was withdrawn before has ended, though the release takes effect (R1, R2).
pub async fn an_ended_successor_is_not_granted(trial: Trial) {
    if !trial.profile().remembers_ended {
        return a_late_successor_is_not_placed(trial).await;
    }
    let ([client, other], key) = (trial.two().await, trial.key());
    let (held, successor) = held_with_successor(&client, &key).await;
    client.withdraw(&successor).await;
    let departed = client.hand_over(&held, &successor).await;
    departed.freed_it(&held);
    assert!(
        matches!(departed.successor, Some(AcquireReply::Ended)),
        "{departed:?}"
    );
    other.finds_nothing(&key).await;
}

/// A successor that the remaining holders do not admit waits.
pub async fn a_successor_that_is_not_admitted_waits(trial: Trial) {
    skip_if!(trial.lacks(Mode::Read).await);
    let ([client, reader], key) = (trial.two().await, trial.key());
    let held = client.holds(&key, Mode::Read).await;
    let successor = client.claim(&key, Mode::Write);
    let other = reader.holds(&key, Mode::Read).await;
    let departed = client.hand_over(&held, &successor).await;
    departed.freed_it(&held);
    waits(&departed);
    client.waits(&successor).await;
    reader.release(&other).await.freed_it(&other);
    client.granted_soon(&successor).await;
}

/// The successor of a claim that is gone already is placed as `acquire` would place it.
pub async fn the_successor_of_an_absent_claim_is_placed(trial: Trial) {
    let ([client, other], key) = (trial.two().await, trial.key());
    let (held, successor) = held_with_successor(&client, &key).await;
    client.release(&held).await.freed_it(&held);
    let departed = client.hand_over(&held, &successor).await;
    departed.freed_nobody();
    inherits(&departed);
    other.finds_busy(&key, Mode::Exclusive).await;
}

/// A claim that never held the key cannot make its successor hold beside the one who does.
pub async fn a_waiters_successor_does_not_bypass_the_holder(trial: Trial) {
    let ([holder, client], key) = (trial.two().await, trial.key());
    let held = holder.holds(&key, Mode::Exclusive).await;
    let [waiting, successor] = [(), ()].map(|()| client.claim(&key, Mode::Exclusive));
    client.waits(&waiting).await;
    waits(&client.hand_over(&waiting, &successor).await);
    client.withdraw(&successor).await;
    holder.stays_alive(&held, Phase::Granted).await;
    client.finds_busy(&key, Mode::Exclusive).await;
}

/// A chain of hand-overs keeps the key from everybody else, and gives it back at its end.
pub async fn a_chain_of_hand_overs_keeps_the_key_held(trial: Trial) {
    let ([client, other], key) = (trial.two().await, trial.key());
    let mut held = client.holds(&key, Mode::Exclusive).await;
    for _ in 0..20 {
        let successor = client.claim(&key, Mode::Exclusive);
        inherits(&client.hand_over(&held, &successor).await);
        held = successor;
        other.finds_busy(&key, Mode::Exclusive).await;
    }
    client.release(&held).await.freed_it(&held);
    other.finds_free(&key, Mode::Exclusive).await;
}

/// A claim that holds the key, and another of the same client that is to be its successor.
async fn held_with_successor(client: &Client, key: &LockKey) -> (Arc<Claim>, Arc<Claim>) {
    let held = client.holds(key, Mode::Exclusive).await;
    (held, client.claim(key, Mode::Exclusive))
}

/// Asserts that the successor was granted.
fn inherits(departed: &Departed) -> Grant {
    match &departed.successor {
        Some(AcquireReply::Granted(grant)) => grant.clone(),
        other => panic!("the successor must be granted, and is {other:?}"),
    }
}

/// Asserts that the successor waits.
fn waits(departed: &Departed) {
    let waits = matches!(departed.successor, Some(AcquireReply::Waiting { .. }));
    assert!(waits, "the successor must wait, and is {:?}", departed.successor);
}
