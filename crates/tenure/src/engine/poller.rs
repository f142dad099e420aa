//! The poller: a task that asks the store on behalf of waiters, until a claim is granted or no waiter wants it.
//!
//! Besides the store's wake-ups, the poller also polls at intervals: a lost wake-up costs time, never a lock.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Call, Claim, Effect, Fairness, Grant, Instant, WakeUp, Wakes,
};
use tokio::sync::Notify;

use super::context::backoff;
use super::hold::Hold;
use super::services::Services;
use super::store::next_wake;
use super::timer::{nap, within};

/// Without a subscription to wake-ups, the longest wait after a busy reply. A random part is added to it.
const POLL: Duration = Duration::from_millis(100);
/// The shortest wait after a busy reply if no wake-up comes, whatever the store advises.
const SOON: Duration = Duration::from_millis(1);
/// The time from a failed or ended subscription to wake-ups to the next attempt to subscribe.
const REARM: Duration = Duration::from_secs(1);
/// The most searches in a row that count if the store ended the claim: a poller then pauses for 160 ms. Where clients of a
/// quorum compete for a key, each must soon try again.
const MAX_ENDED: u32 = 4;
/// The time after which a waiting claim is taken for one that keeps its place.
const STEADY: Duration = Duration::from_secs(1);
/// The maximum of the random part of a wait.
const SPREAD: Duration = Duration::from_millis(50);

pub(crate) trait Demand: Send + Sync + 'static {
    /// Notified when [`next`](Self::next) or [`is_wanted`](Self::is_wanted) may return something else.
    fn signal(&self) -> &Notify;

    fn next(&mut self) -> Next;

    /// `Some` if a waiter still wants the claim: time until the next check.
    fn is_wanted(&self, claim: &Claim) -> Option<Duration>;

    /// Handles the result of asking for a claim. `is_uncertain`: an unanswered request may have placed the claim, or
    /// may still do so. Returns false if no waiter got the claim and one still waits: the poller then pauses before
    /// it asks for the next claim.
    fn found(&mut self, claim: Arc<Claim>, found: Found, is_uncertain: bool) -> bool;
}

/// A poller's next action.
pub(crate) enum Next {
    Exit,
    /// Choose the next action again when notified, or after this time.
    Rest(Duration),
    /// Ask the store whether this hold was evicted: its lease is not renewed, so no renewal would find out.
    Verify(Arc<Hold>),
    /// Acquire this claim after this pause.
    Ask(Arc<Claim>, Pause),
}

/// The wait before the next poll of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Wait for a wake-up, at most for `time`. `others` clients have waited for longer, and ask first.
    UntilWakeUp { time: Duration, others: u32 },
    /// Wait for this time and ignore wake-ups: the store did not answer, or other clients go first.
    Fixed(Duration),
}

impl Pause {
    /// Subscribe to wake-ups and poll, without a pause.
    pub(crate) const AT_ONCE: Self = Pause::UntilWakeUp {
        time: Duration::ZERO,
        others: 0,
    };
}

/// The final result of asking the store for one claim.
pub(crate) enum Found {
    Granted(Grant),
    /// The claim has ended, and can never hold the key: it was released or evicted, or has expired.
    Ended,
    /// The store may have granted the claim, but did not confirm it. The claim must be withdrawn, because it may keep
    /// the key from other clients.
    Unconfirmed,
    /// The store refused the claim with a permanent error.
    Failed(BackendError),
    Unwanted,
}

/// The poller's task: does what `demand` says, until that is [`Next::Exit`].
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
            Next::Verify(hold) => {
                // The result is ignored: a loss is reported to the guard, and the queue chooses the next action.
                let _ = renewer.verify(&hold).await;
            }
            Next::Ask(claim, mut pause) => {
                if failures > 0 {
                    pause = Pause::Fixed(backoff(failures, context.dice()));
                }
                let mut search = Search::new(&services, &claim, failures);
                let found = search.run(pause, &demand).await;
                let (is_uncertain, failed_before) = (search.is_uncertain, search.failed_before);
                // Ends the subscription to wake-ups before a waiter gets the claim.
                drop(search);
                let is_unwanted = matches!(found, Found::Unwanted);
                let most = match found {
                    Found::Ended => MAX_ENDED,
                    _ => u32::MAX,
                };
                let is_served = demand.found(claim, found, is_uncertain);
                failures = if is_served {
                    0
                } else {
                    (failed_before + 1).min(most)
                };
                if is_unwanted {
                    // If the client is closing, another task closes the queues: let it run.
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
    /// A subscription to wake-ups that the store has not confirmed. Each poll first waits at most 100 ms for the
    /// confirmation.
    arming: Option<Call<Wakes>>,
    seniority: Seniority,
    /// Number of requests in a row to which the store gave no answer.
    errors: u32,
    /// Number of searches in a row, before this one, that found nothing; 0 once this claim has waited for [`STEADY`]. A
    /// quorum whose members disagree says of each claim that it waits, and soon ends it.
    failed_before: u32,
    began: Instant,
    is_uncertain: bool,
    /// Time until which requests of unknown outcome are repeated, because the claim may have a place in the store's
    /// queue: for a fair claim a lease after the last answer, for an unfair one never.
    keeps_place_until: Instant,
}

impl<'a> Search<'a> {
    fn new(services: &'a Services, claim: &'a Arc<Claim>, failed_before: u32) -> Self {
        let mut search = Search {
            services,
            claim,
            wakes: None,
            rearm_at: Instant::ORIGIN,
            arming: None,
            seniority: Seniority::default(),
            errors: 0,
            failed_before,
            began: services.context.now(),
            is_uncertain: false,
            keeps_place_until: Instant::ORIGIN,
        };
        search.keep_place(services.context.now());
        search
    }

    fn keep_place(&mut self, answered: Instant) {
        if self.claim.fairness == Fairness::Fifo {
            self.keeps_place_until = answered + self.claim.lease;
        }
    }

    /// Asks until the claim is granted, has ended, is unwanted, is refused with a permanent error, or may be granted
    /// although the store did not confirm it. Asks again after other transient errors.
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
                // Subscribe to wake-ups, then poll at once: the poll finds a release from before the subscription.
                Pause::Fixed(_) => Pause::AT_ONCE,
                Pause::UntilWakeUp { .. } => match self.ask().await {
                    Ok(pause) => pause,
                    Err(found) => return found,
                },
            };
        }
    }

    /// Subscribes to wake-ups, unless subscribed. A poll must follow, to find a release from before the subscription.
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

    /// Polls once. `Ok`: the pause before the next poll. `Err`: how the search ended.
    async fn ask(&mut self) -> Result<Pause, Found> {
        let context = &self.services.context;
        let asked = context.now();
        let answer = context
            .store
            .acquire(self.claim.clone(), context.not_after(asked))
            .await;
        match answer {
            // A quorum answers `Ended` for a claim that it withdrew, and SQL `TooLate` for one that got no connection in time,
            // without asking a server.
            Ok(AcquireReply::Ended | AcquireReply::TooLate) | Err(_) => {}
            Ok(_) => {
                context.store_answered();
                self.keep_place(asked);
            }
        }
        match answer {
            Ok(AcquireReply::Granted(grant)) => return Err(Found::Granted(grant)),
            Ok(AcquireReply::Ended) => return Err(Found::Ended),
            Ok(AcquireReply::Waiting { poll_after, .. }) => {
                self.errors = 0;
                if asked - self.began >= STEADY {
                    self.failed_before = 0;
                }
                // Measured from the request, so that a slow answer does not delay the next poll.
                let poll_after = asked + poll_after - context.now();
                let most = if self.wakes.is_some() { Duration::MAX } else { POLL };
                let time = self.spread(poll_after.clamp(SOON, most));
                return Ok(Pause::UntilWakeUp { time, others: 0 });
            }
            Ok(AcquireReply::TooLate | AcquireReply::Recovering) => {}
            Err(error) => {
                let is_unknown = error.effect() == Effect::Unknown;
                self.is_uncertain |= is_unknown;
                if !error.is_transient() {
                    return Err(Found::Failed(error));
                }
                context.store_failed(&self.claim.at.key, &error);
                if is_unknown && context.now() >= self.keeps_place_until {
                    return Err(Found::Unconfirmed);
                }
            }
        }
        self.errors += 1;
        Ok(Pause::Fixed(backoff(self.errors, context.dice())))
    }

    /// Adds a random part to `time`, so that clients do not all poll at once.
    fn spread(&self, time: Duration) -> Duration {
        time + (time / 8).min(SPREAD).mul_f64(self.services.context.fraction())
    }

    /// Waits for a wake-up, or for `time`. Returns false if the client is closed or no waiter wants the claim.
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
/// The first client that asks after a wake-up gets the key, and the calls of the others are wasted. If chance decided
/// which client is first, some clients would seldom get the key. So each client lets those that have waited for
/// longer ask first: the client that held the key last asks last.
#[derive(Debug, Default)]
struct Seniority {
    /// Number of clients that have waited for longer. Each wake-up is for one of them, and subtracts one.
    ahead: u32,
    round_trip: Duration,
}

impl Seniority {
    /// The shortest head start given to other clients, because timers are no more precise. If the store is fast,
    /// another client may need less time to acquire and release. The wake-up of that release then shortens this wait.
    const SHORTEST: Duration = Duration::from_millis(1);

    /// The head start that this client gives to others after a wake-up: a third of a round trip for each of them,
    /// which is longer than a wake-up takes to reach all clients. `None` if this client may ask at once.
    fn woken(&mut self) -> Option<Duration> {
        self.ahead = self.ahead.saturating_sub(1);
        let lead = self.round_trip / 3 * self.ahead;
        (self.ahead > 0).then_some(lead.max(Self::SHORTEST))
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
            ("near", 1, 3, [Some(ms(1)), Some(ms(1)), None, None]),
            ("with none ahead", 30, 0, [None, None, None, None]),
        ];
        for (name, round_trip, ahead, leads) in cases {
            let round_trip = ms(round_trip);
            let mut seniority = Seniority { ahead, round_trip };
            assert_eq!(leads.map(|_| seniority.woken()), leads, "{name}");
        }
    }
}
