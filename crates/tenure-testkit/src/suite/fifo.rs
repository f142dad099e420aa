//! The queue: first come, first served, and nobody stuck behind the dead.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{AcquireReply, Claim, Fairness, LockKey, Loss, Mode, Phase};

use super::trial::permits;
use super::{Client, Trial};

/// Each release goes to whoever was placed first, whoever asks first.
pub async fn claims_are_granted_in_the_order_of_placement(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let (mut holder, key) = held_by_one(&trial, Mode::Exclusive).await;
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
        holder.ends().await;
        for (client, claim) in queue[1..].iter().rev() {
            client.waits(claim).await;
        }
        let (client, claim) = queue.remove(0);
        client.granted_soon(&claim).await;
        holder = Holder { client, claim };
    }
}

/// A waiter that asks again keeps its place (R26).
pub async fn a_waiter_that_polls_keeps_its_place(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_by_one(&trial, Mode::Exclusive).await;
    let [first, second] = trial.two().await;
    let one = first.queues(&key, Mode::Exclusive).await;
    let two = second.queues(&key, Mode::Exclusive).await;
    for _ in 0..3 {
        first.waits(&one).await;
    }
    holder.ends().await;
    second.waits(&two).await;
    first.granted_soon(&one).await;
}

/// A waiter that asks again, or is renewed, lives on: no live waiter is evicted to the tail (R26).
pub async fn a_waiter_lives_while_it_polls_or_is_renewed(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_by_one(&trial, Mode::Exclusive).await;
    skip_if!(trial.lives_by_session().await);
    let [first, second] = trial.two().await;
    let one = first.brief_fair(&key);
    first.waits(&one).await;
    let two = second.queues(&key, Mode::Exclusive).await;
    for phase in [Phase::Waiting, Phase::Either] {
        trial.pass(trial.brief().mul_f64(0.6)).await;
        first.stays_alive(&one, phase).await;
        trial.pass(trial.brief().mul_f64(0.6)).await;
        first.waits(&one).await;
    }
    holder.ends().await;
    second.waits(&two).await;
    first.granted_soon(&one).await;
}

/// A waiter is placed already, and may be polled later than its `not_after`.
pub async fn a_waiter_may_be_polled_after_its_not_after(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_by_one(&trial, Mode::Exclusive).await;
    let client = trial.client().await;
    let not_after = client.now() + Duration::from_millis(50);
    let claim = client.queues(&key, Mode::Exclusive).await;
    trial.pass(Duration::from_millis(100)).await;
    let answer = client.polled_by(&claim, not_after).await;
    assert!(matches!(answer, AcquireReply::Waiting { .. }), "{answer:?}");
    holder.ends().await;
    let answer = client.polled_by(&claim, not_after).await;
    assert!(
        matches!(answer, AcquireReply::Granted(_) | AcquireReply::Waiting { .. }),
        "{answer:?}"
    );
    client.granted_soon(&claim).await;
}

/// A waiter is told to ask again early enough to keep its lease.
pub async fn poll_after_is_well_within_a_waiters_lease(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let (_holder, key) = held_by_one(&trial, Mode::Exclusive).await;
    let client = trial.client().await;
    let claim = client.brief_fair(&key);
    client.polls_within(&claim, claim.lease.div_f64(2.9)).await;
}

/// Renewal as a holder leaves a waiter as it is.
pub async fn renewing_a_waiter_as_a_holder_has_no_effect(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_by_one(&trial, Mode::Exclusive).await;
    let client = trial.client().await;
    let claim = client.queues(&key, Mode::Exclusive).await;
    assert_eq!(client.is_gone(&claim, Phase::Granted).await, Loss::Missing);
    client.waits(&claim).await;
    holder.ends().await;
    client.granted_soon(&claim).await;
}

/// A dead waiter holds the queue up for its own lease at the most (R26).
pub async fn a_dead_waiter_blocks_the_queue_for_its_own_lease(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_by_one(&trial, Mode::Exclusive).await;
    skip_if!(trial.lives_by_session().await);
    let [dead, alive] = trial.two().await;
    let ghost = dead.brief_fair(&key);
    dead.waits(&ghost).await;
    let next = alive.queues(&key, Mode::Exclusive).await;
    holder.ends().await;
    alive.waits(&next).await;
    alive.granted_within(&next, trial.brief() + trial.grace()).await;
    if trial.profile().remembers_ended {
        dead.has_ended(&ghost).await;
    }
}

/// Several dead waiters at the head go together.
pub async fn several_dead_waiters_expire_together(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_by_one(&trial, Mode::Exclusive).await;
    skip_if!(trial.lives_by_session().await);
    let [dead, alive] = trial.two().await;
    for _ in 0..5 {
        dead.waits(&dead.brief_fair(&key)).await;
    }
    let next = alive.queues(&key, Mode::Exclusive).await;
    trial.pass(trial.brief() + trial.grace()).await;
    alive.waits(&next).await;
    holder.ends().await;
    alive.granted_soon(&next).await;
}

/// A withdrawn waiter leaves no ghost in the queue (R26).
pub async fn a_withdrawn_waiter_leaves_the_queue(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_by_one(&trial, Mode::Exclusive).await;
    let [gone, next] = trial.two().await;
    let withdrawn = gone.queues(&key, Mode::Exclusive).await;
    let claim = next.queues(&key, Mode::Exclusive).await;
    gone.withdraw(&withdrawn).await.freed_it(&withdrawn);
    gone.withdraw(&withdrawn).await.freed_nobody();
    let ahead = next.waits(&claim).await;
    assert!(
        ahead.is_none_or(|ahead| ahead == 0),
        "{ahead:?} are said to be ahead of the head"
    );
    holder.ends().await;
    next.granted_soon(&claim).await;
    next.release(&claim).await;
    assert_eq!(next.status(&key).await, None);
}

/// While the queue has a live member no unfair claim is granted, also when nobody holds the key.
pub async fn a_live_queue_blocks_unfair_claims(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_by_one(&trial, Mode::Exclusive).await;
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Unfair).await);
    let [waiter, hasty] = trial.two().await;
    let claim = waiter.queues(&key, Mode::Exclusive).await;
    hasty.finds_busy(&key, Mode::Exclusive).await;
    holder.ends().await;
    hasty.finds_busy(&key, Mode::Exclusive).await;
    waiter.granted_soon(&claim).await;
    waiter.release(&claim).await;
    hasty.finds_free(&key, Mode::Exclusive).await;
}

/// A queue of the dead bars nobody.
pub async fn a_dead_queue_blocks_no_claim(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_by_one(&trial, Mode::Exclusive).await;
    skip_if!(trial.lives_by_session().await);
    let [dead, other] = trial.two().await;
    dead.waits(&dead.brief_fair(&key)).await;
    holder.ends().await;
    trial.pass(trial.brief() + trial.grace()).await;
    other.finds_nothing(&key).await;
}

/// Readers at the head of the queue are granted together; one behind a writer waits for it.
pub async fn readers_at_the_head_are_granted_together(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Write, Fairness::Fifo).await);
    let (holder, key) = held_by_one(&trial, Mode::Write).await;
    let client = trial.client().await;
    let queue = [Mode::Read, Mode::Read, Mode::Write, Mode::Read].map(|mode| client.fair(&key, mode));
    for claim in &queue {
        client.waits(claim).await;
    }
    let [first, second, writer, last] = &queue;
    holder.ends().await;
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
pub async fn a_reader_does_not_overtake_a_waiting_writer(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Read, Fairness::Fifo).await);
    granted_one_by_one(&trial, [Mode::Read, Mode::Write, Mode::Read]).await;
}

/// A claim of few permits does not overtake one of many, although its permits are free.
pub async fn a_small_claim_does_not_overtake_a_large_one(trial: Trial) {
    skip_if!(trial.lacks_so(permits(2, 3), Fairness::Fifo).await);
    granted_one_by_one(&trial, [permits(2, 3), permits(3, 3), permits(1, 3)]).await;
}

/// The first claim holds the key. The last would be admitted beside it, and waits until the second has come and gone.
async fn granted_one_by_one(trial: &Trial, [first, second, third]: [Mode; 3]) {
    let (holder, key) = held_by_one(trial, first).await;
    let [one, two] = trial.two().await;
    let head = one.queues(&key, second).await;
    let last = two.queues(&key, third).await;
    holder.ends().await;
    two.waits(&last).await;
    one.granted_soon(&head).await;
    one.release(&head).await.freed_it(&head);
    two.granted_soon(&last).await;
}

/// When the head that did not fit goes away, those behind it that fit are granted.
pub async fn withdrawing_the_head_lets_later_waiters_proceed(trial: Trial) {
    skip_if!(trial.lacks_so(permits(2, 3), Fairness::Fifo).await);
    let (_holder, key) = held_by_one(&trial, permits(2, 3)).await;
    let [one, two] = trial.two().await;
    let many = one.queues(&key, permits(3, 3)).await;
    let few = two.queues(&key, permits(1, 3)).await;
    one.withdraw(&many).await.freed_it(&many);
    two.granted_soon(&few).await;
}

/// A queue moves on when its holder dies.
pub async fn a_queue_moves_on_when_the_holder_dies(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await || trial.lives_by_session().await);
    let ([dead, alive], key) = (trial.two().await, trial.key());
    let held = dead.brief_fair(&key);
    let lease = dead.granted(&held).await.lease;
    let next = alive.queues(&key, Mode::Exclusive).await;
    alive.granted_within(&next, lease + trial.grace()).await;
}

/// A fair claim that holds its key.
struct Holder {
    client: Client,
    claim: Arc<Claim>,
}

impl Holder {
    /// Releases the claim.
    async fn ends(&self) {
        self.client.release(&self.claim).await.freed_it(&self.claim);
    }
}

/// A key that a fair claim of that mode holds: a free key is granted to it at once, as to any.
async fn held_by_one(trial: &Trial, mode: Mode) -> (Holder, LockKey) {
    let (client, key) = (trial.client().await, trial.key());
    let claim = client.fair(&key, mode);
    client.granted(&claim).await;
    (Holder { client, claim }, key)
}
