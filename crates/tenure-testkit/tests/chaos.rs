//! The weather itself: what fails, what is repeated, what is lost, and that a seed decides it.
//! Whether stores stand it is the suite's part.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tenure_backend::{
    Backend, BackendError, Batch, Call, Cause, Claim, ClaimId, ClaimRef, ClientId, Clock, Departure, Each,
    Effect, Fairness, Fault, Fencing, Finding, Holder, Inspection, Instant, LeaseClock, Limits, Liveness,
    LockKey, LockStatus, Loss, Mode, Order, OwnerId, Page, Phase, Profile, Query, Reach, Released, Renewal,
    Renewed, Standing, SystemClock, WakeUp, Wakes,
};
use tenure_testkit::{Chaos, FaultyBackend, Weather};

const PROFILE: Profile = Profile {
    store: "tape",
    layout: "tape",
    reach: Reach::Process,
    mutex: Order::Unfair,
    read_write: Order::None,
    semaphore: Order::None,
    liveness: Liveness::Lease(LeaseClock::Shared),
    hazards: &[],
    fencing: Fencing::None,
    wake_up: WakeUp::Reliable,
    remembers_ended: true,
    tells_others: false,
    inspection: Inspection {
        lists: false,
        queue: false,
        labels: false,
        remaining: false,
    },
    first_renewal: None,
    limits: Limits {
        min_lease: Duration::ZERO,
        max_lease: Duration::MAX,
        max_grants: NonZeroU32::MIN,
        max_batch: NonZeroU32::MAX,
        margin: None,
        late_by: Duration::ZERO,
    },
};

/// A backend that writes down what reaches it, refuses readers, answers that everything else is over, and wakes a
/// hundred times.
#[derive(Debug)]
struct Tape {
    clock: Arc<dyn Clock>,
    heard: Mutex<Vec<String>>,
}

impl Backend for Tape {
    fn profile(&self) -> &Profile {
        &PROFILE
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, _: Instant) -> Call<Standing> {
        self.heard
            .lock()
            .push(format!("acquire {}", claim.at.id.number()));
        Call::ready(match claim.mode {
            Mode::Read => Err(BackendError::unsupported("a tape has mutexes only")),
            _ => Ok(Standing::Ended),
        })
    }

    fn renew(self: Arc<Self>, batch: Batch<Renewal>) -> Each<Renewed> {
        let renew = |renewal: Renewal| {
            self.heard
                .lock()
                .push(format!("renew {}", renewal.who.id.number()));
            Renewed::Gone(Loss::Missing)
        };
        Each::ready(batch.into_iter().map(renew).collect())
    }

    fn release(self: Arc<Self>, batch: Batch<Departure>) -> Each<Released> {
        let release = |departure: Departure| {
            let who = match departure.who {
                Holder::Claim(claim) => claim.id.number().to_string(),
                other => format!("{other:?}"),
            };
            self.heard.lock().push(format!("release {who}"));
            Released::Done {
                freed: Batch::new(),
                others: None,
                heir: None,
            }
        };
        Each::ready(batch.into_iter().map(release).collect())
    }

    fn watch(self: Arc<Self>, _: Arc<Claim>) -> Call<Wakes> {
        Call::ready(Ok(Wakes::new(stream::repeat(()).take(100))))
    }

    fn reconnects(&self) -> Option<Wakes> {
        None
    }

    fn inspect(self: Arc<Self>, _: Query) -> Call<Page<LockStatus>> {
        Call::ready(Err(BackendError::unsupported("a tape shows nothing")))
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        Call::ready(Ok(Vec::new()))
    }

    fn close(self: Arc<Self>) -> Call<()> {
        Call::ready(Ok(()))
    }
}

fn tape() -> Arc<Tape> {
    Arc::new(Tape {
        clock: Arc::new(SystemClock),
        heard: Mutex::default(),
    })
}

fn chaos(tape: &Arc<Tape>, seed: u64, weather: Weather) -> Arc<FaultyBackend<Chaos>> {
    Arc::new(Chaos::new(tape.clone(), seed, weather))
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

fn renewal(number: u64) -> Renewal {
    Renewal {
        who: claim(number).at.clone(),
        lease: Duration::from_secs(30),
        only: Phase::Granted,
        shorten_only: false,
        raise: None,
    }
}

fn departure(who: Holder) -> Departure {
    Departure {
        who,
        cause: Cause::Unlocked,
        heir: None,
        bar: Duration::ZERO,
    }
}

async fn acquire(chaos: &Arc<FaultyBackend<Chaos>>, number: u64) -> Result<Standing, BackendError> {
    chaos.clone().acquire(claim(number), Instant::NEVER).await
}

#[tokio::test]
async fn an_error_before_the_effect_never_reaches_the_store() {
    let (tape, weather) = (
        tape(),
        Weather {
            fails_before: 100,
            repeats: 100,
            ..Weather::CALM
        },
    );
    let chaos = chaos(&tape, 1, weather);
    for _ in 0..20 {
        let error = acquire(&chaos, 1).await.unwrap_err();
        assert_eq!(
            (error.fault(), error.effect()),
            (Fault::Unavailable, Effect::None)
        );
    }
    assert!(tape.heard.lock().is_empty());
}

#[tokio::test]
async fn an_error_after_the_effect_has_reached_the_store() {
    let (tape, weather) = (
        tape(),
        Weather {
            fails_after: 100,
            ..Weather::CALM
        },
    );
    let chaos = chaos(&tape, 1, weather);
    let error = acquire(&chaos, 1).await.unwrap_err();
    assert_eq!(
        (error.fault(), error.effect()),
        (Fault::Unavailable, Effect::Unknown)
    );
    assert_eq!(*tape.heard.lock(), ["acquire 1"]);
}

#[tokio::test]
async fn each_element_of_a_batch_meets_its_own_weather_and_keeps_its_place() {
    let (tape, weather) = (
        tape(),
        Weather {
            fails_before: 30,
            fails_after: 30,
            ..Weather::CALM
        },
    );
    let chaos = chaos(&tape, 1, weather);
    let batch: Batch<Renewal> = (0..60).map(renewal).collect();
    let answers = chaos.renew(batch).await;
    assert_eq!(answers.len(), 60);
    let heard = tape.heard.lock();
    let mut kinds = [0; 3];
    for (number, answer) in answers.iter().enumerate() {
        let reached = heard.contains(&format!("renew {number}"));
        let kind = match answer {
            Renewed::Gone(_) => 0,
            Renewed::Unknown(error) if error.effect() == Effect::None => 1,
            Renewed::Unknown(_) => 2,
            Renewed::Alive { .. } => panic!("the tape keeps nothing alive"),
        };
        assert_eq!(reached, kind != 1, "{number}: {answer:?}");
        kinds[kind] += 1;
    }
    assert!(kinds.iter().all(|count| *count > 5), "{kinds:?}");
}

#[tokio::test]
async fn requests_are_delivered_again_also_after_the_release() {
    let (tape, weather) = (
        tape(),
        Weather {
            repeats: 100,
            ..Weather::CALM
        },
    );
    let chaos = chaos(&tape, 1, weather);
    acquire(&chaos, 1).await.unwrap();
    chaos.clone().renew(Batch::from_iter([renewal(1)])).await;
    let gone = departure(Holder::Claim(claim(1).at.clone()));
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
async fn what_the_store_refused_is_never_repeated() {
    let weather = Weather {
        repeats: 100,
        ..Weather::CALM
    };
    let tape = tape();
    let chaos = chaos(&tape, 1, weather);
    let mut reader = Claim::clone(&claim(0));
    reader.mode = Mode::Read;
    let answer = chaos.clone().acquire(Arc::new(reader), Instant::NEVER).await;
    assert_eq!(answer.unwrap_err().effect(), Effect::None);
    for number in 1..100 {
        acquire(&chaos, number).await.unwrap();
    }
    let heard = tape.heard.lock();
    assert_eq!(heard.iter().filter(|call| *call == "acquire 0").count(), 1);
}

#[tokio::test]
async fn the_eviction_of_everybody_is_never_repeated() {
    let (tape, weather) = (
        tape(),
        Weather {
            repeats: 100,
            ..Weather::CALM
        },
    );
    let chaos = chaos(&tape, 1, weather);
    let everybody = departure(Holder::All(LockKey::new("k").unwrap()));
    chaos.clone().release(Batch::from_iter([everybody])).await;
    for number in 0..100 {
        acquire(&chaos, number).await.unwrap();
    }
    let heard = tape.heard.lock();
    assert_eq!(heard.iter().filter(|call| call.starts_with("release")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn wakes_are_lost_and_made_up() {
    for (loses_wake, spurious_wakes, expected) in [(0, 0, 100), (100, 0, 0), (100, 3, 3)] {
        let weather = Weather {
            loses_wake,
            spurious_wakes,
            ..Weather::CALM
        };
        let wakes = chaos(&tape(), 1, weather).watch(claim(1)).await.unwrap();
        assert_eq!(wakes.count().await, expected);
    }
}

#[test]
fn wake_ups_that_may_be_lost_are_not_called_reliable() {
    assert_eq!(chaos(&tape(), 1, Weather::CALM).profile().wake_up, WakeUp::Lossy);
}

#[tokio::test(start_paused = true)]
async fn a_seed_decides_the_weather() {
    let mut days = Vec::new();
    for seed in [1, 1, 2] {
        let tape = tape();
        let chaos = chaos(&tape, seed, Weather::ROUGH);
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
