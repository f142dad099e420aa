//! The poller: a task that asks the store on behalf of waiters, until a claim is granted or no waiter wants it.
//!
//! It waits for the store's wake-ups, and also polls at intervals: a lost wake-up costs time, never a lock.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{AcquireReply, BackendError, Call, Claim, Effect, Grant, Instant, WakeUp, Wakes};
use tokio::sync::Notify;

use super::context::backoff;
use super::hold::Hold;
use super::renewer::HoldObserver;
use super::services::Services;
use super::store::next_wake;
use super::timer::{nap, sleep, within};

/// The longest time between two polls where no wake-up can come.
const POLL: Duration = Duration::from_millis(100);
/// The shortest time between two polls, whatever the store advises.
const SOON: Duration = Duration::from_millis(1);
/// The time between a failed attempt to listen for wake-ups and the next one.
const REARM: Duration = Duration::from_secs(1);
/// The most that is added to a poll interval at random.
const SPREAD: Duration = Duration::from_millis(50);

/// The waiters on whose behalf a poller asks the store.
pub(crate) trait Demand: Send + Sync + 'static {
    /// Notified when [`next`](Self::next) or [`is_wanted`](Self::is_wanted) may have changed.
    fn signal(&self) -> &Notify;

    /// The next thing to do.
    fn next(&mut self) -> Next;

    /// Whether waiters still want that claim: `Some` is the time until the next check.
    fn is_wanted(&self, claim: &Claim) -> Option<Duration>;

    /// Handles the end of a search. If it is uncertain, an unanswered request may have placed the claim, or may still do so.
    /// Returns false if the claim served no waiter though one waits: the poller then pauses.
    fn found(&mut self, claim: Arc<Claim>, found: Found, is_uncertain: bool) -> bool;
}

/// What a poller does next.
pub(crate) enum Next {
    /// The task ends.
    Exit,
    /// Check again when notified, or after that time.
    Rest(Duration),
    /// Ask the store whether this hold was evicted: its lease is not renewed, so no renewal would find out.
    Verify(Arc<Hold>, Arc<dyn HoldObserver>),
    /// Ask the store for this claim, after a pause.
    Ask(Arc<Claim>, Pause),
}

/// What to do before the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Wait for a wake-up, at most for `time`. `others` clients have waited for longer.
    UntilWakeUp { time: Duration, others: u32 },
    /// Wait for that time and ignore wake-ups: the store did not answer, or other clients go first.
    Fixed(Duration),
}

impl Pause {
    /// Listen for wake-ups and poll, without a pause.
    pub(crate) const AT_ONCE: Self = Pause::UntilWakeUp {
        time: Duration::ZERO,
        others: 0,
    };
}

/// How a search for one claim ended.
pub(crate) enum Found {
    Granted(Grant),
    /// Another client evicted the claim.
    Ended,
    /// The store refused the claim with a permanent error.
    Failed(BackendError),
    /// No waiter wants the claim any more.
    Unwanted,
}

/// The poller's task.
pub(crate) async fn run(services: Arc<Services>, mut demand: impl Demand) {
    let Services {
        context,
        tasks,
        renewer,
        ..
    } = &*services;
    let mut failures = 0;
    loop {
        match demand.next() {
            Next::Exit => return,
            Next::Rest(time) => {
                tokio::select! {
                    biased;
                    () = demand.signal().notified() => {}
                    () = nap(tasks, time) => {}
                }
            }
            Next::Verify(hold, observer) => {
                // The guard gets the outcome. The next look finds the key free or held.
                let _ = renewer.verify(&hold, observer).await;
            }
            Next::Ask(claim, pause) => {
                let mut search = Search::new(&services, &claim);
                let found = search.run(pause, &demand).await;
                let is_uncertain = search.is_uncertain;
                // The client no longer listens when the claim is handed on.
                drop(search);
                let is_unwanted = matches!(found, Found::Unwanted);
                if demand.found(claim, found, is_uncertain) {
                    failures = 0;
                } else {
                    failures += 1;
                    sleep(tasks, backoff(failures, context.dice())).await;
                }
                if is_unwanted {
                    // If the client is closing, its queues close next: yields to that task.
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

struct Search<'a> {
    services: &'a Services,
    claim: &'a Arc<Claim>,
    wakes: Option<Wakes>,
    rearm_at: Instant,
    /// A request for wake-ups that the store has not answered. Polls do not wait for it.
    arming: Option<Call<Wakes>>,
    seniority: Seniority,
    failures: u32,
    is_uncertain: bool,
}

impl<'a> Search<'a> {
    fn new(services: &'a Services, claim: &'a Arc<Claim>) -> Self {
        Search {
            services,
            claim,
            wakes: None,
            rearm_at: Instant::ORIGIN,
            arming: None,
            seniority: Seniority::default(),
            failures: 0,
            is_uncertain: false,
        }
    }

    /// Asks until the claim is granted or unwanted. Asks again after transient errors.
    async fn run(&mut self, mut pause: Pause, demand: &impl Demand) -> Found {
        loop {
            let time = match pause {
                Pause::UntilWakeUp { time, others } => {
                    self.seniority.ahead += others;
                    self.listen().await;
                    time
                }
                Pause::Fixed(time) => {
                    self.wakes = None;
                    time
                }
            };
            if !self.wait(time, demand).await {
                return Found::Unwanted;
            }
            pause = match pause {
                // Listens first: the poll that follows finds whatever happened meanwhile.
                Pause::Fixed(_) => Pause::AT_ONCE,
                Pause::UntilWakeUp { .. } => match self.ask().await {
                    Ok(pause) => pause,
                    Err(found) => return found,
                },
            };
        }
    }

    /// Subscribes to wake-ups, unless a subscription exists. The caller polls afterwards.
    async fn listen(&mut self) {
        let Services { context, tasks, .. } = self.services;
        let poll_only = context.store.profile().wake_up == WakeUp::Poll;
        if self.wakes.is_some() || poll_only || context.now() < self.rearm_at {
            return;
        }
        let arming = self.arming.take();
        let mut arming = arming.unwrap_or_else(|| context.store.watch(self.claim.clone()));
        let armed = poll_fn(|cx| Pin::new(&mut arming).poll(cx));
        let asked = context.now();
        match within(tasks, &*context.clock, POLL, armed).await {
            None => self.arming = Some(arming),
            Some(Ok(wakes)) => {
                self.wakes = Some(wakes);
                self.seniority.round_trip = context.now() - asked;
            }
            Some(Err(error)) => {
                tracing::debug!(key = %self.claim.at.key, %error, "no wake-ups: polling only");
                self.rearm_at = context.now() + REARM;
            }
        }
    }

    /// Polls once. `Ok` is the pause before the next poll.
    async fn ask(&mut self) -> Result<Pause, Found> {
        let context = &self.services.context;
        let asked = context.now();
        let answer = context
            .store
            .acquire(self.claim.clone(), context.not_after(asked))
            .await;
        if answer.is_ok() {
            context.store_answered();
        }
        match answer {
            Ok(AcquireReply::Granted(grant)) => return Err(Found::Granted(grant)),
            Ok(AcquireReply::Ended) => return Err(Found::Ended),
            Ok(AcquireReply::Waiting { poll_after, .. }) => {
                self.failures = 0;
                // Measured from the request, so that a slow answer does not delay the next poll.
                let poll_after = asked + poll_after - context.now();
                let most = if self.wakes.is_some() { Duration::MAX } else { POLL };
                let time = self.spread(poll_after.clamp(SOON, most));
                return Ok(Pause::UntilWakeUp { time, others: 0 });
            }
            Ok(AcquireReply::TooLate | AcquireReply::Recovering) => {}
            Err(error) if error.is_transient() => {
                self.is_uncertain |= error.effect() == Effect::Unknown;
                context.store_failed(&self.claim.at.key, &error);
            }
            Err(error) => {
                self.is_uncertain |= error.effect() == Effect::Unknown;
                return Err(Found::Failed(error));
            }
        }
        self.failures += 1;
        Ok(Pause::Fixed(backoff(self.failures, context.dice())))
    }

    /// Adds a random part to `time`, so that clients do not all poll at once.
    fn spread(&self, time: Duration) -> Duration {
        time + (time / 8).min(SPREAD).mul_f64(self.services.context.fraction())
    }

    /// Waits for a wake-up, or for `time`. Returns false if no waiter wants the claim any more.
    async fn wait(&mut self, time: Duration, demand: &impl Demand) -> bool {
        let Services { context, tasks, .. } = self.services;
        let mut until = context.now() + time;
        loop {
            if tasks.is_closed() {
                return false;
            }
            let Some(check) = demand.is_wanted(self.claim) else {
                return false;
            };
            let left = until - context.now();
            if left.is_zero() {
                return true;
            }
            tokio::select! {
                biased;
                woken = next_wake(&mut self.wakes) => {
                    if !woken {
                        self.wakes = None;
                        self.rearm_at = context.now() + REARM;
                    }
                    match self.seniority.woken() {
                        Some(lead) if woken => until = context.now() + lead,
                        _ => return true,
                    }
                }
                () = demand.signal().notified() => {}
                () = tasks.closing().cancelled() => {}
                () = nap(tasks, left.min(check)) => {}
            }
        }
    }
}

/// How long this client has waited, compared with the clients that the same wake-ups reach.
///
/// The first client that asks after a wake-up gets the key. On a distant store that is a lottery, and some clients win
/// seldom. So each client lets those that have waited for longer ask first: the client that held the key last asks last.
#[derive(Debug, Default)]
struct Seniority {
    /// Number of clients that have waited for longer. Each wake-up is the turn of one of them.
    ahead: u32,
    /// The time that the store took to answer.
    round_trip: Duration,
}

impl Seniority {
    /// The shortest lead that is given. Near a store clients ask at once: a timer would take longer than their turns.
    const SHORTEST: Duration = Duration::from_millis(1);

    /// The lead that this client gives to others after a wake-up: a third of a round trip for each of them. Arrival times
    /// differ by less.
    fn woken(&mut self) -> Option<Duration> {
        self.ahead = self.ahead.saturating_sub(1);
        let lead = self.round_trip / 3 * self.ahead;
        (lead >= Self::SHORTEST).then_some(lead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gives_a_lead_to_clients_that_have_waited_for_longer() {
        let ms = Duration::from_millis;
        let cases = [
            ("far", 30, 3, [Some(ms(20)), Some(ms(10)), None, None]),
            ("near", 1, 3, [None, None, None, None]),
            ("with none ahead", 30, 0, [None, None, None, None]),
        ];
        for (name, round_trip, ahead, leads) in cases {
            let round_trip = ms(round_trip);
            let mut seniority = Seniority { ahead, round_trip };
            assert_eq!(leads.map(|_| seniority.woken()), leads, "{name}");
        }
    }
}
