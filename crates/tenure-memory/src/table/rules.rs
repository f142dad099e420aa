//! The rules of the contract, one test each, on the state machine alone.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Fairness, FencingToken, HANDOVER_WINDOW, HolderId, Loss, MAX_NOT_AFTER, Mode, Phase,
    ReleaseTarget, RenewReply, RenewRequest, TURN, TokenRange,
};

use super::trial::{LEASE, Trial, count, key, permits};

const INSTANT: Duration = Duration::from_nanos(1);

#[test]
fn a_held_key_is_granted_to_nobody_else_until_it_is_released() {
    let mut trial = Trial::new();
    let (one, other) = (trial.mutex(1), trial.mutex(2));
    trial.grant(&one);
    assert_eq!(trial.wait(&other), (None, LEASE));
    trial.release(&one);
    trial.grant(&other);
}

#[test]
fn a_poll_of_a_granted_claim_gives_the_same_tokens_and_restarts_its_lease() {
    let mut trial = Trial::new();
    let claim = trial.mutex(1);
    let first = trial.grant(&claim);
    trial.pass(LEASE - INSTANT);
    let second = trial.grant(&claim);
    assert_eq!(first.tokens, second.tokens);
    assert_eq!((second.held_from, second.lease), (trial.now, LEASE));
    trial.pass(LEASE - INSTANT);
    assert!(trial.is_alive(&claim, Phase::Granted));
}

#[test]
fn an_unfair_claim_that_is_refused_leaves_nothing_behind() {
    let mut trial = Trial::new();
    let (one, other) = (trial.mutex(1), trial.mutex(2));
    trial.grant(&one);
    trial.wait(&other);
    assert!(!trial.is_alive(&other, Phase::Either));
    trial.release(&one);
    assert!(trial.table.rooms.is_empty());
}

#[test]
fn a_claim_is_dead_from_the_very_end_of_its_lease() {
    let mut trial = Trial::new();
    let (one, other) = (trial.mutex(1), trial.mutex(2));
    trial.grant(&one);
    trial.pass(LEASE);
    trial.assert_ended(&one);
    assert_eq!(trial.loss(&one), Some(Loss::Expired));
    trial.grant(&other);
    assert_eq!(trial.loss(&one), Some(Loss::Expired));
    assert!(trial.release(&one).freed.is_empty());
    assert!(trial.is_alive(&other, Phase::Granted));
}

#[test]
fn a_claim_is_never_placed_after_not_after() {
    let mut trial = Trial::new();
    let claim = trial.mutex(1);
    let not_after = trial.now;
    trial.pass(INSTANT);
    let (at, mut signals) = (trial.at(), Default::default());
    let standing = trial
        .table
        .acquire(Arc::clone(&claim), not_after, at, &mut signals);
    assert!(matches!(standing, Ok(AcquireReply::TooLate)));
    assert!(trial.table.rooms.is_empty());
    trial.grant(&claim);
    // Once it is there, a poll that was long on the way is as good as any.
    let standing = trial.table.acquire(claim, not_after, at, &mut signals);
    assert!(matches!(standing, Ok(AcquireReply::Granted(_))));
}

#[test]
fn a_claim_that_was_released_before_it_was_placed_is_never_placed() {
    let mut trial = Trial::new();
    let (claim, fair) = (trial.mutex(1), trial.fair(1, Mode::Exclusive));
    assert!(trial.release(&claim).freed.is_empty());
    assert!(trial.release(&fair).freed.is_empty());
    trial.pass(MAX_NOT_AFTER);
    trial.assert_ended(&claim);
    trial.assert_ended(&fair);
    assert_eq!(trial.loss(&claim), Some(Loss::Missing));
}

#[test]
fn a_release_from_any_state_makes_the_claim_absent_and_may_be_repeated() {
    let mut trial = Trial::new();
    let (holds, waits) = (trial.fair(1, Mode::Exclusive), trial.fair(2, Mode::Exclusive));
    trial.grant(&holds);
    trial.wait(&waits);
    for claim in [&waits, &holds] {
        assert_eq!(trial.release(claim).freed[..], [HolderId::Claim(claim.at.id)]);
        assert!(trial.release(claim).freed.is_empty());
        trial.assert_ended(claim);
    }
    assert!(trial.table.rooms.is_empty());
}

#[test]
fn renewal_is_for_the_phase_that_was_asked_for_and_never_places() {
    let mut trial = Trial::new();
    let (holds, waits) = (trial.fair(1, Mode::Exclusive), trial.fair(2, Mode::Exclusive));
    assert!(!trial.is_alive(&holds, Phase::Either));
    assert!(trial.table.rooms.is_empty());
    trial.grant(&holds);
    trial.wait(&waits);
    trial.pass(LEASE / 2);
    assert!(!trial.is_alive(&holds, Phase::Waiting) && !trial.is_alive(&waits, Phase::Granted));
    assert!(trial.is_alive(&holds, Phase::Granted) && trial.is_alive(&waits, Phase::Waiting));
    trial.pass(LEASE / 2);
    assert!(trial.is_alive(&holds, Phase::Either) && trial.is_alive(&waits, Phase::Either));
    assert_eq!(trial.wait(&waits).0, Some(0));
}

#[test]
fn a_key_is_of_one_kind_while_somebody_holds_it_or_queues_for_it() {
    let mut trial = Trial::new();
    let (one, two) = (trial.fair(1, permits(1, 2)), trial.fair(2, permits(2, 2)));
    trial.grant(&one);
    trial.wait(&two);
    let others = [Mode::Exclusive, Mode::Read, permits(1, 3)];
    let others = others.map(|mode| trial.claim(3, "k", mode, Fairness::Unfair));
    for other in &others {
        assert!(trial.acquire(other).is_err());
    }
    // The waiter alone still makes it a semaphore of two.
    trial.release(&one);
    for other in &others {
        assert!(trial.acquire(other).is_err());
    }
    trial.release(&two);
    trial.grant(&others[0]);
}

#[test]
fn fair_claims_go_in_the_order_in_which_they_were_placed() {
    let mut trial = Trial::new();
    let claims: Vec<_> = (1..5).map(|client| trial.fair(client, Mode::Exclusive)).collect();
    trial.grant(&claims[0]);
    for (ahead, claim) in (0..).zip(&claims[1..]) {
        assert_eq!(trial.wait(claim).0, Some(ahead));
    }
    for pair in claims.windows(2) {
        trial.release(&pair[0]);
        for claim in claims.iter().rev().filter(|claim| claim.at != pair[1].at) {
            assert!(trial.try_grant(claim).is_none(), "{:?} overtook", claim.at);
        }
        trial.grant(&pair[1]);
    }
}

#[test]
fn readers_at_the_head_go_together_and_none_overtakes_a_writer() {
    let mut trial = Trial::new();
    let modes = [Mode::Write, Mode::Read, Mode::Read, Mode::Write, Mode::Read];
    let claims = modes.map(|mode| trial.fair(1, mode));
    trial.grant(&claims[0]);
    claims[1..].iter().for_each(|claim| _ = trial.wait(claim));
    trial.release(&claims[0]);
    // Not before the one ahead of it was granted, although both may go.
    trial.wait(&claims[2]);
    trial.grant(&claims[1]);
    trial.grant(&claims[2]);
    trial.wait(&claims[4]);
    trial.release(&claims[1]);
    trial.wait(&claims[3]);
    trial.release(&claims[2]);
    trial.wait(&claims[4]);
    trial.grant(&claims[3]);
}

#[test]
fn a_fair_claim_for_few_permits_does_not_overtake_one_for_many() {
    let mut trial = Trial::new();
    let [one, all, few] = [1, 3, 1].map(|take| trial.fair(1, permits(take, 3)));
    trial.grant(&one);
    trial.wait(&all);
    assert_eq!(trial.wait(&few).0, Some(1));
    trial.release(&all);
    trial.grant(&few);
}

#[test]
fn a_live_queue_bars_unfair_claims_and_a_dead_one_does_not() {
    let mut trial = Trial::new();
    let [holds, waits] = [1, 2].map(|client| trial.fair(client, Mode::Exclusive));
    let unfair = trial.mutex(3);
    trial.grant(&holds);
    trial.wait(&waits);
    trial.release(&holds);
    assert_eq!(trial.wait(&unfair), (None, LEASE));
    trial.pass(LEASE);
    trial.grant(&unfair);
    trial.assert_ended(&waits);
}

#[test]
fn a_dead_waiter_holds_the_queue_up_for_its_own_lease_at_most() {
    let mut trial = Trial::new();
    let [holds, dead, next] = [1, 2, 3].map(|client| trial.fair(client, Mode::Exclusive));
    trial.grant(&holds);
    trial.wait(&dead);
    trial.pass(LEASE / 2);
    trial.wait(&next);
    trial.release(&holds);
    let watch = trial.watch(&next);
    assert_eq!(trial.wait(&next), (Some(1), LEASE / 3));
    trial.pass(LEASE / 2);
    assert!(!watch.woke(), "nobody is woken by time alone");
    trial.grant(&next);
}

#[test]
fn a_poll_of_a_waiting_claim_keeps_its_place_and_restarts_its_lease() {
    let mut trial = Trial::new();
    let [holds, first, second] = [1, 2, 3].map(|client| trial.fair(client, Mode::Exclusive));
    trial.grant(&holds);
    trial.wait(&first);
    trial.wait(&second);
    for _ in 0..5 {
        trial.pass(LEASE / 2);
        assert!(trial.is_alive(&holds, Phase::Granted));
        assert_eq!(trial.wait(&second).0, Some(1));
        assert_eq!(trial.wait(&first).0, Some(0));
    }
}

#[test]
fn poll_after_is_the_soonest_moment_that_could_change_the_answer() {
    let mut trial = Trial::new();
    let [one, two] = [1, 2].map(|client| trial.claim(client, "k", permits(1, 2), Fairness::Unfair));
    let all = trial.claim(3, "k", permits(2, 2), Fairness::Unfair);
    let fair = trial.fair(4, permits(2, 2));
    trial.grant(&one);
    trial.pass(Duration::from_secs(25));
    trial.grant(&two);
    assert_eq!(trial.wait(&all).1, Duration::from_secs(5));
    assert_eq!(trial.wait(&fair).1, Duration::from_secs(5));
    trial.pass(Duration::from_secs(5));
    // A fair claim polls within its own lease.
    assert_eq!(trial.wait(&fair).1, LEASE / 3);
    trial.pass(Duration::from_secs(25) - INSTANT);
    // Never sooner than that.
    assert_eq!(trial.wait(&all).1, Duration::from_millis(1));
}

#[test]
fn an_eviction_bars_the_key_and_is_explained_to_its_holder() {
    let mut trial = Trial::new();
    let (evicted, other) = (trial.mutex(1), trial.mutex(2));
    trial.grant(&evicted);
    let watch = trial.watch(&evicted);
    let who = || ReleaseTarget::Claim(evicted.at.clone());
    assert_eq!(trial.evict(who(), "eve", HANDOVER_WINDOW).freed.len(), 1);
    assert!(watch.woke(), "the holder learns at once if it listens");
    assert_eq!(trial.wait(&other), (None, HANDOVER_WINDOW));
    trial.pass(HANDOVER_WINDOW - INSTANT);
    assert!(trial.try_grant(&other).is_none());
    assert!(trial.evict(who(), "mallory", HANDOVER_WINDOW).freed.is_empty());
    trial.pass(INSTANT);
    trial.grant(&other);
    trial.assert_ended(&evicted);
    let by = Some("eve".into());
    assert_eq!(trial.loss(&evicted), Some(Loss::Evicted { by }));
    trial.pass(LEASE);
    assert_eq!(trial.loss(&evicted), Some(Loss::Missing));
}

#[test]
fn everybody_who_holds_can_be_evicted_and_waiters_stay() {
    let mut trial = Trial::new();
    let holders = [1, 2].map(|client| trial.fair(client, permits(1, 2)));
    let waits = trial.fair(3, permits(2, 2));
    holders.iter().for_each(|claim| drop(trial.grant(claim)));
    trial.wait(&waits);
    let outcome = trial.evict(ReleaseTarget::All(key("k")), "eve", Duration::ZERO);
    assert_eq!((outcome.freed.len(), outcome.others), (2, 1));
    holders.iter().for_each(|claim| trial.assert_ended(claim));
    trial.grant(&waits);
}

#[test]
fn an_eviction_by_a_foreign_name_frees_nobody() {
    let mut trial = Trial::new();
    let claim = trial.mutex(1);
    trial.grant(&claim);
    let who = HolderId::Foreign("java:1".into()).on(key("k"));
    assert!(trial.evict(who, "eve", Duration::ZERO).freed.is_empty());
    assert!(trial.is_alive(&claim, Phase::Granted));
}

#[test]
fn a_successor_is_granted_by_the_release_if_nobody_waits_elsewhere() {
    let mut trial = Trial::new();
    let [holds, successor, sibling] = [1; 3].map(|client| trial.mutex(client));
    trial.grant(&holds);
    let _own = trial.watch(&sibling);
    let _holders = trial.watch(&holds);
    let outcome = trial.release_to(&holds, &successor);
    assert_eq!(outcome.others, 0, "waiters of the same client do not count");
    assert!(matches!(outcome.successor, Some(AcquireReply::Granted(_))));
    // The reply was lost, and it is sent again.
    let again = trial.release_to(&holds, &successor);
    assert!(again.freed.is_empty() && matches!(again.successor, Some(AcquireReply::Granted(_))));
}

#[test]
fn a_successor_waits_if_a_claim_of_another_client_waits() {
    for fairness in [Fairness::Unfair, Fairness::Fifo] {
        let mut trial = Trial::new();
        let [holds, successor] = [1; 2].map(|client| trial.claim(client, "k", Mode::Exclusive, fairness));
        let other = trial.claim(2, "k", Mode::Exclusive, fairness);
        trial.grant(&holds);
        trial.wait(&other);
        let watch = trial.watch(&other);
        let outcome = trial.release_to(&holds, &successor);
        assert_eq!(outcome.others, 1);
        assert!(matches!(outcome.successor, Some(AcquireReply::Waiting { .. })));
        assert!(watch.woke());
        assert!(
            trial.try_grant(&successor).is_none(),
            "the key is kept for the other"
        );
        trial.grant(&other);
        let queued = fairness == Fairness::Fifo;
        assert_eq!(trial.is_alive(&successor, Phase::Waiting), queued);
    }
}

#[test]
fn a_successor_that_has_ended_or_is_late_or_of_another_kind_is_not_placed() {
    let mut trial = Trial::new();
    let [holds, ended, late] = [1; 3].map(|client| trial.mutex(client));
    trial.release(&ended);
    trial.grant(&holds);
    let outcome = trial.release_to(&holds, &ended);
    assert!(matches!(outcome.successor, Some(AcquireReply::Ended)));
    let outcome = trial.release_to_by(&holds, &late, trial.now - INSTANT);
    assert!(matches!(outcome.successor, Some(AcquireReply::TooLate)));
    let readers = [1, 2].map(|client| trial.claim(client, "k", Mode::Read, Fairness::Unfair));
    let mutex = trial.mutex(1);
    readers.iter().for_each(|claim| drop(trial.grant(claim)));
    let outcome = trial.release_to(&readers[0], &mutex);
    assert!(matches!(outcome.successor, Some(AcquireReply::Waiting { .. })));
    // It is told why when it asks itself.
    assert!(trial.acquire(&mutex).is_err());
}

/// R12: no end of a claim brings a token back.
#[test]
fn tokens_rise_over_all_keys_and_ends_and_a_raise_lifts_them() {
    let mut trial = Trial::new();
    let mut last = 0;
    let mut rises = |grant: tenure_backend::Grant| {
        let run = grant.tokens.unwrap();
        assert!(run.first().get() > last);
        last = run.last().get();
    };
    for (number, name) in ["a", "b", "a", "b", "a"].into_iter().enumerate() {
        let claim = trial.claim(1, name, Mode::Exclusive, Fairness::Unfair);
        rises(trial.grant(&claim));
        match number % 2 {
            0 => drop(trial.release(&claim)),
            _ => trial.pass(LEASE),
        }
    }
    let claim = trial.mutex(1);
    rises(trial.grant(&claim));
    let raised = TokenRange::new(FencingToken::new(1 << 60).unwrap(), count(3)).unwrap();
    for (only, takes) in [(Phase::Waiting, false), (Phase::Granted, true)] {
        let renewal = RenewRequest {
            only,
            raise: Some(raised),
            ..RenewRequest::of(&claim)
        };
        let renewed = trial.act(|table, at, signals| table.renew(&renewal, at, signals));
        assert_eq!(matches!(renewed, RenewReply::Alive { .. }), takes);
        assert_eq!(trial.grant(&claim).tokens == Some(raised), takes);
    }
    let other = trial.claim(1, "other", Mode::Exclusive, Fairness::Unfair);
    let next = trial.grant(&other).tokens.unwrap().first();
    assert_eq!(next.get(), raised.last().get() + 1);
}

#[test]
fn a_release_wakes_the_claim_that_has_watched_longest_and_a_spare() {
    let mut trial = Trial::new();
    let holds = trial.mutex(1);
    let claims = [2, 3, 4].map(|client| trial.mutex(client));
    trial.grant(&holds);
    let watches = [0, 1, 2].map(|at| trial.watch(&claims[at]));
    assert!(watches.iter().all(|watch| !watch.woke()));
    assert_eq!(trial.release(&holds).others, 3);
    assert_eq!([0, 1, 2].map(|at| watches[at].woke()), [true, true, false]);
    assert_eq!(trial.wait(&claims[1]), (None, TURN));
    trial.grant(&claims[0]);
    // That one waits no more, so the next is the longest watching.
    trial.release(&claims[0]);
    assert_eq!([0, 1, 2].map(|at| watches[at].woke()), [false, true, true]);
    trial.wait(&claims[2]);
    trial.grant(&claims[1]);
}

#[test]
fn a_key_is_kept_for_whoever_was_woken_for_10_ms_and_no_longer() {
    let mut trial = Trial::new();
    let [holds, woken, quick] = [1, 2, 3].map(|client| trial.mutex(client));
    trial.grant(&holds);
    let watch = trial.watch(&woken);
    trial.release(&holds);
    trial.pass(TURN - INSTANT);
    assert!(trial.try_grant(&quick).is_none());
    trial.pass(INSTANT);
    trial.grant(&quick);
    assert!(watch.woke());
    trial.wait(&woken);
}

#[test]
fn a_key_that_was_kept_for_somebody_who_leaves_goes_to_the_next() {
    for withdrawn in [true, false] {
        let mut trial = Trial::new();
        let holds = trial.mutex(1);
        let claims = [2, 3, 4].map(|client| trial.mutex(client));
        trial.grant(&holds);
        let [first, second, third] = [0, 1, 2].map(|at| trial.watch(&claims[at]));
        trial.release(&holds);
        assert!(second.woke() && !third.woke());
        if withdrawn {
            trial.release(&claims[0]);
        } else {
            trial.unwatch(&claims[0], first);
        }
        assert!(second.woke() && third.woke());
        assert!(trial.try_grant(&claims[2]).is_none());
        trial.grant(&claims[1]);
    }
}

#[test]
fn all_unfair_readers_are_woken_together() {
    let mut trial = Trial::new();
    let writer = trial.claim(1, "k", Mode::Write, Fairness::Unfair);
    let modes = [Mode::Read, Mode::Write, Mode::Read];
    let claims = modes.map(|mode| trial.claim(2, "k", mode, Fairness::Unfair));
    trial.grant(&writer);
    let watches = [0, 1, 2].map(|at| trial.watch(&claims[at]));
    trial.release(&writer);
    assert!(watches[0].woke() && watches[2].woke());
    trial.grant(&claims[2]);
    trial.grant(&claims[0]);
}

#[test]
fn the_head_of_the_queue_is_woken_and_after_its_grant_the_next_that_may_share() {
    let mut trial = Trial::new();
    let modes = [Mode::Write, Mode::Read, Mode::Read, Mode::Write];
    let claims = modes.map(|mode| trial.fair(1, mode));
    claims.iter().for_each(|claim| drop(trial.acquire(claim)));
    let watches = [0, 1, 2, 3].map(|at| trial.watch(&claims[at]));
    let woke = || [1, 2, 3].map(|at| watches[at].woke());
    assert_eq!(woke(), [false, false, false]);
    trial.release(&claims[0]);
    assert_eq!(woke(), [true, false, false]);
    trial.grant(&claims[1]);
    assert_eq!(woke(), [false, true, false]);
    trial.grant(&claims[2]);
    trial.release(&claims[1]);
    assert_eq!(woke(), [false, false, false]);
    trial.release(&claims[2]);
    assert_eq!(woke(), [false, false, true]);
}

#[test]
fn the_one_behind_a_waiter_that_withdraws_is_woken() {
    let mut trial = Trial::new();
    let [reads, writes] = [Mode::Read, Mode::Write].map(|mode| trial.fair(1, mode));
    let behind = trial.fair(2, Mode::Read);
    trial.grant(&reads);
    trial.wait(&writes);
    trial.wait(&behind);
    let watch = trial.watch(&behind);
    trial.release(&writes);
    assert!(watch.woke());
    trial.grant(&behind);
}

#[test]
fn a_watch_that_comes_too_late_for_the_release_wakes_at_once() {
    let mut trial = Trial::new();
    let [holds, waits] = [1, 2].map(|client| trial.mutex(client));
    trial.grant(&holds);
    trial.wait(&waits);
    trial.release(&holds);
    assert!(trial.watch(&waits).woke());
    trial.release(&waits);
    // So does one for a claim that has ended.
    assert!(trial.watch(&waits).woke());
}

/// R32: no name of a dead client stays.
#[test]
fn rooms_of_the_dead_are_cleared_out_without_being_asked_for() {
    let mut trial = Trial::new();
    for round in 0..10 {
        for number in 0..1000 {
            let claim = trial.claim(1, &format!("{round}:{number}"), Mode::Exclusive, Fairness::Unfair);
            trial.grant(&claim);
        }
        trial.pass(LEASE);
    }
    assert!(trial.table.rooms.len() <= 2048, "{}", trial.table.rooms.len());
}
