//! A store of every mode and fairness in one table, which can be given one bug at a time.
//! It is not fast and forgets nothing it should remember, unless its bug is to do so.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream;
use parking_lot::Mutex;
use tenure_backend::{
    Backend, BackendError, Batch, Call, Claim, Clock, Departure, Each, Effect, Fault, Finding, Grant,
    Instant, LockKey, LockStatus, Loss, Page, Profile, Query, Released, Renewal, Renewed, Standing, Wakes,
};
use tenure_testkit::{Ailment, Door, ManualClock, Slow, Subject};

use crate::bug::Bug;
use crate::table::{PROFILE, Table};

/// How many elements a model with the bug that shuffles sends at once.
const CHUNK: usize = 256;

/// One client of a model.
#[derive(Debug)]
struct Model {
    clock: Arc<dyn Clock>,
    table: Arc<Mutex<Table>>,
    closed: AtomicBool,
    door: Option<Arc<SlowDoor>>,
}

/// What makes time pass while a request or an answer is on its way.
#[derive(Debug)]
struct SlowDoor {
    clock: ManualClock,
    delays: Mutex<(Duration, Duration)>,
}

impl Door for SlowDoor {
    fn delay(&self, requests: Duration, answers: Duration) {
        *self.delays.lock() = (requests, answers);
    }
}

impl SlowDoor {
    fn lets_in(&self) {
        self.clock.advance(self.delays.lock().0);
    }

    fn lets_out(&self) {
        self.clock.advance(self.delays.lock().1);
    }
}

impl Model {
    fn has(&self, bug: Bug) -> bool {
        self.table.lock().has(bug)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Table, Instant) -> T) -> Result<T, BackendError> {
        let mut table = self.table.lock();
        if self.closed.load(Ordering::Relaxed) && !table.has(Bug::ClosingDoesNotClose) {
            return Err(BackendError::closed());
        }
        if let Some(ailment) = table.ailment {
            let weather = table.has(Bug::AilmentLooksLikeWeather);
            let fault = if weather {
                Fault::Unavailable
            } else {
                ailment.fault()
            };
            return Err(BackendError::new(fault, Effect::None, "the model is unwell"));
        }
        self.door.iter().for_each(|door| door.lets_in());
        let now = self.clock.now();
        table.settle(now);
        let answer = work(&mut table, now);
        self.door.iter().for_each(|door| door.lets_out());
        Ok(answer)
    }

    /// By when a claim must be placed; with the bug, that is judged before the request is on its way.
    fn place_by(&self, place_by: Instant) -> Instant {
        if self.has(Bug::PlaceByIsReadAtSending) && self.clock.now() <= place_by {
            return Instant::NEVER;
        }
        place_by
    }

    /// As `with`; with the bug that shows the expired, without ending anybody's lease before.
    fn look<T>(&self, work: impl FnOnce(&mut Table, Instant) -> T) -> Result<T, BackendError> {
        if !self.table.lock().has(Bug::ShowsTheExpired) {
            return self.with(work);
        }
        Ok(work(&mut self.table.lock(), self.clock.now()))
    }

    /// When the answer is believed from; with the bug, the clock is read once more after the store has acted.
    fn believed(&self, from: Instant) -> Instant {
        let late = self.table.lock().has(Bug::BeliefStartsAtTheReply);
        if late { self.clock.now() } else { from }
    }
}

/// With the bug that folds case, what the claim is stored under.
fn folded(claim: Arc<Claim>, table: &Table) -> Arc<Claim> {
    if !table.has(Bug::KeysFoldCase) {
        return claim;
    }
    let mut folded = Claim::clone(&claim);
    folded.at.key = LockKey::new(claim.at.key.as_str().to_lowercase()).expect("as good a key as before");
    Arc::new(folded)
}

fn too_long() -> BackendError {
    BackendError::new(Fault::Limit, Effect::None, "at most a day")
}

fn refusal(claim: &Claim) -> Option<BackendError> {
    if claim.lease > PROFILE.limits.max_lease {
        return Some(too_long());
    }
    let fits = claim.mode.admits([]);
    (!fits).then(|| BackendError::new(Fault::Invalid, Effect::None, "more permits than there are"))
}

impl Backend for Model {
    fn profile(&self) -> &Profile {
        &PROFILE
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, place_by: Instant) -> Call<Standing> {
        if let Some(refusal) = refusal(&claim) {
            return Call::ready(Err(refusal));
        }
        let place_by = self.place_by(place_by);
        let answer = self
            .with(|table, now| {
                let claim = folded(claim, table);
                table.acquire(&claim, place_by, now)
            })
            .and_then(|answer| answer);
        Call::ready(answer.map(|standing| match standing {
            Standing::Granted(grant) => Standing::Granted(Grant {
                held_from: self.believed(grant.held_from),
                ..grant
            }),
            other => other,
        }))
    }

    fn renew(self: Arc<Self>, batch: Batch<Renewal>) -> Each<Renewed> {
        let (mut failed, mut refused) = (false, None);
        let (clouds, lossy) = (
            self.has(Bug::FailureCloudsItsBatch),
            self.has(Bug::AilmentLooksLikeLoss),
        );
        let mut judge = |renewal: Renewal| {
            if renewal.lease > PROFILE.limits.max_lease {
                refused = Some(too_long());
            }
            if let Some(refusal) = refused.take_if(|_| !clouds).or(refused.clone()) {
                return Renewed::Unknown(refusal);
            }
            if failed && self.table.lock().has(Bug::BatchEndsAtTheFirstFailure) {
                return Renewed::Gone(Loss::Missing);
            }
            let answer = self.with(|table, now| table.renew(renewal, now));
            let answer = match answer {
                Err(error) if lossy && error.fault() != Fault::Closed => Renewed::Gone(Loss::Missing),
                answer => answer.unwrap_or_else(Renewed::Unknown),
            };
            failed |= !matches!(answer, Renewed::Alive { .. });
            match answer {
                Renewed::Alive { held_from, lease } => Renewed::Alive {
                    held_from: self.believed(held_from),
                    lease,
                },
                other => other,
            }
        };
        let mut answers: Batch<Renewed> = batch.into_iter().map(&mut judge).collect();
        if self.has(Bug::LongBatchesAreShuffled) && answers.len() > CHUNK {
            answers.rotate_left(CHUNK);
        }
        Each::ready(answers)
    }

    fn release(self: Arc<Self>, batch: Batch<Departure>) -> Each<Released> {
        let judge = |mut departure: Departure| {
            if let Some(heir) = &mut departure.heir {
                heir.place_by = self.place_by(heir.place_by);
            }
            let answer = self.with(|table, now| table.release(departure, now));
            match answer.unwrap_or_else(Released::Unknown) {
                Released::Done {
                    freed,
                    others,
                    heir: Some(Standing::Granted(grant)),
                } => Released::Done {
                    freed,
                    others,
                    heir: Some(Standing::Granted(Grant {
                        held_from: self.believed(grant.held_from),
                        ..grant
                    })),
                },
                answer => answer,
            }
        };
        Each::ready(batch.into_iter().map(judge).collect())
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        let armed = self.with(|table, _| table.arm(claim));
        let table = self.table.clone();
        Call::ready(armed.map(|(number, mut heard)| {
            let armed = Armed { number, table };
            Wakes::new(stream::poll_fn(move |cx| {
                let _ = &armed;
                heard.poll_recv(cx)
            }))
        }))
    }

    fn reconnects(&self) -> Option<Wakes> {
        None
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        Call::ready(self.look(|table, now| table.page(&query, now)))
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        Call::ready(self.with(|_, _| Vec::new()))
    }

    fn close(self: Arc<Self>) -> Call<()> {
        self.closed.store(true, Ordering::Relaxed);
        Call::ready(Ok(()))
    }
}

/// Ends a watch when its stream is dropped.
struct Armed {
    number: u64,
    table: Arc<Mutex<Table>>,
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.table.lock().disarm(self.number);
    }
}

/// A model on a clock that the suite moves.
pub(crate) struct ModelUnderTest {
    clock: ManualClock,
    table: Arc<Mutex<Table>>,
}

impl ModelUnderTest {
    /// A model with that bug, or with none.
    pub(crate) fn new(bug: Option<Bug>) -> Self {
        let mut table = Table::default();
        table.bug = bug;
        ModelUnderTest {
            clock: ManualClock::new(),
            table: Arc::new(Mutex::new(table)),
        }
    }
}

impl Subject for ModelUnderTest {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        self.client_on(Arc::new(self.clock.clone()))
            .expect("a model reads its client's clock")
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.clock.advance(time);
        Box::pin(std::future::ready(()))
    }

    fn client_on(&self, clock: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        let table = self.table.clone();
        Some(Call::ready(Ok(Arc::new(Model {
            clock,
            table,
            closed: AtomicBool::new(false),
            door: None,
        }))))
    }

    fn slow(&self) -> Option<Call<Slow>> {
        let door = Arc::new(SlowDoor {
            clock: self.clock.clone(),
            delays: Mutex::default(),
        });
        let backend = Arc::new(Model {
            clock: Arc::new(self.clock.clone()),
            table: self.table.clone(),
            closed: AtomicBool::new(false),
            door: Some(door.clone()),
        });
        Some(Call::ready(Ok(Slow { backend, door })))
    }

    fn ail(&self, ailment: Option<Ailment>) -> Option<Call<()>> {
        self.table.lock().ailment = ailment;
        Some(Call::ready(Ok(())))
    }
}
