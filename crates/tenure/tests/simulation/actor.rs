//! The tasks of the simulated clients. A task acquires locks of every kind, holds and nests them, drops futures half-way,
//! and releases or drops the guards.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tenure::{Client, Error, Guard, Lock, Owner, multi};
use tenure_backend::{ClaimId, Fairness, HANDOVER_WINDOW, Instant, LockKey, Mode};
use tenure_testkit::{Dice, EventKind};

use crate::liveness::Waiter;
use crate::simulation::{ObservedHold, Parameters, Simulation};

/// Maximum pause between two checks whether a guard is held.
const LOOK: Duration = Duration::from_millis(20);

/// A task of a simulated client.
pub(crate) struct Actor {
    pub(crate) sim: Arc<Simulation>,
    pub(crate) client: Client,
    pub(crate) number: usize,
    pub(crate) owner: u64,
    pub(crate) keys: Vec<(LockKey, u64)>,
    pub(crate) dice: Dice,
}

/// The lock that a task acquires next, drawn at random.
struct LockPlan {
    key: LockKey,
    mode: Mode,
    fair: bool,
    lease: Duration,
}

impl Actor {
    /// Acquires and releases locks `turns` times. Does nothing while the task's client is paused.
    pub(crate) async fn run(mut self, turns: u64) {
        for _ in 0..turns {
            let rest = self.ms(120);
            self.wait(rest).await;
            if self.dice.chance(12) && self.keys.len() > 1 {
                self.take_two().await;
            } else {
                self.take_one().await;
            }
        }
    }

    fn ms(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.dice.below(most))
    }

    async fn wait(&self, time: Duration) {
        // sleep: advances paused time by the client's work.
        tokio::time::sleep(time).await;
        self.sim.runs(self.number).await;
    }

    /// Polls `work` only while the client is not paused.
    async fn alive<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        loop {
            let mut runs = pin!(self.sim.runs(self.number));
            let polled = poll_fn(|cx| {
                Poll::Ready(match runs.as_mut().poll(cx) {
                    Poll::Pending => None,
                    Poll::Ready(()) => Some(work.as_mut().poll(cx)),
                })
            });
            match polled.await {
                Some(Poll::Ready(output)) => return output,
                Some(Poll::Pending) => {
                    // Waits until the task is woken: `work` has stored its waker.
                    poll_fn({
                        let mut first = true;
                        move |_| {
                            if std::mem::take(&mut first) {
                                Poll::Pending
                            } else {
                                Poll::Ready(())
                            }
                        }
                    })
                    .await;
                }
                None => runs.await,
            }
        }
    }

    fn ask(&mut self) -> LockPlan {
        let at = self.dice.below(self.keys.len() as u64);
        let (key, kind) = self.keys[usize::try_from(at).unwrap_or(0)].clone();
        let permits = |take: u64| Mode::Permits {
            take: u32::try_from(take)
                .ok()
                .and_then(|n| n.try_into().ok())
                .expect("1 to 3"),
            of: 3.try_into().expect("3 is not 0"),
        };
        let mode = match kind {
            0 => Mode::Exclusive,
            1 if self.dice.chance(60) => Mode::Read,
            1 => Mode::Write,
            _ => permits(1 + self.dice.below(3)),
        };
        let fair = self.dice.chance(35);
        let parameters = &self.sim.parameters;
        let steps = self.dice.below(u64::from(Parameters::LEASE_STEPS));
        let lease = parameters.lease + parameters.lease_step * u32::try_from(steps).unwrap_or(0);
        LockPlan {
            key,
            mode,
            fair,
            lease,
        }
    }

    async fn take_one(&mut self) {
        let ask = self.ask();
        let owner = self.dice.chance(30).then(|| self.client.owner("nested"));
        let patience = self.dice.below(3);
        let limit = self.ms(600);
        let dropped_after = self.dice.chance(25).then(|| self.ms(80));
        let attempt = self.sim.invoke(&ask.key, self.owner, ask.mode);
        let tries = patience >= 2;
        if !tries {
            self.sim.waits(attempt, self.waits(&ask));
        }
        let lock = self.alive(lock(&self.client, &ask, owner.as_ref(), patience, limit));
        let got = match dropped_after {
            Some(time) => tokio::time::timeout(time, lock).await.ok(),
            None => Some(lock.await),
        };
        self.sim.waits_no_more(attempt);
        match got {
            Some(Ok(Some(guard))) => {
                let hold = self.hold(attempt, guard, ask.lease);
                self.use_it(&hold, &ask, owner.as_ref()).await;
                self.give_back(&hold).await;
            }
            Some(Ok(None) | Err(Error::Timeout)) => self.sim.record(attempt, EventKind::Failed),
            Some(Err(error)) if error.is_transient() => self.sim.record(attempt, EventKind::Unknown),
            Some(Err(error)) => self
                .sim
                .violated("L2", format!("an attempt ended with {error:?}")),
            None => self.sim.record(attempt, EventKind::Unknown),
        }
    }

    fn waits(&self, ask: &LockPlan) -> Waiter {
        Waiter {
            client: self.number,
            key: ask.key.clone(),
            mode: ask.mode,
            fairness: if ask.fair {
                Fairness::Fifo
            } else {
                Fairness::Unfair
            },
        }
    }

    async fn take_two(&mut self) {
        let asks = [self.ask(), self.ask()];
        if asks[0].key == asks[1].key {
            return;
        }
        let sim = self.sim.clone();
        let attempts = asks
            .each_ref()
            .map(|ask| sim.invoke(&ask.key, self.owner, ask.mode));
        let members = asks.each_ref().map(|ask| member(&self.client, ask));
        let limit = self.ms(800);
        let got = self.alive(multi(members).lock_within(limit)).await;
        match got {
            Ok(guards) => {
                // Releases all members right after the grant. For the checker, each hold ends when it begins.
                let ids: Vec<ClaimId> = guards.members().iter().map(|guard| guard.claim().id).collect();
                for (guard, attempt) in guards.members().iter().zip(attempts) {
                    if self.acquired(attempt, guard).is_some() {
                        self.sim.record(attempt, EventKind::Lost);
                    }
                }
                for (attempt, id) in attempts.iter().zip(ids) {
                    self.sim.record(*attempt, EventKind::ReleaseInvoked);
                    self.sim.lets_go(id);
                }
                let _ = self.alive(guards.unlock()).await;
            }
            Err(_) => attempts
                .iter()
                .for_each(|attempt| self.sim.record(*attempt, EventKind::Failed)),
        }
    }

    /// Records a grant that a task got. If an eviction or a data loss has already ended the claim, returns when.
    fn acquired(&self, attempt: u64, guard: &Guard) -> Option<Instant> {
        let (id, token, now) = (guard.claim().id, guard.token(), self.sim.now());
        let (void, passed) = {
            let claims = self.sim.claims.lock();
            (claims.void_since(id), claims.was_passed(id, token))
        };
        self.sim.takes(id);
        // If the claim ended in the store while the reply with the grant was under way, the holder learns that only at the
        // next renewal. The checker then gets the token, but no period in which the lock was held.
        let until = if void.is_some() {
            Instant::ORIGIN
        } else {
            Instant::NEVER
        };
        self.sim.record(attempt, EventKind::Acquired { token, until });
        if !guard.is_held() {
            self.sim
                .violated("V1", "a grant was returned that had already ended");
        }
        if void.is_some_and(|since| passed && now - since >= HANDOVER_WINDOW) {
            self.sim.violated(
                "V3",
                "a claim was handed over locally 10 ms after it had ended in the store",
            );
        }
        void
    }

    /// Records a granted lock, and starts a task that observes it.
    fn hold(&self, attempt: u64, guard: Guard, lease: Duration) -> Arc<ObservedHold> {
        let void = self.acquired(attempt, &guard);
        let hold = Arc::new(ObservedHold {
            attempt,
            client: self.number,
            lease,
            guard: Mutex::new(Some(Arc::new(guard))),
            taken: Mutex::new(void),
            until: Mutex::new(Instant::NEVER),
            lost: AtomicBool::new(false),
        });
        if void.is_some() {
            self.sim.lose(&hold);
        }
        self.sim.holds.lock().push(hold.clone());
        tokio::spawn(observe(self.sim.clone(), hold.clone()));
        hold
    }

    async fn use_it(&mut self, hold: &Arc<ObservedHold>, ask: &LockPlan, owner: Option<&Owner>) {
        let time = self.ms(self.sim.parameters.hold_ms);
        self.wait(time / 2).await;
        self.write(hold, ask);
        if self.dice.chance(self.sim.parameters.verifies) {
            self.verify(hold).await;
        }
        if let Some(owner) = owner.filter(|_| !matches!(ask.mode, Mode::Permits { .. })) {
            let again = self
                .alive(lock(&self.client, ask, Some(owner), 2, Duration::ZERO))
                .await;
            let held = hold.guard.lock().as_ref().is_some_and(|guard| guard.is_held());
            if held && !matches!(again, Ok(Some(_))) {
                self.sim
                    .violated("L2", format!("re-entry was refused: {again:?}"));
            }
        }
        let downgraded = ask.mode == Mode::Write && self.dice.chance(40);
        if downgraded {
            self.downgrade(hold).await;
        }
        self.wait(time / 2).await;
        if !downgraded {
            self.write(hold, ask);
        }
    }

    /// Turns a write lock into a read lock, or drops the future half-way. The lock must stay held, unless it was lost.
    async fn downgrade(&mut self, hold: &ObservedHold) {
        let Some(guard) = hold.guard.lock().clone() else {
            return;
        };
        self.sim.record(hold.attempt, EventKind::DowngradeInvoked);
        let dropped_after = self.dice.chance(20).then(|| self.ms(5));
        let downgrade = self.alive(guard.downgrade());
        let outcome = match dropped_after {
            Some(time) => tokio::time::timeout(time, downgrade).await.ok(),
            None => Some(downgrade.await),
        };
        let is_right = match &outcome {
            None => true,
            Some(Ok(())) => guard.mode() == Mode::Read,
            Some(Err(error)) => error.is_transient() || matches!(error, Error::Lost(_)),
        };
        if !is_right {
            self.sim
                .violated("L2", format!("a downgrade ended with {outcome:?}"));
        }
    }

    /// Calls `verify`, which must not confirm a claim that had ended in the store before the call.
    async fn verify(&self, hold: &ObservedHold) {
        let Some(guard) = hold.guard.lock().clone() else {
            return;
        };
        let void_since = || self.sim.claims.lock().void_since(guard.claim().id);
        let since = void_since();
        // If `void_since` changed, a store that had lost its data granted the claim again during `verify`, and was right to
        // confirm it.
        if self.alive(guard.verify()).await.is_ok() && since.is_some() && void_since() == since {
            self.sim
                .violated("V2", "the store confirmed a claim that had ended");
        }
    }

    /// Writes to the guarded resource whether or not the guard is held, like a holder that was paused between its check
    /// and its write.
    fn write(&self, hold: &ObservedHold, ask: &LockPlan) {
        let (token, held) = match hold.guard.lock().as_ref() {
            Some(guard) => (guard.token(), guard.is_held()),
            None => return,
        };
        let alone = matches!(ask.mode, Mode::Exclusive | Mode::Write);
        let Some(token) = token.filter(|_| alone) else {
            return;
        };
        let accepted = self.sim.write(hold.attempt, &ask.key, token);
        if held && !accepted && !hold.lost.load(Ordering::Relaxed) {
            self.sim
                .violated("V3", "the write of a current holder was refused as older");
        }
    }

    async fn give_back(&mut self, hold: &ObservedHold) {
        let confirmed = self.dice.chance(60);
        // The local deadline may have passed since the observer's last check.
        let seen = *hold.until.lock();
        if hold.look(&self.sim).is_none() {
            self.sim.lose_at(hold, seen);
        }
        self.sim.record(hold.attempt, EventKind::ReleaseInvoked);
        // `into_inner` succeeds: the observer refers to the guard only during a check, and no check is under way.
        let guard = hold.guard.lock().take().and_then(Arc::into_inner);
        if let Some(guard) = &guard {
            self.sim.lets_go(guard.claim().id);
        }
        if let Some(guard) = guard.filter(|_| confirmed) {
            let given_up_after = self.dice.chance(20).then(|| self.ms(10));
            let unlock = self.alive(guard.unlock());
            let _ = match given_up_after {
                Some(time) => tokio::time::timeout(time, unlock).await.ok(),
                None => Some(unlock.await),
            };
        }
    }
}

async fn lock(
    client: &Client,
    ask: &LockPlan,
    owner: Option<&Owner>,
    patience: u64,
    limit: Duration,
) -> Result<Option<Guard>, Error> {
    macro_rules! options {
        ($lock:expr) => {{
            let lock = $lock.lease(ask.lease);
            let lock = if ask.fair { lock.fair() } else { lock };
            match owner {
                Some(owner) => lock.owned_by(owner),
                None => lock,
            }
        }};
    }
    let key = ask.key.as_str();
    match (ask.mode, patience) {
        (Mode::Exclusive, 0) => options!(client.mutex(key)).lock().await.map(Some),
        (Mode::Exclusive, 1) => options!(client.mutex(key)).lock_within(limit).await.map(Some),
        (Mode::Exclusive, _) => options!(client.mutex(key)).try_lock().await,
        (Mode::Read, 0) => options!(client.rwlock(key)).read().await.map(Some),
        (Mode::Read, 1) => options!(client.rwlock(key)).read_within(limit).await.map(Some),
        (Mode::Read, _) => options!(client.rwlock(key)).try_read().await,
        (Mode::Write, 0) => options!(client.rwlock(key)).write().await.map(Some),
        (Mode::Write, 1) => options!(client.rwlock(key)).write_within(limit).await.map(Some),
        (Mode::Write, _) => options!(client.rwlock(key)).try_write().await,
        (Mode::Permits { take, of }, patience) => {
            let semaphore = options!(client.semaphore(key, of.get()));
            match patience {
                0 => semaphore.acquire_many(take.get()).await.map(Some),
                1 => semaphore.acquire_many_within(take.get(), limit).await.map(Some),
                _ => semaphore.try_acquire_many(take.get()).await,
            }
        }
    }
}

fn member(client: &Client, ask: &LockPlan) -> Lock {
    let key = ask.key.as_str();
    match ask.mode {
        Mode::Exclusive => client.mutex(key).lease(ask.lease).into(),
        Mode::Read => client.rwlock(key).lease(ask.lease).reader(),
        Mode::Write => client.rwlock(key).lease(ask.lease).writer(),
        Mode::Permits { take, of } => client
            .semaphore(key, of.get())
            .lease(ask.lease)
            .permits(take.get()),
    }
}

/// Asks a guard repeatedly whether it is held, also while the client is paused, and records the answers.
async fn observe(sim: Arc<Simulation>, hold: Arc<ObservedHold>) {
    let mut was_lost = false;
    loop {
        // No check happens exactly at the local deadline. If this check comes after it and finds the guard lost, the
        // hold counts as lost at the deadline, which an earlier check stored.
        let seen = *hold.until.lock();
        let until = hold.look(&sim);
        if until.is_some() && was_lost {
            sim.violated("V2", "a lost lock is held again");
        }
        was_lost |= until.is_none();
        let overdue = hold
            .taken
            .lock()
            .is_some_and(|taken| sim.now() - taken > hold.lease);
        match until {
            None if hold.guard.lock().is_none() => return,
            None => sim.lose_at(&hold, seen),
            Some(_) if overdue && !sim.is_dead(hold.client) => {
                return sim.violated("V2", "held a whole lease after the claim had ended in the store");
            }
            Some(_) if !hold.lost.load(Ordering::Relaxed) => {
                let since = sim.now();
                sim.record(hold.attempt, EventKind::Sampled { since, held: true });
            }
            Some(_) => {}
        }
        let next = until.map_or(LOOK * 5, |until| (until - sim.now()).min(LOOK));
        // sleep: advances paused time. Timers tick in milliseconds, so one more is needed to pass the deadline.
        tokio::time::sleep(next + Duration::from_millis(1)).await;
    }
}
