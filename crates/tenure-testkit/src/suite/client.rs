//! One client of a trial: the calls of the contract, repeated while the weather is bad, and what cases expect.
//! No rule of the contract is judged here; that is the cases' part.
//!
//! # Cancel safety
//! A future that is dropped leaves the effect of its call unknown, and everything else as it was.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use tenure_backend::{
    Backend, BackendError, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, Cursor, Departure, Fairness,
    Grant, Heir, Holder, HolderId, Instant, LockKey, LockStatus, Mode, OwnerId, Page, Phase, Query, Released,
    Renewal, Renewed, Standing, WakeUp, Wakes,
};

use super::Trial;

/// How often a call is repeated that failed by weather.
const ATTEMPTS: u32 = 100;
/// How far ahead `place_by` lies for the calls of cases that are not about it.
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

/// What became of a departure that went through.
///
/// # Examples
/// See [`Trial`], whose example releases a claim.
#[derive(Debug)]
pub struct Departed {
    /// Who was freed by it.
    pub freed: Vec<HolderId>,
    /// How many wait elsewhere.
    pub others: Option<u32>,
    /// Where the heir stands.
    pub heir: Option<Standing>,
    /// Whether an earlier try may have taken effect: then nobody may be left to be freed.
    pub repeated: bool,
}

impl Departed {
    /// Asserts that it freed that claim, and nobody else.
    pub fn freed_it(&self, claim: &Claim) {
        if !(self.repeated && self.freed.is_empty()) {
            assert_eq!(
                self.freed,
                [HolderId::Claim(claim.at.id)],
                "who was freed by releasing {:?}",
                claim.at
            );
        }
    }

    /// Asserts that it freed nobody.
    pub fn freed_nobody(&self) {
        assert_eq!(self.freed, [], "a release of somebody who is absent frees nobody");
    }
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

    /// Places or polls a claim, in all weathers.
    ///
    /// # Errors
    /// What the store answers, weather apart.
    ///
    /// # Panics
    /// When a hundred tries in a row met bad weather.
    pub async fn try_acquire(&self, claim: &Arc<Claim>) -> Result<Standing, BackendError> {
        for _ in 0..ATTEMPTS {
            match self.acquire_by(claim, self.now() + PLACE_AHEAD).await {
                Err(error) if error.is_weather() => {}
                answer => return answer,
            }
        }
        panic!("{:?} met bad weather {ATTEMPTS} times in a row", claim.at);
    }

    /// Places or polls a claim once.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn acquire_by(&self, claim: &Arc<Claim>, place_by: Instant) -> Result<Standing, BackendError> {
        self.backend.clone().acquire(claim.clone(), place_by).await
    }

    /// Places or polls a claim by that moment, in all weathers, which the store does not refuse.
    pub async fn polled_by(&self, claim: &Arc<Claim>, place_by: Instant) -> Standing {
        for _ in 0..ATTEMPTS {
            match self.acquire_by(claim, place_by).await {
                Err(error) if error.is_weather() => {}
                answer => return answer.unwrap_or_else(|error| panic!("acquire of {:?}: {error}", claim.at)),
            }
        }
        panic!("{:?} met bad weather {ATTEMPTS} times in a row", claim.at);
    }

    /// Places or polls a claim that the store does not refuse.
    pub async fn acquire(&self, claim: &Arc<Claim>) -> Standing {
        let answer = self.try_acquire(claim).await;
        answer.unwrap_or_else(|error| panic!("acquire of {:?}: {error}", claim.at))
    }

    /// Acquires a claim that must be granted at once.
    pub async fn granted(&self, claim: &Arc<Claim>) -> Grant {
        match self.acquire(claim).await {
            Standing::Granted(grant) => grant,
            other => panic!(
                "{:?} ({}) must be granted, and is {other:?}",
                claim.at, claim.mode
            ),
        }
    }

    /// Acquires a claim that must wait; how many are ahead of it, if the store can tell.
    pub async fn waits(&self, claim: &Arc<Claim>) -> Option<u32> {
        match self.acquire(claim).await {
            Standing::Waiting { ahead, .. } => ahead,
            other => panic!("{:?} ({}) must wait, and is {other:?}", claim.at, claim.mode),
        }
    }

    /// Polls a claim that must have ended.
    pub async fn has_ended(&self, claim: &Arc<Claim>) {
        let answer = self.acquire(claim).await;
        assert!(
            matches!(answer, Standing::Ended),
            "{:?} must have ended, and is {answer:?}",
            claim.at
        );
    }

    /// Polls a claim until it is granted, letting `limit` pass at the most.
    pub async fn granted_within(&self, claim: &Arc<Claim>, limit: Duration) -> Grant {
        let mut passed = Duration::ZERO;
        loop {
            let next = match self.acquire(claim).await {
                Standing::Granted(grant) => return grant,
                Standing::Waiting { poll_after, .. } => poll_after.clamp(Duration::from_millis(1), STEP),
                Standing::Recovering => STEP,
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

    /// Polls a claim until it is granted; nothing but a wake-up or a moment's bar is in its way.
    pub async fn granted_soon(&self, claim: &Arc<Claim>) -> Grant {
        self.granted_within(claim, Duration::from_millis(200)).await
    }

    /// Asserts that a claim of that mode would be granted, and gives it back.
    pub async fn finds_free(&self, key: &LockKey, mode: Mode) {
        let claim = self.claim(key, mode);
        self.granted_soon(&claim).await;
        self.release(&claim).await;
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

    /// Takes a claim away, without a bar.
    pub async fn evict(&self, claim: &Claim, by: &str) -> Departed {
        let cause = Cause::Evicted {
            by: Some(Arc::from(by)),
        };
        self.depart(departure(claim, cause)).await
    }

    /// Releases a claim with an heir.
    pub async fn hand_over(&self, claim: &Claim, heir: &Arc<Claim>) -> Departed {
        self.hand_over_by(claim, heir, self.now() + PLACE_AHEAD).await
    }

    /// Releases a claim with an heir that must be placed by then.
    pub async fn hand_over_by(&self, claim: &Claim, heir: &Arc<Claim>, place_by: Instant) -> Departed {
        let mut departure = departure(claim, Cause::Unlocked);
        departure.heir = Some(Heir {
            claim: heir.clone(),
            place_by,
        });
        self.depart(departure).await
    }

    /// Makes one holder or waiter absent.
    pub async fn depart(&self, departure: Departure) -> Departed {
        let mut departed = self.depart_all(vec![departure]).await;
        departed.pop().expect("one departure has one answer")
    }

    /// Makes holders or waiters absent in one call, in all weathers.
    pub async fn depart_all(&self, departures: Vec<Departure>) -> Vec<Departed> {
        let mut answers: Vec<Option<Departed>> = departures.iter().map(|_| None).collect();
        let mut repeated = vec![false; departures.len()];
        for _ in 0..ATTEMPTS {
            let open: Vec<usize> = (0..answers.len()).filter(|at| answers[*at].is_none()).collect();
            if open.is_empty() {
                return answers.into_iter().flatten().collect();
            }
            let batch: Batch<Departure> = open.iter().map(|at| departures[*at].clone()).collect();
            let answered = self.backend.clone().release(batch).await;
            assert_eq!(answered.len(), open.len(), "one answer for each departure");
            for (at, answer) in open.into_iter().zip(answered) {
                match answer {
                    Released::Done { freed, others, heir } => {
                        answers[at] = Some(Departed {
                            freed: freed.into_vec(),
                            others,
                            heir,
                            repeated: repeated[at],
                        });
                    }
                    Released::Unknown(error) if error.is_weather() => repeated[at] = true,
                    Released::Unknown(error) => panic!("release of {:?}: {error}", departures[at].who),
                }
            }
        }
        panic!("a release met bad weather {ATTEMPTS} times in a row");
    }

    /// Renews a claim that holds the key, by its own lease.
    pub async fn renew(&self, claim: &Claim) -> Renewed {
        self.renew_in(claim, Phase::Granted).await
    }

    /// Renews a claim in that phase, by its own lease.
    pub async fn renew_in(&self, claim: &Claim, phase: Phase) -> Renewed {
        let mut answers = self.renew_all(vec![renewal(claim, phase)]).await;
        answers.pop().expect("one renewal has one answer")
    }

    /// Renews a claim that must be alive; what is left to believe.
    pub async fn stays_alive(&self, claim: &Claim, phase: Phase) -> (Instant, Duration) {
        match self.renew_in(claim, phase).await {
            Renewed::Alive { held_from, lease } => (held_from, lease),
            other => panic!("{:?} must be alive, and is {other:?}", claim.at),
        }
    }

    /// Renews claims in one call, in all weathers; the store refuses none.
    pub async fn renew_all(&self, renewals: Vec<Renewal>) -> Vec<Renewed> {
        let names: Vec<ClaimRef> = renewals.iter().map(|renewal| renewal.who.clone()).collect();
        let answers = self.answers_to_renewals(renewals).await;
        for (answer, name) in answers.iter().zip(names) {
            if let Renewed::Unknown(error) = answer {
                panic!("renewal of {name:?}: {error}");
            }
        }
        answers
    }

    /// Renews claims in one call, in all weathers; what the store answers to each, weather apart.
    pub async fn answers_to_renewals(&self, renewals: Vec<Renewal>) -> Vec<Renewed> {
        let mut answers: Vec<Option<Renewed>> = renewals.iter().map(|_| None).collect();
        for _ in 0..ATTEMPTS {
            let open: Vec<usize> = (0..answers.len()).filter(|at| answers[*at].is_none()).collect();
            if open.is_empty() {
                return answers.into_iter().flatten().collect();
            }
            let batch: Batch<Renewal> = open.iter().map(|at| renewals[*at].clone()).collect();
            let answered = self.backend.clone().renew(batch).await;
            assert_eq!(answered.len(), open.len(), "one answer for each renewal");
            for (at, answer) in open.into_iter().zip(answered) {
                match answer {
                    Renewed::Unknown(error) if error.is_weather() => {}
                    answer => answers[at] = Some(answer),
                }
            }
        }
        panic!("a renewal met bad weather {ATTEMPTS} times in a row");
    }

    /// Watches for a claim; `None` where the store can only be polled.
    pub async fn watch(&self, claim: &Arc<Claim>) -> Option<Wakes> {
        for _ in 0..ATTEMPTS {
            match self.backend.clone().watch(claim.clone()).await {
                Ok(wakes) => return Some(wakes),
                Err(error) if error.is_weather() => {}
                Err(error) => {
                    let wake_up = self.trial.profile().wake_up;
                    assert_eq!(
                        wake_up,
                        WakeUp::Poll,
                        "a store that wakes lets itself be watched: {error}"
                    );
                    return None;
                }
            }
        }
        panic!("{:?} met bad weather {ATTEMPTS} times in a row", claim.at);
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
        for _ in 0..ATTEMPTS {
            match self.backend.clone().inspect(query.clone()).await {
                Ok(page) => return page,
                Err(error) if error.is_weather() => {}
                Err(error) => panic!("inspect {query:?}: {error}"),
            }
        }
        panic!("inspect met bad weather {ATTEMPTS} times in a row");
    }
}

/// A departure of that claim, without an heir or a bar.
pub(super) fn departure(claim: &Claim, cause: Cause) -> Departure {
    Departure {
        who: Holder::Claim(claim.at.clone()),
        cause,
        heir: None,
        bar: Duration::ZERO,
    }
}

/// A renewal of that claim by its own lease.
pub(super) fn renewal(claim: &Claim, only: Phase) -> Renewal {
    Renewal {
        who: claim.at.clone(),
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
