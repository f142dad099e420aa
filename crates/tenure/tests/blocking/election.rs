//! `Client::election` on threads: one leader at a time, whose work asks whether it leads. The order of candidates and what
//! a dead leader costs is the async face's suite.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::backend::SystemClock;
use tenure::blocking::{Client, Election, Guard};
use tenure::{Error, Holder, LockKey, LostCause, Settings};
use tenure_memory::MemoryStore;

use crate::stage::{SOON, client, everybody_on, until};

/// Candidates with clients of their own, labelled by their names.
fn candidates<const N: usize>(names: [&str; N]) -> [(Client, Election); N] {
    let store = MemoryStore::new(Arc::new(SystemClock));
    names.map(|name| {
        let backend = store.client(Arc::new(SystemClock));
        let client = Client::new(backend, Settings::default()).expect("there is a thread");
        let election = client
            .election("chair")
            .label(name)
            .lease(Duration::from_millis(300));
        (client, election)
    })
}

/// The label of whoever leads.
fn leader(election: &Election) -> Option<String> {
    let leader = election.leader().expect("memory answers");
    leader.and_then(|leader| leader.label.as_deref().map(str::to_owned))
}

/// Whether somebody waits for the chair.
fn one_stands(client: &Client) -> bool {
    let waiters = everybody_on(client, "chair")[0].waiters.clone();
    waiters.is_some_and(|waiters| waiters.len() == 1)
}

fn depose(client: &Client) {
    let key = LockKey::new("chair").expect("a good key");
    let freed = client.evict(Holder::All(key)).expect("memory answers");
    assert!(!freed.is_empty());
}

#[test]
fn one_leads_and_the_next_is_elected_when_it_resigns() {
    let [(one, first), (_other, second)] = candidates(["first", "second"]);
    assert_eq!(leader(&first), None);
    let chair = first.campaign().expect("nobody leads");
    assert!(chair.is_leader() && chair.check().is_ok());
    assert_eq!(chair.guard().lease(), Duration::from_millis(300));
    assert_eq!(chair.lost_within(Duration::from_millis(10)), None);
    let limited = second.campaign_within(Duration::from_millis(20));
    assert!(matches!(limited, Err(Error::Timeout)), "{limited:?}");
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| second.campaign());
        until("the second stands", || one_stands(&one));
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
fn a_lost_lead_is_told_to_the_work_and_the_candidate_campaigns_again() {
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
        let last = lead
            .join()
            .expect("it does not panic")
            .expect("it led to its end");
        assert_eq!(
            terms.load(Ordering::SeqCst),
            2,
            "work that lost its lead is not done"
        );
        assert!(last.is_some() && last != token);
    });
    assert_eq!(leader(&election), None, "work that ends resigns first");
}

#[test]
fn work_does_not_begin_once_the_lead_is_lost() {
    let [(client, election)] = candidates(["first"]);
    let chair = election.campaign().expect("nobody leads");
    assert_eq!(chair.while_leader(|chair| chair.is_leader()), Ok(true));
    depose(&client);
    let lost = chair.lost_within(SOON).expect("a renewal tells it");
    assert_eq!(
        chair.while_leader(|_| unreachable!("it leads no more")),
        Err(lost)
    );
    assert!(matches!(chair.resign(), Err(Error::Lost(_))));
}

#[test]
fn max_hold_ends_a_term() {
    let [(_client, election)] = candidates(["first"]);
    let election = election.max_hold(Duration::from_millis(400));
    let chair = election.campaign().expect("nobody leads");
    let lost = chair.lost_within(SOON).expect("its time is limited");
    assert_eq!(lost.cause, LostCause::MaxHold);
}

#[test]
fn closing_the_client_ends_a_campaign() {
    let [(one, first), (other, second)] = candidates(["first", "second"]);
    let _chair = first.campaign().expect("nobody leads");
    std::thread::scope(|scope| {
        let campaign = scope.spawn(|| second.campaign().map(|_| ()));
        until("the second stands", || one_stands(&one));
        other.close(SOON).expect("it is confirmed");
        let end = campaign.join().expect("it does not panic");
        assert!(matches!(end, Err(Error::Closed(_))), "{end:?}");
    });
}

#[test]
fn observers_see_who_leads() {
    let [(_one, first), (_, observer)] = candidates(["first", "observer"]);
    let chair = first.campaign().expect("nobody leads");
    let seen = observer
        .observe()
        .next()
        .expect("it goes on")
        .expect("memory answers");
    let tenure::Change::Held(status) = seen else {
        panic!("somebody leads: {seen:?}")
    };
    assert_eq!(status.holders[0].token, chair.token());
}

#[test]
fn a_name_that_is_no_key_is_refused_at_first_use() {
    let election = client().election("");
    assert!(matches!(election.campaign(), Err(Error::Invalid(_))));
    assert!(matches!(election.leader(), Err(Error::Invalid(_))));
    assert!(matches!(election.observe().next(), Some(Err(Error::Invalid(_)))));
}
