//! Claims that may be left at a member: which releases are repeated there, and what closing waits for.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, Cause, Effect, Fault, HANDOVER_WINDOW, ReleaseRequest,
};
use tenure_quorum::{Config, Quorum};
use tenure_testkit::{Exchange, Faults, FaultyBackend, Request, When};
use tokio::runtime::Handle;

use crate::fixture::{Silent, acquire, claim, is_held, member, quorum, release, stores};
use crate::unreachable::Unreachable;

/// A member that carries out a release 300 ms after it was sent, and replies to an acquire after 300 ms.
#[derive(Debug)]
struct Slow(Arc<dyn Backend>);

impl Faults for Slow {
    fn store(&self) -> Arc<dyn Backend> {
        self.0.clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        let is_slow = match call.first().map(|first| &first.request) {
            Some(Request::Acquire(..)) => when == When::After,
            _ => when == When::Before,
        };
        if is_slow {
            // sleep: the request takes that long, in paused time.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
}

fn slow(store: &tenure_memory::MemoryStore) -> Arc<dyn Backend> {
    Arc::new(FaultyBackend::new(Slow(member(store))))
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_the_release_at_a_slow_member() {
    let stores = stores();
    let members = vec![slow(&stores[0]), member(&stores[1]), member(&stores[2])];
    let quorum = Quorum::new(members, Config::default()).unwrap();
    acquire(&quorum, &claim(1)).await.expect("a majority grants");
    release(&quorum, &claim(1)).await;
    quorum.clone().close().await.expect("it closes");
    assert!(!is_held(&stores[0]).await);
}

/// The claim is refused before the slow member has granted it.
#[tokio::test(start_paused = true)]
async fn closing_waits_until_a_late_grant_is_released() {
    let stores = stores();
    for store in &stores[1..] {
        let not_after = member(store).clock().now() + Duration::from_secs(5);
        let taken = member(store).acquire(claim(9), not_after).await;
        assert!(matches!(taken, Ok(AcquireReply::Granted(_))));
    }
    let members = vec![slow(&stores[0]), member(&stores[1]), member(&stores[2])];
    let config = Config::default().member_timeout(Duration::from_millis(700));
    let quorum = Quorum::new(members, config).unwrap();
    let refused = acquire(&quorum, &claim(1)).await;
    assert!(matches!(refused, Ok(AcquireReply::Waiting { .. })), "{refused:?}");
    quorum.clone().close().await.expect("it closes");
    assert!(!is_held(&stores[0]).await);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_a_silent_member_for_the_time_limit() {
    let stores = stores();
    let silent = Arc::new(FaultyBackend::new(Silent(member(&stores[0]))));
    let quorum = quorum(vec![silent, member(&stores[1]), member(&stores[2])]);
    acquire(&quorum, &claim(1)).await.expect("a majority grants");
    release(&quorum, &claim(1)).await;
    let began = tokio::time::Instant::now();
    quorum.close().await.expect("it closes");
    let took = began.elapsed();
    let limit = Duration::from_millis(50);
    assert!(took >= limit && took < limit * 2, "{took:?}");
}

/// A member that does not answer the first release. Records the cooldowns that it is asked for.
#[derive(Debug)]
struct FirstReleaseFails {
    store: Arc<dyn Backend>,
    cooldowns: Arc<Mutex<Vec<Duration>>>,
}

impl Faults for FirstReleaseFails {
    fn store(&self) -> Arc<dyn Backend> {
        self.store.clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        for element in call.iter_mut().filter(|_| when == When::Before) {
            let Request::Release(request) = &element.request else {
                continue;
            };
            self.cooldowns.lock().push(request.cooldown);
            if self.cooldowns.lock().len() == 1 {
                element.fail(BackendError::new(Fault::Unavailable, Effect::None, "not yet"));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_eviction_keeps_its_cooldown() {
    let stores = stores();
    let cooldowns = Arc::<Mutex<Vec<Duration>>>::default();
    let failing = Arc::new(FaultyBackend::new(FirstReleaseFails {
        store: member(&stores[0]),
        cooldowns: cooldowns.clone(),
    }));
    let holder = quorum(stores.iter().map(member).collect());
    acquire(&holder, &claim(1)).await.expect("the key is free");
    let operator = quorum(vec![failing, member(&stores[1]), member(&stores[2])]);
    let evict = ReleaseRequest {
        cooldown: HANDOVER_WINDOW,
        ..ReleaseRequest::of(&claim(1), Cause::Evicted { by: None })
    };
    operator.release(Batch::from_iter([evict])).await;
    // sleep: the release is repeated in the background, in paused time.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!is_held(&stores[0]).await);
    assert_eq!(*cooldowns.lock(), [HANDOVER_WINDOW; 2]);
}

/// The number of requests to one member.
#[derive(Debug)]
struct Counted {
    store: Arc<dyn Backend>,
    releases: Arc<Mutex<Vec<usize>>>,
}

impl Faults for Counted {
    fn store(&self) -> Arc<dyn Backend> {
        self.store.clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        let is_release = matches!(
            call.first().map(|first| &first.request),
            Some(Request::Release(_))
        );
        if when == When::Before && is_release {
            self.releases.lock().push(call.len());
        }
    }
}

/// Takes and releases `count` locks, one after the other, 1 ms apart. Returns the number of live tasks after that.
async fn lock_often(quorum: &Arc<Quorum>, count: u8) -> usize {
    for number in 0..count {
        acquire(quorum, &claim(number)).await.expect("a majority grants");
        release(quorum, &claim(number)).await;
        // sleep: the clients do other work meanwhile, in paused time.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_a_member_never_got_is_released_there_once() {
    let stores = stores();
    let releases = Arc::<Mutex<Vec<usize>>>::default();
    let dead = Arc::new(FaultyBackend::new(Unreachable(member(&stores[0]), Effect::None)));
    let counted = Arc::new(FaultyBackend::new(Counted {
        store: dead,
        releases: releases.clone(),
    }));
    let quorum = quorum(vec![counted, member(&stores[1]), member(&stores[2])]);
    let tasks = lock_often(&quorum, 10).await;
    // sleep: a release would be repeated in the background, in paused time.
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((releases.lock().len(), tasks), (10, 0));
}

#[tokio::test(start_paused = true)]
async fn a_broken_member_costs_one_task_and_one_batch() {
    let stores = stores();
    let releases = Arc::<Mutex<Vec<usize>>>::default();
    let broken = Arc::new(FaultyBackend::new(Unreachable(
        member(&stores[0]),
        Effect::Unknown,
    )));
    let counted = Arc::new(FaultyBackend::new(Counted {
        store: broken,
        releases: releases.clone(),
    }));
    let quorum = quorum(vec![counted, member(&stores[1]), member(&stores[2])]);
    let tasks = lock_often(&quorum, 200).await;
    assert_eq!(tasks, 1);
    releases.lock().clear();
    // sleep: the releases are repeated in the background, in paused time.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let repeated = std::mem::take(&mut *releases.lock());
    assert!(
        repeated.len() <= 22 && repeated.iter().all(|size| *size == 64),
        "{repeated:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_member_costs_few_tasks() {
    let stores = stores();
    let silent = Arc::new(FaultyBackend::new(Silent(member(&stores[0]))));
    let quorum = quorum(vec![silent, member(&stores[1]), member(&stores[2])]);
    let tasks = lock_often(&quorum, 250).await;
    // It gets requests for 50 ms, until it counts as silent: two for each lock. Each is a task, and one repeats releases.
    assert!(tasks <= 110, "{tasks}");
}
