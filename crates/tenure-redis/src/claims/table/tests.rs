//! Tests of the claim table without a server.

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

fn entries(table: &ClaimTable) -> usize {
    let state = table.state.lock();
    state.claims.values().map(|claims| claims.entries.len()).sum()
}

fn begin<'a>(table: &'a ClaimTable, claim: &'a Arc<Claim>, now: Instant) -> Placement<'a> {
    match table.begin_placement(claim, now, now + AHEAD, 0) {
        Lookup::Ask(placement) => placement,
        _ => panic!("{} must be sent to the server", claim.at.id),
    }
}

fn reply_granted(placement: Placement<'_>, now: Instant) {
    let tokens = TokenRange::new(FencingToken::new(7).unwrap(), NonZeroU32::MIN);
    let granted = AcquireReply::Granted(Grant::new(tokens, now, LEASE));
    placement.answered(Ok(&granted), &ServerClock::new(0, START));
}

fn reply_waiting(placement: Placement<'_>) {
    let waits = AcquireReply::Waiting {
        ahead: None,
        poll_after: LEASE,
    };
    placement.answered(Ok(&waits), &ServerClock::new(0, START));
}

fn end_state(table: &ClaimTable, id: ClaimId, now: Instant) -> EndState {
    table.begin_release(id, now).0
}

fn is_granted(table: &ClaimTable, claim: &Arc<Claim>) -> bool {
    matches!(table.begin_placement(claim, START, START, 0), Lookup::Granted(_))
}

fn has_ended(table: &ClaimTable, claim: &Arc<Claim>) -> bool {
    matches!(table.begin_placement(claim, START, START, 0), Lookup::Ended)
}

#[test]
fn a_released_claim_is_kept_only_as_ended() {
    let (table, claim) = (ClaimTable::default(), claim(1));
    reply_granted(begin(&table, &claim, START), START);
    assert!(is_granted(&table, &claim));
    assert_eq!(end_state(&table, claim.at.id, START), EndState::Settled);
    assert!(has_ended(&table, &claim), "while it is released");
    table.confirm_end(claim.at.id, START);
    assert!(has_ended(&table, &claim));
    assert_eq!(end_state(&table, claim.at.id, START), EndState::Settled);
    assert_eq!(entries(&table), 0);
}

#[test]
fn an_unfair_claim_that_waits_leaves_no_entry() {
    let (table, claim) = (ClaimTable::default(), claim(1));
    reply_waiting(begin(&table, &claim, START));
    assert_eq!(entries(&table), 0);
    reply_granted(begin(&table, &claim, START), START);
    assert!(is_granted(&table, &claim));
}

#[test]
fn a_refused_poll_keeps_the_waiting_claim() {
    let table = ClaimTable::default();
    let fair = Arc::new(Claim {
        fairness: Fairness::Fifo,
        ..(*claim(1)).clone()
    });
    let refusal = BackendError::new(tenure_backend::Fault::Unavailable, Effect::None, "full");
    let refuse = || begin(&table, &fair, START).answered(Err(&refusal), &ServerClock::new(0, START));
    refuse();
    assert_eq!(entries(&table), 0, "it never came to wait");
    reply_waiting(begin(&table, &fair, START));
    refuse();
    assert_eq!(
        end_state(&table, fair.at.id, START),
        EndState::Settled,
        "every request was answered"
    );
}

#[test]
fn an_unanswered_placement_may_be_in_flight_until_its_limit() {
    let (table, claim) = (ClaimTable::default(), claim(1));
    drop(begin(&table, &claim, START));
    reply_granted(begin(&table, &claim, START), START);
    let settled = START + AHEAD + RECORD_TTL;
    assert_eq!(end_state(&table, claim.at.id, START), EndState::MayBeInFlight);
    assert_eq!(
        end_state(&table, claim.at.id, settled - Duration::from_nanos(1)),
        EndState::MayBeInFlight
    );
    assert_eq!(end_state(&table, claim.at.id, settled), EndState::Settled);
}

#[test]
fn a_lost_claim_may_still_have_a_request_in_flight() {
    let (table, claim) = (ClaimTable::default(), claim(1));
    drop(begin(&table, &claim, START));
    reply_granted(begin(&table, &claim, START), START);
    table.mark_lost(claim.at.id, START, 0);
    assert!(has_ended(&table, &claim));
    assert_eq!(end_state(&table, claim.at.id, START), EndState::MayBeInFlight);
}

#[test]
fn a_granted_claim_with_a_request_in_flight_is_sent_again() {
    let (table, claim) = (ClaimTable::default(), claim(1));
    drop(begin(&table, &claim, START));
    reply_granted(begin(&table, &claim, START), START);
    drop(begin(&table, &claim, START));
}

#[test]
fn a_refused_release_keeps_the_claim() {
    let (table, claim) = (ClaimTable::default(), claim(1));
    reply_granted(begin(&table, &claim, START), START);
    table.begin_release(claim.at.id, START);
    table.cancel_release(claim.at.id);
    assert!(is_granted(&table, &claim));
}

#[test]
fn expiry_is_judged_by_the_servers_clock() {
    for (shown, expired) in [(29_969_999, false), (29_970_000, true)] {
        let (table, claim) = (ClaimTable::default(), claim(1));
        reply_granted(begin(&table, &claim, START), START);
        assert_eq!(table.mark_lost(claim.at.id, START, shown), expired);
        assert!(has_ended(&table, &claim));
    }
}

#[test]
fn one_placement_writes_the_client_record_and_extends_it() {
    let table = ClaimTable::default();
    let claims = [0, 1, 2, 3, 4, 5].map(claim);
    let first = begin(&table, &claims[0], START);
    let record = ClientRecord {
        ttl: LEASE + RECORD_TTL + CLIENT_MARGIN,
        label: "label".into(),
    };
    assert_eq!(first.client, Some(record));
    assert_eq!(begin(&table, &claims[1], START).client, None);
    // The first acquire call gets no reply.
    drop(first);
    let second = begin(&table, &claims[2], START);
    assert!(second.client.is_some());
    reply_granted(second, START);
    assert_eq!(begin(&table, &claims[3], START + CLIENT_MARGIN).client, None);
    let later = START + CLIENT_MARGIN + Duration::from_millis(1);
    assert!(begin(&table, &claims[4], later).client.is_some());
    let Lookup::Ask(reconnected) = table.begin_placement(&claims[5], START, START, 1) else {
        panic!("it must be sent to the server");
    };
    assert!(reconnected.client.is_some(), "another server may be there");
}

#[test]
fn a_renewal_writes_a_record_unless_a_release_is_in_progress() {
    let table = ClaimTable::default();
    let held = claim(1);
    let record = |raise| {
        let renewal = RenewRequest {
            raise,
            ..RenewRequest::of(&held)
        };
        let known = table
            .begin_renewals(&[renewal], START, |_, _, known| known)
            .pop()
            .flatten();
        let record = known.and_then(|known| known.record);
        record.map(|(run, label)| format!("{}:{}:{label}", run.first(), run.count()))
    };
    assert_eq!(record(None), None, "the table has no record");
    let placement = begin(&table, &held, START);
    assert_eq!(record(None), None, "it is not granted");
    reply_granted(placement, START);
    assert_eq!(end_state(&table, held.at.id, START), EndState::Settled);
    assert_eq!(record(None), None, "it is being released");
    table.cancel_release(held.at.id);
    assert_eq!(record(None).as_deref(), Some("7:1:label"));
    assert_eq!(end_state(&table, held.at.id, START), EndState::SettledWithRecord);
    table.cancel_release(held.at.id);
    let raised = TokenRange::new(FencingToken::new(40).unwrap(), NonZeroU32::new(2).unwrap());
    assert_eq!(record(raised).as_deref(), Some("40:2:label"));
}

/// Such a client's record has no label: a wrong one is worse.
#[test]
fn a_client_with_claims_of_different_labels_has_no_label() {
    let table = ClaimTable::default();
    let mut other = Claim::clone(&claim(2));
    other.label = "another".into();
    let claimed = claim(1);
    let first = begin(&table, &claimed, START);
    assert_eq!(&*first.client.as_ref().expect("it is the first").label, "label");
    reply_granted(first, START);
    let other = Arc::new(other);
    let second = begin(&table, &other, START);
    assert_eq!(&*second.client.as_ref().expect("another label").label, "");
    reply_granted(second, START);
    assert_eq!(&*table.client_label(&claim(1).at), "");
    assert_eq!(begin(&table, &claim(3), START).client, None);
}

#[test]
fn expired_claims_are_swept() {
    let table = ClaimTable::default();
    for number in 0..1_000 {
        reply_granted(begin(&table, &claim(number), START), START);
    }
    let later = START + AHEAD + LEASE + RECORD_TTL;
    for number in 1_000..3_000 {
        reply_granted(begin(&table, &claim(number), later), later);
    }
    assert_eq!(entries(&table), 2_000);
}

/// The kind tells the release by which script it frees the claim.
#[test]
fn a_claim_that_may_be_in_redis_is_not_swept() {
    let table = ClaimTable::default();
    let [renewed, placed] = [1, 2].map(claim);
    reply_granted(begin(&table, &renewed, START), START);
    // Neither the renewal nor the placement is answered.
    let renewal = RenewRequest {
        lease: 10 * LEASE,
        ..RenewRequest::of(&renewed)
    };
    table.begin_renewals(&[renewal], START + LEASE / 3, |_, _, _| ());
    let late = START + 2 * LEASE;
    drop(begin(&table, &placed, late));
    let sweep = |now: Instant, from: u64| {
        for number in from..from + 500 {
            reply_granted(begin(&table, &claim(number), now), now);
        }
    };
    sweep(late + LEASE, 1_000);
    assert_eq!(table.kind(placed.at.id), Some(Kind::Mutex));
    sweep(START + 10 * LEASE, 2_000);
    assert_eq!(table.kind(renewed.at.id), Some(Kind::Mutex));
    assert_eq!(table.kind(placed.at.id), None, "it has expired");
}

/// The call that places the claim may still wait for the connection.
#[test]
fn a_claim_that_was_released_before_it_was_sent_is_not_sent() {
    let (table, other, unsent) = (ClaimTable::default(), claim(1), claim(2));
    reply_granted(begin(&table, &other, START), START);
    assert_eq!(end_state(&table, unsent.at.id, START), EndState::Settled);
    assert!(has_ended(&table, &unsent));
}
