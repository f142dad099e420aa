//! A claim that this client holds: its local deadline, its tokens, and its loss.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_backend::{Claim, ClaimRef, Evidence, FencingToken, Grant, Instant, Limits, Mode};
use tokio::sync::Notify;

use super::context::Context;
use super::deadline::local_deadline;
use super::wheel::{Mark, Marked};
use crate::error::{Error, Lost, LostCause};
use crate::telemetry::Meters;

/// The `deadline` of a lost claim. It is never replaced: a lost claim stays lost.
const LOST: u64 = 0;

/// The states of a downgrade, in [`Hold::downgrade`]. `ASKED`: the store may have downgraded the claim or not.
const WRITES: u8 = 0;
const ASKED: u8 = 1;
const DOWNGRADED: u8 = 2;

/// How a claim is held, apart from the length of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldTerms {
    /// Whether the watchdog renews the lease.
    pub(crate) renewed: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<Duration>,
}

impl HoldTerms {
    /// By default, the watchdog renews the claim until its holder unlocks.
    pub(crate) const RENEWED: Self = HoldTerms {
        renewed: true,
        max_hold: None,
        at_least: None,
    };
}

/// Fields that few claims need, boxed to keep [`Hold`] small.
#[derive(Debug)]
struct Extra {
    /// The watchdog does not renew the lease.
    is_fixed: bool,
    evidence: Option<Evidence>,
    max_hold_ends: Option<Instant>,
    kept_until: Option<Instant>,
    /// The lease in the store's grant, if it is not the one that was asked for.
    given: Option<Duration>,
}

impl Extra {
    fn of(terms: HoldTerms, asked: Duration, grant: &Grant, now: Instant) -> Option<Box<Self>> {
        let evidence = grant.evidence.clone();
        let (max_hold_ends, kept_until) = (terms.max_hold.map(|d| now + d), terms.at_least.map(|d| now + d));
        let given = (grant.lease != asked).then_some(grant.lease);
        let (is_timed, is_fixed) = (max_hold_ends.is_some() || kept_until.is_some(), !terms.renewed);
        (evidence.is_some() || is_timed || given.is_some() || is_fixed).then(|| {
            Box::new(Extra {
                is_fixed,
                evidence,
                max_hold_ends,
                kept_until,
                given,
            })
        })
    }
}

/// Is notified when a hold ends, and when the store confirms its downgrade: the hold's queue.
pub(crate) trait HoldObserver: fmt::Debug + Send + Sync {
    fn context(&self) -> &Arc<Context>;

    /// The metrics of the hold's key or, if keys have no metrics of their own, of the client.
    fn meters(&self) -> &Meters;

    /// The hold's local deadline has passed. The claim may still be in the store.
    fn deadline_passed(self: Arc<Self>, hold: &Arc<Hold>);

    /// The store does not have the claim any more.
    fn claim_gone(self: Arc<Self>, hold: &Arc<Hold>);

    /// The store has turned the write claim into a read claim.
    fn downgraded(self: Arc<Self>);
}

/// A granted claim, shared by its guards, its queue and the renewer.
///
/// The hold and its queue refer to each other until the queue removes the hold, when it ends.
///
/// A client may have thousands of holds and renew each of them every second. So a hold is small, and the fields that a
/// renewal uses come first, side by side.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Hold {
    /// The local deadline in nanoseconds, or [`LOST`].
    deadline: AtomicU64,
    /// The time at which the request was sent that set the local deadline: the granted one, or the last confirmed
    /// renewal.
    confirmed: AtomicU64,
    /// The lease from which the renewer computes its times: the caller's, or the store's last one if that is shorter.
    lease_nanos: AtomicU64,
    extra: Option<Box<Extra>>,
    /// The hold's position in the renewer's timer wheel.
    pub(crate) mark: Mark,
    /// Whether the claim was given up: it is neither handed over nor renewed by the watchdog.
    departed: AtomicBool,
    /// Whether the last renewal is unconfirmed. Then a loss at the local deadline has the cause `Unreachable`, unless
    /// the lease is fixed or `max_hold` has ended.
    unconfirmed: AtomicBool,
    /// Whether the store wants an early first renewal that it has not confirmed yet.
    first_renewal_due: AtomicBool,
    /// `WRITES` until a downgrade is asked for, also for claims of other modes. `DOWNGRADED` once the store has
    /// confirmed the downgrade.
    downgrade: AtomicU8,
    /// Number of guards of one owner that share the claim.
    guards: AtomicU32,
    pub(crate) at: ClaimRef,
    /// The lease that the caller asked for, in nanoseconds.
    asked_nanos: u64,
    /// As `confirmed`, without the renewals that an invalidation caused: they do not lengthen the time of local hand-overs.
    fresh_from: AtomicU64,
    /// The time at which the granted request was sent.
    pub(crate) granted: Instant,
    pub(crate) observer: Arc<dyn HoldObserver>,
    first_token: Option<FencingToken>,
    /// The most callers that may get the claim: one for each token that the claim reserved.
    pub(crate) run: u32,
    /// The mode of the claim, before any downgrade.
    pub(crate) asked_mode: Mode,
    loss: OnceLock<Box<LostCause>>,
}

impl Hold {
    /// Accepts a grant at `now`. `None` if its local deadline has passed.
    pub(crate) fn new(
        observer: Arc<dyn HoldObserver>,
        claim: &Claim,
        grant: Grant,
        terms: HoldTerms,
        now: Instant,
    ) -> Option<Arc<Hold>> {
        let profile = observer.context().store.profile();
        // A fixed lease is never longer than the caller asked for, even if the store rounds it up.
        let believed = if terms.renewed {
            grant.lease
        } else {
            grant.lease.min(claim.lease)
        };
        let mut deadline = local_deadline(grant.held_from, believed, &profile.limits);
        let extra = Extra::of(terms, claim.lease, &grant, now);
        if let Some(end) = extra.as_ref().and_then(|extra| extra.max_hold_ends) {
            deadline = deadline.min(end);
        }
        if now >= deadline {
            return None;
        }
        let run = grant
            .tokens
            .map_or(claim.grants, |run| run.count().min(claim.grants))
            .get();
        let lease = grant.lease.min(claim.lease);
        let first_renewal_due = AtomicBool::new(profile.first_renewal.is_some());
        Some(Arc::new(Hold {
            at: claim.at.clone(),
            asked_mode: claim.mode,
            observer,
            first_token: grant.tokens.map(|run| run.first()),
            run,
            extra,
            asked_nanos: nanos(claim.lease),
            lease_nanos: AtomicU64::new(nanos(lease)),
            deadline: AtomicU64::new(deadline.as_nanos()),
            granted: grant.confirmed_from,
            confirmed: AtomicU64::new(grant.held_from.as_nanos()),
            fresh_from: AtomicU64::new(grant.confirmed_from.as_nanos()),
            guards: AtomicU32::new(1),
            departed: AtomicBool::new(false),
            unconfirmed: AtomicBool::new(false),
            first_renewal_due,
            downgrade: AtomicU8::new(WRITES),
            loss: OnceLock::new(),
            mark: Mark::default(),
        }))
    }

    /// Fails if the local deadline has passed at `now`, or the claim was lost before. After that it always fails.
    pub(crate) fn check(&self, now: Instant) -> Result<(), Lost> {
        loop {
            let deadline = self.deadline.load(Ordering::Acquire);
            if deadline == LOST {
                // The task that stores LOST stores the cause right after it, so this wait is short.
                return Err(self.lost(LostCause::clone(self.loss.wait())));
            }
            if now.as_nanos() < deadline {
                return Ok(());
            }
            self.lose_if(deadline, self.why_belief_ends(deadline));
        }
    }

    /// The loss of this claim: its cause, key and first token.
    pub(crate) fn lost(&self, cause: LostCause) -> Lost {
        Lost::new(cause, self.at.key.clone(), self.token(0))
    }

    /// Whether [`check`](Self::check) succeeds.
    pub(crate) fn is_held(&self, now: Instant) -> bool {
        self.check(now).is_ok()
    }

    /// The cause of the loss if the local deadline has passed.
    fn why_belief_ends(&self, deadline: u64) -> LostCause {
        if self.max_hold_ends().is_some_and(|end| deadline >= end.as_nanos()) {
            LostCause::MaxHold
        } else if !self.is_fixed() && self.unconfirmed.load(Ordering::Relaxed) {
            LostCause::Unreachable
        } else {
            LostCause::Expired
        }
    }

    /// Marks the claim as lost, for good.
    pub(crate) fn lose(&self, cause: LostCause) {
        let mut deadline = self.deadline.load(Ordering::Acquire);
        while deadline != LOST && !self.lose_if(deadline, cause.clone()) {
            deadline = self.deadline.load(Ordering::Acquire);
        }
    }

    /// Marks the claim as lost if its deadline is still `deadline`. Returns whether the claim was marked.
    fn lose_if(&self, deadline: u64, cause: LostCause) -> bool {
        let won = self
            .deadline
            .compare_exchange(deadline, LOST, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if won {
            let _ = self.loss.set(Box::new(cause));
            self.observer.meters().lost(self.loss.wait());
            self.loss_notifier().notify_waiters();
        }
        won
    }

    /// The notifier of the loss of this claim. Other claims share this notifier.
    pub(crate) fn loss_notifier(&self) -> &Notify {
        self.observer.context().loss(self.at.id)
    }

    /// Moves the deadline after a renewal, unless the deadline has passed. Moves it back if the store keeps the claim
    /// for less time than before. Ignores the reply to a request sent before the last confirmed one. Only a renewal that
    /// `refreshes` lengthens the time of local hand-overs. `limits` are the store's.
    pub(crate) fn extend(
        &self,
        held_from: Instant,
        lease: Duration,
        now: Instant,
        refreshes: bool,
        limits: &Limits,
    ) {
        let sent = held_from.as_nanos();
        if self.confirmed.fetch_max(sent, Ordering::AcqRel) > sent {
            return;
        }
        if refreshes {
            self.fresh_from.fetch_max(sent, Ordering::AcqRel);
        }
        let mut later = local_deadline(held_from, lease, limits);
        if let Some(end) = self.max_hold_ends() {
            later = later.min(end);
        }
        // Checked in each attempt of `fetch_update`, because another task may confirm a later request at the same
        // time.
        let is_last = || self.confirmed.load(Ordering::Acquire) == sent;
        let moved = |deadline| {
            (deadline != LOST && now.as_nanos() < deadline && is_last()).then_some(later.as_nanos())
        };
        let _ = self
            .deadline
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, moved);
        let least = lease.min(self.asked_lease());
        self.lease_nanos.store(nanos(least), Ordering::Relaxed);
    }

    /// Records that the store has confirmed a renewal.
    pub(crate) fn renewal_confirmed(&self) {
        self.unconfirmed.store(false, Ordering::Relaxed);
    }

    /// The error of the client's last renewals, while this hold's last one is unconfirmed.
    pub(crate) fn renewal_error(&self) -> Option<Error> {
        let unconfirmed = self.unconfirmed.load(Ordering::Relaxed);
        let error = unconfirmed
            .then(|| self.observer.context().renewal_error())
            .flatten();
        error.map(Error::from)
    }

    /// Records that a renewal was sent, until the store confirms it.
    pub(crate) fn renewal_sent(&self) {
        self.unconfirmed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_first_renewal_due(&self) -> bool {
        self.first_renewal_due.load(Ordering::Relaxed)
    }

    pub(crate) fn first_renewal_done(&self) {
        self.first_renewal_due.store(false, Ordering::Relaxed);
    }

    /// Whether the lease is fixed: the watchdog does not renew it.
    pub(crate) fn is_fixed(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.is_fixed)
    }

    /// Whether the watchdog sends renewals: for a fixed lease, only while the early first renewal or a downgrade is
    /// not confirmed.
    pub(crate) fn is_renewed(&self) -> bool {
        !self.is_fixed() || self.is_first_renewal_due() || self.is_downgrade_due()
    }

    /// The mode in which the claim is held: that of the claim, or `Read` once the store has confirmed a downgrade.
    pub(crate) fn mode(&self) -> Mode {
        if self.downgrade.load(Ordering::Acquire) == DOWNGRADED {
            Mode::Read
        } else {
            self.asked_mode
        }
    }

    /// Makes every renewal from now on ask for a downgrade, until the store confirms the downgrade.
    pub(crate) fn ask_downgrade(&self) {
        let _ = self.swap_downgrade(WRITES, ASKED);
    }

    /// Records that the store can never downgrade the claim.
    pub(crate) fn downgrade_refused(&self) {
        let _ = self.swap_downgrade(ASKED, WRITES);
    }

    /// Records that the store confirmed the downgrade. Returns false if that was recorded before.
    pub(crate) fn downgraded(&self) -> bool {
        self.swap_downgrade(ASKED, DOWNGRADED)
    }

    fn swap_downgrade(&self, from: u8, to: u8) -> bool {
        let swapped = self
            .downgrade
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        swapped.is_ok()
    }

    pub(crate) fn is_downgrade_due(&self) -> bool {
        self.downgrade.load(Ordering::Acquire) == ASKED
    }

    /// Whether the store may count this write claim as a read claim. If so, no other writer may use the claim.
    pub(crate) fn may_be_downgraded(&self) -> bool {
        self.downgrade.load(Ordering::Acquire) != WRITES
    }

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_nanos(self.lease_nanos.load(Ordering::Relaxed))
    }

    /// The lease that the caller asked for.
    pub(crate) fn asked_lease(&self) -> Duration {
        Duration::from_nanos(self.asked_nanos)
    }

    /// The lease in the store's grant, before any renewal.
    pub(crate) fn given_lease(&self) -> Duration {
        let given = self.extra.as_ref().and_then(|extra| extra.given);
        given.unwrap_or_else(|| self.asked_lease())
    }

    pub(crate) fn evidence(&self) -> Option<&Evidence> {
        self.extra.as_ref()?.evidence.as_ref()
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    pub(crate) fn confirmed(&self) -> Instant {
        Instant::from_nanos(self.confirmed.load(Ordering::Acquire))
    }

    /// The time from which the time of local hand-overs is counted.
    pub(crate) fn fresh_from(&self) -> Instant {
        Instant::from_nanos(self.fresh_from.load(Ordering::Acquire))
    }

    fn max_hold_ends(&self) -> Option<Instant> {
        self.extra.as_ref()?.max_hold_ends
    }

    /// The end of `at_least`: until then the store keeps the claim after an unlock.
    pub(crate) fn kept_until(&self) -> Option<Instant> {
        self.extra.as_ref()?.kept_until
    }

    /// The reserved token at index `nth`, from 0. `None` if the store has no tokens.
    pub(crate) fn token(&self, nth: u32) -> Option<FencingToken> {
        FencingToken::new(self.first_token?.get() + u64::from(nth))
    }

    /// Adds a guard of the same owner. Returns false if the claim's last guard is gone.
    pub(crate) fn enter_again(&self) -> bool {
        self.guards
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |guards| {
                (guards > 0).then_some(guards + 1)
            })
            .is_ok()
    }

    /// Removes a guard. Returns true if it was the claim's last.
    pub(crate) fn leave(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Number of guards that have the claim.
    pub(crate) fn guards(&self) -> u32 {
        self.guards.load(Ordering::Acquire)
    }

    /// Marks the claim as given up: it is neither handed over nor renewed. Returns false if it was marked before.
    pub(crate) fn depart(&self) -> bool {
        !self.departed.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn has_departed(&self) -> bool {
        self.departed.load(Ordering::Acquire)
    }
}

/// A lease in nanoseconds, at most about 584 years.
fn nanos(lease: Duration) -> u64 {
    (Instant::ORIGIN + lease).as_nanos()
}

impl Marked for Arc<Hold> {
    fn mark(&self) -> &Mark {
        &self.mark
    }
}
