//! What a quorum does when some of its members fail.

mod fixture;
mod leftovers;
mod unreachable;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, Cause, Claim, Clock, Effect, Fault, Guarantee, Hazard, Mode,
    Phase, Query, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Successor,
};
use tenure_memory::MemoryStore;
use tenure_quorum::{Config, Quorum};
use tenure_testkit::{Exchange, Faults, FaultyBackend, ManualClock, Request, When};
use tokio::sync::Notify;

use fixture::{
    LateOnce, Silent, acquire, claim, is_held, key, lift_counter, member, quorum, release, stores,
};
use unreachable::Unreachable;

/// Regression R9: one member never answers.
#[tokio::test(start_paused = true)]
async fn a_quorum_of_three_works_with_one_silent_member() {
    let stores = stores();
    let silent = Arc::new(FaultyBackend::new(Silent(member(&stores[0]))));
    let quorum = quorum(vec![silent, member(&stores[1]), member(&stores[2])]);
    let began = tokio::time::Instant::now();
    assert!(matches!(
        acquire(&quorum, &claim(1)).await,
        Ok(AcquireReply::Granted(_))
    ));
    assert!(matches!(
        acquire(&quorum, &claim(2)).await,
        Ok(AcquireReply::Waiting { .. })
    ));
    assert!(matches!(
        release(&quorum, &claim(1)).await,
        ReleaseReply::Done { .. }
    ));
    assert!(
        began.elapsed() < Duration::from_millis(50),
        "only a majority was waited for"
    );
    assert!(matches!(
        acquire(&quorum, &claim(3)).await,
        Ok(AcquireReply::Granted(_))
    ));
}

/// Regression R10: the only member that grants is no majority.
#[tokio::test(start_paused = true)]
async fn a_quorum_without_a_majority_refuses_and_cleans_up() {
    let stores = stores();
    let unreachable = |store| Arc::new(FaultyBackend::new(Unreachable(member(store), Effect::Unknown)));
    let quorum = quorum(vec![
        unreachable(&stores[0]),
        unreachable(&stores[1]),
        member(&stores[2]),
    ]);
    let error = acquire(&quorum, &claim(1)).await.expect_err("no majority");
    assert!(error.is_transient(), "{error}");
    assert_eq!(error.effect(), Effect::Unknown);
    // sleep: the release may run in the background, in paused time.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!is_held(&stores[2]).await);
}

/// Regression R10: the only member that grants answers after the call has failed.
#[tokio::test(start_paused = true)]
async fn a_grant_of_a_minority_that_comes_late_is_released() {
    let stores = stores();
    let send = Arc::new(Notify::new());
    let late = Arc::new(FaultyBackend::new(LateOnce {
        store: member(&stores[0]),
        is_first: AtomicBool::new(true),
        send: send.clone(),
    }));
    let unreachable = |store| Arc::new(FaultyBackend::new(Unreachable(member(store), Effect::None)));
    let quorum = quorum(vec![late, unreachable(&stores[1]), unreachable(&stores[2])]);
    acquire(&quorum, &claim(1)).await.expect_err("no majority");
    assert!(is_held(&stores[0]).await, "its reply is under way");
    send.notify_one();
    // sleep: the late reply is handled in the background, in paused time.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!is_held(&stores[0]).await);
}

#[tokio::test(start_paused = true)]
async fn a_split_vote_is_withdrawn_and_the_next_poll_ends_the_claim() {
    let stores = stores();
    let quorum = quorum(stores.iter().map(member).collect());
    // Another client holds the key at two members.
    let other = claim(9);
    for store in &stores[..2] {
        let not_after = quorum.clock().now() + Duration::from_secs(5);
        let granted = member(store).acquire(other.clone(), not_after).await;
        assert!(matches!(granted, Ok(AcquireReply::Granted(_))));
    }
    assert!(matches!(
        acquire(&quorum, &claim(1)).await,
        Ok(AcquireReply::Waiting { .. })
    ));
    assert!(!is_held(&stores[2]).await, "the minority's grant was released");
    assert!(matches!(
        acquire(&quorum, &claim(1)).await,
        Ok(AcquireReply::Ended)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_late_reply_does_not_release_a_claim_that_was_granted_since() {
    let stores = stores();
    let send: [Arc<Notify>; 2] = Default::default();
    let late = |at: usize| -> Arc<dyn Backend> {
        Arc::new(FaultyBackend::new(LateOnce {
            store: member(&stores[at]),
            is_first: AtomicBool::new(true),
            send: send[at].clone(),
        }))
    };
    let quorum = quorum(vec![late(0), late(1), member(&stores[2])]);
    let not_after = quorum.clock().now() + Duration::from_secs(5);
    let taken = member(&stores[2]).acquire(claim(9), not_after).await;
    assert!(matches!(taken, Ok(AcquireReply::Granted(_))));
    let error = acquire(&quorum, &claim(1))
        .await
        .expect_err("two members are silent");
    assert!(error.is_transient());
    assert!(matches!(
        acquire(&quorum, &claim(1)).await,
        Ok(AcquireReply::Granted(_))
    ));
    send.iter().for_each(|send| send.notify_one());
    // sleep: the late replies are handled in the background, in paused time.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for store in &stores[..2] {
        assert!(is_held(store).await);
    }
}

#[tokio::test(start_paused = true)]
async fn renewing_a_held_claim_as_a_waiter_keeps_it_at_a_slow_member() {
    let stores = stores();
    let send = Arc::new(Notify::new());
    let slow = Arc::new(FaultyBackend::new(LateOnce {
        store: member(&stores[0]),
        is_first: AtomicBool::new(true),
        send: send.clone(),
    }));
    let quorum = quorum(vec![slow, member(&stores[1]), member(&stores[2])]);
    let claim = claim(1);
    assert!(matches!(
        acquire(&quorum, &claim).await,
        Ok(AcquireReply::Granted(_))
    ));
    let as_waiter = RenewRequest {
        only: Phase::Waiting,
        ..RenewRequest::of(&claim)
    };
    let renewed = quorum.clone().renew(Batch::from_iter([as_waiter])).await;
    assert!(matches!(renewed[..], [RenewReply::Gone(_)]));
    send.notify_one();
    // sleep: the late reply is handled in the background, in paused time.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for store in &stores {
        assert!(is_held(store).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_claim_named_as_successor_keeps_its_tokens() {
    let stores = stores();
    lift_counter(&stores[0]).await;
    // The member with the greatest tokens replies too late to count for the grant.
    let slow = Arc::new(FaultyBackend::new(LateOnce {
        store: member(&stores[0]),
        is_first: AtomicBool::new(true),
        send: Arc::default(),
    }));
    let quorum = quorum(vec![slow, member(&stores[1]), member(&stores[2])]);
    let held = claim(1);
    let Ok(AcquireReply::Granted(grant)) = acquire(&quorum, &held).await else {
        panic!("the key is free");
    };
    let not_after = quorum.clock().now() + Duration::from_secs(5);
    let request = ReleaseRequest {
        successor: Some(Successor {
            claim: held,
            not_after,
        }),
        ..ReleaseRequest::of(&claim(2), Cause::Unlocked)
    };
    let mut replies = quorum.clone().release(Batch::from_iter([request])).await;
    let Some(ReleaseReply::Done {
        successor: Some(AcquireReply::Granted(again)),
        ..
    }) = replies.pop()
    else {
        panic!("the claim is held");
    };
    assert_eq!(again.tokens, grant.tokens);
}

#[tokio::test]
async fn a_quorum_of_three_survives_the_death_of_a_server() {
    let members: Vec<_> = stores().iter().map(member).collect();
    let survives = |members: &[_]| {
        quorum(members.to_vec())
            .profile()
            .offers(Guarantee::SurvivesServerDeath)
    };
    assert!(survives(&members));
    assert!(!survives(&members[1..]), "a majority of two is both");
    assert!(!members[0].profile().offers(Guarantee::SurvivesServerDeath));
}

#[tokio::test]
async fn members_of_different_kinds_are_refused() {
    let [one, other, _] = stores();
    let mut profile = member(&other).profile().clone();
    profile.hazards = &[Hazard::ClockSet];
    let other = Arc::new(FaultyBackend::new(Silent(member(&other))).with_profile(profile));
    let refused = Quorum::new(vec![member(&one), other], Config::default()).expect_err("hazards differ");
    assert_eq!(refused.fault(), Fault::Invalid);
}

/// A minority of downgraded members admits no reader; a majority does, and the quorum then confirms the downgrade.
#[tokio::test(start_paused = true)]
async fn a_downgrade_needs_a_majority_of_the_members() {
    let stores = stores();
    let quorum_with = |reached: usize| {
        let members = stores.iter().map(member).enumerate();
        quorum(
            members
                .map(|(number, member)| match number < reached {
                    true => member,
                    false => {
                        Arc::new(FaultyBackend::new(Unreachable(member, Effect::Unknown))) as Arc<dyn Backend>
                    }
                })
                .collect(),
        )
    };
    let in_mode = |client, mode| {
        Arc::new(Claim {
            mode,
            ..(*claim(client)).clone()
        })
    };
    let all = quorum_with(3);
    let writer = in_mode(1, Mode::Write);
    assert!(matches!(
        acquire(&all, &writer).await,
        Ok(AcquireReply::Granted(_))
    ));
    for (reached, client) in [(1, 2), (2, 3)] {
        let request = RenewRequest::downgrading(&writer);
        let reply = quorum_with(reached).renew(Batch::from_iter([request])).await;
        let confirmed = matches!(reply[..], [RenewReply::Alive { .. }]);
        assert_eq!(confirmed, reached == 2, "{reply:?}");
        let reader = acquire(&all, &in_mode(client, Mode::Read)).await;
        let is_admitted = matches!(reader, Ok(AcquireReply::Granted(_)));
        assert_eq!(is_admitted, confirmed, "{reader:?}");
    }
    let another = acquire(&all, &in_mode(4, Mode::Write)).await;
    assert!(!matches!(another, Ok(AcquireReply::Granted(_))), "{another:?}");
}

#[tokio::test(start_paused = true)]
async fn tokens_rise_after_the_member_with_the_greatest_is_lost() {
    let stores = stores();
    lift_counter(&stores[0]).await;
    let mut members: Vec<_> = stores.iter().map(member).collect();
    let all = quorum(members.clone());
    let Ok(AcquireReply::Granted(grant)) = acquire(&all, &claim(1)).await else {
        panic!("the key is free");
    };
    let last = grant.tokens.expect("memory has tokens").first();
    release(&all, &claim(1)).await;
    members.remove(0);
    let rest = quorum(members);
    let Ok(AcquireReply::Granted(grant)) = acquire(&rest, &claim(2)).await else {
        panic!("the key is free");
    };
    let next = grant.tokens.expect("memory has tokens").first();
    assert!(last < next, "{last} < {next}");
}

/// A member whose reply to `acquire` takes `delay`, and whose tokens cannot be raised, because each renewal fails
/// after 20 ms.
#[derive(Debug)]
struct CannotRaise {
    store: Arc<dyn Backend>,
    delay: Duration,
}

impl Faults for CannotRaise {
    fn store(&self) -> Arc<dyn Backend> {
        self.store.clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        for element in call {
            match element.request {
                // sleep: the reply takes that long, in paused time.
                Request::Acquire(..) if when == When::After => tokio::time::sleep(self.delay).await,
                Request::Renew(_) if when == When::Before => {
                    // sleep: the request fails after that, in paused time.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    let lost = BackendError::new(Fault::Unavailable, Effect::Unknown, "lost");
                    element.fail(lost);
                }
                _ => {}
            }
        }
    }
}

/// Regression R10: the third grant arrives while the first two members fail to agree on the tokens.
#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_during_a_failed_agreement_is_released() {
    let stores = stores();
    lift_counter(&stores[0]).await;
    // Two members grant at once, with different tokens. The third grants while they try to agree.
    let members = stores.iter().zip([0, 0, 10]).map(|(store, delay)| {
        let (store, delay) = (member(store), Duration::from_millis(delay));
        Arc::new(FaultyBackend::new(CannotRaise { store, delay })) as Arc<dyn Backend>
    });
    let quorum = quorum(members.collect());
    let failed = acquire(&quorum, &claim(1))
        .await
        .expect_err("no member raises its tokens");
    assert!(failed.is_transient(), "{failed}");
    // sleep: the release may run in the background, in paused time.
    tokio::time::sleep(Duration::from_millis(100)).await;
    for store in &stores {
        assert!(!is_held(store).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_claim_stays_until_its_holder_releases_it() {
    let stores = stores();
    let quorum = quorum(stores.iter().map(member).collect());
    let claim = claim(1);
    assert!(matches!(
        acquire(&quorum, &claim).await,
        Ok(AcquireReply::Granted(_))
    ));
    for store in &stores[1..] {
        let evict = ReleaseRequest::of(&claim, Cause::Evicted { by: None });
        member(store).release(Batch::from_iter([evict])).await;
    }
    let renewed = quorum
        .clone()
        .renew(Batch::from_iter([RenewRequest::of(&claim)]))
        .await;
    assert!(matches!(renewed[..], [RenewReply::Gone(_)]));
    // sleep: a release in the background would run meanwhile, in paused time.
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(
        is_held(&stores[0]).await,
        "the holder may not have read the reply yet"
    );
    release(&quorum, &claim).await;
    assert!(!is_held(&stores[0]).await);
}

/// A renewal that a majority has confirmed is shown, though one member does not have it.
#[tokio::test(start_paused = true)]
async fn the_time_left_is_that_of_a_majority() {
    let stores = stores();
    let mut members: Vec<_> = stores.iter().map(member).collect();
    let all = quorum(members.clone());
    let claim = claim(1);
    assert!(matches!(
        acquire(&all, &claim).await,
        Ok(AcquireReply::Granted(_))
    ));
    let unreachable = Unreachable(members.remove(0), Effect::Unknown);
    members.insert(0, Arc::new(FaultyBackend::new(unreachable)));
    let longer = RenewRequest {
        lease: claim.lease * 2,
        ..RenewRequest::of(&claim)
    };
    let renewed = quorum(members).renew(Batch::from_iter([longer])).await;
    assert!(matches!(renewed[..], [RenewReply::Alive { .. }]), "{renewed:?}");
    let shown = all.inspect(Query::Key(key())).await.unwrap();
    let remaining = shown.items[0].holders[0].remaining;
    assert!(remaining > Some(claim.lease), "{remaining:?}");
}

/// Regression R8: two members have granted the key to different clients. The quorum withdraws one claim, and grants
/// the other.
#[tokio::test(start_paused = true)]
async fn two_clients_that_split_the_vote_end_in_a_grant() {
    let [one, other, _] = stores();
    let clients = [(&one, claim(1)), (&other, claim(2))];
    for (store, claim) in &clients {
        let not_after = member(store).clock().now() + Duration::from_secs(5);
        let granted = member(store).acquire(claim.clone(), not_after).await;
        assert!(matches!(granted, Ok(AcquireReply::Granted(_))));
    }
    let [first, second] = [0; 2].map(|_| quorum(vec![member(&one), member(&other)]));
    let split = acquire(&first, &clients[0].1).await;
    assert!(matches!(split, Ok(AcquireReply::Waiting { .. })), "{split:?}");
    let granted = acquire(&second, &clients[1].1).await;
    assert!(matches!(granted, Ok(AcquireReply::Granted(_))), "{granted:?}");
}

/// A member to which a round trip takes 10 ms.
#[derive(Debug)]
struct Distant(Arc<dyn Backend>);

impl Faults for Distant {
    fn store(&self) -> Arc<dyn Backend> {
        self.0.clone()
    }

    async fn on(&self, when: When, _: &mut [Exchange]) {
        if when == When::Before {
            // sleep: the round trip takes that long, in paused time.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn distant(store: &MemoryStore) -> Arc<dyn Backend> {
    Arc::new(FaultyBackend::new(Distant(member(store))))
}

/// A quorum of a member that cannot be reached and two that can, the second later than the first.
fn one_dead_one_distant(stores: &[MemoryStore; 3]) -> Arc<Quorum> {
    let dead = Arc::new(FaultyBackend::new(Unreachable(member(&stores[0]), Effect::None)));
    quorum(vec![dead, member(&stores[1]), distant(&stores[2])])
}

/// Places a claim of another client at one store.
async fn take(store: &MemoryStore, mode: Mode) {
    let mut other = Claim::clone(&claim(9));
    other.mode = mode;
    let not_after = member(store).clock().now() + Duration::from_secs(5);
    let granted = member(store).acquire(Arc::new(other), not_after).await;
    assert!(matches!(granted, Ok(AcquireReply::Granted(_))), "{granted:?}");
}

/// The dead member's error and the next member's reply come first, and are too few to decide.
#[tokio::test(start_paused = true)]
async fn a_mistake_of_the_caller_is_told_beside_a_dead_member() {
    let stores = stores();
    for store in &stores[1..] {
        take(store, Mode::Read).await;
    }
    let error = acquire(&one_dead_one_distant(&stores), &claim(1)).await;
    let error = error.expect_err("a mutex is asked for");
    assert!(matches!(error.fault(), Fault::Mismatch { .. }), "{error:?}");
}

/// Otherwise the grant of the distant member, released in the background, would be in the way of the client's next claim.
#[tokio::test(start_paused = true)]
async fn a_refusal_beside_a_dead_member_leaves_no_grant_behind() {
    let stores = stores();
    take(&stores[1], Mode::Exclusive).await;
    let refused = acquire(&one_dead_one_distant(&stores), &claim(1)).await;
    assert!(matches!(refused, Ok(AcquireReply::Waiting { .. })), "{refused:?}");
    // sleep: a request that is under way arrives, in paused time.
    tokio::time::sleep(Duration::from_millis(15)).await;
    assert!(!is_held(&stores[2]).await);
}

#[tokio::test(start_paused = true)]
async fn a_lock_and_unlock_take_three_round_trips() {
    let stores = stores();
    lift_counter(&stores[0]).await;
    let quorum = quorum(stores.iter().map(distant).collect());
    let began = tokio::time::Instant::now();
    let granted = acquire(&quorum, &claim(1)).await;
    assert!(matches!(granted, Ok(AcquireReply::Granted(_))));
    release(&quorum, &claim(1)).await;
    let took = began.elapsed();
    assert!(took < Duration::from_millis(35), "{took:?}");
}

/// A member that advances the shared clock by one second before it carries out a request.
#[derive(Debug)]
struct SecondLater(Arc<dyn Backend>, ManualClock);

impl Faults for SecondLater {
    fn store(&self) -> Arc<dyn Backend> {
        self.0.clone()
    }

    async fn on(&self, when: When, _: &mut [Exchange]) {
        if when == When::Before {
            self.1.advance(Duration::from_secs(1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_from_the_earliest_grant() {
    let clock = ManualClock::new();
    let members = [0; 2].map(|_| MemoryStore::new(Arc::new(clock.clone())).client(Arc::new(clock.clone())));
    let later = |member| Arc::new(FaultyBackend::new(SecondLater(member, clock.clone()))) as Arc<dyn Backend>;
    let quorum = quorum(members.map(|member| later(member)).to_vec());
    let began = clock.now();
    let Ok(AcquireReply::Granted(grant)) = acquire(&quorum, &claim(1)).await else {
        panic!("the key is free");
    };
    assert!(grant.held_from < began + Duration::from_millis(1500), "{grant:?}");
}
