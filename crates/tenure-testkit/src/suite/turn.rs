//! Turns: for which waiters a freed key is reserved, when a turn ends, and how successors yield.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{AcquireReply, Claim, Fairness, Fault, LockKey, Mode, TURN, Wakes};

use super::{Fixture, ReleaseOutcome, TestClient};

impl TestClient {
    /// Watches a new unfair claim, and polls it. Asserts that it has to wait. Returns the claim, which stops watching when
    /// its wake-ups are dropped; there are none if the store can only be polled.
    async fn watches(&self, key: &LockKey) -> (Arc<Claim>, Option<Wakes>) {
        let claim = self.claim_as(key, Mode::Exclusive, |claim| claim.fairness = Fairness::Unfair);
        let wakes = self.watch(&claim).await;
        self.waits(&claim).await;
        // A store that sorts watchers by time needs a moment between two of them.
        self.fixture.pass(Duration::from_millis(1)).await;
        (claim, wakes)
    }
}

impl Fixture {
    /// Returns true if the store reserves no turns for unfair exclusive claims.
    async fn lacks_turns(&self) -> bool {
        let unfair = Fairness::Unfair;
        self.refuses(Mode::Exclusive, unfair).await || !self.profile().reserves_turns
    }
}

/// A release reserves the key for the unfair waiter that has watched longest. Until its turn ends, claims of other
/// clients wait.
pub async fn a_freed_key_is_reserved_for_the_longest_watcher(fixture: Fixture) {
    skip_if!(fixture.lacks_turns().await);
    let ([holder, one, other], key) = (fixture.three().await, fixture.key());
    let held = holder.holds(&key, Mode::Exclusive).await;
    let (longest, _wakes) = one.watches(&key).await;
    let (next, _wakes) = other.watches(&key).await;
    holder.release(&held).await.freed_it(&held);
    holder.finds_busy(&key, Mode::Exclusive).await;
    other.waits(&next).await;
    one.granted(&longest).await;
}

/// A turn that its claim does not take ends after 10 ms.
pub async fn a_turn_that_is_not_taken_ends(fixture: Fixture) {
    skip_if!(fixture.lacks_turns().await);
    let ([holder, dead], key) = (fixture.two().await, fixture.key());
    let held = holder.holds(&key, Mode::Exclusive).await;
    let _watched = dead.watches(&key).await;
    holder.release(&held).await.freed_it(&held);
    let quick = holder.claim(&key, Mode::Exclusive);
    holder.polls_within(&quick, TURN).await;
    fixture.pass(TURN).await;
    holder.granted(&quick).await;
}

/// A fair claim ignores turns: it is granted although the key is reserved for an unfair waiter.
pub async fn a_fair_claim_ignores_turns(fixture: Fixture) {
    skip_if!(fixture.lacks_turns().await || fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let ([holder, waiter, other], key) = (fixture.three().await, fixture.key());
    let held = holder.holds(&key, Mode::Exclusive).await;
    let (waiting, _wakes) = waiter.watches(&key).await;
    holder.release(&held).await.freed_it(&held);
    let fair = other.fair(&key, Mode::Exclusive);
    other.granted(&fair).await;
    other.release(&fair).await.freed_it(&fair);
    waiter.granted(&waiting).await;
}

/// A poll of another claim of the same client does not end a claim's turn.
pub async fn a_poll_ends_only_the_turn_of_its_own_claim(fixture: Fixture) {
    skip_if!(fixture.lacks_turns().await);
    let ([holder, waiter, other], key) = (fixture.three().await, fixture.key());
    let held = holder.holds(&key, Mode::Exclusive).await;
    let (waiting, _wakes) = waiter.watches(&key).await;
    holder.release(&held).await.freed_it(&held);
    // The connection of another client sends it, so that no fault repeats a request for the waiting claim here.
    let second = waiter.claim(&key, Mode::Exclusive);
    other.granted(&second).await;
    other.release(&second).await.freed_it(&second);
    holder.finds_busy(&key, Mode::Exclusive).await;
    waiter.granted(&waiting).await;
}

/// While a claim of another client watches, a release gives no turn to a claim of its own client, however long that has
/// watched.
pub async fn a_releasing_clients_waiters_get_no_turn(fixture: Fixture) {
    skip_if!(fixture.lacks_turns().await);
    let ([holder, other], key) = (fixture.two().await, fixture.key());
    let held = holder.holds(&key, Mode::Exclusive).await;
    let (own, _wakes) = holder.watches(&key).await;
    let (waiting, _wakes) = other.watches(&key).await;
    holder.release(&held).await.freed_it(&held);
    holder.waits(&own).await;
    other.granted(&waiting).await;
}

/// A watcher that let its turn pass counts as a waiter, and gets another turn, only after it has polled.
pub async fn a_watcher_that_missed_its_turn_counts_after_a_poll(fixture: Fixture) {
    skip_if!(fixture.lacks_turns().await);
    let ([holder, late, other], key) = (fixture.three().await, fixture.key());
    let grant_and_release = async || {
        let held = holder.claim(&key, Mode::Exclusive);
        holder.granted(&held).await;
        holder.release(&held).await.others
    };
    let held = holder.holds(&key, Mode::Exclusive).await;
    let (watcher, _wakes) = late.watches(&key).await;
    assert_eq!(holder.release(&held).await.others, Some(1));
    fixture.pass(TURN).await;
    assert_eq!(grant_and_release().await, Some(0), "it has missed its turn");
    let again = late.watch(&watcher).await;
    assert_eq!(
        grant_and_release().await,
        Some(0),
        "it has watched again, but not polled"
    );
    drop(again);
    let held = holder.holds(&key, Mode::Exclusive).await;
    late.waits(&watcher).await;
    assert_eq!(holder.release(&held).await.others, Some(1));
    other.finds_busy(&key, Mode::Exclusive).await;
    late.granted(&watcher).await;
}

/// A waiter that sleeps behind one that never polls is granted when the turn of that one has ended.
pub async fn a_waiter_behind_a_dead_one_proceeds_after_a_turn(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Unfair).await);
    let ([holder, dead, alive], key) = (fixture.three().await, fixture.key());
    let held = holder.holds(&key, Mode::Exclusive).await;
    let _watched = dead.watches(&key).await;
    let sleeper = alive.sleeps(&key, Mode::Exclusive).await;
    holder.release(&held).await.freed_it(&held);
    sleeper.granted_within(TURN + fixture.grace()).await;
}

/// A fair successor goes before watchers, even if it yields: it queues, and the watchers get no turn that they could
/// miss.
pub async fn a_fair_successor_goes_before_watchers(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Unfair).await);
    let ([client, other], key) = (fixture.two().await, fixture.key());
    let [held, successor] = [(), ()].map(|()| client.fair(&key, Mode::Exclusive));
    client.granted(&held).await;
    let (_waiting, wakes) = other.watches(&key).await;
    client.hand_over(&held, &successor).await.freed_it(&held);
    other.finds_busy(&key, Mode::Exclusive).await;
    fixture.pass(TURN).await;
    client.granted(&successor).await;
    let released = client.release(&successor).await;
    if wakes.is_some() && fixture.profile().reports_waiters {
        assert_eq!(released.others, Some(1));
    }
}

/// An unfair successor that yields waits until the turns of the watchers have ended.
pub async fn an_unfair_successor_goes_after_watchers(fixture: Fixture) {
    skip_if!(fixture.lacks_turns().await);
    let ([client, other], key) = (fixture.two().await, fixture.key());
    let held = client.holds(&key, Mode::Exclusive).await;
    let successor = client.claim(&key, Mode::Exclusive);
    let (waiting, _wakes) = other.watches(&key).await;
    client.hand_over(&held, &successor).await.freed_it(&held);
    client.waits(&successor).await;
    other.granted(&waiting).await;
}

/// A successor that only yields is polled after one `TURN`, be it fair or unfair.
pub async fn a_yielding_successor_polls_after_a_turn(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Unfair).await);
    for fairness in [Fairness::Unfair, Fairness::Fifo] {
        skip_if!(fixture.refuses(Mode::Exclusive, fairness).await);
        let ([client, other], key) = (fixture.two().await, fixture.key());
        let claim = || client.claim_as(&key, Mode::Exclusive, |claim| claim.fairness = fairness);
        let (held, successor) = (claim(), claim());
        client.granted(&held).await;
        let (_waiting, wakes) = other.watches(&key).await;
        let released = client.hand_over(&held, &successor).await;
        if wakes.is_some() && fixture.profile().reports_waiters {
            polls_after_a_turn(&released);
        }
        client.withdraw(&successor).await;
    }
}

/// A successor of another kind of lock than the key has is polled after one `TURN`. Its poll returns the error.
pub async fn a_successor_of_another_kind_polls_after_a_turn(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Read).await);
    let ([client, other], key) = (fixture.two().await, fixture.key());
    let held = client.holds(&key, Mode::Read).await;
    other.holds(&key, Mode::Read).await;
    let successor = client.claim(&key, Mode::Exclusive);
    let released = client.hand_over(&held, &successor).await;
    released.freed_it(&held);
    if fixture.profile().reports_waiters {
        polls_after_a_turn(&released);
    }
    let refusal = client.try_acquire(&successor).await;
    let refusal = refusal.expect_err("the key has another kind");
    assert!(matches!(refusal.fault(), Fault::Mismatch { .. }), "{refusal}");
}

/// Asserts that the successor is polled after one `TURN`, or after what is left of it if the release was repeated.
fn polls_after_a_turn(released: &ReleaseOutcome) {
    let Some(AcquireReply::Waiting { poll_after, .. }) = released.successor else {
        panic!("the successor must wait, but is {:?}", released.successor);
    };
    let is_right = if released.repeated {
        poll_after <= TURN
    } else {
        poll_after == TURN
    };
    assert!(is_right, "the successor is polled after {poll_after:?}");
}
