//! The queue: first come, first served, and nobody stuck behind the dead.
//! Eviction of waiters and what is shown of a queue are in `claim`.
//!
//! # Cancel safety
//! A case that is dropped leaves its claims to their leases, in a store that was made for it alone.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Claim, Fairness, LockKey, Loss, Mode, Phase, Renewed, Standing};

use super::trial::permits;
use super::{Client, Trial};

/// A free key is granted to a fair claim as to any.
pub async fn a_free_key_is_granted_to_a_fair_claim_at_once(trial: Trial) {
    if trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await {
        return;
    }
    let ([a, b], key) = (trial.two().await, trial.key());
    let claim = a.fair(&key, Mode::Exclusive);
    a.granted(&claim).await;
    a.release(&claim).await.freed_it(&claim);
    b.granted_soon(&b.fair(&key, Mode::Exclusive)).await;
}

/// Each release goes to whoever was placed first, whoever asks first.
pub async fn claims_are_granted_in_the_order_in_which_they_were_placed(trial: Trial) {
    let Some((mut holder, key)) = held_by_one(&trial, Mode::Exclusive).await else {
        return;
    };
    let mut queue = Vec::new();
    for place in 0..5 {
        let client = trial.client().await;
        let claim = client.fair(&key, Mode::Exclusive);
        let ahead = client.waits(&claim).await;
        assert!(
            ahead.is_none_or(|ahead| ahead == place),
            "{ahead:?} are said to be ahead of number {place}"
        );
        queue.push((client, claim));
    }
    while !queue.is_empty() {
        for (client, claim) in queue.iter().rev() {
            client.waits(claim).await;
        }
        holder.0.release(&holder.1).await.freed_it(&holder.1);
        for (client, claim) in queue[1..].iter().rev() {
            client.waits(claim).await;
        }
        holder = queue.remove(0);
        holder.0.granted_soon(&holder.1).await;
    }
}

/// A waiter that asks again keeps its place (R26).
pub async fn a_waiter_that_asks_again_keeps_its_place(trial: Trial) {
    let Some((holder, key)) = held_by_one(&trial, Mode::Exclusive).await else {
        return;
    };
    let [first, second] = trial.two().await;
    let [one, two] = [&first, &second].map(|client| client.fair(&key, Mode::Exclusive));
    first.waits(&one).await;
    second.waits(&two).await;
    for _ in 0..3 {
        first.waits(&one).await;
    }
    holder.0.release(&holder.1).await;
    second.waits(&two).await;
    first.granted_soon(&one).await;
}

/// A waiter that asks again, or is renewed, lives on: no live waiter is evicted to the tail (R26).
pub async fn a_waiter_lives_as_long_as_it_asks_or_is_renewed(trial: Trial) {
    let Some((holder, key)) = held_by_one(&trial, Mode::Exclusive).await else {
        return;
    };
    if trial.lives_by_session().await {
        return;
    }
    let [first, second] = trial.two().await;
    let one = first.claim_as(&key, Mode::Exclusive, |claim| {
        claim.fairness = Fairness::Fifo;
        claim.lease = trial.brief();
    });
    let two = second.fair(&key, Mode::Exclusive);
    first.waits(&one).await;
    second.waits(&two).await;
    for phase in [Phase::Waiting, Phase::Either] {
        trial.pass(trial.brief().mul_f64(0.6)).await;
        first.stays_alive(&one, phase).await;
        trial.pass(trial.brief().mul_f64(0.6)).await;
        first.waits(&one).await;
    }
    holder.0.release(&holder.1).await;
    second.waits(&two).await;
    first.granted_soon(&one).await;
}

/// A waiter is placed already, and may be polled later than its `place_by`.
pub async fn a_waiter_may_be_polled_after_its_place_by(trial: Trial) {
    let Some((holder, key)) = held_by_one(&trial, Mode::Exclusive).await else {
        return;
    };
    let client = trial.client().await;
    let claim = client.fair(&key, Mode::Exclusive);
    let place_by = client.now() + Duration::from_millis(50);
    client.waits(&claim).await;
    trial.pass(Duration::from_millis(100)).await;
    let answer = client.polled_by(&claim, place_by).await;
    assert!(matches!(answer, Standing::Waiting { .. }), "{answer:?}");
    holder.0.release(&holder.1).await.freed_it(&holder.1);
    let answer = client.polled_by(&claim, place_by).await;
    assert!(
        matches!(answer, Standing::Granted(_) | Standing::Waiting { .. }),
        "{answer:?}"
    );
    client.granted_soon(&claim).await;
}

/// A waiter is told to ask again early enough to keep its lease.
pub async fn a_waiter_is_told_to_ask_again_well_within_its_lease(trial: Trial) {
    let Some((_holder, key)) = held_by_one(&trial, Mode::Exclusive).await else {
        return;
    };
    let client = trial.client().await;
    let claim = client.claim_as(&key, Mode::Exclusive, |claim| {
        claim.fairness = Fairness::Fifo;
        claim.lease = trial.brief();
    });
    match client.acquire(&claim).await {
        Standing::Waiting { poll_after, .. } => {
            assert!(
                poll_after >= Duration::from_millis(1),
                "{poll_after:?} is no pause"
            );
            assert!(
                poll_after <= claim.lease.div_f64(2.9),
                "{poll_after:?} for a lease of {:?}",
                claim.lease
            );
        }
        other => panic!("{other:?}"),
    }
}

/// Renewal as a holder leaves a waiter as it is.
pub async fn a_waiter_is_not_renewed_as_a_holder(trial: Trial) {
    let Some((holder, key)) = held_by_one(&trial, Mode::Exclusive).await else {
        return;
    };
    let client = trial.client().await;
    let claim = client.fair(&key, Mode::Exclusive);
    client.waits(&claim).await;
    let answer = client.renew(&claim).await;
    assert!(matches!(answer, Renewed::Gone(Loss::Missing)), "{answer:?}");
    client.waits(&claim).await;
    holder.0.release(&holder.1).await;
    client.granted_soon(&claim).await;
}

/// A dead waiter holds the queue up for its own lease at the most (R26).
pub async fn a_dead_waiter_holds_the_queue_up_for_its_own_lease_at_most(trial: Trial) {
    let Some((holder, key)) = held_by_one(&trial, Mode::Exclusive).await else {
        return;
    };
    if trial.lives_by_session().await {
        return;
    }
    let [dead, alive] = trial.two().await;
    let ghost = dead.claim_as(&key, Mode::Exclusive, |claim| {
        claim.fairness = Fairness::Fifo;
        claim.lease = trial.brief();
    });
    let next = alive.fair(&key, Mode::Exclusive);
    dead.waits(&ghost).await;
    alive.waits(&next).await;
    holder.0.release(&holder.1).await.freed_it(&holder.1);
    alive.waits(&next).await;
    alive.granted_within(&next, trial.brief() + trial.grace()).await;
    if trial.profile().remembers_ended {
        dead.has_ended(&ghost).await;
    }
}

/// Several dead waiters at the head go together.
pub async fn dead_waiters_do_not_hold_the_queue_up_one_after_the_other(trial: Trial) {
    let Some((holder, key)) = held_by_one(&trial, Mode::Exclusive).await else {
        return;
    };
    if trial.lives_by_session().await {
        return;
    }
    let [dead, alive] = trial.two().await;
    for _ in 0..5 {
        let ghost = dead.claim_as(&key, Mode::Exclusive, |claim| {
            claim.fairness = Fairness::Fifo;
            claim.lease = trial.brief();
        });
        dead.waits(&ghost).await;
    }
    let next = alive.fair(&key, Mode::Exclusive);
    alive.waits(&next).await;
    trial.pass(trial.brief() + trial.grace()).await;
    alive.waits(&next).await;
    holder.0.release(&holder.1).await.freed_it(&holder.1);
    alive.granted_soon(&next).await;
}

/// A withdrawn waiter leaves no ghost in the queue (R26).
pub async fn a_withdrawn_waiter_leaves_no_ghost(trial: Trial) {
    let Some((holder, key)) = held_by_one(&trial, Mode::Exclusive).await else {
        return;
    };
    let [gone, next] = trial.two().await;
    let withdrawn = gone.fair(&key, Mode::Exclusive);
    let claim = next.fair(&key, Mode::Exclusive);
    gone.waits(&withdrawn).await;
    next.waits(&claim).await;
    gone.withdraw(&withdrawn).await.freed_it(&withdrawn);
    gone.withdraw(&withdrawn).await.freed_nobody();
    let ahead = next.waits(&claim).await;
    assert!(
        ahead.is_none_or(|ahead| ahead == 0),
        "{ahead:?} are said to be ahead of the head"
    );
    holder.0.release(&holder.1).await;
    next.granted_soon(&claim).await;
    next.release(&claim).await;
    assert_eq!(next.status(&key).await, None);
}

/// While the queue has a live member no unfair claim is granted, also when nobody holds the key.
pub async fn a_live_queue_bars_unfair_claims(trial: Trial) {
    let Some((holder, key)) = held_by_one(&trial, Mode::Exclusive).await else {
        return;
    };
    if trial.lacks_so(Mode::Exclusive, Fairness::Unfair).await {
        return;
    }
    let [waiter, hasty] = trial.two().await;
    let claim = waiter.fair(&key, Mode::Exclusive);
    waiter.waits(&claim).await;
    hasty.finds_busy(&key, Mode::Exclusive).await;
    holder.0.release(&holder.1).await.freed_it(&holder.1);
    hasty.finds_busy(&key, Mode::Exclusive).await;
    waiter.granted_soon(&claim).await;
    waiter.release(&claim).await;
    hasty.finds_free(&key, Mode::Exclusive).await;
}

/// A queue of the dead bars nobody.
pub async fn a_dead_queue_bars_nobody(trial: Trial) {
    let Some((holder, key)) = held_by_one(&trial, Mode::Exclusive).await else {
        return;
    };
    if trial.lives_by_session().await {
        return;
    }
    let [dead, other] = trial.two().await;
    let ghost = dead.claim_as(&key, Mode::Exclusive, |claim| {
        claim.fairness = Fairness::Fifo;
        claim.lease = trial.brief();
    });
    dead.waits(&ghost).await;
    holder.0.release(&holder.1).await;
    trial.pass(trial.brief() + trial.grace()).await;
    assert_eq!(other.status(&key).await, None);
    other.finds_free(&key, Mode::Exclusive).await;
}

/// Readers at the head of the queue are granted together; one behind a writer waits for it.
pub async fn readers_at_the_head_go_together_and_wait_behind_a_writer(trial: Trial) {
    let Some((holder, key)) = held_by_one(&trial, Mode::Write).await else {
        return;
    };
    let client = trial.client().await;
    let queue = [Mode::Read, Mode::Read, Mode::Write, Mode::Read].map(|mode| client.fair(&key, mode));
    for claim in &queue {
        client.waits(claim).await;
    }
    let [first, second, writer, last] = &queue;
    holder.0.release(&holder.1).await;
    client.waits(last).await;
    client.granted_soon(first).await;
    client.granted_soon(second).await;
    client.waits(last).await;
    client.waits(writer).await;
    client.release(first).await.freed_it(first);
    client.waits(writer).await;
    client.release(second).await.freed_it(second);
    client.waits(last).await;
    client.granted_soon(writer).await;
    client.release(writer).await.freed_it(writer);
    client.granted_soon(last).await;
}

/// A reader does not overtake a writer that waits, although readers hold the key.
pub async fn a_reader_does_not_overtake_a_writer_that_waits(trial: Trial) {
    let Some((holder, key)) = held_by_one(&trial, Mode::Read).await else {
        return;
    };
    let [one, two] = trial.two().await;
    let (writer, reader) = (one.fair(&key, Mode::Write), two.fair(&key, Mode::Read));
    one.waits(&writer).await;
    two.waits(&reader).await;
    holder.0.release(&holder.1).await;
    two.waits(&reader).await;
    one.granted_soon(&writer).await;
}

/// A claim of few permits does not overtake one of many, although its permits are free.
pub async fn few_permits_do_not_overtake_many(trial: Trial) {
    let Some((holder, key)) = held_by_one(&trial, permits(2, 3)).await else {
        return;
    };
    let [one, two] = trial.two().await;
    let (many, few) = (one.fair(&key, permits(3, 3)), two.fair(&key, permits(1, 3)));
    one.waits(&many).await;
    two.waits(&few).await;
    holder.0.release(&holder.1).await.freed_it(&holder.1);
    two.waits(&few).await;
    one.granted_soon(&many).await;
    one.release(&many).await.freed_it(&many);
    two.granted_soon(&few).await;
}

/// When the head that did not fit goes away, those behind it that fit are granted.
pub async fn a_withdrawn_head_lets_those_behind_it_go(trial: Trial) {
    let Some((_holder, key)) = held_by_one(&trial, permits(2, 3)).await else {
        return;
    };
    let [one, two] = trial.two().await;
    let (many, few) = (one.fair(&key, permits(3, 3)), two.fair(&key, permits(1, 3)));
    one.waits(&many).await;
    two.waits(&few).await;
    one.withdraw(&many).await.freed_it(&many);
    two.granted_soon(&few).await;
}

/// A queue moves on when its holder dies.
pub async fn a_queue_moves_on_when_the_holder_dies(trial: Trial) {
    if trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await || trial.lives_by_session().await {
        return;
    }
    let ([dead, alive], key) = (trial.two().await, trial.key());
    let held = dead.claim_as(&key, Mode::Exclusive, |claim| {
        claim.fairness = Fairness::Fifo;
        claim.lease = trial.brief();
    });
    let next = alive.fair(&key, Mode::Exclusive);
    let lease = dead.granted(&held).await.lease;
    alive.waits(&next).await;
    alive.granted_within(&next, lease + trial.grace()).await;
}

/// A key that a fair claim of that mode holds; `None` if the store serves no such claim, and has refused it.
async fn held_by_one(trial: &Trial, mode: Mode) -> Option<((Client, Arc<Claim>), LockKey)> {
    if trial.lacks_so(mode, Fairness::Fifo).await {
        return None;
    }
    let (client, key) = (trial.client().await, trial.key());
    let claim = client.fair(&key, mode);
    client.granted(&claim).await;
    Some(((client, claim), key))
}
