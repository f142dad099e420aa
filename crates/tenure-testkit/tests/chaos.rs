//! The weather itself: what fails, what is repeated, what is lost, and that a seed decides it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, Effect, Fairness,
    Fault, Instant, LockKey, Loss, Mode, OwnerId, Phase, ReleaseReply, ReleaseRequest, ReleaseTarget,
    RenewReply, RenewRequest, SystemClock, WakeUp, Wakes,
};
use tenure_memory::MemoryStore;
use tenure_testkit::{Chaos, Exchange, Faults, FaultyBackend, Reply, Request, Weather, When};

/// Writes down what would reach the store, refuses readers, answers that everything else is over, and wakes a hundred
/// times.
#[derive(Debug)]
struct Tape {
    store: Arc<dyn Backend>,
    heard: Mutex<Vec<String>>,
}

impl Faults for Tape {
    fn store(&self) -> Arc<dyn Backend> {
        self.store.clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        for Exchange { request, reply, .. } in call.iter_mut().filter(|_| when == When::Before) {
            *reply = Some(self.hears(request));
        }
    }
}

impl Tape {
    fn hears(&self, request: &Request) -> Result<Reply, BackendError> {
        let (heard, reply) = match request {
            Request::Acquire(claim, _) => {
                let reply = match claim.mode {
                    Mode::Read => Err(BackendError::unsupported("a tape has mutexes only")),
                    _ => Ok(Reply::Acquire(AcquireReply::Ended)),
                };
                (format!("acquire {}", claim.at.id.number()), reply)
            }
            Request::Renew(renewal) => {
                let gone = Reply::Renew(RenewReply::Gone(Loss::Missing));
                (format!("renew {}", renewal.claim.id.number()), Ok(gone))
            }
            Request::Release(departure) => {
                let heard = match &departure.target {
                    ReleaseTarget::Claim(claim) => format!("release {}", claim.id.number()),
                    other => format!("release {other:?}"),
                };
                let (freed, others, successor) = (Batch::new(), None, None);
                (
                    heard,
                    Ok(Reply::Release(ReleaseReply::Done {
                        freed,
                        others,
                        successor,
                    })),
                )
            }
            Request::Watch(_) => return Ok(Reply::Watch(Wakes::new(stream::repeat(()).take(100)))),
            Request::Inspect(_) => return Err(BackendError::unsupported("a tape shows nothing")),
        };
        self.heard.lock().push(heard);
        reply
    }
}

/// Every request is delivered again.
const REPEATS: Weather = Weather {
    repeats: 100,
    ..Weather::CALM
};

/// A tape, and a client of it in weather that the seed decides.
fn tape(seed: u64, weather: Weather) -> (Arc<FaultyBackend<Tape>>, Arc<FaultyBackend<Chaos>>) {
    let store = MemoryStore::new(Arc::new(SystemClock)).client(Arc::new(SystemClock));
    let heard = Mutex::default();
    let tape = Arc::new(FaultyBackend::new(Tape { store, heard }));
    let chaos = Arc::new(Chaos::new(tape.clone(), seed, weather));
    (tape, chaos)
}

fn claim(number: u64) -> Arc<Claim> {
    let key = LockKey::new("k").unwrap();
    let id = ClaimId::new(ClientId::from_random([1; 16]), number);
    Arc::new(Claim {
        at: ClaimRef { key, id },
        owner: OwnerId(1),
        label: Arc::from("test"),
        mode: Mode::Exclusive,
        fairness: Fairness::Unfair,
        lease: Duration::from_secs(30),
        grants: NonZeroU32::MIN,
    })
}

fn renewal(number: u64) -> RenewRequest {
    RenewRequest {
        claim: claim(number).at.clone(),
        lease: Duration::from_secs(30),
        only: Phase::Granted,
        shorten_only: false,
        raise: None,
    }
}

fn departure(who: ReleaseTarget) -> ReleaseRequest {
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
    let before = Weather {
        fails_before: 100,
        ..REPEATS
    };
    let after = Weather {
        fails_after: 100,
        ..Weather::CALM
    };
    for (weather, effect, reached) in [(before, Effect::None, 0), (after, Effect::Unknown, 20)] {
        let (tape, chaos) = tape(1, weather);
        for _ in 0..20 {
            let error = acquire(&chaos, 1).await.unwrap_err();
            assert_eq!((error.fault(), error.effect()), (Fault::Unavailable, effect));
        }
        assert_eq!(*tape.heard.lock(), vec!["acquire 1"; reached]);
    }
}

#[tokio::test]
async fn batch_elements_fail_separately_and_keep_their_order() {
    let weather = Weather {
        fails_before: 30,
        fails_after: 30,
        ..Weather::CALM
    };
    let (tape, chaos) = tape(1, weather);
    let batch: Batch<RenewRequest> = (0..60).map(renewal).collect();
    let answers = chaos.renew(batch).await;
    assert_eq!(answers.len(), 60);
    let heard = tape.heard.lock();
    let mut kinds = [0; 3];
    for (number, answer) in answers.iter().enumerate() {
        let reached = heard.contains(&format!("renew {number}"));
        let kind = match answer {
            RenewReply::Gone(_) => 0,
            RenewReply::Unknown(error) if error.effect() == Effect::None => 1,
            RenewReply::Unknown(_) => 2,
            RenewReply::Alive { .. } => panic!("the tape keeps nothing alive"),
        };
        assert_eq!(reached, kind != 1, "{number}: {answer:?}");
        kinds[kind] += 1;
    }
    assert!(kinds.iter().all(|count| *count > 5), "{kinds:?}");
}

#[tokio::test]
async fn requests_may_be_repeated_after_the_release() {
    let (tape, chaos) = tape(1, REPEATS);
    acquire(&chaos, 1).await.unwrap();
    chaos.clone().renew(Batch::from_iter([renewal(1)])).await;
    let gone = departure(ReleaseTarget::Claim(claim(1).at.clone()));
    chaos.clone().release(Batch::from_iter([gone])).await;
    let released = tape.heard.lock().len();
    for number in 2..40 {
        acquire(&chaos, number).await.unwrap();
    }
    let heard = tape.heard.lock();
    for late in ["acquire 1", "renew 1", "release 1"] {
        assert!(
            heard[released..].iter().any(|call| call == late),
            "{late} was not repeated: {heard:?}"
        );
    }
}

#[tokio::test]
async fn refused_requests_and_evictions_are_never_repeated() {
    let (tape, chaos) = tape(1, REPEATS);
    let mut reader = Claim::clone(&claim(0));
    reader.mode = Mode::Read;
    let answer = chaos.clone().acquire(Arc::new(reader), Instant::NEVER).await;
    assert_eq!(answer.unwrap_err().effect(), Effect::None);
    let everybody = departure(ReleaseTarget::All(LockKey::new("k").unwrap()));
    chaos.clone().release(Batch::from_iter([everybody])).await;
    for number in 1..100 {
        acquire(&chaos, number).await.unwrap();
    }
    let heard = tape.heard.lock();
    let once = |call: &&String| *call == "acquire 0" || call.starts_with("release");
    assert_eq!(heard.iter().filter(once).count(), 2, "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn wake_ups_are_lost_and_invented() {
    for (loses_wake, spurious_wakes, expected) in [(0, 0, 100), (100, 0, 0), (100, 3, 3)] {
        let weather = Weather {
            loses_wake,
            spurious_wakes,
            ..Weather::CALM
        };
        let wakes = tape(1, weather).1.watch(claim(1)).await.unwrap();
        assert_eq!(wakes.count().await, expected);
    }
}

#[test]
fn a_chaos_backend_reports_its_wake_ups_as_lossy() {
    assert_eq!(tape(1, Weather::CALM).1.profile().wake_up, WakeUp::Lossy);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_injects_the_same_faults() {
    let mut days = Vec::new();
    for seed in [1, 1, 2] {
        let (tape, chaos) = tape(seed, Weather::ROUGH);
        let mut answers = Vec::new();
        let started = tokio::time::Instant::now();
        for number in 0..200 {
            answers.push(acquire(&chaos, number).await.is_ok());
        }
        let heard = tape.heard.lock().clone();
        days.push((answers, heard, started.elapsed()));
    }
    assert_eq!(days[0], days[1]);
    assert_ne!(days[0], days[2]);
}
