//! Races that only SQLite can have. One test uses a clock that can be stopped.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tenure_backend::{
    AcquireReply, Backend, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, Clock, Fairness, Instant,
    LockKey, Loss, Phase, ReleaseReply, ReleaseRequest, ReleaseTarget, RenewReply, RenewRequest, Successor,
};
use tenure_testkit::ManualClock;

const SECOND: Duration = Duration::from_secs(1);

/// A clock that can be stopped: its readers then wait. The store reads the clock in its transactions, so a waiting reader
/// keeps the database file locked.
#[derive(Clone, Debug)]
struct Turnstile {
    inner: ManualClock,
    /// Whether the clock is stopped, and the number of waiting readers.
    gate: Arc<(Mutex<(bool, u32)>, Condvar)>,
}

impl Turnstile {
    fn new(inner: ManualClock) -> Self {
        let gate = Arc::default();
        Turnstile { inner, gate }
    }

    fn stop(&self) {
        self.gate.0.lock().0 = true;
    }

    fn go_on(&self) {
        self.gate.0.lock().0 = false;
        self.gate.1.notify_all();
    }

    fn wait_for_a_reader(&self) {
        let mut gate = self.gate.0.lock();
        while gate.1 == 0 {
            let waited = self.gate.1.wait_for(&mut gate, 30 * SECOND);
            assert!(!waited.timed_out(), "the clock is not read");
        }
    }
}

impl Clock for Turnstile {
    fn now(&self) -> Instant {
        let mut gate = self.gate.0.lock();
        gate.1 += 1;
        self.gate.1.notify_all();
        while gate.0 {
            self.gate.1.wait(&mut gate);
        }
        gate.1 -= 1;
        self.inner.now()
    }
}

async fn open(path: &Path, clock: impl Clock) -> Arc<dyn Backend> {
    let path = Some(path.to_owned());
    tenure_sql::sqlite::open(path, Arc::new(clock))
        .await
        .expect("the file opens")
}

fn claim(client: u8, key: &str, fairness: Fairness) -> Arc<Claim> {
    let at = ClaimRef {
        key: LockKey::new(key).expect("a good key"),
        id: ClaimId::new(ClientId::from_random([client; 16]), 1 + fairness as u64),
    };
    Arc::new(Claim {
        label: "test".into(),
        fairness,
        ..Claim::of(at, 10 * SECOND)
    })
}

/// R7, R22: a renewal waits for the file lock until its lease has ended. It reads the clock then, and reports the loss.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_delayed_by_the_file_lock_does_not_restore_a_claim() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("locks.db");
    let clock = ManualClock::new();
    let turnstile = Turnstile::new(clock.clone());
    let (slow, holder) = (
        open(&path, turnstile.clone()).await,
        open(&path, clock.clone()).await,
    );
    let held = claim(1, "k", Fairness::Unfair);
    let granted = holder.clone().acquire(held.clone(), clock.now() + SECOND).await;
    assert!(matches!(granted, Ok(AcquireReply::Granted(_))), "{granted:?}");

    turnstile.stop();
    let keeps_the_file = tokio::spawn(
        slow.clone()
            .acquire(claim(2, "other", Fairness::Unfair), clock.now() + SECOND),
    );
    turnstile.wait_for_a_reader();
    let renewal = RenewRequest {
        claim: held.at.clone(),
        lease: 10 * SECOND,
        only: Phase::Granted,
        shorten_only: false,
        raise: None,
        downgrade: false,
    };
    let renewed = tokio::spawn(holder.clone().renew(Batch::from_iter([renewal])));
    // sleep: gives the renewal time to wait for the file. If it does not wait yet, the test checks less but does not fail.
    tokio::time::sleep(SECOND / 5).await;
    clock.advance(11 * SECOND);
    turnstile.go_on();

    let answers = renewed.await.expect("no panic");
    assert!(
        matches!(answers[..], [RenewReply::Gone(Loss::Expired)]),
        "{answers:?}"
    );
    keeps_the_file
        .await
        .expect("no panic")
        .expect("the file was free in the end");
    for store in [slow, holder] {
        store.close().await.expect("it closes");
    }
}

/// A release names a fair claim as its successor. The store only queues it, because another client waits for the key.
#[tokio::test]
async fn a_fair_successor_is_not_granted_while_another_client_watches() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("locks.db");
    let clock = ManualClock::new();
    let (here, elsewhere) = (open(&path, clock.clone()).await, open(&path, clock.clone()).await);
    let held = claim(1, "k", Fairness::Unfair);
    let granted = here.clone().acquire(held.clone(), clock.now() + SECOND).await;
    assert!(matches!(granted, Ok(AcquireReply::Granted(_))), "{granted:?}");
    let watching = claim(2, "k", Fairness::Unfair);
    let _wakes = elsewhere
        .clone()
        .watch(watching.clone())
        .await
        .expect("it can be watched");
    let refused = elsewhere.clone().acquire(watching, clock.now() + SECOND).await;
    assert!(matches!(refused, Ok(AcquireReply::Waiting { .. })), "{refused:?}");

    let departure = ReleaseRequest {
        target: ReleaseTarget::Claim(held.at.clone()),
        cause: Cause::Unlocked,
        successor: Some(Successor {
            claim: claim(1, "k", Fairness::Fifo),
            not_after: clock.now() + SECOND,
        }),
        cooldown: Duration::ZERO,
    };
    let answers = here.release(Batch::from_iter([departure])).await;
    assert!(
        matches!(
            answers[..],
            [ReleaseReply::Done {
                others: Some(1),
                successor: Some(AcquireReply::Waiting { .. }),
                ..
            }]
        ),
        "{answers:?}"
    );
}
