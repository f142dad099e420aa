//! The tasks of the simulated clients: they acquire locks, hold them, write to the guarded resource, and release.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Client, Error, Guard};
use tenure_backend::{Clock, LockKey, Mode};
use tenure_testkit::{Dice, EventKind};

use crate::world::{Hold, World};

/// Longest pause between two checks whether a guard is held.
const LOOK: Duration = Duration::from_millis(20);

/// A task of a client.
pub(crate) struct Actor {
    pub(crate) world: Arc<World>,
    pub(crate) client: Client,
    pub(crate) number: usize,
    pub(crate) owner: u64,
    /// The keys; true for the key of a read-write lock, false for that of a mutex.
    pub(crate) keys: Vec<(LockKey, bool)>,
    /// The longest lease that the task requests. The shortest is half of it.
    pub(crate) lease: Duration,
    pub(crate) dice: Dice,
}

impl Actor {
    pub(crate) async fn run(mut self, turns: u64) {
        for _ in 0..turns {
            self.wait(60).await;
            self.take().await;
        }
    }

    fn ms(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.dice.below(most))
    }

    /// Waits for up to `most` milliseconds, and until the client is not paused.
    async fn wait(&mut self, most: u64) {
        let time = self.ms(most);
        // sleep: advances tokio's paused clock by the time that the client's work takes.
        tokio::time::sleep(time).await;
        self.world.runs(self.number).await;
    }

    async fn take(&mut self) {
        let at = usize::try_from(self.dice.below(self.keys.len() as u64)).unwrap_or(0);
        let (key, is_rw) = self.keys[at].clone();
        let mode = match is_rw {
            false => Mode::Exclusive,
            true if self.dice.chance(60) => Mode::Read,
            true => Mode::Write,
        };
        let lease = self.lease.mul_f64(0.5 + 0.05 * self.dice.below(11) as f64);
        let (tries, limit) = (self.dice.chance(35), self.ms(600));
        let limit = self.dice.chance(40).then_some(limit);
        let dropped_after = self.dice.chance(15).then(|| self.ms(80));
        let attempt = self.world.attempt();
        let owner = self.owner;
        self.world.record(
            attempt,
            EventKind::Invoked {
                key: key.clone(),
                owner,
                mode,
            },
        );
        let lock = lock(&self.client, &key, mode, lease, tries, limit);
        let got = match dropped_after {
            Some(time) => tokio::time::timeout(time, lock).await.ok(),
            None => Some(lock.await),
        };
        match got {
            Some(Ok(Some(guard))) => self.use_it(attempt, &key, mode, guard).await,
            Some(Ok(None) | Err(Error::Timeout)) => self.world.record(attempt, EventKind::Failed),
            Some(Err(error)) if !error.is_transient() => {
                self.world
                    .violated("L2", format!("an attempt ended with {error:?}"));
            }
            Some(Err(_)) | None => self.world.record(attempt, EventKind::Unknown),
        }
    }

    async fn use_it(&mut self, attempt: u64, key: &LockKey, mode: Mode, guard: Guard) {
        let token = guard.token();
        if token.is_none() {
            self.world.violated("V3", "a grant has no token");
        }
        if !guard.is_held() {
            self.world
                .violated("V1", "a grant was returned that had already ended");
        }
        let hold = self.world.acquired(attempt, self.number, guard);
        tokio::spawn(observe(self.world.clone(), hold.clone()));
        // Some tasks hold the lock for several leases.
        let most = if self.dice.chance(25) { 900 } else { 150 };
        for _ in 0..2 {
            self.wait(most).await;
            if let Some(token) = token.filter(|_| mode != Mode::Read) {
                self.write(&hold, key, token);
            }
        }
        if !hold.is_held() {
            self.world.end(&hold, EventKind::Lost);
        }
        self.world.end(&hold, EventKind::ReleaseInvoked);
        let guard = hold.guard.lock().take().and_then(Arc::into_inner);
        if let Some(guard) = guard.filter(|_| self.dice.chance(60)) {
            let _ = guard.unlock().await;
        }
    }

    /// Writes to the guarded resource whether or not the guard is held, like a holder that was paused between its check
    /// and its write.
    fn write(&self, hold: &Hold, key: &LockKey, token: tenure_backend::FencingToken) {
        let is_held = hold.is_held();
        let accepted = self.world.write(hold.attempt, key, token);
        if is_held && !accepted && self.world.counts(hold) {
            self.world
                .violated("V3", "the write of a current holder was refused as older");
        }
    }
}

async fn lock(
    client: &Client,
    key: &LockKey,
    mode: Mode,
    lease: Duration,
    tries: bool,
    limit: Option<Duration>,
) -> Result<Option<Guard>, Error> {
    let mutex = || client.mutex(key.as_str()).lease(lease);
    let rwlock = || client.rwlock(key.as_str()).lease(lease);
    match (mode, limit) {
        (Mode::Read, _) if tries => rwlock().try_read().await,
        (Mode::Read, None) => rwlock().read().await.map(Some),
        (Mode::Read, Some(limit)) => rwlock().read_within(limit).await.map(Some),
        (Mode::Write, _) if tries => rwlock().try_write().await,
        (Mode::Write, None) => rwlock().write().await.map(Some),
        (Mode::Write, Some(limit)) => rwlock().write_within(limit).await.map(Some),
        (_, _) if tries => mutex().try_lock().await,
        (_, None) => mutex().lock().await.map(Some),
        (_, Some(limit)) => mutex().lock_within(limit).await.map(Some),
    }
}

/// Asks a guard repeatedly whether it is held, also while its client is paused, and records the answers.
async fn observe(world: Arc<World>, hold: Arc<Hold>) {
    loop {
        let (is_held, next) = {
            let guard = hold.guard.lock();
            let Some(guard) = guard.as_ref() else { return };
            let left = guard.local_deadline() - world.clients[hold.client].clock.now();
            (guard.is_held(), left.min(LOOK))
        };
        if !is_held {
            return world.end(&hold, EventKind::Lost);
        }
        if world.counts(&hold) {
            let since = world.now();
            world.record(hold.attempt, EventKind::Sampled { since, held: true });
        }
        // Timers tick in milliseconds, so one more is needed to pass the deadline.
        // sleep: advances paused time until the next look.
        tokio::time::sleep(next + Duration::from_millis(1)).await;
    }
}
