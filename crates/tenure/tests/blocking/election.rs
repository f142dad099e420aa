//! The blocking `Client::election`: one leader at a time, whose work asks whether it still leads. `tests/api/election.rs`
//! tests the order of candidates and the death of a leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure::backend::SystemClock;
use tenure::blocking::{Client, Election, Guard};
use tenure::{Error, LockKey, LostCause, ReleaseTarget};
use tenure_memory::MemoryStore;

use crate::fixture::{MS, SOON, assert_error, client, client_of, one_queues, until};

/// Candidates with separate clients, labelled with their names.
fn candidates<const N: usize>(names: [&str; N]) -> [(Client, Election); N] {
    let store = MemoryStore::new(Arc::new(SystemClock));
    names.map(|name| {
        let client = client_of(&store);
        let election = client.election("chair").label(name).lease(3000 * MS);
        (client, election)
    })
}

/// The label of the current leader.
fn leader(election: &Election) -> Option<String> {
    let leader = election.leader().expect("memory answers");
    leader.and_then(|leader| leader.label.as_deref().map(str::to_owned))
}

fn depose(client: &Client) {
    let key = LockKey::new("chair").expect("a good key");
    let freed = client.evict(ReleaseTarget::All(key)).expect("memory answers");
    assert!(!freed.is_empty());
}

#[test]
fn the_next_candidate_leads_when_the_leader_resigns() {
    let [(one, first), (_other, second)] = candidates(["first", "second"]);
    assert_eq!(leader(&first), None);
    let chair = first.campaign().expect("there is no leader");
    assert!(chair.is_leader() && chair.check().is_ok());
    assert_eq!(chair.lease(), 3000 * MS);
    assert_eq!(chair.lost_within(10 * MS), None);
    assert_error!(second.campaign_within(20 * MS), Error::Timeout);
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| second.campaign());
        until("the second stands", || one_queues(&one, "chair"));
        assert_eq!(leader(&second).as_deref(), Some("first"));
        let token = chair.token();
        chair.resign().expect("it led");
        let next = follower.join().expect("it does not panic").expect("elected");
        assert_eq!(leader(&first).as_deref(), Some("second"));
        assert!(next.token() > token && token.is_some());
        Guard::from(next).unlock().expect("it led");
    });
    assert_eq!(leader(&first), None);
}

#[test]
fn work_sees_the_lost_lead_and_the_candidate_campaigns_again() {
    let [(client, election), (_, rival)] = candidates(["first", "rival"]);
    let terms = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let lead = scope.spawn(|| {
            election.lead(|leader| {
                if terms.fetch_add(1, Ordering::SeqCst) == 0 {
                    let lost = leader.lost_within(SOON).expect("a renewal tells it");
                    assert!(matches!(lost.cause, LostCause::Evicted { .. }), "{lost}");
                    assert_eq!(leader.check(), Err(leader.lost()));
                }
                leader.token()
            })
        });
        until("it leads", || terms.load(Ordering::SeqCst) == 1);
        depose(&client);
        let chair = rival.campaign_within(SOON).expect("elected");
        let token = chair.token();
        chair.resign().expect("it led");
        let last = lead.join().expect("it does not panic");
        let last = last.expect("it led to its end");
        let terms = terms.load(Ordering::SeqCst);
        assert_eq!(terms, 2, "work that lost its lead is not done");
        assert!(last.is_some() && last != token);
    });
    assert_eq!(leader(&election), None, "work that ends resigns first");
}

#[test]
fn work_does_not_start_after_the_lead_is_lost() {
    let [(client, election)] = candidates(["first"]);
    let chair = election.campaign().expect("there is no leader");
    assert_eq!(chair.while_held(|chair| chair.is_leader()), Ok(true));
    depose(&client);
    let lost = chair.lost_within(SOON).expect("a renewal tells it");
    let late = chair.while_held(|_| unreachable!("it leads no more"));
    assert_eq!(late, Err(lost));
    assert_error!(chair.resign(), Error::Lost(_));
}

#[test]
fn max_hold_ends_a_term() {
    let [(_client, election)] = candidates(["first"]);
    let election = election.max_hold(400 * MS);
    let chair = election.campaign().expect("there is no leader");
    let lost = chair.lost_within(SOON).expect("its time is limited");
    assert_eq!(lost.cause, LostCause::MaxHold);
}

#[test]
fn closing_the_client_ends_a_campaign() {
    let [(one, first), (other, second)] = candidates(["first", "second"]);
    let _chair = first.campaign().expect("there is no leader");
    std::thread::scope(|scope| {
        let campaign = scope.spawn(|| second.campaign().map(|_| ()));
        until("the second stands", || one_queues(&one, "chair"));
        other.close(SOON).expect("it is confirmed");
        let end = campaign.join().expect("it does not panic");
        assert_error!(end, Error::Closed(_));
    });
}

#[test]
fn observers_see_the_leader() {
    let [(_one, first), (_, observer)] = candidates(["first", "observer"]);
    let chair = first.campaign().expect("there is no leader");
    let seen = observer.observe().next().expect("it goes on");
    let seen = seen.expect("memory answers");
    let tenure::Change::Held(status) = seen else {
        panic!("there is a leader: {seen:?}")
    };
    assert_eq!(status.holders[0].token, chair.token());
}

#[test]
fn an_invalid_election_name_is_refused_at_first_use() {
    let election = client().election("");
    assert_error!(election.campaign(), Error::Invalid(_));
    assert_error!(election.leader(), Error::Invalid(_));
    assert!(matches!(election.observe().next(), Some(Err(Error::Invalid(_)))));
}
