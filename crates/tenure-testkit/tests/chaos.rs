//! Tests of `Chaos`: failed calls, repeated requests, lost wake-ups, and the seed that decides all of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, Effect, Fault,
    Instant, LockKey, Loss, Mode, Phase, ReleaseReply, ReleaseRequest, ReleaseTarget, RenewReply,
    RenewRequest, SystemClock, WakeUp, Wakes,
};
use tenure_memory::MemoryStore;
use tenure_testkit::{Chaos, Exchange, FaultRates, Faults, FaultyBackend, Reply, Request, When};

/// Store that records the placements, renewals and releases that reach it. It refuses read claims and inspections,
/// answers all other placements with `Ended`, and sends a hundred wake-ups to each watch.
#[derive(Debug)]
struct CallLog {
    store: Arc<dyn Backend>,
    calls: Mutex<Vec<String>>,
}

impl Faults for CallLog {
    fn store(&self) -> Arc<dyn Backend> {
        self.store.clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        for Exchange { request, reply, .. } in call.iter_mut().filter(|_| when == When::Before) {
            *reply = Some(self.record(request));
        }
    }
}

impl CallLog {
    fn record(&self, request: &Request) -> Result<Reply, BackendError> {
        let (call, reply) = match request {
            Request::Acquire(claim, _) => {
                let reply = match claim.mode {
                    Mode::Read => Err(BackendError::unsupported("the call log serves mutexes only")),
                    _ => Ok(Reply::Acquire(AcquireReply::Ended)),
                };
                (format!("acquire {}", claim.at.id.number()), reply)
            }
            Request::Renew(renewal) => {
                let gone = Reply::Renew(RenewReply::Gone(Loss::Missing));
                (format!("renew {}", renewal.claim.id.number()), Ok(gone))
            }
            Request::Release(release) => {
                let call = match &release.target {
                    ReleaseTarget::Claim(claim) => format!("release {}", claim.id.number()),
                    other => format!("release {other:?}"),
                };
                let (freed, others, successor) = (Batch::new(), None, None);
                (
                    call,
                    Ok(Reply::Release(ReleaseReply::Done {
                        freed,
                        others,
                        successor,
                    })),
                )
            }
            Request::Watch(_) => return Ok(Reply::Watch(Wakes::new(stream::repeat(()).take(100)))),
            Request::Inspect(_) => return Err(BackendError::unsupported("the call log cannot be inspected")),
        };
        self.calls.lock().push(call);
        reply
    }
}

/// Rates at which every request that may be repeated is repeated.
const REPEATS: FaultRates = FaultRates {
    repeats: 100,
    ..FaultRates::NONE
};

/// Creates a store that records requests, and a client of it with random faults.
fn call_log(seed: u64, rates: FaultRates) -> (Arc<FaultyBackend<CallLog>>, Arc<FaultyBackend<Chaos>>) {
    let store = MemoryStore::new(Arc::new(SystemClock)).client(Arc::new(SystemClock));
    let calls = Mutex::default();
    let call_log = Arc::new(FaultyBackend::new(CallLog { store, calls }));
    let chaos = Arc::new(Chaos::new(call_log.clone(), seed, rates));
    (call_log, chaos)
}

fn claim(number: u64) -> Arc<Claim> {
    let key = LockKey::new("k").unwrap();
    let id = ClaimId::new(ClientId::from_random([1; 16]), number);
    Arc::new(Claim::of(ClaimRef { key, id }, Duration::from_secs(30)))
}

fn renewal(number: u64) -> RenewRequest {
    RenewRequest {
        claim: claim(number).at.clone(),
        lease: Duration::from_secs(30),
        only: Phase::Granted,
        shorten_only: false,
        raise: None,
        downgrade: false,
    }
}

fn release(who: ReleaseTarget) -> ReleaseRequest {
    ReleaseRequest {
        target: who,
        cause: Cause::Unlocked,
        successor: None,
        cooldown: Duration::ZERO,
    }
}

async fn acquire(chaos: &Arc<FaultyBackend<Chaos>>, number: u64) -> Result<AcquireReply, BackendError> {
    chaos.clone().acquire(claim(number), Instant::NEVER).await
}

#[tokio::test]
async fn chaos_errors_say_whether_the_request_took_effect() {
    let before = FaultRates {
        fails_before: 100,
        ..REPEATS
    };
    let after = FaultRates {
        fails_after: 100,
        ..FaultRates::NONE
    };
    for (rates, effect, reached) in [(before, Effect::None, 0), (after, Effect::Unknown, 20)] {
        let (call_log, chaos) = call_log(1, rates);
        for _ in 0..20 {
            let error = acquire(&chaos, 1).await.unwrap_err();
            assert_eq!((error.fault(), error.effect()), (Fault::Unavailable, effect));
        }
        assert_eq!(*call_log.calls.lock(), vec!["acquire 1"; reached]);
    }
}

#[tokio::test]
async fn batch_elements_fail_separately_and_keep_their_order() {
    let rates = FaultRates {
        fails_before: 30,
        fails_after: 30,
        ..FaultRates::NONE
    };
    let (call_log, chaos) = call_log(1, rates);
    let batch: Batch<RenewRequest> = (0..60).map(renewal).collect();
    let answers = chaos.renew(batch).await;
    assert_eq!(answers.len(), 60);
    let calls = call_log.calls.lock();
    let mut kinds = [0; 3];
    for (number, answer) in answers.iter().enumerate() {
        let reached = calls.contains(&format!("renew {number}"));
        let kind = match answer {
            RenewReply::Gone(_) => 0,
            RenewReply::Unknown(error) if error.effect() == Effect::None => 1,
            RenewReply::Unknown(_) => 2,
            RenewReply::Alive { .. } => panic!("the call log never answers `Alive`"),
        };
        assert_eq!(reached, kind != 1, "{number}: {answer:?}");
        kinds[kind] += 1;
    }
    assert!(kinds.iter().all(|count| *count > 5), "{kinds:?}");
}

#[tokio::test]
async fn requests_may_be_repeated_after_the_release() {
    let (call_log, chaos) = call_log(1, REPEATS);
    acquire(&chaos, 1).await.unwrap();
    chaos.clone().renew(Batch::from_iter([renewal(1)])).await;
    let gone = release(ReleaseTarget::Claim(claim(1).at.clone()));
    chaos.clone().release(Batch::from_iter([gone])).await;
    let released = call_log.calls.lock().len();
    for number in 2..40 {
        acquire(&chaos, number).await.unwrap();
    }
    let calls = call_log.calls.lock();
    for late in ["acquire 1", "renew 1", "release 1"] {
        assert!(
            calls[released..].iter().any(|call| call == late),
            "{late} was not repeated: {calls:?}"
        );
    }
}

#[tokio::test]
async fn refused_requests_and_evictions_are_never_repeated() {
    let (call_log, chaos) = call_log(1, REPEATS);
    let mut reader = Claim::clone(&claim(0));
    reader.mode = Mode::Read;
    let answer = chaos.clone().acquire(Arc::new(reader), Instant::NEVER).await;
    assert_eq!(answer.unwrap_err().effect(), Effect::None);
    let eviction = release(ReleaseTarget::All(LockKey::new("k").unwrap()));
    chaos.clone().release(Batch::from_iter([eviction])).await;
    for number in 1..100 {
        acquire(&chaos, number).await.unwrap();
    }
    let calls = call_log.calls.lock();
    let once = |call: &&String| *call == "acquire 0" || call.starts_with("release");
    assert_eq!(calls.iter().filter(once).count(), 2, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn wake_ups_are_lost_and_invented() {
    for (loses_wake, spurious_wakes, expected) in [(0, 0, 100), (100, 0, 0), (100, 3, 3)] {
        let rates = FaultRates {
            loses_wake,
            spurious_wakes,
            ..FaultRates::NONE
        };
        let wakes = call_log(1, rates).1.watch(claim(1)).await.unwrap();
        assert_eq!(wakes.count().await, expected);
    }
}

#[test]
fn a_chaos_backend_reports_its_wake_ups_as_lossy() {
    assert_eq!(call_log(1, FaultRates::NONE).1.profile().wake_up, WakeUp::Lossy);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_injects_the_same_faults() {
    let mut runs = Vec::new();
    for seed in [1, 1, 2] {
        let (call_log, chaos) = call_log(seed, FaultRates::HIGH);
        let mut answers = Vec::new();
        let started = tokio::time::Instant::now();
        for number in 0..200 {
            answers.push(acquire(&chaos, number).await.is_ok());
        }
        let calls = call_log.calls.lock().clone();
        runs.push((answers, calls, started.elapsed()));
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}
