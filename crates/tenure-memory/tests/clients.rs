//! Tests beyond the conformance suite: clients with different clocks, wakers that call the store, and limits.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_core::Stream;
use smallvec::smallvec;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, Clock, Fault,
    Grant, LockKey, MAX_NOT_AFTER, Query, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Wakes,
};
use tenure_memory::{Memory, MemoryStore};
use tenure_testkit::ManualClock;

const LEASE: Duration = Duration::from_secs(30);

/// Returns the result of a call, which the memory store must have at the first poll.
fn now<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("a call of the memory store is pending"),
    }
}

fn claim(client: u8, number: u64) -> Arc<Claim> {
    let key = LockKey::new("k").unwrap();
    let id = ClaimId::new(ClientId::from_random([client; 16]), number);
    Arc::new(Claim::of(ClaimRef { key, id }, LEASE))
}

fn acquire(client: &Arc<Memory>, claim: &Arc<Claim>) -> Result<AcquireReply, BackendError> {
    let not_after = client.clock().now() + MAX_NOT_AFTER;
    now(Arc::clone(client).acquire(Arc::clone(claim), not_after))
}

fn grant(client: &Arc<Memory>, claim: &Arc<Claim>) -> Grant {
    match acquire(client, claim) {
        Ok(AcquireReply::Granted(grant)) => grant,
        reply => panic!("the reply to {:?} is {reply:?}", claim.at),
    }
}

fn release(client: &Arc<Memory>, claim: &Claim) {
    let request = ReleaseRequest::of(claim, Cause::Unlocked);
    let replies = now(Arc::clone(client).release(smallvec![request]));
    assert!(matches!(replies[..], [ReleaseReply::Done { .. }]));
}

fn watch(client: &Arc<Memory>, claim: &Arc<Claim>) -> Wakes {
    now(Arc::clone(client).watch(Arc::clone(claim))).unwrap()
}

fn poll(wakes: &mut Wakes, waker: &Waker) -> Poll<Option<()>> {
    Pin::new(wakes).poll_next(&mut Context::from_waker(waker))
}

#[test]
fn replies_use_the_clients_clock_and_leases_the_stores() {
    let (clock, ours, theirs) = (ManualClock::new(), ManualClock::new(), ManualClock::new());
    let store = MemoryStore::new(Arc::new(clock.clone()));
    // `ours`, the clock of the client `ahead`, is far ahead of the store's. `theirs`, the clock of the client
    // `other`, begins at the store's time.
    ours.advance(Duration::from_secs(1_000_000));
    let ahead = store.client(Arc::new(ours.clone()));
    let other = store.client(Arc::new(theirs.clone()));
    let held = claim(1, 1);
    assert_eq!(grant(&ahead, &held).held_from, ours.now());
    ours.advance(LEASE * 10);
    assert!(matches!(
        acquire(&other, &claim(2, 1)),
        Ok(AcquireReply::Waiting {
            poll_after: LEASE,
            ..
        })
    ));
    match &now(Arc::clone(&ahead).renew(smallvec![RenewRequest::of(&held)]))[..] {
        [
            RenewReply::Alive {
                held_from,
                lease: LEASE,
            },
        ] => assert_eq!(*held_from, ours.now()),
        reply => panic!("{reply:?}"),
    }
    clock.advance(LEASE);
    assert_eq!(grant(&other, &claim(2, 2)).held_from, theirs.now());
}

#[test]
fn not_after_is_compared_with_the_callers_clock() {
    let (clock, ours) = (ManualClock::new(), ManualClock::new());
    let store = MemoryStore::new(Arc::new(clock.clone()));
    let client = store.client(Arc::new(ours.clone()));
    clock.advance(Duration::from_secs(1_000_000));
    let (not_after, in_time) = (ours.now(), claim(1, 1));
    let reply = now(Arc::clone(&client).acquire(Arc::clone(&in_time), not_after));
    assert!(matches!(reply, Ok(AcquireReply::Granted(_))));
    release(&client, &in_time);
    ours.advance(Duration::from_nanos(1));
    let reply = now(Arc::clone(&client).acquire(claim(1, 2), not_after));
    assert!(matches!(reply, Ok(AcquireReply::TooLate)));
}

/// A waker that calls the store: it drops a stream of wake-ups.
struct DropOnWake(Mutex<Option<Wakes>>);

impl Wake for DropOnWake {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().take();
    }
}

#[test]
fn a_waker_may_call_the_store() {
    let client = Memory::new();
    let [held, waits, other] = [1, 2, 3].map(|number| claim(number, 1));
    grant(&client, &held);
    let waker = Arc::new(DropOnWake(Mutex::new(Some(watch(&client, &other)))));
    let mut wakes = watch(&client, &waits);
    assert!(poll(&mut wakes, &Waker::from(Arc::clone(&waker))).is_pending());
    release(&client, &held);
    assert!(waker.0.lock().unwrap().is_none(), "the release itself woke it");
    assert!(poll(&mut wakes, Waker::noop()).is_ready());
}

#[test]
fn a_wake_up_reaches_only_the_last_poller_and_only_once() {
    let client = Memory::new();
    let [held, waits] = [1, 2].map(|number| claim(number, 1));
    grant(&client, &held);
    let mut wakes = watch(&client, &waits);
    let [first, last] = [0, 1].map(|_| Arc::new(DropOnWake(Mutex::new(Some(watch(&client, &claim(9, 9)))))));
    assert!(poll(&mut wakes, &Waker::from(Arc::clone(&first))).is_pending());
    assert!(poll(&mut wakes, &Waker::from(Arc::clone(&last))).is_pending());
    release(&client, &held);
    assert!(first.0.lock().unwrap().is_some() && last.0.lock().unwrap().is_none());
    assert_eq!(poll(&mut wakes, Waker::noop()), Poll::Ready(Some(())));
    assert!(poll(&mut wakes, Waker::noop()).is_pending());
}

#[test]
fn requests_beyond_the_limits_are_refused_without_effect() {
    let client = Memory::new();
    let limits = client.profile().limits;
    let held = claim(1, 1);
    let fault = |error: &BackendError| (error.fault(), error.effect());
    let beyond = (Fault::Limit, tenure_backend::Effect::None);

    let mut long = (*held).clone();
    long.lease = limits.max_lease + Duration::from_nanos(1);
    assert_eq!(
        fault(&acquire(&client, &Arc::new(long.clone())).unwrap_err()),
        beyond
    );
    grant(&client, &held);
    match &now(Arc::clone(&client).renew(smallvec![RenewRequest::of(&long)]))[..] {
        [RenewReply::Unknown(error)] => assert_eq!(fault(error), beyond),
        reply => panic!("{reply:?}"),
    }

    let many = usize::try_from(limits.max_batch.get()).unwrap() + 1;
    let request = |_| ReleaseRequest::of(&held, Cause::Unlocked);
    let batch: Batch<_> = (0..many).map(request).collect();
    let replies = now(Arc::clone(&client).release(batch));
    assert_eq!(replies.len(), many);
    for reply in replies {
        assert!(matches!(reply, ReleaseReply::Unknown(error) if fault(&error) == beyond));
    }
    let page = now(Arc::clone(&client).inspect(Query::Key(held.at.key.clone()))).unwrap();
    assert_eq!(page.items[0].holders.len(), 1);
}
