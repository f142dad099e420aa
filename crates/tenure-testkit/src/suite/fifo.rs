//! The queue: first come, first served, and dead waiters block it only until their leases end.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{AcquireReply, Claim, Fairness, LockKey, Loss, Mode, Order, Phase};

use super::{Fixture, TestClient, permits};

/// Each release grants the key to the waiter that was placed first, in whatever order waiters poll.
pub async fn claims_are_granted_in_the_order_of_placement(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let (mut holder, key) = held_key(&fixture, Mode::Exclusive).await;
    let mut queue = Vec::new();
    for place in 0..5 {
        let client = fixture.client().await;
        let claim = client.fair(&key, Mode::Exclusive);
        let ahead = client.waits(&claim).await;
        assert!(
            ahead.is_none_or(|ahead| ahead == place),
            "the store reports {ahead:?} claims ahead of number {place}"
        );
        queue.push((client, claim));
    }
    while !queue.is_empty() {
        for (client, claim) in queue.iter().rev() {
            client.waits(claim).await;
        }
        holder.release().await;
        for (client, claim) in queue[1..].iter().rev() {
            client.waits(claim).await;
        }
        let (client, claim) = queue.remove(0);
        client.granted_soon(&claim).await;
        holder = Holder { client, claim };
    }
}

/// A waiter that polls again keeps its place in the queue (R26).
pub async fn a_waiter_that_polls_keeps_its_place(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_key(&fixture, Mode::Exclusive).await;
    let [first, second] = fixture.two().await;
    let one = first.queues(&key, Mode::Exclusive).await;
    let two = second.queues(&key, Mode::Exclusive).await;
    for _ in 0..3 {
        first.waits(&one).await;
    }
    holder.release().await;
    second.waits(&two).await;
    first.granted_soon(&one).await;
}

/// Each poll and each renewal restarts a waiter's lease, so that a live waiter keeps its place (R26).
pub async fn a_waiter_lives_while_it_polls_or_is_renewed(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_key(&fixture, Mode::Exclusive).await;
    skip_if!(fixture.lives_by_session().await);
    let [first, second] = fixture.two().await;
    let one = first.fair_with_short_lease(&key);
    first.waits(&one).await;
    let two = second.queues(&key, Mode::Exclusive).await;
    for phase in [Phase::Waiting, Phase::Either] {
        fixture.pass(fixture.short_lease().mul_f64(0.6)).await;
        first.stays_alive(&one, phase).await;
        fixture.pass(fixture.short_lease().mul_f64(0.6)).await;
        first.waits(&one).await;
    }
    holder.release().await;
    second.waits(&two).await;
    first.granted_soon(&one).await;
}

/// A waiter may be polled after its `not_after`, which limits only the placement.
pub async fn a_waiter_may_be_polled_after_its_not_after(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_key(&fixture, Mode::Exclusive).await;
    let client = fixture.client().await;
    let not_after = client.now() + Duration::from_millis(50);
    let claim = client.queues(&key, Mode::Exclusive).await;
    fixture.pass(Duration::from_millis(100)).await;
    let answer = client.polled_by(&claim, not_after).await;
    assert!(matches!(answer, AcquireReply::Waiting { .. }), "{answer:?}");
    holder.release().await;
    let answer = client.polled_by(&claim, not_after).await;
    assert!(
        matches!(answer, AcquireReply::Granted(_) | AcquireReply::Waiting { .. }),
        "{answer:?}"
    );
    client.granted_soon(&claim).await;
}

/// The `poll_after` of a waiter is at most about a third of its lease.
pub async fn poll_after_is_well_within_a_waiters_lease(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let (_holder, key) = held_key(&fixture, Mode::Exclusive).await;
    let client = fixture.client().await;
    let claim = client.fair_with_short_lease(&key);
    client.polls_within(&claim, claim.lease.div_f64(2.9)).await;
}

/// A renewal that is only for holders (`Phase::Granted`) does not affect a waiter.
pub async fn renewing_a_waiter_as_a_holder_has_no_effect(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_key(&fixture, Mode::Exclusive).await;
    let client = fixture.client().await;
    let claim = client.queues(&key, Mode::Exclusive).await;
    assert_eq!(client.is_gone(&claim, Phase::Granted).await, Loss::Missing);
    client.waits(&claim).await;
    holder.release().await;
    client.granted_soon(&claim).await;
}

/// A dead waiter blocks the queue at most until its own lease ends (R26).
pub async fn a_dead_waiter_blocks_the_queue_for_its_own_lease(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_key(&fixture, Mode::Exclusive).await;
    skip_if!(fixture.lives_by_session().await);
    let [dead, alive] = fixture.two().await;
    let abandoned = dead.fair_with_short_lease(&key);
    dead.waits(&abandoned).await;
    let next = alive.queues(&key, Mode::Exclusive).await;
    holder.release().await;
    alive.waits(&next).await;
    alive
        .granted_within(&next, fixture.short_lease() + fixture.grace())
        .await;
    if fixture.profile().remembers_ended {
        dead.has_ended(&abandoned).await;
    }
}

/// A dead waiter blocks an unfair claim that sleeps until it is woken at most until the waiter's own lease ends (R26).
pub async fn a_dead_waiter_blocks_a_sleeping_claim_for_its_own_lease(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Unfair).await || fixture.lives_by_session().await);
    let ([holder, dead, alive], key) = (fixture.three().await, fixture.key());
    let held = holder.holds(&key, Mode::Exclusive).await;
    let sleeper = alive.sleeps(&key, Mode::Exclusive).await;
    dead.waits(&dead.fair_with_short_lease(&key)).await;
    holder.release(&held).await.freed_it(&held);
    sleeper
        .granted_within(fixture.short_lease() + fixture.grace())
        .await;
}

/// A dead writer that is next in the queue when readers hold the key blocks a sleeping unfair reader at most until the
/// writer's own lease ends (R26).
pub async fn a_dead_writer_blocks_a_sleeping_reader_for_its_own_lease(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Read, Fairness::Fifo).await);
    skip_if!(fixture.refuses(Mode::Read, Fairness::Unfair).await || fixture.lives_by_session().await);
    // Such a store grants the sleeping claim in its turn, or lets it join readers at the head of the queue.
    skip_if!(fixture.profile().read_write == Order::FifoForBoth);
    let ([holder, other, alive], key) = (fixture.three().await, fixture.key());
    let held = holder.holds(&key, Mode::Write).await;
    let mut sleeper = alive.sleeps(&key, Mode::Read).await;
    let reader = other.queues(&key, Mode::Read).await;
    holder.release(&held).await.freed_it(&held);
    sleeper.waits_if_woken().await;
    let writer = other.claim_as(&key, Mode::Write, |claim| {
        claim.fairness = Fairness::Fifo;
        claim.lease = fixture.short_lease();
    });
    other.waits(&writer).await;
    other.granted_soon(&reader).await;
    sleeper
        .granted_within(fixture.short_lease() + fixture.grace())
        .await;
}

/// Several dead waiters at the head expire at the same time, not one after the other.
pub async fn several_dead_waiters_expire_together(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_key(&fixture, Mode::Exclusive).await;
    skip_if!(fixture.lives_by_session().await);
    let [dead, alive] = fixture.two().await;
    for _ in 0..5 {
        dead.waits(&dead.fair_with_short_lease(&key)).await;
    }
    let next = alive.queues(&key, Mode::Exclusive).await;
    fixture.pass(fixture.short_lease() + fixture.grace()).await;
    alive.waits(&next).await;
    holder.release().await;
    alive.granted_soon(&next).await;
}

/// A withdrawn waiter leaves the queue at once (R26).
pub async fn a_withdrawn_waiter_leaves_the_queue(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_key(&fixture, Mode::Exclusive).await;
    let [gone, next] = fixture.two().await;
    let withdrawn = gone.queues(&key, Mode::Exclusive).await;
    let claim = next.queues(&key, Mode::Exclusive).await;
    gone.withdraw(&withdrawn).await.freed_it(&withdrawn);
    gone.withdraw(&withdrawn).await.freed_nothing();
    let ahead = next.waits(&claim).await;
    assert!(
        ahead.is_none_or(|ahead| ahead == 0),
        "the store reports {ahead:?} claims ahead of the head"
    );
    holder.release().await;
    next.granted_soon(&claim).await;
    next.release(&claim).await;
    assert_eq!(next.status(&key).await, None);
}

/// While the queue has a live waiter, no unfair claim is granted, even if the key has no holder.
pub async fn a_live_queue_blocks_unfair_claims(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_key(&fixture, Mode::Exclusive).await;
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Unfair).await);
    let [waiter, unfair] = fixture.two().await;
    let claim = waiter.queues(&key, Mode::Exclusive).await;
    unfair.finds_busy(&key, Mode::Exclusive).await;
    holder.release().await;
    unfair.finds_busy(&key, Mode::Exclusive).await;
    waiter.granted_soon(&claim).await;
    waiter.release(&claim).await;
    unfair.finds_free(&key, Mode::Exclusive).await;
}

/// Waiters that died block no claim once their leases have ended.
pub async fn a_dead_queue_blocks_no_claim(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let (holder, key) = held_key(&fixture, Mode::Exclusive).await;
    skip_if!(fixture.lives_by_session().await);
    let [dead, other] = fixture.two().await;
    dead.waits(&dead.fair_with_short_lease(&key)).await;
    holder.release().await;
    fixture.pass(fixture.short_lease() + fixture.grace()).await;
    other.finds_nothing(&key).await;
}

/// Readers at the head of the queue are granted together. A reader behind a writer waits for the writer.
pub async fn readers_at_the_head_are_granted_together(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Write, Fairness::Fifo).await);
    let (holder, key) = held_key(&fixture, Mode::Write).await;
    let client = fixture.client().await;
    let queue = [Mode::Read, Mode::Read, Mode::Write, Mode::Read].map(|mode| client.fair(&key, mode));
    for claim in &queue {
        client.waits(claim).await;
    }
    let [first, second, writer, last] = &queue;
    holder.release().await;
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

/// A reader does not overtake a waiting writer, even while readers hold the key.
pub async fn a_reader_does_not_overtake_a_waiting_writer(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Read, Fairness::Fifo).await);
    granted_one_by_one(&fixture, [Mode::Read, Mode::Write, Mode::Read]).await;
}

/// A claim for few permits does not overtake one for many, even if enough permits for the small claim are free.
pub async fn a_small_claim_does_not_overtake_a_large_one(fixture: Fixture) {
    skip_if!(fixture.refuses(permits(2, 3), Fairness::Fifo).await);
    granted_one_by_one(&fixture, [permits(2, 3), permits(3, 3), permits(1, 3)]).await;
}

/// Asserts that claims of these modes hold the key one by one: the third could join the first, but waits for the
/// second.
async fn granted_one_by_one(fixture: &Fixture, [first, second, third]: [Mode; 3]) {
    let (holder, key) = held_key(fixture, first).await;
    let [one, two] = fixture.two().await;
    let head = one.queues(&key, second).await;
    let last = two.queues(&key, third).await;
    holder.release().await;
    two.waits(&last).await;
    one.granted_soon(&head).await;
    one.release(&head).await.freed_it(&head);
    two.granted_soon(&last).await;
}

/// When the head of the queue is withdrawn, later waiters whose permits are free are granted.
pub async fn withdrawing_the_head_lets_later_waiters_proceed(fixture: Fixture) {
    skip_if!(fixture.refuses(permits(2, 3), Fairness::Fifo).await);
    let (_holder, key) = held_key(&fixture, permits(2, 3)).await;
    let [one, two] = fixture.two().await;
    let many = one.queues(&key, permits(3, 3)).await;
    let few = two.queues(&key, permits(1, 3)).await;
    one.withdraw(&many).await.freed_it(&many);
    two.granted_soon(&few).await;
}

/// When a dead holder's lease ends, the first waiter is granted.
pub async fn a_queue_moves_on_when_the_holder_dies(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await || fixture.lives_by_session().await);
    let ([dead, alive], key) = (fixture.two().await, fixture.key());
    let held = dead.fair_with_short_lease(&key);
    let lease = dead.granted(&held).await.lease;
    let next = alive.queues(&key, Mode::Exclusive).await;
    alive.granted_within(&next, lease + fixture.grace()).await;
}

/// A client, and its fair claim that holds a key.
struct Holder {
    client: TestClient,
    claim: Arc<Claim>,
}

impl Holder {
    async fn release(&self) {
        self.client.release(&self.claim).await.freed_it(&self.claim);
    }
}

/// Returns a new key, and a fair claim that holds it.
async fn held_key(fixture: &Fixture, mode: Mode) -> (Holder, LockKey) {
    let (client, key) = (fixture.client().await, fixture.key());
    let claim = client.fair(&key, mode);
    client.granted(&claim).await;
    (Holder { client, claim }, key)
}
