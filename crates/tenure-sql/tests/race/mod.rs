//! Stores of Tenure and clients with the textbook's plain SQL race for two keys, while claims are evicted and the server
//! restarts. The history of what each believed is checked afterwards.

use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, Clock, Effect, FencingToken,
    HANDOVER_WINDOW, HolderId, Instant, LockKey, Mode, ReleaseReply, ReleaseRequest, ReleaseTarget,
    RenewReply, RenewRequest, SystemClock,
};
use tenure_testkit::{Dice, Event, EventKind, check};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Stores, each with connections of its own, as processes have.
const STORES: u64 = 8;
const KEYS: [&str; 2] = ["red", "blue"];
/// Least and greatest lease, in milliseconds.
const LEASES: (u64, u64) = (250, 600);

/// Number of grants below which a race proves nothing. On a busy machine it takes longer to get there.
const LEAST_GRANTS: u64 = 100;
const LONGEST_EXTENSION: Duration = Duration::from_secs(60);

/// Length of a race: `TENURE_FAULT_SECONDS`, or 8 s.
pub(crate) fn span() -> Duration {
    let seconds = std::env::var("TENURE_FAULT_SECONDS").ok();
    Duration::from_secs(seconds.map_or(8, |seconds| seconds.parse().expect("a number of seconds")))
}

/// A program that locks with plain SQL and knows nothing of Tenure.
pub(crate) trait Textbook: Send + 'static {
    /// Takes the key if it looks free. `Ok(None)`: it is held; otherwise the token, on a layout with tokens. An error: the
    /// connection is gone.
    fn take(&mut self, key: &str) -> impl Future<Output = Result<Option<Option<i64>>, ()>> + Send;

    /// Gives the key back. Repeats that until the server has answered.
    fn give_back(&mut self, key: &str) -> impl Future<Output = ()> + Send;
}

/// What everyone believes.
#[derive(Clone, Default)]
pub(crate) struct Race {
    events: Arc<Mutex<Vec<Event>>>,
    attempts: Arc<AtomicU64>,
    grants: Arc<AtomicU64>,
    /// The attempts of claims, by the claim's ID, for evictions.
    claims: Arc<Mutex<Vec<(ClaimId, u64)>>>,
}

impl Race {
    fn begin(&self, key: &str, owner: u64) -> u64 {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        let key = LockKey::new(key).expect("a key");
        let mode = Mode::Exclusive;
        self.say(attempt, EventKind::Invoked { key, owner, mode });
        attempt
    }

    fn say(&self, attempt: u64, kind: EventKind) {
        self.say_at(SystemClock.now(), attempt, kind);
    }

    fn say_at(&self, at: Instant, attempt: u64, kind: EventKind) {
        if matches!(kind, EventKind::Acquired { .. }) {
            self.grants.fetch_add(1, Ordering::Relaxed);
        }
        self.events.lock().push(Event { at, attempt, kind });
    }

    /// Whether the race goes on: until its end, and after it until there are enough grants.
    fn goes_on(&self, end: Instant) -> bool {
        let now = SystemClock.now();
        let is_short = self.grants.load(Ordering::Relaxed) < LEAST_GRANTS;
        now < end || (is_short && now < end + LONGEST_EXTENSION)
    }

    /// One process: takes, renews, releases, or leaves its claim to its lease.
    pub(crate) async fn store(self, store: Arc<dyn Backend>, owner: u64, end: Instant) {
        let mut dice = Dice::new(owner);
        let client = ClientId::from_random([u8::try_from(owner).expect("few stores"); 16]);
        let mut number = 0;
        while self.goes_on(end) {
            number += 1;
            let key = KEYS[usize::try_from(dice.below(2)).expect("it is small")];
            let lease = Duration::from_millis(LEASES.0 + dice.below(LEASES.1 - LEASES.0));
            let id = ClaimId::new(client, number);
            let at = ClaimRef {
                key: LockKey::new(key).expect("a key"),
                id,
            };
            let grants = NonZeroU32::new(1 + u32::try_from(dice.below(3)).expect("it is small"));
            let claim = Arc::new(Claim {
                grants: grants.expect("it is positive"),
                ..Claim::of(at, lease)
            });
            let attempt = self.begin(key, owner);
            let not_after = SystemClock.now() + Duration::from_millis(400);
            match store.clone().acquire(claim.clone(), not_after).await {
                Ok(AcquireReply::Granted(grant)) => {
                    self.claims.lock().push((id, attempt));
                    let token = grant.tokens.map(|run| run.first());
                    let until = grant.held_from + grant.lease;
                    self.say(attempt, EventKind::Acquired { token, until });
                    // sleep: a random pace, or time for others.
                    sleep(Duration::from_millis(dice.below(30))).await;
                    let mut is_lost = false;
                    if dice.chance(40) {
                        let renewed = store
                            .clone()
                            .renew(Batch::from_iter([RenewRequest::of(&claim)]))
                            .await;
                        is_lost = matches!(&renewed[..], [RenewReply::Gone(_)]);
                        // A longer lease is not believed: the checker knows the first deadline.
                    }
                    if is_lost {
                        self.say(attempt, EventKind::Lost);
                    }
                    if dice.chance(10) {
                        continue;
                    }
                    self.say(attempt, EventKind::ReleaseInvoked);
                    release(&store, ReleaseRequest::of(&claim, Cause::Unlocked)).await;
                }
                Ok(_) => {
                    self.say(attempt, EventKind::Failed);
                    // sleep: a random pace, or time for others.
                    sleep(Duration::from_millis(dice.below(25))).await;
                }
                Err(error) => {
                    self.say(attempt, EventKind::Unknown);
                    if error.effect() == Effect::Unknown {
                        release(&store, ReleaseRequest::of(&claim, Cause::Withdrawn)).await;
                    }
                    // sleep: a random pace, or time for others.
                    sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }

    /// One program with plain SQL.
    pub(crate) async fn textbook(self, mut program: impl Textbook, owner: u64, end: Instant) {
        let mut dice = Dice::new(owner);
        while self.goes_on(end) {
            let key = KEYS[usize::try_from(dice.below(2)).expect("it is small")];
            let attempt = self.begin(key, owner);
            match program.take(key).await {
                Ok(Some(token)) => {
                    let token = token.and_then(|token| FencingToken::try_from(token).ok());
                    let until = Instant::NEVER;
                    self.say(attempt, EventKind::Acquired { token, until });
                    // Some hold for longer than a lease of Tenure: an old end in the row must not end theirs.
                    let most = if dice.chance(40) { 2 * LEASES.1 } else { 20 };
                    // sleep: a random pace, or time for others.
                    sleep(Duration::from_millis(dice.below(most))).await;
                    self.say(attempt, EventKind::ReleaseInvoked);
                    program.give_back(key).await;
                }
                Ok(None) => self.say(attempt, EventKind::Failed),
                Err(()) => {
                    // It may hold the key, so it gives it back.
                    self.say(attempt, EventKind::Unknown);
                    program.give_back(key).await;
                }
            }
            // sleep: a random pace, or time for others.
            sleep(Duration::from_millis(dice.below(10))).await;
        }
    }

    /// Evicts claims of Tenure. What an evicted claim believes counts until the eviction began.
    pub(crate) async fn evictor(self, store: Arc<dyn Backend>, end: Instant) {
        while self.goes_on(end) {
            // sleep: a random pace, or time for others.
            sleep(Duration::from_millis(150)).await;
            let latest = self.claims.lock().last().copied();
            let Some((id, _)) = latest else { continue };
            for key in KEYS {
                let key = LockKey::new(key).expect("a key");
                let began = SystemClock.now();
                let request = ReleaseRequest {
                    target: ReleaseTarget::Claim(ClaimRef { key, id }),
                    cause: Cause::Evicted {
                        by: Some("race".into()),
                    },
                    successor: None,
                    cooldown: HANDOVER_WINDOW,
                };
                let replies = store.clone().release(Batch::from_iter([request])).await;
                // After an error the claim may be evicted all the same.
                let is_evicted = match &replies[..] {
                    [ReleaseReply::Done { freed, .. }] => freed.contains(&HolderId::Claim(id)),
                    _ => true,
                };
                if is_evicted {
                    let claims = self.claims.lock();
                    let attempt = claims
                        .iter()
                        .rev()
                        .find(|(one, _)| *one == id)
                        .map(|(_, attempt)| *attempt);
                    self.say_at(began, attempt.expect("it was granted"), EventKind::Lost);
                }
            }
        }
    }

    /// Checks what was believed, and that there were enough grants. Returns their number.
    pub(crate) fn judge(&self) -> u64 {
        match check(self.events.lock().clone()) {
            Ok(summary) => {
                let enough = summary.acquired >= LEAST_GRANTS;
                assert!(enough, "{} grants prove nothing", summary.acquired);
                summary.acquired
            }
            Err(violations) => {
                let shown: Vec<String> = violations.iter().take(3).map(ToString::to_string).collect();
                panic!("{} violations:\n{}", violations.len(), shown.join("\n"))
            }
        }
    }
}

/// Releases, again until the store has answered.
async fn release(store: &Arc<dyn Backend>, request: ReleaseRequest) {
    for _ in 0..200 {
        let replies = store.clone().release(Batch::from_iter([request.clone()])).await;
        if matches!(&replies[..], [ReleaseReply::Done { .. }]) {
            return;
        }
        // sleep: a random pace, or time for others.
        sleep(Duration::from_millis(20)).await;
    }
}

/// Runs the race: stores from `connect`, programs from `textbook`, an evictor, and three restarts.
pub(crate) async fn race<T: Textbook>(
    connect: impl AsyncFn() -> Arc<dyn Backend>,
    textbook: impl AsyncFn() -> T,
    restart: impl AsyncFn(),
) -> u64 {
    let (race, mut tasks) = (Race::default(), JoinSet::new());
    let end = SystemClock.now() + span();
    for owner in 1..=STORES {
        tasks.spawn(race.clone().store(connect().await, owner, end));
    }
    for owner in STORES + 1..=STORES + 2 {
        tasks.spawn(race.clone().textbook(textbook().await, owner, end));
    }
    tasks.spawn(race.clone().evictor(connect().await, end));
    for _ in 0..3 {
        // sleep: the others work meanwhile.
        sleep(span() / 4).await;
        restart().await;
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no task panics");
    }
    race.judge()
}
