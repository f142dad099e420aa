//! The lock file under load: many requests at once, many ended claims, and long queues.

use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_core::Stream;
use rusqlite::Connection;
use tenure_backend::{
    AcquireReply, Backend, Batch, Call, Cause, Claim, Effect, Fairness, Fault, Grant, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Successor, Wakes,
};
use tenure_sql::sqlite::{self, Config, SqliteStore};
use tenure_testkit::ManualClock;

use crate::fixture::{DEADLINE, TestClient, connect, number, open, temp_lock_file};

/// Holds SQLite's write lock until it is dropped, so that the requests made meanwhile are queued together.
struct WriteLock(Connection);

impl WriteLock {
    fn new(path: &Path) -> Self {
        let file = connect(path);
        file.execute_batch("BEGIN IMMEDIATE").unwrap();
        WriteLock(file)
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        self.0.execute_batch("ROLLBACK").unwrap();
    }
}

/// Polls a call once, which sends its request. A `WriteLock` exists, so the reply cannot come yet.
fn send<F: Future + Unpin>(mut call: F) -> F {
    let poll = pin!(&mut call).poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll.is_pending(), "the file is busy");
    call
}

fn send_acquire(store: &Arc<SqliteStore>, claim: Claim) -> (Arc<Claim>, Call<AcquireReply>) {
    let claim = Arc::new(claim);
    let not_after = store.clock().now() + Duration::from_secs(10);
    (claim.clone(), send(store.clone().acquire(claim, not_after)))
}

async fn granted(call: Call<AcquireReply>) -> Grant {
    match call.await.expect("the store answers") {
        AcquireReply::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

fn withdrawal(claim: &Claim) -> ReleaseRequest {
    ReleaseRequest::of(claim, Cause::Withdrawn)
}

async fn is_alive(client: &TestClient, claim: &Claim) -> bool {
    matches!(client.renew(claim).await, RenewReply::Alive { .. })
}

async fn open_with_clock(path: &Path, clock: &ManualClock) -> Arc<SqliteStore> {
    let config = Config {
        clock: Arc::new(clock.clone()),
        busy_limit: DEADLINE,
        ..Config::default()
    };
    sqlite::open_with(Some(path.to_owned()), config)
        .await
        .expect("the file is made")
}

/// R32: old rows are deleted as fast as rows are written, even if many requests share a transaction.
#[tokio::test]
async fn the_file_stops_growing_under_constant_load() {
    const AT_ONCE: i64 = 256;
    let (_dir, path) = temp_lock_file();
    let clock = ManualClock::new();
    let store = open_with_clock(&path, &clock).await;
    let mut client = TestClient::new(store.clone());
    let file = connect(&path);
    let mut pages = 0;
    for second in 0..60 {
        let write_lock = WriteLock::new(&path);
        let asked: Vec<_> = (0..AT_ONCE)
            .map(|task| send_acquire(&store, client.claim(&format!("job {task} {second}"))))
            .collect();
        drop(write_lock);
        let withdrawals = asked.iter().map(|(claim, _)| withdrawal(claim)).collect();
        for (_, call) in asked {
            granted(call).await;
        }
        store.clone().release(withdrawals).await;
        clock.advance(Duration::from_secs(1));
        if second == 30 {
            pages = number(&file, "PRAGMA page_count");
        }
    }
    let rows = number(&file, "SELECT count(*) FROM claim");
    assert!(rows < 15 * AT_ONCE, "claims are remembered for 10 s: {rows}");
    let grown = number(&file, "PRAGMA page_count") - pages;
    assert!(grown * 4 < pages, "{grown} pages more than {pages}");
}

#[tokio::test]
async fn requests_wait_while_another_process_writes() {
    let (_dir, path) = temp_lock_file();
    let store = open(&path).await.unwrap();
    let write_lock = WriteLock::new(&path);
    let (_, mut call) = send_acquire(&store, TestClient::new(store.clone()).claim("k"));
    let early = tokio::time::timeout(Duration::from_millis(200), &mut call).await;
    early.expect_err("the file is busy");
    drop(write_lock);
    granted(call).await;
}

/// R5: a burst of acquires does not make a lease expire.
#[tokio::test]
async fn a_renewal_goes_before_earlier_acquires() {
    let (_dir, path) = temp_lock_file();
    let store = open(&path).await.unwrap();
    let mut client = TestClient::new(store.clone());
    let held = client.lock("held").await;
    let write_lock = WriteLock::new(&path);
    let asked: Vec<_> = (0..1000)
        .map(|n| send_acquire(&store, client.claim(&format!("key {n}"))))
        .collect();
    let renewed = send(store.clone().renew(Batch::from_iter([RenewRequest::of(&held)])));
    drop(write_lock);
    let [RenewReply::Alive { held_from, .. }] = renewed.await[..] else {
        panic!("the claim is alive")
    };
    let mut earlier = 0;
    for (_, call) in asked {
        earlier += usize::from(granted(call).await.held_from < held_from);
    }
    // One group of requests (64 claims) may already be in progress.
    assert!(earlier <= 64, "{earlier} went first");
}

#[tokio::test]
async fn a_batch_beyond_the_limit_is_refused_without_effect() {
    let (_dir, path) = temp_lock_file();
    let mut client = TestClient::new(open(&path).await.unwrap());
    let (store, held) = (client.store.clone(), client.lock("held").await);
    let most = store.profile().limits.max_batch.get();
    for (length, allowed) in [(most + 1, false), (most, true)] {
        let withdrawals: Batch<_> = (0..length).map(|_| withdrawal(&held)).collect();
        let answers = store.clone().release(withdrawals).await;
        assert_eq!(answers.len(), length as usize);
        for answer in answers {
            match answer {
                ReleaseReply::Done { .. } => assert!(allowed),
                ReleaseReply::Unknown(refusal) => {
                    assert!(!allowed);
                    assert_eq!((refusal.fault(), refusal.effect()), (Fault::Limit, Effect::None));
                }
            }
        }
        assert_eq!(is_alive(&client, &held).await, !allowed);
    }
}

#[tokio::test]
async fn a_successor_of_another_key_is_refused_without_effect() {
    let (_dir, path) = temp_lock_file();
    let mut client = TestClient::new(open(&path).await.unwrap());
    let (store, held) = (client.store.clone(), client.lock("held").await);
    let successor = Successor {
        claim: Arc::new(client.claim("other")),
        not_after: store.clock().now() + Duration::from_secs(10),
    };
    let withdrawal = ReleaseRequest {
        successor: Some(successor),
        ..withdrawal(&held)
    };
    match &store.clone().release(Batch::from_iter([withdrawal])).await[..] {
        [ReleaseReply::Unknown(refusal)] => {
            let refused = (refusal.fault(), refusal.effect());
            assert_eq!(refused, (Fault::Invalid, Effect::None));
        }
        other => panic!("{other:?}"),
    }
    assert!(is_alive(&client, &held).await);
    client.lock("other").await;
}

#[tokio::test]
async fn a_full_queue_of_acquires_refuses_no_renewal() {
    let (_dir, path) = temp_lock_file();
    let config = Config {
        max_queue: 8,
        busy_limit: DEADLINE,
        ..Config::default()
    };
    let store = sqlite::open_with(Some(path.clone()), config).await.unwrap();
    let mut client = TestClient::new(store.clone());
    let held = client.lock("held").await;
    let write_lock = WriteLock::new(&path);
    let mut asked = Vec::new();
    loop {
        let not_after = store.clock().now() + Duration::from_secs(10);
        let mut call = store.clone().acquire(Arc::new(client.claim("other")), not_after);
        match Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => asked.push(call),
            Poll::Ready(refused) => {
                refused.expect_err("the queue is full");
                break;
            }
        }
    }
    let renewed = send(store.clone().renew(Batch::from_iter([RenewRequest::of(&held)])));
    drop(write_lock);
    assert!(matches!(renewed.await[..], [RenewReply::Alive { .. }]));
}

/// Queues `count` fair claims on the key `k`, each with a wake-up stream.
async fn fill_queue(client: &mut TestClient, count: usize) -> Vec<(Arc<Claim>, Wakes)> {
    let mut queue = Vec::new();
    for _ in 0..count {
        let (claim, reply) = client.acquire("k", |claim| claim.fairness = Fairness::Fifo).await;
        assert!(matches!(reply, Ok(AcquireReply::Waiting { .. })), "{reply:?}");
        let wakes = client.store.clone().watch(claim.clone()).await;
        queue.push((claim, wakes.expect("the store watches")));
    }
    queue
}

#[tokio::test]
async fn a_thousand_waiters_can_leave_at_once() {
    let (_dir, path) = temp_lock_file();
    let store = open(&path).await.unwrap();
    let mut client = TestClient::new(store.clone());
    let held = client.lock("k").await;
    let queue = fill_queue(&mut client, 1000).await;
    let start = Instant::now();
    let leaving = queue.iter().map(|(claim, _)| withdrawal(claim)).collect();
    let left = store.clone().release(leaving).await;
    for left in left {
        assert!(matches!(left, ReleaseReply::Done { freed, .. } if freed.len() == 1));
    }
    drop(queue);
    assert!(is_alive(&client, &held).await);
    // The limit is many times what the release takes. A release that checked all remaining waiters for each withdrawn
    // one would exceed it.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test]
async fn only_the_head_of_a_long_queue_is_woken() {
    let (_dir, path) = temp_lock_file();
    let store = open(&path).await.unwrap();
    let mut client = TestClient::new(store.clone());
    let mut held = client.lock("k").await;
    let mut queue = fill_queue(&mut client, 100).await.into_iter();
    while let Some((next, mut wakes)) = queue.next() {
        client.unlock(&held).await;
        let woken = poll_fn(|cx| Pin::new(&mut wakes).poll_next(cx));
        let woken = tokio::time::timeout(DEADLINE, woken).await;
        woken.expect("the head is woken");
        let reply = client.poll(&next).await;
        assert!(matches!(reply, Ok(AcquireReply::Granted(_))), "{reply:?}");
        for (_, wakes) in queue.as_mut_slice() {
            let poll = Pin::new(wakes).poll_next(&mut Context::from_waker(Waker::noop()));
            assert!(poll.is_pending(), "only the head can be granted");
        }
        held = next;
    }
}

/// Rows of a long queue are cached between transactions, until another connection writes.
#[tokio::test]
async fn a_cached_queue_sees_changes_of_another_handle() {
    let (_dir, path) = temp_lock_file();
    let mut client = TestClient::new(open(&path).await.unwrap());
    let other = TestClient::new(open(&path).await.unwrap());
    let held = client.lock("k").await;
    let queue = fill_queue(&mut client, 100).await;
    let reply = client.poll(&queue[1].0).await;
    assert!(
        matches!(reply, Ok(AcquireReply::Waiting { ahead: Some(1), .. })),
        "{reply:?}"
    );
    other.unlock(&held).await;
    other.unlock(&queue[0].0).await;
    let reply = client.poll(&queue[1].0).await;
    assert!(matches!(reply, Ok(AcquireReply::Granted(_))), "{reply:?}");
}

/// A claim is withdrawn, its row is deleted as old, and the claim is withdrawn again. A late poll must find it ended.
#[tokio::test]
async fn a_swept_end_can_be_recorded_again() {
    let (_dir, path) = temp_lock_file();
    let clock = ManualClock::new();
    let store = open_with_clock(&path, &clock).await;
    let mut client = TestClient::new(store.clone());
    client.lock("k").await;
    let queue = fill_queue(&mut client, 100).await;
    let gone = &queue[0].0;
    client.unlock(gone).await;
    clock.advance(Duration::from_secs(11));
    for n in 0..100 {
        client.lock(&format!("other {n}")).await;
    }
    let file = connect(&path);
    assert_eq!(number(&file, "SELECT count(*) FROM claim WHERE live = 0"), 0);
    let again = Batch::from_iter([withdrawal(gone)]);
    store.clone().release(again).await;
    drop(store);
    let late = TestClient::new(open_with_clock(&path, &clock).await);
    let reply = late.poll(gone).await;
    assert!(matches!(reply, Ok(AcquireReply::Ended)), "{reply:?}");
}

/// Each of these processes leaves one row, and most of them do not sweep.
#[tokio::test]
async fn processes_of_a_single_lock_delete_old_rows_together() {
    let (_dir, path) = temp_lock_file();
    let clock = ManualClock::new();
    for n in 0..100 {
        // One microsecond more than an hour: the leases of the earlier processes have ended.
        clock.advance(Duration::from_micros(3_600_000_001));
        let mut client = TestClient::new(open_with_clock(&path, &clock).await);
        client.lock(&format!("key {n}")).await;
    }
    let rows = number(&connect(&path), "SELECT count(*) FROM claim");
    assert!(rows <= 20, "{rows} rows");
}
