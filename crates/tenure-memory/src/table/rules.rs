//! Tests the contract's rules on the table alone.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Fairness, FencingToken, HANDOVER_WINDOW, HolderId, Loss, MAX_NOT_AFTER, Mode, Phase,
    ReleaseTarget, RenewReply, RenewRequest, TokenRange,
};

use super::fixture::{Fixture, LEASE, count, key, permits};

const NANOSECOND: Duration = Duration::from_nanos(1);

#[test]
fn a_held_key_is_granted_to_no_other_claim() {
    let mut fixture = Fixture::new();
    let (one, other) = (fixture.mutex(1), fixture.mutex(2));
    fixture.grant(&one);
    assert_eq!(fixture.wait(&other), (None, LEASE));
    fixture.release(&one);
    fixture.grant(&other);
}

#[test]
fn polling_a_granted_claim_keeps_tokens_and_restarts_its_lease() {
    let mut fixture = Fixture::new();
    let claim = fixture.mutex(1);
    let first = fixture.grant(&claim);
    fixture.pass(LEASE - NANOSECOND);
    let second = fixture.grant(&claim);
    assert_eq!(first.tokens, second.tokens);
    assert_eq!((second.held_from, second.lease), (fixture.now, LEASE));
    fixture.pass(LEASE - NANOSECOND);
    assert!(fixture.is_alive(&claim, Phase::Granted));
}

#[test]
fn a_refused_unfair_claim_leaves_nothing_behind() {
    let mut fixture = Fixture::new();
    let (one, other) = (fixture.mutex(1), fixture.mutex(2));
    fixture.grant(&one);
    fixture.wait(&other);
    assert!(!fixture.is_alive(&other, Phase::Either));
    fixture.release(&one);
    assert!(fixture.table.keys.is_empty());
}

#[test]
fn a_claim_expires_exactly_at_the_end_of_its_lease() {
    let mut fixture = Fixture::new();
    let (one, other) = (fixture.mutex(1), fixture.mutex(2));
    fixture.grant(&one);
    fixture.pass(LEASE);
    fixture.assert_ended(&one);
    assert_eq!(fixture.loss(&one), Some(Loss::Expired));
    fixture.grant(&other);
    assert_eq!(fixture.loss(&one), Some(Loss::Expired));
    assert!(fixture.release(&one).freed.is_empty());
    assert!(fixture.is_alive(&other, Phase::Granted));
}

#[test]
fn a_claim_is_never_placed_after_not_after() {
    let mut fixture = Fixture::new();
    let claim = fixture.mutex(1);
    let not_after = fixture.now;
    fixture.pass(NANOSECOND);
    let (at, mut signals) = (fixture.at(), Default::default());
    let reply = fixture
        .table
        .acquire(Arc::clone(&claim), not_after, at, &mut signals);
    assert!(matches!(reply, Ok(AcquireReply::TooLate)));
    assert!(fixture.table.keys.is_empty());
    fixture.grant(&claim);
    // A claim that holds or queues may be polled after `not_after`.
    let reply = fixture.table.acquire(claim, not_after, at, &mut signals);
    assert!(matches!(reply, Ok(AcquireReply::Granted(_))));
}

#[test]
fn a_claim_released_before_its_acquire_is_never_placed() {
    let mut fixture = Fixture::new();
    let (claim, fair) = (fixture.mutex(1), fixture.fair(1, Mode::Exclusive));
    assert!(fixture.release(&claim).freed.is_empty());
    assert!(fixture.release(&fair).freed.is_empty());
    fixture.pass(MAX_NOT_AFTER);
    fixture.assert_ended(&claim);
    fixture.assert_ended(&fair);
    assert_eq!(fixture.loss(&claim), Some(Loss::Missing));
}

#[test]
fn releasing_ends_a_claim_in_any_state_and_is_repeatable() {
    let mut fixture = Fixture::new();
    let (holds, waits) = (fixture.fair(1, Mode::Exclusive), fixture.fair(2, Mode::Exclusive));
    fixture.grant(&holds);
    fixture.wait(&waits);
    for claim in [&waits, &holds] {
        assert_eq!(fixture.release(claim).freed[..], [HolderId::Claim(claim.at.id)]);
        assert!(fixture.release(claim).freed.is_empty());
        fixture.assert_ended(claim);
    }
    assert!(fixture.table.keys.is_empty());
}

#[test]
fn renewing_obeys_the_phase_and_never_places_a_claim() {
    let mut fixture = Fixture::new();
    let (holds, waits) = (fixture.fair(1, Mode::Exclusive), fixture.fair(2, Mode::Exclusive));
    assert!(!fixture.is_alive(&holds, Phase::Either));
    assert!(fixture.table.keys.is_empty());
    fixture.grant(&holds);
    fixture.wait(&waits);
    fixture.pass(LEASE / 2);
    assert!(!fixture.is_alive(&holds, Phase::Waiting) && !fixture.is_alive(&waits, Phase::Granted));
    assert!(fixture.is_alive(&holds, Phase::Granted) && fixture.is_alive(&waits, Phase::Waiting));
    fixture.pass(LEASE / 2);
    assert!(fixture.is_alive(&holds, Phase::Either) && fixture.is_alive(&waits, Phase::Either));
    assert_eq!(fixture.wait(&waits).0, Some(0));
}

#[test]
fn a_key_has_one_kind_while_it_has_holders_or_waiters() {
    let mut fixture = Fixture::new();
    let (one, two) = (fixture.fair(1, permits(1, 2)), fixture.fair(2, permits(2, 2)));
    fixture.grant(&one);
    fixture.wait(&two);
    let others = [Mode::Exclusive, Mode::Read, permits(1, 3)];
    let others = others.map(|mode| fixture.claim(3, "k", mode, Fairness::Unfair));
    for other in &others {
        assert!(fixture.acquire(other).is_err());
    }
    // The key is still used as a semaphore of two permits, because of its waiter.
    fixture.release(&one);
    for other in &others {
        assert!(fixture.acquire(other).is_err());
    }
    fixture.release(&two);
    fixture.grant(&others[0]);
}

#[test]
fn fair_claims_are_granted_in_the_order_of_placement() {
    let mut fixture = Fixture::new();
    let claims: Vec<_> = (1..5)
        .map(|client| fixture.fair(client, Mode::Exclusive))
        .collect();
    fixture.grant(&claims[0]);
    for (ahead, claim) in (0..).zip(&claims[1..]) {
        assert_eq!(fixture.wait(claim).0, Some(ahead));
    }
    for pair in claims.windows(2) {
        fixture.release(&pair[0]);
        for claim in claims.iter().rev().filter(|claim| claim.at != pair[1].at) {
            assert!(fixture.try_grant(claim).is_none(), "{:?} overtook", claim.at);
        }
        fixture.grant(&pair[1]);
    }
}

#[test]
fn readers_share_the_head_and_never_overtake_a_writer() {
    let mut fixture = Fixture::new();
    let modes = [Mode::Write, Mode::Read, Mode::Read, Mode::Write, Mode::Read];
    let claims = modes.map(|mode| fixture.fair(1, mode));
    fixture.grant(&claims[0]);
    claims[1..].iter().for_each(|claim| _ = fixture.wait(claim));
    fixture.release(&claims[0]);
    // The second reader of the queue must wait until the first one is granted, although both could share the key.
    fixture.wait(&claims[2]);
    fixture.grant(&claims[1]);
    fixture.grant(&claims[2]);
    fixture.wait(&claims[4]);
    fixture.release(&claims[1]);
    fixture.wait(&claims[3]);
    fixture.release(&claims[2]);
    fixture.wait(&claims[4]);
    fixture.grant(&claims[3]);
}

#[test]
fn a_fair_claim_for_few_permits_does_not_overtake_one_for_many() {
    let mut fixture = Fixture::new();
    let [one, all, few] = [1, 3, 1].map(|take| fixture.fair(1, permits(take, 3)));
    fixture.grant(&one);
    fixture.wait(&all);
    assert_eq!(fixture.wait(&few).0, Some(1));
    fixture.release(&all);
    fixture.grant(&few);
}

#[test]
fn only_a_live_queue_holds_back_unfair_claims() {
    let mut fixture = Fixture::new();
    let [holds, waits] = [1, 2].map(|client| fixture.fair(client, Mode::Exclusive));
    let unfair = fixture.mutex(3);
    fixture.grant(&holds);
    fixture.wait(&waits);
    fixture.release(&holds);
    assert_eq!(fixture.wait(&unfair), (None, LEASE));
    fixture.pass(LEASE);
    fixture.grant(&unfair);
    fixture.assert_ended(&waits);
}

#[test]
fn a_dead_waiter_stalls_the_queue_for_at_most_its_lease() {
    let mut fixture = Fixture::new();
    let [holds, dead, next] = [1, 2, 3].map(|client| fixture.fair(client, Mode::Exclusive));
    fixture.grant(&holds);
    fixture.wait(&dead);
    fixture.pass(LEASE / 2);
    fixture.wait(&next);
    fixture.release(&holds);
    let watch = fixture.watch(&next);
    assert_eq!(fixture.wait(&next), (Some(1), LEASE / 3));
    fixture.pass(LEASE / 2);
    assert!(!watch.woke(), "no timer runs, so time alone wakes no claim");
    fixture.grant(&next);
}

#[test]
fn polling_a_waiting_claim_keeps_its_place_and_its_lease_alive() {
    let mut fixture = Fixture::new();
    let [holds, first, second] = [1, 2, 3].map(|client| fixture.fair(client, Mode::Exclusive));
    fixture.grant(&holds);
    fixture.wait(&first);
    fixture.wait(&second);
    for _ in 0..5 {
        fixture.pass(LEASE / 2);
        assert!(fixture.is_alive(&holds, Phase::Granted));
        assert_eq!(fixture.wait(&second).0, Some(1));
        assert_eq!(fixture.wait(&first).0, Some(0));
    }
}

#[test]
fn poll_after_is_the_first_time_the_reply_could_change() {
    let mut fixture = Fixture::new();
    let [one, two] = [1, 2].map(|client| fixture.claim(client, "k", permits(1, 2), Fairness::Unfair));
    let all = fixture.claim(3, "k", permits(2, 2), Fairness::Unfair);
    let fair = fixture.fair(4, permits(2, 2));
    fixture.grant(&one);
    fixture.pass(Duration::from_secs(25));
    fixture.grant(&two);
    assert_eq!(fixture.wait(&all).1, Duration::from_secs(5));
    assert_eq!(fixture.wait(&fair).1, Duration::from_secs(5));
    fixture.pass(Duration::from_secs(5));
    // `poll_after` of a fair claim is at most a third of its lease, because the polls keep its place in the queue.
    assert_eq!(fixture.wait(&fair).1, LEASE / 3);
    fixture.pass(Duration::from_secs(25) - NANOSECOND);
    // The holder's lease ends in 1 ns, but `poll_after` is at least 1 ms.
    assert_eq!(fixture.wait(&all).1, Duration::from_millis(1));
}

#[test]
fn an_eviction_pauses_the_key_and_is_reported_to_the_holder() {
    let mut fixture = Fixture::new();
    let (evicted, other) = (fixture.mutex(1), fixture.mutex(2));
    fixture.grant(&evicted);
    let watch = fixture.watch(&evicted);
    let target = || ReleaseTarget::Claim(evicted.at.clone());
    assert_eq!(fixture.evict(target(), "eve", HANDOVER_WINDOW).freed.len(), 1);
    assert!(watch.woke(), "a holder that watches is woken at once");
    assert_eq!(fixture.wait(&other), (None, HANDOVER_WINDOW));
    fixture.pass(HANDOVER_WINDOW - NANOSECOND);
    assert!(fixture.try_grant(&other).is_none());
    assert!(
        fixture
            .evict(target(), "mallory", HANDOVER_WINDOW)
            .freed
            .is_empty()
    );
    fixture.pass(NANOSECOND);
    fixture.grant(&other);
    fixture.assert_ended(&evicted);
    let by = Some("eve".into());
    assert_eq!(fixture.loss(&evicted), Some(Loss::Evicted { by }));
    fixture.pass(LEASE);
    assert_eq!(fixture.loss(&evicted), Some(Loss::Missing));
}

#[test]
fn evicting_all_holders_keeps_the_waiters() {
    let mut fixture = Fixture::new();
    let holders = [1, 2].map(|client| fixture.fair(client, permits(1, 2)));
    let waits = fixture.fair(3, permits(2, 2));
    holders.iter().for_each(|claim| drop(fixture.grant(claim)));
    fixture.wait(&waits);
    let released = fixture.evict(ReleaseTarget::All(key("k")), "eve", Duration::ZERO);
    assert_eq!((released.freed.len(), released.others), (2, 1));
    holders.iter().for_each(|claim| fixture.assert_ended(claim));
    fixture.grant(&waits);
}

#[test]
fn evicting_a_foreign_name_frees_no_claim() {
    let mut fixture = Fixture::new();
    let claim = fixture.mutex(1);
    fixture.grant(&claim);
    let target = HolderId::Foreign("java:1".into()).on(key("k"));
    assert!(fixture.evict(target, "eve", Duration::ZERO).freed.is_empty());
    assert!(fixture.is_alive(&claim, Phase::Granted));
}

#[test]
fn a_successor_is_granted_if_no_other_client_waits() {
    let mut fixture = Fixture::new();
    let [holds, successor, sibling] = [1; 3].map(|client| fixture.mutex(client));
    fixture.grant(&holds);
    let _sibling_watch = fixture.watch(&sibling);
    let _holder_watch = fixture.watch(&holds);
    let released = fixture.release_to(&holds, &successor);
    assert_eq!(released.others, 0, "waiters of the same client do not count");
    assert!(matches!(released.successor, Some(AcquireReply::Granted(_))));
    // The client repeats the release, as after a lost reply.
    let again = fixture.release_to(&holds, &successor);
    assert!(again.freed.is_empty() && matches!(again.successor, Some(AcquireReply::Granted(_))));
}

#[test]
fn a_successor_waits_if_a_claim_of_another_client_waits() {
    for fairness in [Fairness::Unfair, Fairness::Fifo] {
        let mut fixture = Fixture::new();
        let [holds, successor] = [1; 2].map(|client| fixture.claim(client, "k", Mode::Exclusive, fairness));
        let other = fixture.claim(2, "k", Mode::Exclusive, fairness);
        fixture.grant(&holds);
        fixture.wait(&other);
        let watch = fixture.watch(&other);
        let released = fixture.release_to(&holds, &successor);
        assert_eq!(released.others, 1);
        assert!(matches!(released.successor, Some(AcquireReply::Waiting { .. })));
        assert!(watch.woke());
        assert!(
            fixture.try_grant(&successor).is_none(),
            "the key is reserved for the other client"
        );
        fixture.grant(&other);
        let queued = fairness == Fairness::Fifo;
        assert_eq!(fixture.is_alive(&successor, Phase::Waiting), queued);
    }
}

#[test]
fn an_ended_late_or_mismatched_successor_is_not_placed() {
    let mut fixture = Fixture::new();
    let [holds, ended, late] = [1; 3].map(|client| fixture.mutex(client));
    fixture.release(&ended);
    fixture.grant(&holds);
    let released = fixture.release_to(&holds, &ended);
    assert!(matches!(released.successor, Some(AcquireReply::Ended)));
    let released = fixture.release_to_by(&holds, &late, fixture.now - NANOSECOND);
    assert!(matches!(released.successor, Some(AcquireReply::TooLate)));
    let readers = [1, 2].map(|client| fixture.claim(client, "k", Mode::Read, Fairness::Unfair));
    let mutex = fixture.mutex(1);
    readers.iter().for_each(|claim| drop(fixture.grant(claim)));
    let released = fixture.release_to(&readers[0], &mutex);
    assert!(matches!(released.successor, Some(AcquireReply::Waiting { .. })));
    // The release does not report that the successor has another kind than the key; the successor's own `acquire`
    // does.
    assert!(fixture.acquire(&mutex).is_err());
}

/// Regression R12: no token is given out twice.
#[test]
fn tokens_rise_across_keys_and_ends_and_after_a_raise() {
    let mut fixture = Fixture::new();
    let mut last = 0;
    let mut rises = |grant: tenure_backend::Grant| {
        let range = grant.tokens.unwrap();
        assert!(range.first().get() > last);
        last = range.last().get();
    };
    for (number, name) in ["a", "b", "a", "b", "a"].into_iter().enumerate() {
        let claim = fixture.claim(1, name, Mode::Exclusive, Fairness::Unfair);
        rises(fixture.grant(&claim));
        match number % 2 {
            0 => drop(fixture.release(&claim)),
            _ => fixture.pass(LEASE),
        }
    }
    let claim = fixture.mutex(1);
    rises(fixture.grant(&claim));
    let raised = TokenRange::new(FencingToken::new(1 << 60).unwrap(), count(3)).unwrap();
    for (only, takes) in [(Phase::Waiting, false), (Phase::Granted, true)] {
        let request = RenewRequest {
            only,
            raise: Some(raised),
            ..RenewRequest::of(&claim)
        };
        let reply = fixture.act(|table, at, signals| table.renew(&request, at, signals));
        assert_eq!(matches!(reply, RenewReply::Alive { .. }), takes);
        assert_eq!(fixture.grant(&claim).tokens == Some(raised), takes);
    }
    let other = fixture.claim(1, "other", Mode::Exclusive, Fairness::Unfair);
    let next = fixture.grant(&other).tokens.unwrap().first();
    assert_eq!(next.get(), raised.last().get() + 1);
}

/// Regression R32: claims on keys that no client uses any more are removed.
#[test]
fn keys_of_dead_clients_are_cleared_out_without_being_used() {
    let mut fixture = Fixture::new();
    for round in 0..10 {
        for number in 0..1000 {
            let claim = fixture.claim(1, &format!("{round}:{number}"), Mode::Exclusive, Fairness::Unfair);
            fixture.grant(&claim);
        }
        fixture.pass(LEASE);
    }
    assert!(fixture.table.keys.len() <= 2048, "{}", fixture.table.keys.len());
}
