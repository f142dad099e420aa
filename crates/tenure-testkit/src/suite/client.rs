//! One client of a trial: the calls of the contract, repeated while the weather is bad, and what cases expect.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Cause, Claim, ClaimId, ClaimRef, ClientId,
    Cursor, Fairness, Grant, Instant, LockKey, LockStatus, Loss, Mode, OwnerId, Page, Phase, Query,
    ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Successor, WakeUp, Wakes,
};

use super::Trial;
use super::departed::{Departed, departure};

/// How often a call is repeated that failed by weather.
const ATTEMPTS: u32 = 100;
/// How far ahead `not_after` lies for the calls of cases that are not about it.
const PLACE_AHEAD: Duration = Duration::from_secs(5);
/// In what steps time passes for a claim that is polled.
const STEP: Duration = Duration::from_millis(50);
/// How long, of real time, an event may be on its way before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client of the store under test.
///
/// # Cancel safety
/// A future of its methods that is dropped leaves the effect of its call unknown, and everything else as it was.
///
/// # Examples
/// See [`Trial`], which makes clients.
#[derive(Clone)]
pub struct Client {
    trial: Trial,
    backend: Arc<dyn Backend>,
    id: ClientId,
    claims: Arc<AtomicU64>,
}

impl Client {
    pub(super) fn new(trial: Trial, backend: Arc<dyn Backend>) -> Self {
        Client {
            trial,
            backend,
            id: random_id(),
            claims: Arc::default(),
        }
    }

    /// The same connection under another client's name.
    pub fn renamed(&self) -> Self {
        Client::new(self.trial.clone(), self.backend.clone())
    }

    /// The connection itself.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The client's clock.
    pub fn now(&self) -> Instant {
        self.backend.clock().now()
    }

    /// A claim of a long lease, unfair if the store has the choice.
    pub fn claim(&self, key: &LockKey, mode: Mode) -> Arc<Claim> {
        self.claim_as(key, mode, |_| {})
    }

    /// A claim that `change` adapts.
    pub fn claim_as(&self, key: &LockKey, mode: Mode, change: impl FnOnce(&mut Claim)) -> Arc<Claim> {
        let id = ClaimId::new(self.id, self.claims.fetch_add(1, Ordering::Relaxed) + 1);
        let mut claim = Claim {
            at: ClaimRef { key: key.clone(), id },
            owner: OwnerId(1),
            label: Arc::from("testkit@host:1"),
            mode,
            fairness: self.trial.fairness(mode),
            lease: self.trial.long(),
            grants: NonZeroU32::MIN,
        };
        change(&mut claim);
        Arc::new(claim)
    }

    /// A first-come, first-served claim of a long lease.
    pub fn fair(&self, key: &LockKey, mode: Mode) -> Arc<Claim> {
        self.claim_as(key, mode, |claim| claim.fairness = Fairness::Fifo)
    }

    /// A claim on a lease that a case can wait for.
    pub fn brief(&self, key: &LockKey, mode: Mode) -> Arc<Claim> {
        self.claim_as(key, mode, |claim| claim.lease = self.trial.brief())
    }

    /// A first-come, first-served claim of an exclusive lock, on a lease that a case can wait for.
    pub(super) fn brief_fair(&self, key: &LockKey) -> Arc<Claim> {
        self.claim_as(key, Mode::Exclusive, |claim| {
            claim.fairness = Fairness::Fifo;
            claim.lease = self.trial.brief();
        })
    }

    /// A claim of a long lease that has just been granted.
    pub async fn holds(&self, key: &LockKey, mode: Mode) -> Arc<Claim> {
        let claim = self.claim(key, mode);
        self.granted(&claim).await;
        claim
    }

    /// A first-come, first-served claim that has just been placed in the queue.
    pub async fn queues(&self, key: &LockKey, mode: Mode) -> Arc<Claim> {
        let claim = self.fair(key, mode);
        self.waits(&claim).await;
        claim
    }

    /// Places or polls a claim, in all weathers.
    ///
    /// # Errors
    /// What the store answers, weather apart.
    ///
    /// # Panics
    /// When a hundred tries in a row met bad weather.
    pub async fn try_acquire(&self, claim: &Arc<Claim>) -> Result<AcquireReply, BackendError> {
        let acquire = |backend: Arc<dyn Backend>| backend.acquire(claim.clone(), self.now() + PLACE_AHEAD);
        self.in_all_weathers(acquire).await
    }

    /// Places or polls a claim once.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn acquire_by(
        &self,
        claim: &Arc<Claim>,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        self.backend.clone().acquire(claim.clone(), not_after).await
    }

    /// Places or polls a claim by that moment, in all weathers, which the store does not refuse.
    pub async fn polled_by(&self, claim: &Arc<Claim>, not_after: Instant) -> AcquireReply {
        let acquire = |backend: Arc<dyn Backend>| backend.acquire(claim.clone(), not_after);
        let answer = self.in_all_weathers(acquire).await;
        answer.unwrap_or_else(|error| panic!("acquire of {:?}: {error}", claim.at))
    }

    /// Repeats a call until it meets no bad weather.
    pub(super) async fn in_all_weathers<T>(
        &self,
        call: impl Fn(Arc<dyn Backend>) -> Call<T>,
    ) -> Result<T, BackendError> {
        for _ in 0..ATTEMPTS {
            match call(self.backend.clone()).await {
                Err(error) if error.is_transient() => {}
                answer => return answer,
            }
        }
        panic!("the call met bad weather {ATTEMPTS} times in a row");
    }

    /// Repeats the elements of a batch that met bad weather. Returns each answer, and whether its element was repeated.
    async fn each_in_all_weathers<Q: Clone, A>(
        &self,
        requests: &[Q],
        call: impl Fn(Arc<dyn Backend>, Batch<Q>) -> BatchCall<A>,
        met_weather: impl Fn(&A) -> bool,
    ) -> Vec<(A, bool)> {
        let mut answers: Vec<Option<(A, bool)>> = requests.iter().map(|_| None).collect();
        for attempt in 0..ATTEMPTS {
            let open: Vec<usize> = (0..answers.len()).filter(|at| answers[*at].is_none()).collect();
            if open.is_empty() {
                return answers.into_iter().flatten().collect();
            }
            let batch: Batch<Q> = open.iter().map(|at| requests[*at].clone()).collect();
            let answered = call(self.backend.clone(), batch).await;
            assert_eq!(answered.len(), open.len(), "one answer for each element");
            for (at, answer) in open.into_iter().zip(answered) {
                answers[at] = (!met_weather(&answer)).then_some((answer, attempt > 0));
            }
        }
        panic!("a batch met bad weather {ATTEMPTS} times in a row");
    }

    /// Places or polls a claim that the store does not refuse.
    pub async fn acquire(&self, claim: &Arc<Claim>) -> AcquireReply {
        let answer = self.try_acquire(claim).await;
        answer.unwrap_or_else(|error| panic!("acquire of {:?}: {error}", claim.at))
    }

    /// Acquires a claim that must be granted at once.
    pub async fn granted(&self, claim: &Arc<Claim>) -> Grant {
        match self.acquire(claim).await {
            AcquireReply::Granted(grant) => grant,
            other => panic!(
                "{:?} ({}) must be granted, and is {other:?}",
                claim.at, claim.mode
            ),
        }
    }

    /// Acquires a claim that must wait; how many are ahead of it, if the store can tell.
    pub async fn waits(&self, claim: &Arc<Claim>) -> Option<u32> {
        match self.acquire(claim).await {
            AcquireReply::Waiting { ahead, .. } => ahead,
            other => panic!("{:?} ({}) must wait, and is {other:?}", claim.at, claim.mode),
        }
    }

    /// Acquires a claim that must wait, and is to poll again after a pause of at most `limit`.
    pub async fn polls_within(&self, claim: &Arc<Claim>, limit: Duration) {
        match self.acquire(claim).await {
            AcquireReply::Waiting { poll_after, .. } => assert!(
                (Duration::from_millis(1)..=limit).contains(&poll_after),
                "a pause of {poll_after:?}, of {limit:?} at most"
            ),
            other => panic!("{:?} must wait, and is {other:?}", claim.at),
        }
    }

    /// Polls a claim that must have ended.
    pub async fn has_ended(&self, claim: &Arc<Claim>) {
        let answer = self.acquire(claim).await;
        assert!(
            matches!(answer, AcquireReply::Ended),
            "{:?} must have ended, and is {answer:?}",
            claim.at
        );
    }

    /// Polls a claim until it is granted, letting `limit` pass at the most.
    pub async fn granted_within(&self, claim: &Arc<Claim>, limit: Duration) -> Grant {
        let mut passed = Duration::ZERO;
        loop {
            let next = match self.acquire(claim).await {
                AcquireReply::Granted(grant) => return grant,
                AcquireReply::Waiting { poll_after, .. } => poll_after.clamp(Duration::from_millis(1), STEP),
                AcquireReply::Recovering => STEP,
                other => panic!("{:?} must be granted, and is {other:?}", claim.at),
            };
            assert!(
                passed <= limit,
                "{:?} ({}) still waits after {passed:?}",
                claim.at,
                claim.mode
            );
            self.trial.pass(next).await;
            passed += next;
        }
    }

    /// Polls a claim until it is granted; nothing but a wake-up or a moment's cooldown is in its way.
    pub async fn granted_soon(&self, claim: &Arc<Claim>) -> Grant {
        self.granted_within(claim, Duration::from_millis(200)).await
    }

    /// Asserts that a claim of that mode would be granted, and gives it back.
    pub async fn finds_free(&self, key: &LockKey, mode: Mode) {
        let claim = self.claim(key, mode);
        self.granted_soon(&claim).await;
        self.release(&claim).await;
    }

    /// Asserts that nothing is shown of a key, and that an exclusive claim would be granted.
    pub async fn finds_nothing(&self, key: &LockKey) {
        assert_eq!(self.status(key).await, None, "nothing is left of a claim");
        self.finds_free(key, Mode::Exclusive).await;
    }

    /// Asserts that a claim of that mode has to wait, and gives it up.
    pub async fn finds_busy(&self, key: &LockKey, mode: Mode) {
        let claim = self.claim(key, mode);
        self.waits(&claim).await;
        self.withdraw(&claim).await;
    }

    /// Releases a claim.
    pub async fn release(&self, claim: &Claim) -> Departed {
        self.depart(departure(claim, Cause::Unlocked)).await
    }

    /// Gives a claim up.
    pub async fn withdraw(&self, claim: &Claim) -> Departed {
        self.depart(departure(claim, Cause::Withdrawn)).await
    }

    /// Takes a claim away, without a cooldown.
    pub async fn evict(&self, claim: &Claim, by: &str) -> Departed {
        let cause = Cause::Evicted {
            by: Some(Arc::from(by)),
        };
        self.depart(departure(claim, cause)).await
    }

    /// Releases a claim with a successor.
    pub async fn hand_over(&self, claim: &Claim, successor: &Arc<Claim>) -> Departed {
        self.hand_over_by(claim, successor, self.now() + PLACE_AHEAD)
            .await
    }

    /// Releases a claim with a successor that must be placed by then.
    pub async fn hand_over_by(&self, claim: &Claim, successor: &Arc<Claim>, not_after: Instant) -> Departed {
        let mut departure = departure(claim, Cause::Unlocked);
        departure.successor = Some(Successor {
            claim: successor.clone(),
            not_after,
        });
        self.depart(departure).await
    }

    /// Makes one holder or waiter absent.
    pub async fn depart(&self, departure: ReleaseRequest) -> Departed {
        let mut departed = self.depart_all(vec![departure]).await;
        departed.pop().expect("one departure has one answer")
    }

    /// Makes holders or waiters absent in one call, in all weathers; the store refuses none.
    pub async fn depart_all(&self, departures: Vec<ReleaseRequest>) -> Vec<Departed> {
        let answers = self.answers_to_departures(&departures).await;
        let departed = |(answer, repeated)| match answer {
            ReleaseReply::Done {
                freed,
                others,
                successor,
            } => Departed {
                freed: freed.into_vec(),
                others,
                successor,
                repeated,
            },
            ReleaseReply::Unknown(error) => panic!("release: {error}"),
        };
        answers.into_iter().map(departed).collect()
    }

    /// What the store answers to each departure of one call, weather apart, and whether it was repeated.
    pub(super) async fn answers_to_departures(
        &self,
        departures: &[ReleaseRequest],
    ) -> Vec<(ReleaseReply, bool)> {
        let release = |backend: Arc<dyn Backend>, batch| backend.release(batch);
        let met_weather =
            |answer: &ReleaseReply| matches!(answer, ReleaseReply::Unknown(error) if error.is_transient());
        self.each_in_all_weathers(departures, release, met_weather).await
    }

    /// Renews a claim that holds the key, by its own lease.
    pub async fn renew(&self, claim: &Claim) -> RenewReply {
        self.renew_as(claim, Phase::Granted, |_| {}).await
    }

    /// Renews a claim in that phase, by a renewal that `change` adapts.
    pub async fn renew_as(
        &self,
        claim: &Claim,
        phase: Phase,
        change: impl FnOnce(&mut RenewRequest),
    ) -> RenewReply {
        let mut renewal = renewal(claim, phase);
        change(&mut renewal);
        let mut answers = self.renew_all(vec![renewal]).await;
        answers.pop().expect("one renewal has one answer")
    }

    /// Renews a claim that must be alive; what is left to believe.
    pub async fn stays_alive(&self, claim: &Claim, phase: Phase) -> (Instant, Duration) {
        self.stays_alive_as(claim, phase, |_| {}).await
    }

    /// Renews a claim that must be alive, by a renewal that `change` adapts; what is left to believe.
    pub async fn stays_alive_as(
        &self,
        claim: &Claim,
        phase: Phase,
        change: impl FnOnce(&mut RenewRequest),
    ) -> (Instant, Duration) {
        match self.renew_as(claim, phase, change).await {
            RenewReply::Alive { held_from, lease } => (held_from, lease),
            other => panic!("{:?} must be alive, and is {other:?}", claim.at),
        }
    }

    /// Renews a claim that must be gone; why it is.
    pub async fn is_gone(&self, claim: &Claim, phase: Phase) -> Loss {
        match self.renew_as(claim, phase, |_| {}).await {
            RenewReply::Gone(loss) => loss,
            other => panic!("{:?} must be gone, and is {other:?}", claim.at),
        }
    }

    /// Renews claims in one call, in all weathers; the store refuses none.
    pub async fn renew_all(&self, renewals: Vec<RenewRequest>) -> Vec<RenewReply> {
        let names: Vec<ClaimRef> = renewals.iter().map(|renewal| renewal.claim.clone()).collect();
        let answers = self.answers_to_renewals(renewals).await;
        for (answer, name) in answers.iter().zip(names) {
            if let RenewReply::Unknown(error) = answer {
                panic!("renewal of {name:?}: {error}");
            }
        }
        answers
    }

    /// Renews claims in one call, in all weathers; what the store answers to each, weather apart.
    pub async fn answers_to_renewals(&self, renewals: Vec<RenewRequest>) -> Vec<RenewReply> {
        let renew = |backend: Arc<dyn Backend>, batch| backend.renew(batch);
        let met_weather =
            |answer: &RenewReply| matches!(answer, RenewReply::Unknown(error) if error.is_transient());
        let answers = self.each_in_all_weathers(&renewals, renew, met_weather).await;
        answers.into_iter().map(|(answer, _)| answer).collect()
    }

    /// Watches for a claim; `None` where the store can only be polled.
    pub async fn watch(&self, claim: &Arc<Claim>) -> Option<Wakes> {
        let watched = self.in_all_weathers(|backend| backend.watch(claim.clone())).await;
        if let Err(error) = &watched {
            let wake_up = self.trial.profile().wake_up;
            assert_eq!(
                wake_up,
                WakeUp::Poll,
                "a store that wakes lets itself be watched: {error}"
            );
        }
        watched.ok()
    }

    /// What the store shows of a key; `None` if nobody holds it or queues for it.
    pub async fn status(&self, key: &LockKey) -> Option<LockStatus> {
        let page = self.look(Query::Key(key.clone())).await;
        assert!(page.next.is_none(), "one key is one page");
        assert!(page.items.len() <= 1, "one key has one status: {:?}", page.items);
        page.items.into_iter().next()
    }

    /// All that a listing shows, with at most `limit` keys on each page.
    pub async fn list(&self, prefix: &str, limit: u32) -> Vec<LockStatus> {
        self.pages(prefix, limit).await.concat()
    }

    /// All pages of a listing, with at most `limit` keys on each.
    pub async fn pages(&self, prefix: &str, limit: u32) -> Vec<Vec<LockStatus>> {
        let limit = NonZeroU32::new(limit).expect("a page has room for a key");
        let mut pages = Vec::new();
        let mut after: Option<Cursor> = None;
        loop {
            let query = Query::Prefix {
                prefix: Arc::from(prefix),
                after,
                limit,
            };
            let page = self.look(query).await;
            assert!(page.items.len() <= limit.get() as usize, "a page keeps its limit");
            pages.push(page.items);
            let found: usize = pages.iter().map(Vec::len).sum();
            assert!(
                found <= 10_000 && pages.len() <= 10_000,
                "a listing comes to its end"
            );
            match page.next {
                Some(next) => after = Some(next),
                None => return pages,
            }
        }
    }

    async fn look(&self, query: Query) -> Page<LockStatus> {
        let page = self
            .in_all_weathers(|backend| backend.inspect(query.clone()))
            .await;
        page.unwrap_or_else(|error| panic!("inspect {query:?}: {error}"))
    }
}

/// A renewal of that claim by its own lease.
pub(crate) fn renewal(claim: &Claim, only: Phase) -> RenewRequest {
    RenewRequest {
        claim: claim.at.clone(),
        lease: claim.lease,
        only,
        shorten_only: false,
        raise: None,
    }
}

/// Whether a wake-up comes before the suite's patience ends.
pub(super) async fn hears(wakes: &mut Wakes) -> bool {
    tokio::time::timeout(PATIENCE, wakes.next())
        .await
        .is_ok_and(|wake| wake.is_some())
}

/// 16 bytes that the standard library's hasher keys differ in from client to client and run to run.
fn random_id() -> ClientId {
    let mut bytes = [0; 16];
    for half in bytes.chunks_mut(8) {
        half.copy_from_slice(&RandomState::new().hash_one(0).to_le_bytes());
    }
    ClientId::from_random(bytes)
}
