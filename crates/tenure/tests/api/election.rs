//! `Client::election`: one leader at a time, whose work ends when it loses the lead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tenure::backend::{Backend, BackendError, Effect, Fault};
use tenure::inspect::Query;
use tenure::{Change, Changes, Client, Election, Error, Leader, LockKey, LostCause, ReleaseTarget, Settings};
use tenure_memory::MemoryStore;
use tenure_testkit::{Exchange, Faults, FaultyBackend, Request, SimClock, When};
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);

struct Fixture {
    store: MemoryStore,
    clock: Arc<SimClock>,
}

impl Fixture {
    fn new() -> Fixture {
        let clock = Arc::new(SimClock::new());
        let store = MemoryStore::new(clock.clone());
        Fixture { store, clock }
    }

    /// A candidate with a separate client, labelled with its name.
    fn candidate(&self, name: &str) -> (Client, Election) {
        let client = Client::new(self.store.client(self.clock.clone()), Settings::default());
        let election = client.election("chair").label(name);
        (client, election)
    }
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await; // sleep: time is paused, so this advances it.
}

fn campaign(election: &Election) -> JoinHandle<Result<Leader, Error>> {
    tokio::spawn(election.campaign())
}

/// Fails if the watch reports a change within 5 s: the tests call it while there is no leader.
async fn silent(seen: &mut Changes) {
    let change = tokio::time::timeout(5 * SECOND, seen.next()).await;
    assert!(change.is_err(), "there is no leader: {change:?}");
}

/// The label of the current leader.
async fn leader(election: &Election) -> Option<String> {
    let leader = election.leader().await.expect("memory can be inspected");
    leader.and_then(|leader| leader.label.as_deref().map(str::to_owned))
}

/// The labels of the waiting candidates, in the order of the store's queue.
async fn candidates(client: &Client) -> Vec<String> {
    let key = LockKey::new("chair").expect("a good key");
    let page = client.inspect(Query::Key(key)).await;
    let page = page.expect("memory can be inspected");
    let queue = page.items[0].waiters.as_ref().expect("memory shows its queue");
    let labels = queue
        .iter()
        .map(|waiter| waiter.label.as_deref().unwrap_or_default().to_owned());
    labels.collect()
}

async fn depose(client: &Client) {
    let key = LockKey::new("chair").expect("a good key");
    let freed = client
        .evict(ReleaseTarget::All(key))
        .await
        .expect("memory evicts");
    assert!(!freed.is_empty());
}

#[tokio::test(start_paused = true)]
async fn candidates_lead_in_the_order_of_arrival() {
    let fixture = Fixture::new();
    let (client, first) = fixture.candidate("first");
    assert_eq!(leader(&first).await, None);
    let chair = first.campaign().await.expect("there is no leader");
    let (_, second) = fixture.candidate("second");
    let (_, third) = fixture.candidate("third");
    let (tell, told) = tokio::sync::oneshot::channel();
    let waits = second.campaign().on_waiting(move |claim| {
        let _ = tell.send(claim.key.to_string());
    });
    let second_waits = tokio::spawn(waits);
    pass(SECOND).await;
    let followers = [second_waits, campaign(&third)];
    pass(SECOND).await;
    assert_eq!(leader(&second).await.as_deref(), Some("first"));
    assert!(chair.is_leader() && !followers[1].is_finished());
    assert_eq!(told.await.as_deref(), Ok("chair"), "it was told that it waits");
    assert_eq!(candidates(&client).await, ["second", "third"]);
    let mut tokens = vec![chair.token()];
    chair.resign().await.expect("it led");
    for (follower, name) in followers.into_iter().zip(["second", "third"]) {
        let chair = follower.await.expect("no panic").expect("elected");
        assert_eq!(leader(&first).await.as_deref(), Some(name));
        tokens.push(chair.token());
        chair.resign().await.expect("it led");
    }
    let rise = tokens.is_sorted() && tokens[0].is_some() && tokens[0] != tokens[2];
    assert!(rise, "{tokens:?}");
    assert_eq!(leader(&first).await, None);
    client.close(SECOND).await.expect("memory closes");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lead_ends_the_work_and_the_candidate_campaigns_again() {
    let fixture = Fixture::new();
    let (client, election) = fixture.candidate("first");
    let (_, rival) = fixture.candidate("rival");
    let terms = Arc::new(AtomicUsize::new(0));
    let counter = terms.clone();
    let lead = tokio::spawn(async move {
        election
            .lead(async move |leader| {
                if counter.fetch_add(1, Ordering::SeqCst) == 0 {
                    std::future::pending::<()>().await;
                }
                leader.token()
            })
            .await
    });
    while terms.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let second = campaign(&rival);
    pass(SECOND).await;
    depose(&client).await;
    // The rival's claim still waits, so the rival is elected next.
    let chair = second.await.expect("no panic").expect("elected");
    pass(60 * SECOND).await;
    let begun = terms.load(Ordering::SeqCst);
    assert_eq!(begun, 1, "its work runs only while it leads");
    let rivals_token = chair.token();
    chair.resign().await.expect("it led");
    let token = lead.await.expect("no panic").expect("it led to its end");
    assert_eq!(terms.load(Ordering::SeqCst), 2);
    assert!(token > rivals_token && rivals_token.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_leader_learns_why_it_lost_its_lead() {
    let fixture = Fixture::new();
    let (client, election) = fixture.candidate("first");
    let chair = election.campaign().await.expect("there is no leader");
    depose(&client).await;
    let work = chair.while_held(std::future::pending::<()>()).await;
    let lost = work.expect_err("pending never ends");
    assert!(matches!(lost.cause, LostCause::Evicted { .. }), "{lost}");
    assert_eq!(chair.lost().await, lost);
    assert!(!chair.is_leader());
    assert!(matches!(chair.resign().await, Err(Error::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_term_and_the_next_candidate_leads() {
    let fixture = Fixture::new();
    let (_client, election) = fixture.candidate("first");
    let began = tokio::time::Instant::now();
    let chair = election.max_hold(60 * SECOND).campaign().await;
    let chair = chair.expect("there is no leader");
    let (_, rival) = fixture.candidate("rival");
    let follower = campaign(&rival);
    assert_eq!(chair.lost().await.cause, LostCause::MaxHold);
    assert_eq!(began.elapsed().as_secs(), 60);
    let next = follower.await.expect("no panic").expect("elected");
    assert!(next.token() > chair.token());
}

#[tokio::test(start_paused = true)]
async fn finished_work_resigns_before_it_returns() {
    let fixture = Fixture::new();
    let (_, election) = fixture.candidate("first");
    let output = election.lead(async |_| 7).await;
    assert!(matches!(output, Ok(7)), "{output:?}");
    assert_eq!(leader(&election).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_campaign_leaves_no_candidate() {
    let fixture = Fixture::new();
    let (client, election) = fixture.candidate("first");
    let (_, rival) = fixture.candidate("rival");
    let chair = election.campaign().await.expect("there is no leader");
    let campaign = tokio::time::timeout(SECOND, rival.campaign()).await;
    assert!(campaign.is_err());
    let limited = rival.campaign_within(SECOND).await;
    assert!(matches!(limited, Err(Error::Timeout)), "{limited:?}");
    pass(SECOND).await;
    assert_eq!(candidates(&client).await, [""; 0]);
    chair.resign().await.expect("it led");
    assert_eq!(leader(&election).await, None);
    client.close(SECOND).await.expect("memory closes");
}

#[tokio::test(start_paused = true)]
async fn observers_see_the_leader_and_no_other_keys() {
    let fixture = Fixture::new();
    let (client, election) = fixture.candidate("first");
    let _other = client.mutex("chairs").lock().await.expect("it is free");
    let mut seen = fixture.candidate("observer").1.observe();
    let chair = election.campaign().await.expect("there is no leader");
    match seen.next().await {
        Ok(Change::Held(status)) => {
            assert_eq!(status.holders[0].label.as_deref(), Some("first"));
            assert_eq!(status.holders[0].token, chair.token());
        }
        other => panic!("{other:?}"),
    }
    drop(chair);
    assert!(matches!(seen.next().await, Ok(Change::Freed(_))));
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_no_leader_in_another_kind_of_lock() {
    let fixture = Fixture::new();
    let (client, election) = fixture.candidate("first");
    let permit = client.semaphore("chair", 2).acquire().await.expect("it is free");
    let mut seen = fixture.candidate("observer").1.observe();
    assert_eq!(leader(&election).await, None);
    silent(&mut seen).await;
    permit.unlock().await.expect("it was held");
    let chair = election.campaign().await.expect("there is no leader");
    assert!(matches!(seen.next().await, Ok(Change::Held(_))));
    assert!(chair.is_leader());
}

/// A store whose `inspect` fails while `now` is set, as if the election's key were no mutex.
#[derive(Debug)]
struct Unreadable {
    store: Arc<dyn Backend>,
    now: Arc<AtomicBool>,
}

impl Faults for Unreadable {
    fn store(&self) -> Arc<dyn Backend> {
        self.store.clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        let unreadable = when == When::Before && self.now.load(Ordering::SeqCst);
        for element in call.iter_mut().filter(|_| unreadable) {
            if matches!(element.request, Request::Inspect(_)) {
                let error = BackendError::new(Fault::UnknownKind, Effect::None, "the key is no mutex");
                element.fail(error);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_goes_on_while_the_key_is_unreadable() {
    let fixture = Fixture::new();
    let unreadable = Arc::new(AtomicBool::new(true));
    let store = FaultyBackend::new(Unreadable {
        store: fixture.store.client(fixture.clock.clone()),
        now: unreadable.clone(),
    });
    let election = Client::new(Arc::new(store), Settings::default()).election("chair");
    let mut seen = election.observe();
    assert_eq!(leader(&election).await, None);
    silent(&mut seen).await;
    unreadable.store(false, Ordering::SeqCst);
    let chair = election.campaign().await.expect("there is no leader");
    assert!(matches!(seen.next().await, Ok(Change::Held(_))));
    unreadable.store(true, Ordering::SeqCst);
    assert!(matches!(seen.next().await, Ok(Change::Freed(_))));
    assert!(chair.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_replaced_when_its_lease_ends() {
    let fixture = Fixture::new();
    let (client, election) = fixture.candidate("first");
    let chair = election
        .lease(3 * SECOND)
        .campaign()
        .await
        .expect("there is no leader");
    let began = tokio::time::Instant::now();
    // The leader dies without releasing its claim.
    std::mem::forget(chair);
    std::mem::forget(client);
    fixture.clock.suspend(3 * SECOND);
    let (_, rival) = fixture.candidate("rival");
    let chair = rival.campaign_within(60 * SECOND).await.expect("elected");
    let waited = began.elapsed();
    assert!(chair.is_leader() && waited < SECOND, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_election_name_is_refused_at_first_use() {
    let fixture = Fixture::new();
    let (client, _) = fixture.candidate("first");
    let election = client.election("");
    assert!(matches!(election.campaign().await, Err(Error::Invalid(_))));
    let limited = election.campaign_within(SECOND).await;
    assert!(matches!(limited, Err(Error::Invalid(_))), "{limited:?}");
    assert!(matches!(election.leader().await, Err(Error::Invalid(_))));
    assert!(matches!(election.observe().next().await, Err(Error::Invalid(_))));
}
