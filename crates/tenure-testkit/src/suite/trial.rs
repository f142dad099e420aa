//! One case's world: the store under test, its clients, its keys and its time.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure_backend::{Backend, Effect, Fairness, Fault, Liveness, LockKey, Mode, Profile};

use super::Client;
use crate::Subject;

/// In what steps a case looks whether a lease has ended, and how long a look may take.
const LOOKING: Duration = Duration::from_millis(100);

/// The store under test as a case sees it.
///
/// # Cancel safety
/// A future of its methods that is dropped leaves at most a client or a claim of this trial behind, in a store made
/// for it alone.
///
/// # Examples
/// ```
/// use tenure_backend::Mode;
/// use tenure_testkit::Subject;
/// use tenure_testkit::suite::{Trial, run};
///
/// /// A case of one's own, beside the suite's.
/// async fn a_released_key_is_free(trial: Trial) {
///     let (client, key) = (trial.client().await, trial.key());
///     let claim = client.claim(&key, Mode::Exclusive);
///     client.granted(&claim).await;
///     client.release(&claim).await.freed_it(&claim);
///     client.finds_free(&key, Mode::Exclusive).await;
/// }
/// fn try_it<S: Subject>(subject: impl AsyncFnOnce() -> S) {
///     run(subject, a_released_key_is_free);
/// }
/// ```
#[derive(Clone)]
pub struct Trial {
    subject: Arc<dyn Subject>,
    decorate: Arc<Decorate>,
    profile: Arc<Profile>,
    keys: Arc<AtomicU32>,
}

/// Puts something between a client and its connection.
type Decorate = dyn Fn(Arc<dyn Backend>) -> Arc<dyn Backend> + Send + Sync;

impl Trial {
    /// A trial of that store.
    pub async fn new(subject: impl Subject) -> Self {
        Self::decorated(subject, Arc::new(|backend| backend)).await
    }

    /// A trial whose clients all speak through what `decorate` makes of their connections.
    pub(super) async fn decorated(subject: impl Subject, decorate: Arc<Decorate>) -> Self {
        let probe = subject.client().await.expect("the subject makes a client");
        let profile = Arc::new(decorate(probe).profile().clone());
        Trial {
            subject: Arc::new(subject),
            decorate,
            profile,
            keys: Arc::default(),
        }
    }

    /// What the store says of itself.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The store's author's side of it.
    pub fn subject(&self) -> &Arc<dyn Subject> {
        &self.subject
    }

    /// A new client.
    pub async fn client(&self) -> Client {
        let backend = self.subject.client().await.expect("the subject makes a client");
        self.client_of(backend)
    }

    /// Two new clients.
    pub async fn two(&self) -> [Client; 2] {
        [self.client().await, self.client().await]
    }

    /// Three new clients.
    pub async fn three(&self) -> [Client; 3] {
        [self.client().await, self.client().await, self.client().await]
    }

    /// A client that speaks through that connection.
    pub(crate) fn client_of(&self, backend: Arc<dyn Backend>) -> Client {
        Client::new(self.clone(), (self.decorate)(backend))
    }

    /// A key that no other part of the case uses.
    pub fn key(&self) -> LockKey {
        let number = self.keys.fetch_add(1, Ordering::Relaxed);
        LockKey::new(format!("case:{number}")).expect("a short text without control characters")
    }

    /// Lets time pass.
    pub async fn pass(&self, time: Duration) {
        self.subject.pass(time).await;
    }

    /// A lease that a case can wait for.
    pub fn brief(&self) -> Duration {
        let limits = &self.profile.limits;
        Duration::from_secs(1).clamp(limits.min_lease, limits.max_lease)
    }

    /// What may pass beyond a lease until its end is seen: what the store says, and the steps in which a case looks.
    pub fn grace(&self) -> Duration {
        self.profile.limits.expiry_slack + LOOKING
    }

    /// A lease that outlives a case that waits for none.
    pub fn long(&self) -> Duration {
        let limits = &self.profile.limits;
        Duration::from_secs(60).clamp(limits.min_lease, limits.max_lease)
    }

    /// The fairness in which the store serves a mode, unfair if it has the choice.
    pub fn fairness(&self, mode: Mode) -> Fairness {
        if self.profile.serves(mode, Fairness::Unfair) {
            Fairness::Unfair
        } else {
            Fairness::Fifo
        }
    }

    /// Whether the store does not serve a mode at all; then it has been seen to refuse it without effect.
    pub async fn lacks(&self, mode: Mode) -> bool {
        self.lacks_so(mode, self.fairness(mode)).await
    }

    /// Whether the store does not serve a mode in that fairness; then it has been seen to refuse it without
    /// effect.
    pub async fn lacks_so(&self, mode: Mode, fairness: Fairness) -> bool {
        if self.profile.serves(mode, fairness) {
            return false;
        }
        let (client, key) = (self.client().await, self.key());
        let claim = client.claim_as(&key, mode, |claim| claim.fairness = fairness);
        let refusal = client
            .try_acquire(&claim)
            .await
            .expect_err("what the profile does not list is refused");
        assert_eq!(refusal.fault(), Fault::Unsupported, "{refusal}");
        assert_eq!(refusal.effect(), Effect::None, "{refusal}");
        assert_eq!(client.status(&key).await, None, "a refusal leaves nothing behind");
        true
    }

    /// Whether claims live by a session; then a claim has been seen to outlive the lease that it asked for.
    pub async fn lives_by_session(&self) -> bool {
        if self.profile.liveness != Liveness::Session {
            return false;
        }
        let ([holder, other], key) = (self.two().await, self.key());
        let claim = holder.claim_as(&key, Mode::Exclusive, |claim| claim.lease = self.brief());
        let grant = holder.granted(&claim).await;
        self.pass(grant.lease * 2).await;
        other.finds_busy(&key, Mode::Exclusive).await;
        true
    }
}

/// `take` of a semaphore's `of` permits.
pub(crate) fn permits(take: u32, of: u32) -> Mode {
    let number = |n| NonZeroU32::new(n).expect("cases ask for at least one permit");
    Mode::Permits {
        take: number(take),
        of: number(of),
    }
}
