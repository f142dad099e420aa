//! Tests which claims a release, a withdrawal or a grant wakes, on the table alone.

use std::time::Duration;

use tenure_backend::{Fairness, Mode, TURN};

use super::fixture::Fixture;

const NANOSECOND: Duration = Duration::from_nanos(1);

#[test]
fn a_release_wakes_the_longest_watcher_and_one_spare() {
    let mut fixture = Fixture::new();
    let holds = fixture.mutex(1);
    let claims = [2, 3, 4].map(|client| fixture.mutex(client));
    fixture.grant(&holds);
    let watches = [0, 1, 2].map(|at| fixture.watch(&claims[at]));
    assert!(watches.iter().all(|watch| !watch.woke()));
    assert_eq!(fixture.release(&holds).others, 3);
    assert_eq!([0, 1, 2].map(|at| watches[at].woke()), [true, true, false]);
    assert_eq!(fixture.wait(&claims[1]), (None, TURN));
    fixture.grant(&claims[0]);
    // After this release the first claim no longer waits, so the second has watched longest.
    fixture.release(&claims[0]);
    assert_eq!([0, 1, 2].map(|at| watches[at].woke()), [false, true, true]);
    fixture.wait(&claims[2]);
    fixture.grant(&claims[1]);
}

#[test]
fn a_key_is_reserved_for_a_woken_claim_for_10_ms() {
    let mut fixture = Fixture::new();
    let [holds, woken, quick] = [1, 2, 3].map(|client| fixture.mutex(client));
    fixture.grant(&holds);
    let watch = fixture.watch(&woken);
    fixture.release(&holds);
    fixture.pass(TURN - NANOSECOND);
    assert!(fixture.try_grant(&quick).is_none());
    fixture.pass(NANOSECOND);
    fixture.grant(&quick);
    assert!(watch.woke());
    fixture.wait(&woken);
}

#[test]
fn the_reservation_of_a_leaving_claim_passes_to_the_next() {
    for withdrawn in [true, false] {
        let mut fixture = Fixture::new();
        let holds = fixture.mutex(1);
        let claims = [2, 3, 4].map(|client| fixture.mutex(client));
        fixture.grant(&holds);
        let [first, second, third] = [0, 1, 2].map(|at| fixture.watch(&claims[at]));
        fixture.release(&holds);
        assert!(second.woke() && !third.woke());
        if withdrawn {
            fixture.release(&claims[0]);
        } else {
            fixture.unwatch(&claims[0], first);
        }
        assert!(second.woke() && third.woke());
        assert!(fixture.try_grant(&claims[2]).is_none());
        fixture.grant(&claims[1]);
    }
}

#[test]
fn all_unfair_readers_are_woken_together() {
    let mut fixture = Fixture::new();
    let writer = fixture.claim(1, "k", Mode::Write, Fairness::Unfair);
    let modes = [Mode::Read, Mode::Write, Mode::Read];
    let claims = modes.map(|mode| fixture.claim(2, "k", mode, Fairness::Unfair));
    fixture.grant(&writer);
    let watches = [0, 1, 2].map(|at| fixture.watch(&claims[at]));
    fixture.release(&writer);
    assert!(watches[0].woke() && watches[2].woke());
    fixture.grant(&claims[2]);
    fixture.grant(&claims[0]);
}

#[test]
fn each_new_head_that_can_be_granted_is_woken() {
    let mut fixture = Fixture::new();
    let modes = [Mode::Write, Mode::Read, Mode::Read, Mode::Write];
    let claims = modes.map(|mode| fixture.fair(1, mode));
    claims.iter().for_each(|claim| drop(fixture.acquire(claim)));
    let watches = [0, 1, 2, 3].map(|at| fixture.watch(&claims[at]));
    let woke = || [1, 2, 3].map(|at| watches[at].woke());
    assert_eq!(woke(), [false, false, false]);
    fixture.release(&claims[0]);
    assert_eq!(woke(), [true, false, false]);
    fixture.grant(&claims[1]);
    assert_eq!(woke(), [false, true, false]);
    fixture.grant(&claims[2]);
    fixture.release(&claims[1]);
    assert_eq!(woke(), [false, false, false]);
    fixture.release(&claims[2]);
    assert_eq!(woke(), [false, false, true]);
}

#[test]
fn withdrawing_a_waiter_wakes_the_next_one() {
    let mut fixture = Fixture::new();
    let [reads, writes] = [Mode::Read, Mode::Write].map(|mode| fixture.fair(1, mode));
    let behind = fixture.fair(2, Mode::Read);
    fixture.grant(&reads);
    fixture.wait(&writes);
    fixture.wait(&behind);
    let watch = fixture.watch(&behind);
    fixture.release(&writes);
    assert!(watch.woke());
    fixture.grant(&behind);
}

#[test]
fn a_watch_that_starts_after_the_release_wakes_at_once() {
    let mut fixture = Fixture::new();
    let [holds, waits] = [1, 2].map(|client| fixture.mutex(client));
    fixture.grant(&holds);
    fixture.wait(&waits);
    fixture.release(&holds);
    assert!(fixture.watch(&waits).woke());
    fixture.release(&waits);
    // A watch of a claim that has ended also wakes at once.
    assert!(fixture.watch(&waits).woke());
}
