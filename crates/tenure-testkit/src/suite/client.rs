//! Client of a case: makes claims, sends requests, and repeats them after transient errors.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Cause, Claim, ClaimId, ClaimRef, ClientId,
    Cursor, Fairness, Instant, LockKey, LockStatus, Mode, OwnerId, Page, Phase, Query, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Successor, WakeUp, Wakes,
};

use super::Fixture;
use super::requests::{ReleaseOutcome, release_request, renew_request};

/// Maximum number of attempts at a call that fails with transient errors.
const ATTEMPTS: u32 = 100;
/// Time until `not_after` in calls of cases that do not test `not_after`.
const TIME_TO_PLACE: Duration = Duration::from_secs(5);
/// Real time after which a wake-up counts as lost.
pub(super) const WAKE_UP_LIMIT: Duration = Duration::from_secs(5);

/// Client of the store under test.
///
/// # Cancel safety
/// If the future of a method is dropped, the effect of its call is unknown. Nothing else changes.
///
/// # Examples
/// See [`Fixture`], which makes clients.
#[derive(Clone)]
pub struct TestClient {
    pub(super) fixture: Fixture,
    backend: Arc<dyn Backend>,
    id: ClientId,
    claims: Arc<AtomicU64>,
}

impl TestClient {
    pub(super) fn new(fixture: Fixture, backend: Arc<dyn Backend>) -> Self {
        TestClient {
            fixture,
            backend,
            id: random_id(),
            claims: Arc::default(),
        }
    }

    /// Returns a client with another ID on the same connection.
    pub fn with_new_id(&self) -> Self {
        TestClient::new(self.fixture.clone(), self.backend.clone())
    }

    /// Connection of the client.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Current time on the client's clock.
    pub fn now(&self) -> Instant {
        self.backend.clock().now()
    }

    /// Creates a claim with a long lease. The claim is unfair if the store serves unfair claims.
    pub fn claim(&self, key: &LockKey, mode: Mode) -> Arc<Claim> {
        self.claim_as(key, mode, |_| {})
    }

    /// Creates a claim as [`claim`](Self::claim) does, and lets `change` modify it.
    pub fn claim_as(&self, key: &LockKey, mode: Mode, change: impl FnOnce(&mut Claim)) -> Arc<Claim> {
        let id = ClaimId::new(self.id, self.claims.fetch_add(1, Ordering::Relaxed) + 1);
        let at = ClaimRef { key: key.clone(), id };
        let mut claim = Claim {
            owner: OwnerId::new(1),
            label: Arc::from("testkit@host:1"),
            mode,
            fairness: self.fixture.fairness(mode),
            ..Claim::of(at, self.fixture.long_lease())
        };
        change(&mut claim);
        Arc::new(claim)
    }

    /// Creates a first-come, first-served claim with a long lease.
    pub fn fair(&self, key: &LockKey, mode: Mode) -> Arc<Claim> {
        self.claim_as(key, mode, |claim| claim.fairness = Fairness::Fifo)
    }

    /// Creates a claim with a lease short enough for a case to wait for its end.
    pub fn short_lease(&self, key: &LockKey, mode: Mode) -> Arc<Claim> {
        self.claim_as(key, mode, |claim| claim.lease = self.fixture.short_lease())
    }

    /// Creates a first-come, first-served exclusive claim with a short lease.
    pub(super) fn fair_with_short_lease(&self, key: &LockKey) -> Arc<Claim> {
        self.claim_as(key, Mode::Exclusive, |claim| {
            claim.fairness = Fairness::Fifo;
            claim.lease = self.fixture.short_lease();
        })
    }

    /// Places or polls a claim, with retries after transient errors.
    ///
    /// # Errors
    /// Returns the store's error if it is not transient.
    ///
    /// # Panics
    /// Panics after a hundred transient errors in a row.
    pub async fn try_acquire(&self, claim: &Arc<Claim>) -> Result<AcquireReply, BackendError> {
        let acquire = |backend: Arc<dyn Backend>| backend.acquire(claim.clone(), self.now() + TIME_TO_PLACE);
        self.retry(acquire).await
    }

    /// Places or polls a claim once, without retries.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn acquire_by(
        &self,
        claim: &Arc<Claim>,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        self.backend.clone().acquire(claim.clone(), not_after).await
    }

    /// Places or polls a claim with the given `not_after`. Panics if the store refuses.
    pub async fn polled_by(&self, claim: &Arc<Claim>, not_after: Instant) -> AcquireReply {
        let acquire = |backend: Arc<dyn Backend>| backend.acquire(claim.clone(), not_after);
        let answer = self.retry(acquire).await;
        answer.unwrap_or_else(|error| panic!("acquire of {:?}: {error:?}", claim.at))
    }

    /// Repeats a call until it does not fail with a transient error.
    pub(super) async fn retry<T>(
        &self,
        call: impl Fn(Arc<dyn Backend>) -> Call<T>,
    ) -> Result<T, BackendError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            match call(self.backend.clone()).await {
                Err(error) if error.is_transient() => {
                    assert!(
                        attempt < ATTEMPTS,
                        "{ATTEMPTS} transient errors in a row: {error:?}"
                    );
                }
                answer => return answer,
            }
            pause_after(attempt).await;
        }
    }

    /// Sends a batch, and repeats elements that fail with transient errors. Returns each reply, and whether its element
    /// was repeated.
    async fn retry_each<Q: Clone, A>(
        &self,
        requests: &[Q],
        call: impl Fn(Arc<dyn Backend>, Batch<Q>) -> BatchCall<A>,
        is_transient: impl Fn(&A) -> bool,
    ) -> Vec<(A, bool)> {
        let mut answers: Vec<Option<(A, bool)>> = requests.iter().map(|_| None).collect();
        for attempt in 0..ATTEMPTS {
            let open: Vec<usize> = (0..answers.len()).filter(|at| answers[*at].is_none()).collect();
            if open.is_empty() {
                return answers.into_iter().flatten().collect();
            }
            let batch: Batch<Q> = open.iter().map(|at| requests[*at].clone()).collect();
            let answered = call(self.backend.clone(), batch).await;
            assert_eq!(answered.len(), open.len(), "one reply for each element");
            for (at, answer) in open.into_iter().zip(answered) {
                answers[at] = (!is_transient(&answer)).then_some((answer, attempt > 0));
            }
            if answers.iter().any(Option::is_none) {
                pause_after(attempt).await;
            }
        }
        panic!("a batch had transient errors {ATTEMPTS} times in a row");
    }

    /// Places or polls a claim. Panics if the store refuses it.
    pub async fn acquire(&self, claim: &Arc<Claim>) -> AcquireReply {
        let answer = self.try_acquire(claim).await;
        answer.unwrap_or_else(|error| panic!("acquire of {:?}: {error:?}", claim.at))
    }

    /// Releases a claim.
    pub async fn release(&self, claim: &Claim) -> ReleaseOutcome {
        self.send_release(release_request(claim, Cause::Unlocked)).await
    }

    /// Withdraws a claim.
    pub async fn withdraw(&self, claim: &Claim) -> ReleaseOutcome {
        self.send_release(release_request(claim, Cause::Withdrawn)).await
    }

    /// Evicts a claim in the name `by`, without a cooldown.
    pub async fn evict(&self, claim: &Claim, by: &str) -> ReleaseOutcome {
        let cause = Cause::Evicted {
            by: Some(Arc::from(by)),
        };
        self.send_release(release_request(claim, cause)).await
    }

    /// Releases a claim and names its successor.
    pub async fn hand_over(&self, claim: &Claim, successor: &Arc<Claim>) -> ReleaseOutcome {
        self.hand_over_by(claim, successor, self.now() + TIME_TO_PLACE)
            .await
    }

    /// Releases a claim and names a successor with the given `not_after`.
    pub async fn hand_over_by(
        &self,
        claim: &Claim,
        successor: &Arc<Claim>,
        not_after: Instant,
    ) -> ReleaseOutcome {
        let mut request = release_request(claim, Cause::Unlocked);
        request.successor = Some(Successor {
            claim: successor.clone(),
            not_after,
        });
        self.send_release(request).await
    }

    /// Sends one release, withdrawal or eviction.
    pub async fn send_release(&self, release: ReleaseRequest) -> ReleaseOutcome {
        let mut released = self.send_releases(vec![release]).await;
        released.pop().expect("one release has one reply")
    }

    /// Sends releases, withdrawals or evictions in one call. Panics if the store refuses one.
    pub async fn send_releases(&self, releases: Vec<ReleaseRequest>) -> Vec<ReleaseOutcome> {
        let answers = self.release_replies(&releases).await;
        let released = |(answer, repeated)| match answer {
            ReleaseReply::Done {
                freed,
                others,
                successor,
            } => ReleaseOutcome {
                freed: freed.into_vec(),
                others,
                successor,
                repeated,
            },
            ReleaseReply::Unknown(error) => panic!("release: {error}"),
        };
        answers.into_iter().map(released).collect()
    }

    /// Sends releases, and repeats those that fail with a transient error. Returns each release's last reply, and
    /// whether the release was repeated.
    pub(super) async fn release_replies(&self, releases: &[ReleaseRequest]) -> Vec<(ReleaseReply, bool)> {
        let release = |backend: Arc<dyn Backend>, batch| backend.release(batch);
        let is_transient =
            |answer: &ReleaseReply| matches!(answer, ReleaseReply::Unknown(error) if error.is_transient());
        self.retry_each(releases, release, is_transient).await
    }

    /// Renews a claim that holds the key, for its requested lease.
    pub async fn renew(&self, claim: &Claim) -> RenewReply {
        self.renew_as(claim, Phase::Granted, |_| {}).await
    }

    /// Renews a claim, if it is in the given phase. `change` may modify the request.
    pub async fn renew_as(
        &self,
        claim: &Claim,
        phase: Phase,
        change: impl FnOnce(&mut RenewRequest),
    ) -> RenewReply {
        let mut renewal = renew_request(claim, phase);
        change(&mut renewal);
        let mut answers = self.send_renewals(vec![renewal]).await;
        answers.pop().expect("one renewal has one reply")
    }

    /// Sends renewals in one call. Panics if the store refuses one.
    pub async fn send_renewals(&self, renewals: Vec<RenewRequest>) -> Vec<RenewReply> {
        let names: Vec<ClaimRef> = renewals.iter().map(|renewal| renewal.claim.clone()).collect();
        let answers = self.renewal_replies(renewals).await;
        for (answer, name) in answers.iter().zip(names) {
            if let RenewReply::Unknown(error) = answer {
                panic!("renewal of {name:?}: {error}");
            }
        }
        answers
    }

    /// Sends renewals, and repeats those that fail with a transient error. Returns one reply for each renewal.
    pub async fn renewal_replies(&self, renewals: Vec<RenewRequest>) -> Vec<RenewReply> {
        let renew = |backend: Arc<dyn Backend>, batch| backend.renew(batch);
        let is_transient =
            |answer: &RenewReply| matches!(answer, RenewReply::Unknown(error) if error.is_transient());
        let answers = self.retry_each(&renewals, renew, is_transient).await;
        answers.into_iter().map(|(answer, _)| answer).collect()
    }

    /// Subscribes to wake-ups for a claim. Returns `None` if the store can only be polled.
    pub async fn watch(&self, claim: &Arc<Claim>) -> Option<Wakes> {
        let watched = self.retry(|backend| backend.watch(claim.clone())).await;
        if let Err(error) = &watched {
            let wake_up = self.fixture.profile().wake_up;
            assert_eq!(
                wake_up,
                WakeUp::Poll,
                "`watch` may fail only if the profile says that waiters must poll: {error}"
            );
        }
        watched.ok()
    }

    /// Status of a key, or `None` if it has no holder and no waiter.
    pub async fn status(&self, key: &LockKey) -> Option<LockStatus> {
        let page = self.inspect(Query::Key(key.clone())).await;
        assert!(page.next.is_none(), "one key is one page");
        assert!(page.items.len() <= 1, "one key has one status: {:?}", page.items);
        page.items.into_iter().next()
    }

    /// All keys that start with `prefix`, fetched with at most `limit` keys per page.
    pub async fn list(&self, prefix: &str, limit: u32) -> Vec<LockStatus> {
        self.pages(prefix, limit).await.concat()
    }

    /// All keys that start with `prefix`, in pages of at most `limit` keys.
    pub async fn pages(&self, prefix: &str, limit: u32) -> Vec<Vec<LockStatus>> {
        let limit = NonZeroU32::new(limit).expect("a page has at least one key");
        let mut pages = Vec::new();
        let mut after: Option<Cursor> = None;
        loop {
            let query = Query::Prefix {
                prefix: Arc::from(prefix),
                after,
                limit,
            };
            let page = self.inspect(query).await;
            assert!(
                page.items.len() <= limit.get() as usize,
                "a page has at most `limit` keys"
            );
            pages.push(page.items);
            let found: usize = pages.iter().map(Vec::len).sum();
            assert!(found <= 10_000 && pages.len() <= 10_000, "a listing must end");
            match page.next {
                Some(next) => after = Some(next),
                None => return pages,
            }
        }
    }

    async fn inspect(&self, query: Query) -> Page<LockStatus> {
        let page = self.retry(|backend| backend.inspect(query.clone())).await;
        page.unwrap_or_else(|error| panic!("inspect {query:?}: {error}"))
    }
}

/// Pauses after several transient errors in a row, so that all attempts together outlast the election of a leader.
async fn pause_after(attempt: u32) {
    if attempt > ATTEMPTS / 10 {
        // sleep: the servers elect a leader meanwhile, which is seen only in their answers.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits for a wake-up. Returns false if none arrives within five seconds of real time.
pub(super) async fn is_woken(wakes: &mut Wakes) -> bool {
    is_woken_within(wakes, WAKE_UP_LIMIT).await
}

/// Waits for a wake-up. Returns false if none arrives within `limit` of real time.
pub(super) async fn is_woken_within(wakes: &mut Wakes, limit: Duration) -> bool {
    tokio::time::timeout(limit, wakes.next())
        .await
        .is_ok_and(|wake| wake.is_some())
}

/// Returns a random client ID, made from the random keys of the standard library's hasher.
fn random_id() -> ClientId {
    let mut bytes = [0; 16];
    for half in bytes.chunks_mut(8) {
        half.copy_from_slice(&RandomState::new().hash_one(0).to_le_bytes());
    }
    ClientId::from_random(bytes)
}
