//! The renewer, the client's watchdog: one task that renews the client's claims in batches, and notices lost claims.
//!
//! # The algorithm
//!
//! A timer wheel has each hold (a granted claim) at the time of its next renewal or check. The task takes out every
//! hold that is due. It fills the last batch with holds that are due soon, within a twelfth of their lease, so that
//! renewals share calls. It puts each hold back, due for its next renewal, before the store has answered: a renewal that
//! is confirmed needs no further change of the schedule, and one without an answer is sent again only then, because a
//! store that is slow would become slower by more calls. Then the task sends the batches. It never waits for an answer
//! itself. A failed renewal is due again after a thirtieth of the lease. The schedule then wakes the task, and renewals
//! that failed together are retried in one batch.
//!
//! A renewal is due a third of the lease after the last one was sent, less a random part of up to a tenth of that third,
//! so that many clients do not renew at once. The first renewals of all claims of a client have the same random part, and so
//! have later ones that are due together. So claims that were granted one after the other are renewed in that order, and
//! what is known about them lies close together in memory. The local deadline is counted from the time at which the confirmed request was *sent*.
//!
//! ```text
//!  granted          due: a third of the lease
//!    |      +---------------------------------------> Renewing
//!    v      |                                            |
//!  Watched -+ <---- confirmed: the deadline moves -------+
//!    |        <---- failed: again after 1/30 lease ------+
//!    |                                                   |
//!    | the deadline passes                               | the store has no such claim
//!    +------------------------> Lost <-------------------+
//! ```
//!
//! The queue of a hold releases a claim whose deadline has passed, once its `at_least` is over, and forgets one that the
//! store does not have.
//!
//! If the store hints that claims may be gone, the client renews them at once: `invalidations.rs`. For a hold with a fixed
//! lease, the client sends a request only then, for the early first renewal that some stores want, and until a downgrade
//! is confirmed. At the hold's local deadline, the task marks the hold as lost.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use tenure_backend::{Batch, Fault, Instant, Phase, RenewReply, RenewRequest};
use tokio::sync::oneshot;
use tracing::Instrument;

use super::context::{Context, backoff};
use super::deadline::{renew_after, retry_after, stall_after};
use super::hold::Hold;
use super::invalidated::Invalidated;
use super::schedule::Schedule;
use super::tasks::Tasks;
use super::timer::{rest, sleep_until};
use crate::error::{Error, Lost, LostCause, no_answer};
use crate::telemetry::renewing;

#[derive(Clone)]
pub(crate) struct Renewer(Arc<Shared>);

/// When the claims of a batch were renewed, and the random part of the time until their next renewal.
#[derive(Clone, Copy)]
struct Round {
    sent: Instant,
    dice: u64,
}

impl Round {
    fn new(sent: Instant, context: &Context) -> Self {
        let dice = context.dice();
        Round { sent, dice }
    }

    /// The time at which a claim of the batch is due next, according to its lease and deadline at present.
    fn next(self, hold: &Hold) -> Instant {
        next_look(hold, self.sent + renew_after(hold.lease(), self.dice))
    }
}

struct Shared {
    context: Arc<Context>,
    tasks: Tasks,
    schedule: Schedule<Arc<Hold>>,
    /// Sets the random part of first renewals.
    first_dice: u64,
    invalidated: Invalidated,
}

/// A hold to renew, and the time at which the schedule has it next; `None` if the renewal is not the schedule's.
type Due = (Arc<Hold>, Option<Instant>);

impl Renewer {
    pub(crate) fn new(context: &Arc<Context>, tasks: &Tasks) -> Self {
        Renewer(Arc::new(Shared {
            context: context.clone(),
            tasks: tasks.clone(),
            schedule: Schedule::new(context.now()),
            first_dice: context.dice(),
            invalidated: Invalidated::default(),
        }))
    }

    /// Renews a claim that was granted just before `now`, and checks its deadline, until [`forget`](Self::forget).
    pub(crate) fn watch(&self, hold: &Arc<Hold>, now: Instant) {
        let context = &self.0.context;
        let wanted = context.store.profile().first_renewal.unwrap_or(Duration::MAX);
        let wanted = match self.0.invalidated.may_concern(hold.granted) {
            true => Duration::ZERO,
            false => wanted,
        };
        // Where leases are shared, a part of this one has passed.
        let left = hold.confirmed() + hold.lease() - now;
        let renewal = now + renew_after(left, self.0.first_dice).min(wanted);
        let due = next_look(hold, renewal);
        self.0.schedule.insert(hold.clone(), due);
        self.0.invalidated.claim_held();
    }

    /// The claims that are renewed, or whose deadlines are checked.
    pub(crate) fn held(&self) -> Vec<Arc<Hold>> {
        self.0.schedule.items()
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.0.context
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    pub(crate) fn invalidated(&self) -> &Invalidated {
        &self.0.invalidated
    }

    pub(crate) fn max_batch(&self) -> usize {
        self.0.max_batch()
    }

    /// Renews those of the claims that are still held, because the store hinted that they may be gone. Does not lengthen
    /// the time of their local hand-overs.
    pub(crate) async fn renew_now(&self, holds: &[Arc<Hold>]) {
        let now = self.0.context.now();
        let alive = |hold: &&Arc<Hold>| hold.is_held(now) && !hold.has_departed();
        let alive: Vec<Arc<Hold>> = holds.iter().filter(alive).cloned().collect();
        if !alive.is_empty() {
            let round = Round::new(now, &self.0.context);
            let alive = alive.into_iter().map(|hold| (hold, None)).collect();
            self.0.renew(alive, round, false).await;
        }
    }

    /// Stops renewing a claim, and checking its deadline.
    pub(crate) fn forget(&self, hold: &Hold) {
        // The entry is dropped after the schedule is unlocked: it may hold the last reference to the queue, and so to
        // the client.
        drop(self.0.schedule.remove(&hold.mark));
    }

    /// Renews one claim now, to learn whether it is alive.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Backend`]; [`Error::Closed`] if the client's runtime has ended.
    pub(crate) async fn verify(&self, hold: &Arc<Hold>) -> Result<(), Error> {
        let (tell, answer) = oneshot::channel();
        let shared = self.0.clone();
        let hold = hold.clone();
        self.0.tasks.spawn(async move {
            let round = Round::new(shared.context.now(), &shared.context);
            let failed = shared.renew(vec![(hold, None)], round, true).await;
            let _ = tell.send(failed);
        });
        match answer.await {
            Ok(None) => Ok(()),
            Ok(Some(error)) => Err(error),
            Err(_) => Err(self.0.tasks.closed()),
        }
    }

    /// Asks the store why it does not have the claim any more.
    pub(crate) async fn why_gone(&self, hold: &Hold) -> LostCause {
        let renewal = renewal(hold, hold.asked_lease(), true);
        match self.0.context.store.renew(smallvec![renewal]).await.pop() {
            Some(RenewReply::Gone(loss)) => loss.into(),
            _ => LostCause::Missing,
        }
    }

    /// Renews a claim until `until`, the end of its minimum hold (`at_least`), although its holder has unlocked it.
    /// `tell` receives `Ok` after the first renewal, or the error that ended the attempts.
    ///
    /// Returns true at `until`, or earlier at the local deadline: the claim must be released at `until`. Returns false if
    /// the store does not have the claim, it cannot be renewed, or the client closes after a renewal: then no release is
    /// needed, because the lease ends.
    pub(crate) async fn keep(
        &self,
        hold: &Hold,
        until: Instant,
        mut deadline: Instant,
        tell: oneshot::Sender<Result<(), Error>>,
    ) -> bool {
        let Shared { context, tasks, .. } = &*self.0;
        let most = context.store.profile().limits.max_lease;
        let mut tell = Some(tell);
        let mut tell = |answer| tell.take().is_some_and(|tell| tell.send(answer).is_ok());
        let mut kept = false;
        let mut failures = 0;
        // A renewal of the holder that was under way may arrive after the first one of this loop, and shorten the lease.
        // One is sent after this time, too, and so arrives after both.
        let late = context.now() + hold.asked_lease() / 3;
        loop {
            // Subscribes before the store is asked, so that an eviction meanwhile is noticed.
            let evicted = hold.loss_notifier().notified();
            let now = context.now();
            if now >= until {
                return true;
            }
            if now >= deadline {
                let lost = hold.check(now).err();
                let cause = lost.as_ref().map(|lost| &lost.cause);
                let in_store = !matches!(
                    cause,
                    Some(LostCause::Evicted { .. } | LostCause::Session | LostCause::Missing)
                );
                tell(lost.map_or(Ok(()), |lost| Err(lost.into())));
                return in_store;
            }
            let lease = (until - now).min(most);
            let answer = context.store.renew(smallvec![renewal(hold, lease, false)]).await;
            let missing = || RenewReply::Unknown(no_answer());
            let pause = match answer.into_iter().next().unwrap_or_else(missing) {
                RenewReply::Alive { held_from, lease } => {
                    kept = true;
                    failures = 0;
                    deadline = held_from + lease;
                    tell(Ok(()));
                    let next = if now < late {
                        (lease / 3).min(late - now)
                    } else if now + lease < until {
                        lease / 3
                    } else {
                        until - now
                    };
                    next.min(until - now)
                }
                RenewReply::Unknown(error) if error.is_transient() => {
                    failures += 1;
                    backoff(failures, context.dice())
                }
                RenewReply::Unknown(error) => {
                    tell(Err(error.into()));
                    return false;
                }
                RenewReply::Gone(loss) => {
                    let cause = LostCause::from(loss);
                    hold.lose(cause.clone());
                    tell(Err(hold.lost(cause).into()));
                    return false;
                }
            };
            let over = context.now() + pause;
            // A closing client stops renewing after the first confirmed renewal: the lease then ends the claim.
            if kept && tasks.is_closed() {
                return false;
            }
            tokio::select! {
                biased;
                () = sleep_until(tasks, &*context.clock, over) => {}
                () = evicted => {}
                () = tasks.closing().cancelled(), if kept => return false,
            }
        }
    }

    /// The renewer's task: handles claims that are due.
    pub(crate) async fn run(self) {
        let Shared {
            context,
            tasks,
            schedule,
            ..
        } = &*self.0;
        while !tasks.is_gone() {
            let next = self.0.look();
            let now = context.now();
            if next.is_some_and(|next| next <= now) {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                biased;
                () = tasks.ended().cancelled() => {}
                () = schedule.woken() => {}
                () = rest(next.map(|next| next - now)) => {}
            }
        }
    }
}

fn renewal(hold: &Hold, lease: Duration, shorten_only: bool) -> RenewRequest {
    RenewRequest {
        claim: hold.at.clone(),
        lease,
        only: Phase::Granted,
        shorten_only,
        raise: None,
        downgrade: false,
    }
}

/// The time at which a claim is due next: `renewal`, or its deadline if that is earlier or the claim is not renewed.
fn next_look(hold: &Hold, renewal: Instant) -> Instant {
    if hold.is_renewed() {
        renewal.min(hold.deadline())
    } else {
        hold.deadline()
    }
}

impl Shared {
    fn max_batch(&self) -> usize {
        self.context.store.profile().limits.max_batch.get() as usize
    }

    fn spawn_renewal(self: &Arc<Self>, batch: Vec<Due>, round: Round) {
        let shared = self.clone();
        self.tasks.spawn(async move {
            shared.renew(batch, round, true).await;
        });
    }

    /// Starts the renewal of claims that are due, and ends those past their deadline. One call handles a limited
    /// number of claims. Returns the time of the next call, if one is needed.
    fn look(self: &Arc<Self>) -> Option<Instant> {
        let context = &self.context;
        let now = context.now();
        let most = self.max_batch();
        let early = |hold: &Arc<Hold>| self.may_be_early(hold);
        let due = self.schedule.take_due(now, most, early);
        let latest = due.iter().map(|(_, at)| now - *at).max();
        let stall = |(hold, at): &(Arc<Hold>, Instant)| {
            let late = now - *at;
            (late > stall_after(hold.lease())).then_some(late)
        };
        if let Some(stalled) = due.iter().filter_map(stall).max() {
            tracing::warn!(
                "runtime stalled {} ms: leases are renewed late",
                stalled.as_millis()
            );
        }
        if let Some(latest) = latest {
            context.renewal_meters().lateness.record(latest);
        }
        let round = Round::new(now, context);
        let (mut alive, mut renewed) = (Vec::with_capacity(due.len()), Vec::with_capacity(due.len()));
        for (hold, _) in due {
            let departed = hold.has_departed();
            match hold.check(now) {
                Ok(()) if !departed => {
                    let next = round.next(&hold);
                    alive.push((hold.clone(), next));
                    if hold.is_renewed() {
                        renewed.push((hold, Some(next)));
                    }
                }
                Err(lost) if !departed => {
                    warn_lost(&hold, &lost);
                    hold.observer.clone().deadline_passed(&hold);
                }
                _ => {}
            }
        }
        // Puts the claims back into the schedule at once, so that a renewal that is never answered is sent again.
        self.schedule.insert_all(alive.into_iter());
        let mut renewed = renewed.into_iter().peekable();
        while renewed.peek().is_some() {
            self.spawn_renewal(renewed.by_ref().take(most).collect(), round);
        }
        self.schedule.next_wake(now)
    }

    /// How early a renewal may be sent, to fill a batch: a twelfth of the lease, or zero for a fixed lease. For the
    /// early first renewal that some stores want: a quarter of the profile's `first_renewal`.
    fn may_be_early(&self, hold: &Hold) -> Duration {
        if hold.is_first_renewal_due() {
            let profile = self.context.store.profile();
            profile.first_renewal.unwrap_or_default() / 4
        } else if !hold.is_fixed() {
            hold.lease() / 12
        } else {
            Duration::ZERO
        }
    }

    /// Renews a batch of claims. If it `refreshes` them, this lengthens the time of local hand-overs. Returns the first
    /// failure, if any.
    async fn renew(&self, batch: Vec<Due>, round: Round, refreshes: bool) -> Option<Error> {
        let context = &self.context;
        let meters = context.renewal_meters();
        let limits = &context.store.profile().limits;
        let renewals: Batch<RenewRequest> = batch
            .iter()
            // The renewal of a fixed lease only checks the claim, and does not lengthen the lease.
            .map(|(hold, _)| RenewRequest {
                downgrade: hold.is_downgrade_due(),
                ..renewal(hold, hold.asked_lease(), hold.is_fixed())
            })
            .collect();
        let downgrades: Batch<bool> = renewals.iter().map(|renewal| renewal.downgrade).collect();
        batch.iter().for_each(|(hold, _)| hold.renewal_sent());
        let sent = context.now();
        let call = context.store.renew(renewals);
        let answers = call.instrument(renewing(batch.len())).await;
        let now = context.now();
        meters.renewal.record(now - sent);
        let (mut first, mut unknown) = (None, None);
        let mut renewed = 0;
        let mut looks = Vec::new();
        let missing = std::iter::repeat_with(|| RenewReply::Unknown(no_answer()));
        let batch = batch.iter().zip(downgrades);
        for (((hold, due), downgrades), answer) in batch.zip(answers.into_iter().chain(missing)) {
            let failed = match answer {
                _ if hold.has_departed() => hold.check(now).err().map(Error::from),
                RenewReply::Alive { held_from, lease } => {
                    renewed += 1;
                    hold.first_renewal_done();
                    if downgrades && hold.downgraded() {
                        hold.observer.clone().downgraded();
                    }
                    hold.renewal_confirmed();
                    if !hold.is_fixed() {
                        meters.margin.record(hold.deadline() - now);
                        hold.extend(held_from, lease, now, refreshes, limits);
                    }
                    // Nearly always it is due then already: only a new lease or deadline changes this.
                    let next = round.next(hold);
                    if *due != Some(next) {
                        looks.push((hold, next));
                    }
                    hold.check(now).err().map(Error::from)
                }
                RenewReply::Gone(loss) => {
                    hold.lose(loss.into());
                    drop(self.schedule.remove(&hold.mark));
                    let lost = hold.check(now).err();
                    if let Some(lost) = &lost {
                        warn_lost(hold, lost);
                        hold.observer.clone().claim_gone(hold);
                    }
                    lost.map(Error::from)
                }
                RenewReply::Unknown(error) => {
                    tracing::debug!(key = %hold.at.key, claim = %hold.at.id, %error, "a renewal failed");
                    meters.failed.increment(1);
                    // A store that answers with one of these faults refuses every downgrade of the claim, so no
                    // earlier request has had an effect.
                    if downgrades && matches!(error.fault(), Fault::Unsupported | Fault::Invalid) {
                        hold.downgrade_refused();
                    }
                    looks.push((hold, next_look(hold, now + retry_after(hold.lease()))));
                    unknown = Some(error.clone());
                    Some(error.into())
                }
            };
            first = first.or(failed);
        }
        context.renewals_ended(unknown);
        meters.renewed.increment(renewed);
        let looks = looks.into_iter();
        self.schedule.reschedule(looks.map(|(hold, at)| (&hold.mark, at)));
        first
    }
}

fn warn_lost(hold: &Hold, lost: &Lost) {
    tracing::warn!(key = %hold.at.key, claim = %hold.at.id, cause = lost.cause.as_str(), "the lock was lost: {}", lost.cause);
}
