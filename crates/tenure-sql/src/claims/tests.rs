//! Tests of what the contract leaves to each store: the order in which unfair waiters of several clients are granted.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Cause, Claim, ClaimId, ClaimRef, ClientId, Fairness, FencingToken, HolderId, Instant,
    LeaseClock, Limits, Liveness, LockKey, Mode, Order, Profile, ReleaseReply, ReleaseRequest, RenewReply,
    RenewRequest, Successor,
};

use super::*;

static PROFILE: Profile = {
    let limits = Limits::new(Duration::from_millis(1), Duration::from_secs(60));
    let mut profile = Profile::new("test", "claims", Liveness::Lease(LeaseClock::Shared), &[], limits);
    profile.mutex = Order::Both;
    profile.read_write = Order::Both;
    profile.semaphore = Order::Both;
    profile
};

/// A clock and the rows of one key, kept in memory instead of a table.
struct TestKey {
    rows: Vec<Row>,
    counter: u64,
    now: Instant,
}

impl TestKey {
    fn new() -> Self {
        TestKey {
            rows: Vec::new(),
            counter: 0,
            now: Instant::from_nanos(1 << 40),
        }
    }

    fn advance(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
    }

    fn visit<T>(&mut self, decide: impl FnOnce(&mut View) -> T) -> T {
        let at = Moment {
            now: self.now,
            wall_micros: 1,
        };
        let mut view = View::new(key(), at, &PROFILE);
        view.set_counter_value(self.counter);
        self.rows.iter().cloned().for_each(|row| view.add(row, self.now));
        let decided = decide(&mut view);
        for change in view.changes() {
            match change {
                Change::Insert(row) => self.rows.push(row.clone()),
                Change::Update(new, _) => {
                    let row = self.rows.iter_mut().find(|row| row.id == new.id);
                    *row.expect("an updated row was there") = new.clone();
                }
                Change::Delete(old, _) => self.rows.retain(|row| row.id != old.id),
                Change::Counter(last) => self.counter = last,
            }
        }
        decided
    }

    fn poll(&mut self, claim: &Claim) -> AcquireReply {
        let not_after = self.now + Duration::from_secs(10);
        self.visit(|view| acquire(view, claim, not_after))
            .expect("no claim here is refused")
    }

    fn is_granted(&mut self, claim: &Claim) -> bool {
        matches!(self.poll(claim), AcquireReply::Granted(_))
    }

    /// Polls a claim while another one holds the key, then subscribes it to wake-ups.
    fn start_watching(&mut self, claim: &Claim) {
        assert!(!self.is_granted(claim));
        self.visit(|view| watch(view, claim));
        self.advance(1);
    }

    fn unlock(&mut self, claim: &Claim) -> ReleaseReply {
        self.unlock_with_successor(claim, None)
    }

    fn unlock_with_successor(&mut self, claim: &Claim, successor: Option<Successor>) -> ReleaseReply {
        let request = ReleaseRequest {
            successor,
            ..ReleaseRequest::of(claim, Cause::Unlocked)
        };
        self.visit(|view| release(view, &request))
    }

    fn next_poll(&mut self, claim: &Claim) -> NextPoll {
        self.visit(|view| super::next_poll(view, claim))
    }
}

fn key() -> LockKey {
    LockKey::new("k").expect("a short text")
}

/// A claim with this number, of this client.
pub(crate) fn claim(client: u8, number: u64) -> Claim {
    let id = ClaimId::new(ClientId::from_random([client; 16]), number);
    Claim::of(ClaimRef { key: key(), id }, Duration::from_secs(30))
}

fn of_mode(client: u8, number: u64, mode: Mode) -> Claim {
    Claim {
        mode,
        ..claim(client, number)
    }
}

fn others(released: &ReleaseReply) -> u32 {
    match released {
        ReleaseReply::Done { others, .. } => others.expect("this layout counts waiters"),
        ReleaseReply::Unknown(error) => panic!("{error}"),
    }
}

/// A row in this phase, with the times that it would have if it was written at `now`.
fn row_in(phase: Phase, now: Instant) -> Row {
    let row = Row::new(&claim(1, 1), phase, 1, now + Duration::from_secs(30));
    let reserved_until = match phase {
        Phase::Evicted => now + Duration::from_secs(60),
        _ => row.reserved_until,
    };
    Row {
        reserved_until,
        ..row
    }
}

#[test]
fn rows_of_an_earlier_boot_are_deleted_in_every_phase() {
    let written = Instant::from_nanos(1 << 40);
    for phase in [
        Phase::Ended,
        Phase::Evicted,
        Phase::Watching,
        Phase::Waiting,
        Phase::Granted,
    ] {
        let row = row_in(phase, written);
        let is_deleted_at = |now| {
            let mut view = View::new(key(), Moment { now, wall_micros: 1 }, &PROFILE);
            view.add(row.clone(), written);
            let deleted = view.changes().any(|change| matches!(change, Change::Delete(..)));
            assert_eq!(view.row(row.id).is_none(), deleted, "{phase:?}");
            deleted
        };
        for now in [written - Duration::from_nanos(1), Instant::ORIGIN] {
            assert!(is_deleted_at(now), "{phase:?}: the machine was restarted");
        }
        for now in [written, written + Duration::from_secs(60)] {
            assert!(!is_deleted_at(now), "{phase:?}");
        }
    }
}

#[test]
fn a_freed_key_is_reserved_for_the_oldest_watcher() {
    let mut key = TestKey::new();
    let (held, first, second) = (claim(1, 1), claim(2, 1), claim(3, 1));
    assert!(key.is_granted(&held));
    key.start_watching(&first);
    key.start_watching(&second);
    assert_eq!(others(&key.unlock(&held)), 2);
    assert_eq!(key.next_poll(&first), NextPoll::Now);
    assert!(matches!(key.next_poll(&second), NextPoll::From(_)));
    for early in [&claim(1, 2), &second] {
        assert!(!key.is_granted(early), "the key is reserved for another client");
    }
    assert!(key.is_granted(&first));
}

#[test]
fn a_downgrade_wakes_readers_here_and_in_other_processes() {
    let mut key = TestKey::new();
    let in_mode = |client, mode| Claim {
        mode,
        ..claim(client, 1)
    };
    let (writer, reader) = (in_mode(1, Mode::Write), in_mode(2, Mode::Read));
    assert!(key.is_granted(&writer));
    key.start_watching(&reader);
    for wakes in [true, false] {
        let before = key.visit(|view| view.fingerprint());
        let request = RenewRequest::downgrading(&writer);
        let woken = key.visit(|view| {
            assert!(matches!(renew(view, &request), RenewReply::Alive { .. }));
            view.needs_wake()
        });
        // Other processes notice a change of the key by its fingerprint.
        let is_seen = key.visit(|view| view.fingerprint()) != before;
        assert_eq!(
            (woken, is_seen),
            (wakes, wakes),
            "only the first downgrade changes the claim"
        );
    }
    assert_eq!(key.next_poll(&reader), NextPoll::Now);
    assert!(!key.is_granted(&in_mode(3, Mode::Write)));
    assert!(key.is_granted(&reader));
}

#[test]
fn an_unused_reservation_ends_after_ten_milliseconds() {
    let mut key = TestKey::new();
    let (held, dead, quick) = (claim(1, 1), claim(2, 1), claim(3, 1));
    assert!(key.is_granted(&held));
    key.start_watching(&dead);
    key.unlock(&held);
    let AcquireReply::Waiting { poll_after, .. } = key.poll(&quick) else {
        panic!("the key is reserved for another client")
    };
    assert!(poll_after <= Duration::from_millis(10), "{poll_after:?}");
    key.advance(10);
    assert!(key.is_granted(&quick));
}

#[test]
fn a_watcher_is_skipped_after_a_miss_until_it_polls() {
    let mut key = TestKey::new();
    let (held, late, next) = (claim(1, 1), claim(2, 1), claim(3, 1));
    assert!(key.is_granted(&held));
    key.start_watching(&late);
    key.start_watching(&next);
    key.unlock(&held);
    key.advance(10);
    let held = claim(1, 2);
    assert!(key.is_granted(&held));
    // The release reports one waiter, `next`. It does not count `late`, which did not poll while the key was reserved
    // for it, and so may be dead.
    assert_eq!(others(&key.unlock(&held)), 1);
    assert_eq!(key.next_poll(&next), NextPoll::Now);
    assert!(key.is_granted(&next));
    assert_eq!(
        key.next_poll(&late),
        NextPoll::Now,
        "a poll makes it eligible again"
    );
    assert!(!key.is_granted(&late), "another claim holds the key");
    assert_eq!(key.next_poll(&late), NextPoll::OnChange);
    key.start_watching(&claim(4, 1));
    assert_eq!(others(&key.unlock(&next)), 2);
    assert_eq!(key.next_poll(&late), NextPoll::Now);
    assert!(key.is_granted(&late));
}

#[test]
fn a_reservation_ends_when_its_claim_polls() {
    let mut key = TestKey::new();
    let readers = [of_mode(2, 1, Mode::Read), of_mode(2, 2, Mode::Read)];
    let held = of_mode(1, 1, Mode::Write);
    assert!(key.is_granted(&held));
    key.start_watching(&readers[0]);
    key.unlock(&held);
    assert!(!key.is_granted(&of_mode(3, 1, Mode::Write)));
    assert!(key.is_granted(&readers[1]), "another claim of the same client");
    key.unlock(&readers[1]);
    assert!(!key.is_granted(&of_mode(3, 2, Mode::Write)));
    assert!(key.is_granted(&readers[0]));
    key.unlock(&readers[0]);
    assert!(key.is_granted(&of_mode(3, 2, Mode::Write)));
}

/// B9: the counter has reached its maximum, so the claim cannot get a token.
#[test]
fn a_claim_without_a_token_changes_no_row() {
    let mut key = TestKey::new();
    let [holder, watcher, other] = [claim(1, 1), claim(2, 1), claim(2, 2)];
    assert!(key.is_granted(&holder));
    key.start_watching(&watcher);
    key.unlock(&holder);
    key.counter = FencingToken::MAX;
    let not_after = key.now + Duration::from_secs(10);
    for claim in [&watcher, &other] {
        let changes = key.visit(|view| {
            let refused = acquire(view, claim, not_after);
            assert!(refused.is_err(), "{refused:?}");
            view.changes()
                .map(|change| format!("{change:?}"))
                .collect::<Vec<_>>()
        });
        assert_eq!(changes, Vec::<String>::new());
    }
}

#[test]
fn a_reservation_for_readers_admits_all_readers() {
    let mut key = TestKey::new();
    let held = of_mode(1, 1, Mode::Write);
    let readers = [2, 3].map(|client| of_mode(client, 1, Mode::Read));
    assert!(key.is_granted(&held));
    readers.iter().for_each(|reader| key.start_watching(reader));
    key.start_watching(&of_mode(4, 1, Mode::Write));
    key.unlock(&held);
    assert!(
        readers
            .iter()
            .all(|reader| key.next_poll(reader) == NextPoll::Now)
    );
    assert!(!key.is_granted(&of_mode(5, 1, Mode::Write)));
    assert!(key.is_granted(&of_mode(6, 1, Mode::Read)));
}

#[test]
fn a_watcher_that_cannot_hold_gets_no_reservation() {
    let mut key = TestKey::new();
    let holders = [of_mode(1, 1, Mode::Read), of_mode(2, 1, Mode::Read)];
    holders.iter().for_each(|holder| assert!(key.is_granted(holder)));
    key.start_watching(&of_mode(3, 1, Mode::Write));
    key.unlock(&holders[0]);
    assert!(key.is_granted(&of_mode(4, 1, Mode::Read)));
}

#[test]
fn a_queue_goes_before_all_watchers() {
    let mut key = TestKey::new();
    let (held, watching) = (claim(1, 1), claim(2, 1));
    let queued = Claim {
        fairness: Fairness::Fifo,
        ..claim(3, 1)
    };
    assert!(key.is_granted(&held));
    key.start_watching(&watching);
    assert!(!key.is_granted(&queued));
    key.unlock(&held);
    assert_eq!(key.next_poll(&watching), NextPoll::OnChange);
    assert!(!key.is_granted(&watching));
    assert!(key.is_granted(&queued));
}

#[test]
fn a_fair_successor_goes_before_watchers() {
    let mut key = TestKey::new();
    let (held, watching) = (claim(1, 1), claim(2, 1));
    let successor = Arc::new(Claim {
        fairness: Fairness::Fifo,
        ..claim(1, 2)
    });
    assert!(key.is_granted(&held));
    key.start_watching(&watching);
    let not_after = key.now + Duration::from_secs(10);
    let claim = successor.clone();
    let released = key.unlock_with_successor(&held, Some(Successor { claim, not_after }));
    let ReleaseReply::Done {
        successor: Some(AcquireReply::Waiting { ahead, .. }),
        ..
    } = released
    else {
        panic!("{released:?}")
    };
    assert_eq!(ahead, Some(0));
    assert!(key.is_granted(&successor));
}

#[test]
fn a_refused_successor_does_not_prevent_the_release() {
    let mut key = TestKey::new();
    let held = of_mode(1, 1, Mode::Read);
    assert!(key.is_granted(&held) && key.is_granted(&of_mode(2, 1, Mode::Read)));
    let successor = Successor {
        claim: Arc::new(claim(1, 2)),
        not_after: key.now + Duration::from_secs(10),
    };
    let released = key.unlock_with_successor(&held, Some(successor));
    let ReleaseReply::Done { freed, successor, .. } = released else {
        panic!("{released:?}")
    };
    assert_eq!(freed[..], [HolderId::Claim(held.at.id)]);
    assert!(
        matches!(successor, Some(AcquireReply::Waiting { .. })),
        "its own poll returns the mismatch"
    );
}

#[test]
fn a_registration_expires_unless_renewed() {
    let mut key = TestKey::new();
    let (held, watching) = (claim(1, 1), claim(2, 1));
    assert!(key.is_granted(&held));
    key.start_watching(&watching);
    key.advance(5_000);
    key.visit(|view| watch(view, &watching));
    key.advance(5_000);
    key.visit(|view| view.watchers().for_each(|row| assert_eq!(row.id, watching.at.id)));
    key.advance(5_000);
    assert_eq!(others(&key.unlock(&held)), 0);
}

#[test]
fn unwatching_deletes_only_the_watcher() {
    let mut key = TestKey::new();
    let (held, watching) = (claim(1, 1), claim(2, 1));
    assert!(key.is_granted(&held));
    key.start_watching(&watching);
    key.visit(|view| unwatch(view, &watching));
    key.visit(|view| unwatch(view, &held));
    let left: Vec<ClaimId> = key.rows.iter().map(|row| row.id).collect();
    assert_eq!(left, [held.at.id]);
}
