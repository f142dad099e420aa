//! Who goes next among unfair waiters of several clients: the part of the claim logic that the contract leaves open.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Cause, Claim, ClaimId, ClaimRef, ClientId, Fairness, HolderId, Instant, LockKey, Mode,
    ReleaseReply, ReleaseRequest, Successor,
};

use super::*;

/// One key over time: every verb reads what the ones before it wrote, as from a table.
struct Key {
    rows: Vec<Row>,
    now: Instant,
}

impl Key {
    fn new() -> Self {
        Key {
            rows: Vec::new(),
            now: Instant::from_nanos(1 << 40),
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
    }

    fn visit<T>(&mut self, decide: impl FnOnce(&mut View) -> T) -> T {
        let at = Moment {
            now: self.now,
            wall_micros: 1,
        };
        let mut view = View::new(key(), at);
        self.rows.iter().cloned().for_each(|row| view.add(row, None));
        let decided = decide(&mut view);
        for change in view.changes() {
            match change {
                Change::Insert(row) => self.rows.push(row.clone()),
                Change::Update(new, _) => {
                    let row = self.rows.iter_mut().find(|row| row.id == new.id);
                    *row.expect("an updated row was there") = new.clone();
                }
                Change::Delete(old, _) => self.rows.retain(|row| row.id != old.id),
                Change::Counter(_) => {}
            }
        }
        decided
    }

    fn asks(&mut self, claim: &Claim) -> AcquireReply {
        let not_after = self.now + Duration::from_secs(10);
        self.visit(|view| acquire(view, claim, not_after))
            .expect("no claim here is refused")
    }

    fn gets(&mut self, claim: &Claim) -> bool {
        matches!(self.asks(claim), AcquireReply::Granted(_))
    }

    /// Asks in vain, and asks to be woken.
    fn watches(&mut self, claim: &Claim) {
        assert!(!self.gets(claim));
        self.visit(|view| watch(view, claim));
        self.pass(1);
    }

    fn frees(&mut self, claim: &Claim) -> ReleaseReply {
        self.departs(claim, None)
    }

    fn departs(&mut self, claim: &Claim, successor: Option<Successor>) -> ReleaseReply {
        let request = ReleaseRequest {
            successor,
            ..ReleaseRequest::of(claim, Cause::Unlocked)
        };
        self.visit(|view| release(view, &request))
    }

    fn looks(&mut self, claim: &Claim) -> NextPoll {
        self.visit(|view| next_poll(view, claim))
    }
}

fn key() -> LockKey {
    LockKey::new("k").expect("a short text")
}

/// The client's claim of that number.
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
        ReleaseReply::Done { others, .. } => others.expect("this layout can tell"),
        ReleaseReply::Unknown(error) => panic!("{error}"),
    }
}

/// One write of a row in each phase: its times lie as far ahead as they do when a verb writes it.
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
        let lease = row.latest() - written;
        let seen_at = |now, lease| {
            let mut view = View::new(key(), Moment { now, wall_micros: 1 });
            view.add(row.clone(), lease);
            let deleted = view.changes().any(|change| matches!(change, Change::Delete(..)));
            assert_eq!(view.row(row.id).is_none(), deleted, "{phase:?}");
            deleted
        };
        let before = written - Duration::from_nanos(1);
        for now in [before, Instant::ORIGIN] {
            assert!(
                seen_at(now, Some(lease)),
                "{phase:?}: the clock was started again"
            );
        }
        for now in [written, written + lease] {
            assert!(!seen_at(now, Some(lease)), "{phase:?}");
        }
        assert!(!seen_at(before, None), "{phase:?}: an older build wrote it");
    }
}

#[test]
fn a_freed_key_is_reserved_for_the_oldest_watcher() {
    let mut key = Key::new();
    let (held, first, second) = (claim(1, 1), claim(2, 1), claim(3, 1));
    assert!(key.gets(&held));
    key.watches(&first);
    key.watches(&second);
    assert_eq!(others(&key.frees(&held)), 2);
    assert_eq!(key.looks(&first), NextPoll::Now);
    assert!(matches!(key.looks(&second), NextPoll::From(_)));
    for early in [&claim(1, 2), &second] {
        assert!(!key.gets(early), "it is not its turn");
    }
    assert!(key.gets(&first));
}

#[test]
fn an_unused_reservation_ends_after_ten_milliseconds() {
    let mut key = Key::new();
    let (held, dead, quick) = (claim(1, 1), claim(2, 1), claim(3, 1));
    assert!(key.gets(&held));
    key.watches(&dead);
    key.frees(&held);
    let AcquireReply::Waiting { poll_after, .. } = key.asks(&quick) else {
        panic!("it is not its turn")
    };
    assert!(poll_after <= Duration::from_millis(10), "{poll_after:?}");
    key.pass(10);
    assert!(key.gets(&quick));
}

#[test]
fn a_watcher_is_skipped_after_a_miss_until_it_polls() {
    let mut key = Key::new();
    let (held, late, next) = (claim(1, 1), claim(2, 1), claim(3, 1));
    assert!(key.gets(&held));
    key.watches(&late);
    key.watches(&next);
    key.frees(&held);
    key.pass(10);
    let held = claim(1, 2);
    assert!(key.gets(&held));
    // The one that missed its turn may be dead.
    assert_eq!(others(&key.frees(&held)), 1);
    assert_eq!(key.looks(&next), NextPoll::Now);
    assert!(key.gets(&next));
    assert_eq!(key.looks(&late), NextPoll::Now, "it is told to be heard of");
    assert!(!key.gets(&late), "late, but alive");
    assert_eq!(key.looks(&late), NextPoll::OnChange);
    key.watches(&claim(4, 1));
    assert_eq!(others(&key.frees(&next)), 2);
    assert_eq!(key.looks(&late), NextPoll::Now);
    assert!(key.gets(&late));
}

#[test]
fn a_reservation_ends_when_its_client_polls() {
    let mut key = Key::new();
    let readers = [of_mode(2, 1, Mode::Read), of_mode(2, 2, Mode::Read)];
    let held = of_mode(1, 1, Mode::Write);
    assert!(key.gets(&held));
    key.watches(&readers[0]);
    key.frees(&held);
    assert!(!key.gets(&of_mode(3, 1, Mode::Write)));
    assert!(key.gets(&readers[1]), "the client asks with another claim");
    key.frees(&readers[1]);
    assert!(key.gets(&of_mode(3, 2, Mode::Write)));
}

#[test]
fn a_reservation_for_readers_admits_all_readers() {
    let mut key = Key::new();
    let held = of_mode(1, 1, Mode::Write);
    let readers = [2, 3].map(|client| of_mode(client, 1, Mode::Read));
    assert!(key.gets(&held));
    readers.iter().for_each(|reader| key.watches(reader));
    key.watches(&of_mode(4, 1, Mode::Write));
    key.frees(&held);
    assert!(readers.iter().all(|reader| key.looks(reader) == NextPoll::Now));
    assert!(!key.gets(&of_mode(5, 1, Mode::Write)));
    assert!(key.gets(&of_mode(6, 1, Mode::Read)));
}

#[test]
fn a_watcher_that_cannot_hold_gets_no_reservation() {
    let mut key = Key::new();
    let holders = [of_mode(1, 1, Mode::Read), of_mode(2, 1, Mode::Read)];
    holders.iter().for_each(|holder| assert!(key.gets(holder)));
    key.watches(&of_mode(3, 1, Mode::Write));
    key.frees(&holders[0]);
    assert!(key.gets(&of_mode(4, 1, Mode::Read)));
}

#[test]
fn a_queue_goes_before_all_watchers() {
    let mut key = Key::new();
    let (held, watching) = (claim(1, 1), claim(2, 1));
    let queued = Claim {
        fairness: Fairness::Fifo,
        ..claim(3, 1)
    };
    assert!(key.gets(&held));
    key.watches(&watching);
    assert!(!key.gets(&queued));
    key.frees(&held);
    assert_eq!(key.looks(&watching), NextPoll::OnChange);
    assert!(!key.gets(&watching));
    assert!(key.gets(&queued));
}

#[test]
fn a_fair_successor_goes_before_watchers() {
    let mut key = Key::new();
    let (held, watching) = (claim(1, 1), claim(2, 1));
    let successor = Arc::new(Claim {
        fairness: Fairness::Fifo,
        ..claim(1, 2)
    });
    assert!(key.gets(&held));
    key.watches(&watching);
    let not_after = key.now + Duration::from_secs(10);
    let claim = successor.clone();
    let released = key.departs(&held, Some(Successor { claim, not_after }));
    let ReleaseReply::Done {
        successor: Some(AcquireReply::Waiting { ahead, .. }),
        ..
    } = released
    else {
        panic!("{released:?}")
    };
    assert_eq!(ahead, Some(0));
    assert!(key.gets(&successor));
}

#[test]
fn a_refused_successor_does_not_prevent_the_release() {
    let mut key = Key::new();
    let held = of_mode(1, 1, Mode::Read);
    assert!(key.gets(&held) && key.gets(&of_mode(2, 1, Mode::Read)));
    let successor = Successor {
        claim: Arc::new(claim(1, 2)),
        not_after: key.now + Duration::from_secs(10),
    };
    let released = key.departs(&held, Some(successor));
    let ReleaseReply::Done { freed, successor, .. } = released else {
        panic!("{released:?}")
    };
    assert_eq!(freed[..], [HolderId::Claim(held.at.id)]);
    assert!(
        matches!(successor, Some(AcquireReply::Waiting { .. })),
        "it learns of the mismatch when it asks"
    );
}

#[test]
fn a_registration_expires_unless_renewed() {
    let mut key = Key::new();
    let (held, watching) = (claim(1, 1), claim(2, 1));
    assert!(key.gets(&held));
    key.watches(&watching);
    key.pass(5_000);
    key.visit(|view| watch(view, &watching));
    key.pass(5_000);
    key.visit(|view| view.watchers().for_each(|row| assert_eq!(row.id, watching.at.id)));
    key.pass(5_000);
    assert_eq!(others(&key.frees(&held)), 0);
}

#[test]
fn unwatching_deletes_only_the_watcher() {
    let mut key = Key::new();
    let (held, watching) = (claim(1, 1), claim(2, 1));
    assert!(key.gets(&held));
    key.watches(&watching);
    key.visit(|view| unwatch(view, &watching));
    key.visit(|view| unwatch(view, &held));
    let left: Vec<ClaimId> = key.rows.iter().map(|row| row.id).collect();
    assert_eq!(left, [held.at.id]);
}
