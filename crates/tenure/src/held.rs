//! A claim that this client holds: its deadline, its run of tokens, and how its loss becomes known.
//! Who gets it next is the line's business.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_backend::{Claim, Evidence, FencingToken, Grant, Instant};
use tokio::sync::Notify;

use crate::belief::believe_until;
use crate::error::{Lost, LostCause};
use crate::line::Line;
use crate::want::Options;
use crate::watchdog::{Mark, Marked};

/// Belief is over: the deadline of a lost claim. Once stored it is never replaced, which makes loss sticky.
const LOST: u64 = 0;

/// What few claims have, out of the way, so that a claim that is merely held takes little.
#[derive(Debug)]
struct Extra {
    evidence: Option<Evidence>,
    max_hold_ends: Option<Instant>,
    kept_until: Option<Instant>,
}

impl Extra {
    fn of(options: &Options, evidence: Option<Evidence>, now: Instant) -> Option<Box<Self>> {
        let (max_hold_ends, kept_until) = (
            options.max_hold.map(|d| now + d),
            options.at_least.map(|d| now + d),
        );
        let any = evidence.is_some() || max_hold_ends.is_some() || kept_until.is_some();
        any.then(|| {
            Box::new(Extra {
                evidence,
                max_hold_ends,
                kept_until,
            })
        })
    }
}

/// A granted claim, shared by its guards, its line and the watchdog.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) claim: Arc<Claim>,
    pub(crate) line: Arc<Line>,
    pub(crate) options: Arc<Options>,
    /// The run's first token, and how many grants it has.
    first_token: Option<FencingToken>,
    run: u32,
    extra: Option<Box<Extra>>,
    /// The lease that renewal reckons with, and the one that the store gave: beside each other, so that a round of renewals
    /// need not look at the claim.
    lease_nanos: AtomicU64,
    given_nanos: u64,
    /// The local deadline in nanoseconds, or [`LOST`].
    deadline: AtomicU64,
    /// When the request was sent that the store confirmed last.
    confirmed: AtomicU64,
    /// How many grants of the run were handed out after the first.
    passed: AtomicU32,
    /// How many guards of one owner share it.
    guards: AtomicU32,
    /// A release was sent, or is about to be: the claim is nobody's to pass or renew.
    departed: AtomicBool,
    /// The last renewal failed, or was not answered: if the deadline comes, the store was out of reach.
    strained: AtomicBool,
    /// The store wants an early renewal, and has not confirmed one.
    first_renewal_due: AtomicBool,
    loss: OnceLock<Box<LostCause>>,
    mark: Mark,
}

impl Held {
    /// Takes a grant; `None` if it arrived dead, that is, with no belief left at `now`.
    pub(crate) fn new(
        line: &Arc<Line>,
        claim: Arc<Claim>,
        grant: Grant,
        options: Arc<Options>,
        now: Instant,
    ) -> Option<Arc<Held>> {
        let profile = line.engine.backend.profile();
        let margin = profile.limits.margin;
        // A fixed lease is not longer than it was asked for, also where the store rounds it up.
        let believed = if options.renewed {
            grant.lease
        } else {
            grant.lease.min(claim.lease)
        };
        let mut deadline = believe_until(grant.held_from, believed, margin);
        let extra = Extra::of(&options, grant.evidence, now);
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
        Some(Arc::new(Held {
            claim,
            line: line.clone(),
            options,
            first_token: grant.tokens.map(|run| run.first()),
            run,
            extra,
            lease_nanos: AtomicU64::new((Instant::ORIGIN + lease).as_nanos()),
            given_nanos: (Instant::ORIGIN + grant.lease).as_nanos(),
            deadline: AtomicU64::new(deadline.as_nanos()),
            confirmed: AtomicU64::new(grant.held_from.as_nanos()),
            passed: AtomicU32::new(0),
            guards: AtomicU32::new(1),
            departed: AtomicBool::new(false),
            strained: AtomicBool::new(false),
            first_renewal_due: AtomicBool::new(profile.first_renewal.is_some()),
            loss: OnceLock::new(),
            mark: Mark::default(),
        }))
    }

    /// Whether the claim is believed to be held at `now`. Once it was not, it never is again.
    pub(crate) fn check(&self, now: Instant) -> Result<(), Lost> {
        loop {
            let deadline = self.deadline.load(Ordering::Acquire);
            if deadline == LOST {
                // Whoever stored LOST stores the cause as its next step: this waits for nothing but that.
                return Err(Lost {
                    cause: LostCause::clone(self.loss.wait()),
                });
            }
            if now.as_nanos() < deadline {
                return Ok(());
            }
            self.lose_if(deadline, self.why_belief_ends(deadline));
        }
    }

    /// Like [`check`](Self::check), for those who do not care why.
    pub(crate) fn is_believed(&self, now: Instant) -> bool {
        self.check(now).is_ok()
    }

    /// Why the local deadline came without a confirmation.
    fn why_belief_ends(&self, deadline: u64) -> LostCause {
        if self.max_hold_ends().is_some_and(|end| deadline >= end.as_nanos()) {
            LostCause::MaxHold
        } else if self.options.renewed && self.strained.load(Ordering::Relaxed) {
            LostCause::Unreachable
        } else {
            LostCause::Expired
        }
    }

    /// Ends belief, for good.
    pub(crate) fn lose(&self, cause: LostCause) {
        let mut deadline = self.deadline.load(Ordering::Acquire);
        while deadline != LOST && !self.lose_if(deadline, cause.clone()) {
            deadline = self.deadline.load(Ordering::Acquire);
        }
    }

    /// Ends belief unless the deadline has changed.
    fn lose_if(&self, deadline: u64, cause: LostCause) -> bool {
        let won = self
            .deadline
            .compare_exchange(deadline, LOST, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if won {
            let _ = self.loss.set(Box::new(cause));
            self.line.meters().lost(self.loss.wait());
            self.bell().notify_waiters();
        }
        won
    }

    /// Rung when this claim, or one of several others, is lost.
    fn bell(&self) -> &Notify {
        self.line.engine.loss_bell(self.claim.at.id)
    }

    /// Moves the deadline after a renewal, unless it has passed. The deadline may move back: a store may keep the claim for
    /// less than before. Ignores the reply to a request that was sent before the last confirmed one.
    pub(crate) fn extend(&self, held_from: Instant, lease: Duration, margin: Option<Duration>, now: Instant) {
        self.strained.store(false, Ordering::Relaxed);
        let sent = held_from.as_nanos();
        if self.confirmed.fetch_max(sent, Ordering::AcqRel) > sent {
            return;
        }
        let mut later = believe_until(held_from, lease, margin);
        if let Some(end) = self.max_hold_ends() {
            later = later.min(end);
        }
        // Read again with each attempt: a later request may be confirmed by another task at the same moment.
        let is_last = || self.confirmed.load(Ordering::Acquire) == sent;
        let moved = |deadline| {
            (deadline != LOST && now.as_nanos() < deadline && is_last()).then_some(later.as_nanos())
        };
        let _ = self
            .deadline
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, moved);
        let least = lease.min(self.claim.lease);
        self.lease_nanos
            .store((Instant::ORIGIN + least).as_nanos(), Ordering::Relaxed);
    }

    /// Remembers that a renewal was asked for and not confirmed.
    pub(crate) fn strain(&self) {
        self.strained.store(true, Ordering::Relaxed);
    }

    /// Whether the store wants an early renewal, and has not confirmed one.
    pub(crate) fn is_first_renewal_due(&self) -> bool {
        self.first_renewal_due.load(Ordering::Relaxed)
    }

    /// The store has confirmed the early renewal that it wants.
    pub(crate) fn first_renewal_done(&self) {
        self.first_renewal_due.store(false, Ordering::Relaxed);
    }

    /// Whether the watchdog renews the claim: always, or until the store has confirmed its early renewal.
    pub(crate) fn is_renewed(&self) -> bool {
        self.options.renewed || self.is_first_renewal_due()
    }

    /// The lease that renewal reckons with: what was asked for, or what the store gave last if that is less.
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_nanos(self.lease_nanos.load(Ordering::Relaxed))
    }

    /// The lease that the store said it gave.
    pub(crate) fn given_lease(&self) -> Duration {
        Duration::from_nanos(self.given_nanos)
    }

    /// The backend's own proof of the grant.
    pub(crate) fn evidence(&self) -> Option<&Evidence> {
        self.extra.as_ref()?.evidence.as_ref()
    }

    /// When belief ends unless a renewal comes.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// When the request was sent that the store confirmed last.
    pub(crate) fn confirmed(&self) -> Instant {
        Instant::from_nanos(self.confirmed.load(Ordering::Acquire))
    }

    /// When its longest hold time ends, if it has one.
    fn max_hold_ends(&self) -> Option<Instant> {
        self.extra.as_ref()?.max_hold_ends
    }

    /// Until when it is kept though its holder is done.
    pub(crate) fn kept_until(&self) -> Option<Instant> {
        self.extra.as_ref()?.kept_until
    }

    /// Draws the next grant of the run; `None` when it is used up.
    pub(crate) fn next_in_run(&self) -> Option<u32> {
        let limit = self.run;
        self.passed
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |passed| {
                (passed + 1 < limit).then_some(passed + 1)
            })
            .map(|before| before + 1)
            .ok()
    }

    /// How many grants of the run were handed out.
    pub(crate) fn handed_out(&self) -> u32 {
        self.passed.load(Ordering::Acquire) + 1
    }

    /// The token of the run's `nth` grant.
    pub(crate) fn token(&self, nth: u32) -> Option<FencingToken> {
        FencingToken::new(self.first_token?.get() + u64::from(nth))
    }

    /// Counts one more guard of the same owner; false if the last one is gone already.
    pub(crate) fn enter_again(&self) -> bool {
        self.guards
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |guards| {
                (guards > 0).then_some(guards + 1)
            })
            .is_ok()
    }

    /// Counts one guard less; true if it was the last.
    pub(crate) fn leave(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The claim is handed on: its next holder has the one guard.
    pub(crate) fn hand_on(&self) {
        self.guards.store(1, Ordering::Release);
    }

    /// Whether any guard is left.
    pub(crate) fn has_guards(&self) -> bool {
        self.guards.load(Ordering::Acquire) > 0
    }

    /// Marks the claim as nobody's to pass or renew; false if it was so marked before.
    pub(crate) fn depart(&self) -> bool {
        !self.departed.swap(true, Ordering::AcqRel)
    }

    /// Whether a release was sent or is about to be.
    pub(crate) fn has_departed(&self) -> bool {
        self.departed.load(Ordering::Acquire)
    }

    /// Waits until belief has ended, on the belief clock: also when the network is silent.
    pub(crate) async fn lost(&self) -> Lost {
        let clock = &self.line.engine.clock;
        loop {
            let mut notified = std::pin::pin!(self.bell().notified());
            notified.as_mut().enable();
            let now = clock.now();
            if let Err(lost) = self.check(now) {
                return lost;
            }
            tokio::select! {
                biased;
                () = notified => {}
                () = crate::timer::nap(&self.line.engine.watchdog, self.deadline() - now) => {}
            }
        }
    }
}

impl Marked for Held {
    fn mark(&self) -> &Mark {
        &self.mark
    }
}
