//! What the table knows of claims whose requests were not answered, and of claims that end.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use tenure_backend::{Claim, ClientId};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A spot that counts how often it was left.
#[derive(Clone, Debug, Default)]
struct Place(Arc<AtomicU32>);

impl Place {
    fn times_left(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Spot for Place {
    fn leave(&self, _: &LockKey) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn shares(&self, other: &Place) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[derive(Clone, Debug)]
struct Record(Place, Value, ClaimLease);

impl Placed for Record {
    type Spot = Place;

    fn spot(&self) -> &Place {
        &self.0
    }

    fn value(&self) -> &Value {
        &self.1
    }

    fn created(&self) -> i64 {
        7
    }

    fn granted(&self) -> Option<TokenRange> {
        None
    }

    fn own_lease(&self) -> &ClaimLease {
        &self.2
    }

    fn own_lease_mut(&mut self) -> &mut ClaimLease {
        &mut self.2
    }
}

fn at(seconds: u32) -> Instant {
    Instant::ORIGIN + seconds * SECOND
}

fn claim() -> ClaimRef {
    ClaimRef {
        key: LockKey::new("k").expect("a key"),
        id: ClaimId::new(ClientId::from_random([7; 16]), 1),
    }
}

fn record(place: &Place, ends: Instant) -> Record {
    let value = Value::of(&Claim::of(claim(), SECOND), NonZeroU32::MIN);
    let held_from = Instant::ORIGIN;
    Record(place.clone(), value, ClaimLease { held_from, ends })
}

/// A table with a claim whose spot is reserved.
async fn reserved() -> (Table<Record>, ClaimId, Place) {
    let (table, place, id) = (Table::default(), Place::default(), claim().id);
    let _turn = table.turn(&claim()).await;
    table.reserve(id, &place);
    (table, id, place)
}

#[tokio::test]
async fn a_claim_that_was_not_placed_is_forgotten() {
    let (table, id, place) = reserved().await;
    let turn = table.turn(&claim()).await;
    table.end_turn(id, turn);
    assert_eq!((table.locks_at(|_| true), place.times_left()), (vec![], 1));
    assert_eq!(table.lock_of(id), None);
}

#[tokio::test]
async fn an_unanswered_request_is_withdrawn_when_its_lease_has_ended() {
    let (table, id, place) = reserved().await;
    table.unanswered(id, at(2));
    table.unplace(id);
    let known = table.know(id);
    assert!(
        matches!(
            known,
            Known::Unplaced {
                spot: Some(_),
                is_in_flight: true
            }
        ),
        "{known:?}"
    );
    assert!(table.expire(at(1), SECOND).is_empty());
    assert_eq!(table.next_end(), Some(at(2)));
    let turn = table.turn(&claim()).await;
    assert!(
        table.expire(at(2), SECOND).is_empty(),
        "a call may find the record"
    );
    table.end_turn(id, turn);
    let expired = table.expire(at(2), SECOND);
    assert!(matches!(&*expired, [one] if one.placed.is_none()), "{expired:?}");
    assert_eq!((table.loss(id), place.times_left()), (Loss::Expired, 0));
    assert!(table.expire(at(9), SECOND).is_empty(), "it expires once");
}

#[tokio::test]
async fn a_placed_claim_with_an_unanswered_request_is_withdrawn_too() {
    for is_in_flight in [false, true] {
        let (table, id, place) = reserved().await;
        if is_in_flight {
            table.unanswered(id, at(9));
        }
        table.place(id, record(&place, at(3)));
        let expired = table.expire(at(3), SECOND);
        assert!(
            matches!(&*expired, [one] if one.placed.is_none() == is_in_flight),
            "{expired:?}"
        );
    }
}

#[tokio::test]
async fn a_record_that_a_call_may_replace_is_looked_for_by_its_claim() {
    let (table, id, place) = reserved().await;
    table.place(id, record(&place, at(3)));
    let turn = table.turn(&claim()).await;
    let expired = table.expire(at(3), SECOND);
    assert!(matches!(&*expired, [one] if one.placed.is_none()), "{expired:?}");
    assert!(!table.place(id, record(&place, at(9))), "the claim has ended");
    table.end_turn(id, turn);
    assert!(matches!(table.know(id), Known::Ended));
}

#[tokio::test]
async fn a_lost_claim_with_an_unanswered_request_is_withdrawn_later() {
    let (table, id, place) = reserved().await;
    table.unanswered(id, at(5));
    table.place(id, record(&place, at(3)));
    table.end(id, at(1), Some((Loss::Missing, SECOND)));
    assert!(matches!(table.know(id), Known::Ended));
    assert_eq!((table.next_end(), place.times_left()), (Some(at(5)), 0));
    let expired = table.expire(at(5), SECOND);
    assert!(matches!(&*expired, [one] if one.placed.is_none()), "{expired:?}");
    assert_eq!(table.loss(id), Loss::Missing, "the first loss counts");
}

#[tokio::test]
async fn a_late_reply_to_an_older_renewal_moves_no_end() {
    let (table, id, place) = reserved().await;
    table.place(id, record(&place, at(10)));
    let renewed = |sent: u32, seconds: u32, shorten_only: bool| {
        let request = RenewRequest {
            shorten_only,
            ..RenewRequest::of(&Claim::of(claim(), seconds * SECOND))
        };
        match table.renewed(&request, 7, at(sent), |_| at(sent + seconds)) {
            RenewReply::Alive { held_from, lease } => (held_from, held_from + lease),
            gone => panic!("the claim is alive: {gone:?}"),
        }
    };
    assert_eq!(renewed(4, 10, false), (at(4), at(14)));
    for shorten_only in [false, true] {
        assert_eq!(renewed(3, 2, shorten_only), (at(4), at(14)));
    }
    assert!(table.expire(at(5), SECOND).is_empty(), "a later renewal counts");
    // Two renewals may share a keep-alive. A later one may ask for less.
    assert_eq!(renewed(4, 9, false), (at(4), at(13)));
    assert_eq!(renewed(5, 20, true), (at(5), at(13)));
    assert_eq!(renewed(6, 2, false), (at(6), at(8)));
    assert_eq!(renewed(5, 10, false), (at(6), at(8)));
    assert_eq!(table.expire(at(8), SECOND).len(), 1);
}

#[tokio::test]
async fn nothing_is_said_of_a_claim_that_was_forgotten() {
    let (table, id, place) = reserved().await;
    table.place(id, record(&place, at(3)));
    table.close();
    assert!(table.is_closed() && table.update(id, 7, |_| ()), "calls go on");
    table.forget();
    let RenewReply::Unknown(closed) = table.gone(id) else {
        panic!("the claim may be alive")
    };
    assert_eq!(
        (closed.fault(), closed.effect()),
        (Fault::Closed, Effect::Unknown)
    );
    assert!(!table.place(id, record(&place, at(3))));
}

#[tokio::test]
async fn a_claim_in_release_has_ended_unless_the_release_is_cancelled() {
    let (table, id, place) = reserved().await;
    table.place(id, record(&place, at(3)));
    let (placed, in_flight) = table.begin_release(id);
    assert!(placed.is_some() && in_flight.is_none());
    assert!(matches!(table.know(id), Known::Ended));
    assert!(table.placed(id).is_none() && !table.update(id, 7, |_| ()));
    table.cancel_release(id);
    assert!(matches!(table.know(id), Known::Placed(_)));
    assert!(!table.update(id, 6, |_| ()), "that record is gone");
    table.end(id, at(1), None);
    assert!(matches!(table.know(id), Known::Ended));
    assert_eq!(place.times_left(), 1);
}

#[tokio::test]
async fn all_claims_of_a_spot_end_together() {
    let (table, id, place) = reserved().await;
    table.place(id, record(&place, at(3)));
    table.end_all(|_| false, at(1), &(Loss::Session, SECOND));
    assert!(table.placed(id).is_some());
    table.end_all(|_| true, at(1), &(Loss::Session, SECOND));
    assert_eq!((table.loss(id), place.times_left()), (Loss::Session, 1));
    assert_eq!(table.locks_at(|_| true), []);
}
