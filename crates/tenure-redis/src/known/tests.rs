//! What a client knows of its claims, without a server. What becomes of it in Redis is in `tests/remembered.rs`.

use std::num::NonZeroU32;

use tenure_backend::{ClaimRef, FencingToken, LockKey};

use super::*;

const START: Instant = Instant::ORIGIN;
const LEASE: Duration = Duration::from_secs(30);
const AHEAD: Duration = Duration::from_secs(5);

fn claim(number: u64) -> Arc<Claim> {
    let key = LockKey::new("k").unwrap();
    let id = ClaimId::new(ClientId::from_random([7; 16]), number);
    Arc::new(Claim {
        label: "label".into(),
        ..Claim::of(ClaimRef { key, id }, LEASE)
    })
}

fn ask<'a>(known: &'a Known, claim: &Arc<Claim>, now: Instant) -> Asking<'a> {
    match known.ask(claim, now, now + AHEAD, 0) {
        Asked::Open(asking) => asking,
        _ => panic!("{} is to be asked for", claim.at.id),
    }
}

fn grant(asking: Asking<'_>, now: Instant) {
    let granted = AcquireReply::Granted(Grant {
        tokens: TokenRange::new(FencingToken::new(7).unwrap(), NonZeroU32::MIN),
        held_from: now,
        lease: LEASE,
        evidence: None,
    });
    asking.answered(Ok(&granted), &ServerClock::new(0, START));
}

fn busy(asking: Asking<'_>) {
    let waits = AcquireReply::Waiting {
        ahead: None,
        poll_after: LEASE,
    };
    asking.answered(Ok(&waits), &ServerClock::new(0, START));
}

fn is_granted(known: &Known, claim: &Arc<Claim>) -> bool {
    matches!(known.ask(claim, START, START, 0), Asked::Granted(_))
}

fn has_ended(known: &Known, claim: &Arc<Claim>) -> bool {
    matches!(known.ask(claim, START, START, 0), Asked::Ended)
}

#[test]
fn what_was_granted_and_given_back_leaves_only_that_it_has_ended() {
    let (known, claim) = (Known::default(), claim(1));
    grant(ask(&known, &claim, START), START);
    assert!(is_granted(&known, &claim));
    assert_eq!(known.end(claim.at.id, START), End::Plain);
    assert!(has_ended(&known, &claim), "while it is released");
    known.has_ended(claim.at.id, START);
    assert!(has_ended(&known, &claim));
    assert_eq!(known.end(claim.at.id, START), End::Plain);
    assert!(known.state.lock().claims.is_empty());
}

#[test]
fn what_was_refused_leaves_nothing_and_may_be_asked_for_again() {
    let (known, claim) = (Known::default(), claim(1));
    busy(ask(&known, &claim, START));
    assert!(known.state.lock().claims.is_empty());
    grant(ask(&known, &claim, START), START);
    assert!(is_granted(&known, &claim));
}

#[test]
fn a_poll_that_was_refused_leaves_a_waiter_as_it_stood() {
    let known = Known::default();
    let fair = Arc::new(Claim {
        fairness: Fairness::Fifo,
        ..(*claim(1)).clone()
    });
    let refusal = BackendError::new(tenure_backend::Fault::Unavailable, Effect::None, "full");
    let refuse = || ask(&known, &fair, START).answered(Err(&refusal), &ServerClock::new(0, START));
    refuse();
    assert!(known.state.lock().claims.is_empty(), "it never came to wait");
    busy(ask(&known, &fair, START));
    refuse();
    assert_eq!(
        known.end(fair.at.id, START),
        End::Plain,
        "every request was answered"
    );
}

#[test]
fn a_placement_without_an_answer_is_in_doubt_until_it_cannot_arrive_any_more() {
    let (known, claim) = (Known::default(), claim(1));
    drop(ask(&known, &claim, START));
    grant(ask(&known, &claim, START), START);
    let sure = START + AHEAD + REMEMBERED;
    assert_eq!(known.end(claim.at.id, START), End::Doubted);
    assert_eq!(
        known.end(claim.at.id, sure - Duration::from_nanos(1)),
        End::Doubted
    );
    assert_eq!(known.end(claim.at.id, sure), End::Plain);
}

#[test]
fn a_loss_takes_no_doubt_away() {
    let (known, claim) = (Known::default(), claim(1));
    drop(ask(&known, &claim, START));
    grant(ask(&known, &claim, START), START);
    known.lost(claim.at.id, START, 0);
    assert!(has_ended(&known, &claim));
    assert_eq!(known.end(claim.at.id, START), End::Doubted);
}

#[test]
fn a_claim_in_doubt_is_asked_for_though_it_was_granted() {
    let (known, claim) = (Known::default(), claim(1));
    drop(ask(&known, &claim, START));
    grant(ask(&known, &claim, START), START);
    drop(ask(&known, &claim, START));
}

#[test]
fn a_release_that_was_refused_leaves_the_claim_as_it_was() {
    let (known, claim) = (Known::default(), claim(1));
    grant(ask(&known, &claim, START), START);
    known.end(claim.at.id, START);
    known.stays(claim.at.id);
    assert!(is_granted(&known, &claim));
}

#[test]
fn whether_a_lease_had_ended_is_told_by_the_servers_clock() {
    for (shown, expired) in [(29_969_999, false), (29_970_000, true)] {
        let (known, claim) = (Known::default(), claim(1));
        grant(ask(&known, &claim, START), START);
        assert_eq!(known.lost(claim.at.id, START, shown), expired);
        assert!(has_ended(&known, &claim));
    }
}

#[test]
fn one_placement_says_for_all_that_their_client_is_kept_and_again_before_that_ends() {
    let known = Known::default();
    let claims = [0, 1, 2, 3, 4, 5].map(claim);
    let first = ask(&known, &claims[0], START);
    let keep = Keep {
        long: LEASE + REMEMBERED + SELDOM,
        label: "label".into(),
    };
    assert_eq!(first.keep, Some(keep));
    assert_eq!(ask(&known, &claims[1], START).keep, None);
    // Nobody heard the first.
    drop(first);
    let second = ask(&known, &claims[2], START);
    assert!(second.keep.is_some());
    grant(second, START);
    assert_eq!(ask(&known, &claims[3], START + SELDOM).keep, None);
    let later = START + SELDOM + Duration::from_millis(1);
    assert!(ask(&known, &claims[4], later).keep.is_some());
    let Asked::Open(elsewhere) = known.ask(&claims[5], START, START, 1) else {
        panic!("it is to be asked for");
    };
    assert!(elsewhere.keep.is_some(), "another server may be there");
}

#[test]
fn a_renewal_writes_a_record_unless_the_claim_is_being_released() {
    let known = Known::default();
    let held = claim(1);
    let record = |raised| known.record(held.at.id, raised);
    assert_eq!(record(None), None, "nothing is known of it");
    let asking = ask(&known, &held, START);
    assert_eq!(record(None), None, "it is not granted");
    grant(asking, START);
    assert_eq!(known.end(held.at.id, START), End::Plain);
    assert_eq!(record(None), None, "it is being released");
    known.stays(held.at.id);
    assert_eq!(record(None).as_deref(), Some("G:7:1:label"));
    assert_eq!(known.end(held.at.id, START), End::Noted);
    known.stays(held.at.id);
    let raised = TokenRange::new(FencingToken::new(40).unwrap(), NonZeroU32::new(2).unwrap());
    assert_eq!(record(raised).as_deref(), Some("G:40:2:label"));
}

/// A wrong name is worse than none.
#[test]
fn a_client_whose_claims_have_several_labels_has_none() {
    let known = Known::default();
    let mut other = Claim::clone(&claim(2));
    other.label = "another".into();
    let first = ask(&known, &claim(1), START);
    assert_eq!(&*first.keep.as_ref().expect("it is the first").label, "label");
    grant(first, START);
    let second = ask(&known, &Arc::new(other), START);
    assert_eq!(&*second.keep.as_ref().expect("another label").label, "");
    grant(second, START);
    assert_eq!(&*known.label(claim(1).at.id.client()), "");
    assert_eq!(ask(&known, &claim(3), START).keep, None);
}

#[test]
fn what_nobody_gave_back_is_cleared_out_when_it_is_past() {
    let known = Known::default();
    for number in 0..1_000 {
        grant(ask(&known, &claim(number), START), START);
    }
    let later = START + LEASE + REMEMBERED;
    for number in 1_000..3_000 {
        grant(ask(&known, &claim(number), later), later);
    }
    assert_eq!(known.state.lock().claims.len(), 2_000);
}
