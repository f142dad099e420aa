//! The state of a model and its rules: holders and waiters in one table, in the order of their placing.
//! Connections, clocks and wake-up streams are in `model.rs`, what is shown in `view.rs`.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    BackendError, Cause, Claim, ClaimRef, Departure, Fairness, Fencing, FencingToken, Grant, Holder,
    HolderId, Inspection, Instant, LeaseClock, Limits, Liveness, LockKey, Loss, Mode, Order, OwnerId, Phase,
    Profile, Reach, Released, Renewal, Renewed, Standing, TokenRun, WakeUp,
};
use tenure_testkit::Ailment;
use tokio::sync::mpsc;

use crate::bug::Bug;

const MAX_GRANTS: u32 = 64;

pub(crate) const PROFILE: Profile = Profile {
    store: "model",
    layout: "table",
    reach: Reach::Process,
    mutex: Order::Both,
    read_write: Order::Both,
    semaphore: Order::Both,
    liveness: Liveness::Lease(LeaseClock::Shared),
    hazards: &[],
    fencing: Fencing::Process,
    wake_up: WakeUp::Reliable,
    remembers_ended: true,
    tells_others: true,
    inspection: Inspection {
        lists: true,
        queue: true,
        labels: true,
        remaining: true,
    },
    first_renewal: None,
    limits: Limits {
        min_lease: Duration::from_millis(1),
        max_lease: Duration::from_secs(86_400),
        max_grants: NonZeroU32::new(MAX_GRANTS).unwrap(),
        max_batch: NonZeroU32::MAX,
        margin: None,
        late_by: Duration::ZERO,
    },
};

#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) bug: Option<Bug>,
    /// Holders and waiters in the order of their placing.
    pub(crate) rows: Vec<Row>,
    /// Why claims have ended, and when.
    ended: HashMap<ClaimRef, (Loss, Instant)>,
    pub(crate) ailment: Option<Ailment>,
    bars: HashMap<LockKey, Instant>,
    tokens: HashMap<LockKey, u64>,
    watchers: Vec<Watcher>,
    watches: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) claim: Arc<Claim>,
    pub(crate) from: Instant,
    pub(crate) lease: Duration,
    pub(crate) granted: Option<TokenRun>,
}

#[derive(Debug)]
struct Watcher {
    number: u64,
    claim: Arc<Claim>,
    wake: mpsc::Sender<()>,
}

impl Row {
    pub(crate) fn at(&self, key: &LockKey) -> bool {
        self.claim.at.key == *key
    }

    fn grant(&self) -> Grant {
        Grant {
            tokens: self.granted,
            held_from: self.from,
            lease: self.lease,
            evidence: None,
        }
    }
}

impl Table {
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Ends every row whose lease has ended.
    pub(crate) fn settle(&mut self, now: Instant) {
        let (immortal, zombies) = (self.has(Bug::LeaseNeverEnds), self.has(Bug::DeadWaitersStay));
        if self.has(Bug::ForgetsEndedSoon) {
            self.ended.retain(|_, (_, at)| *at + Duration::from_secs(1) > now);
        }
        let ended = &mut self.ended;
        self.rows.retain(|row| {
            let stays = immortal || zombies && row.granted.is_none();
            let alive = stays || row.from + row.lease > now;
            if !alive {
                ended.insert(row.claim.at.clone(), (Loss::Expired, now));
            }
            alive
        });
    }

    pub(crate) fn acquire(
        &mut self,
        claim: &Arc<Claim>,
        place_by: Instant,
        now: Instant,
    ) -> Result<Standing, BackendError> {
        if self.ended.contains_key(&claim.at) && !self.has(Bug::ForgetsEnded) {
            return Ok(Standing::Ended);
        }
        if self.has(Bug::PlacedComesTooLate) && now > place_by {
            return Ok(Standing::TooLate);
        }
        if let Some(at) = self.rows.iter().position(|row| row.claim.at == claim.at) {
            (self.rows[at].from, self.rows[at].lease) = (now, lease(claim.lease));
            if self.rows[at].granted.is_some() && self.has(Bug::RepetitionDrawsAnotherToken) {
                self.rows[at].granted = Some(self.draw(claim));
            }
            return Ok(self.poll(at, now));
        }
        if now > place_by && !self.has(Bug::PlacesTooLate) {
            return Ok(Standing::TooLate);
        }
        let other_kind = |row: &&Row| row.at(&claim.at.key) && row.claim.mode.kind() != claim.mode.kind();
        if let Some(row) = self.rows.iter().find(other_kind)
            && !self.has(Bug::KindsMix)
        {
            return Err(BackendError::mismatch(row.claim.mode.kind(), claim.mode.kind()));
        }
        let row = Row {
            claim: claim.clone(),
            from: now,
            lease: lease(claim.lease),
            granted: None,
        };
        let at = if self.has(Bug::LastComeFirstServed) {
            0
        } else {
            self.rows.len()
        };
        self.rows.insert(at, row);
        let standing = self.poll(at, now);
        if claim.fairness == Fairness::Unfair && !matches!(standing, Standing::Granted(_)) {
            self.rows.remove(at);
        }
        Ok(standing)
    }

    /// Grants a row if it may be granted.
    fn poll(&mut self, at: usize, now: Instant) -> Standing {
        let claim = self.rows[at].claim.clone();
        if self.rows[at].granted.is_none() && self.admits(at, now) {
            self.rows[at].granted = Some(self.draw(&claim));
        }
        if self.rows[at].granted.is_some() {
            return Standing::Granted(self.rows[at].grant());
        }
        let before = self.rows[..at].iter();
        let ahead = before
            .filter(|row| row.at(&claim.at.key) && row.granted.is_none())
            .count();
        let others = self
            .rows
            .iter()
            .filter(|row| row.at(&claim.at.key) && row.claim.at != claim.at);
        let ends = others.map(|row| row.from + row.lease - now);
        let bar = self.bars.get(&claim.at.key).map(|until| *until - now);
        let soonest = ends.chain(bar.filter(|bar| !bar.is_zero())).min();
        Standing::Waiting {
            ahead: u32::try_from(ahead).ok(),
            poll_after: soonest
                .unwrap_or_default()
                .clamp(Duration::from_millis(1), lease(claim.lease / 3)),
        }
    }

    fn admits(&self, at: usize, now: Instant) -> bool {
        let claim = &self.rows[at].claim;
        let key = &claim.at.key;
        if self.bars.get(key).is_some_and(|until| *until > now) {
            return false;
        }
        let (hasty, small) = (
            self.has(Bug::UnfairOvertakesTheQueue),
            self.has(Bug::SmallOvertakesLarge),
        );
        let mut before = self.rows[..at]
            .iter()
            .filter(|row| row.at(key) && row.granted.is_none());
        let queued = before.any(|row| !(small && claim.mode.admits([row.claim.mode])));
        if queued && !small && !(hasty && claim.fairness == Fairness::Unfair) {
            return false;
        }
        let holders = self
            .rows
            .iter()
            .filter(|row| row.at(key) && row.granted.is_some());
        let mut held = holders.map(|row| row.claim.mode);
        match (self.bug, claim.mode) {
            (Some(Bug::ReaderIgnoresWriter), Mode::Read) => true,
            (Some(Bug::OnePermitTooMany), Mode::Permits { take, of }) => {
                let used: u32 = held.map(permits).sum();
                used + take.get() <= of.get() + 1
            }
            (Some(Bug::KindsMix), mode) => {
                held.all(|other| other.kind() != mode.kind() || mode.admits([other]))
            }
            (_, mode) => mode.admits(held),
        }
    }

    fn draw(&mut self, claim: &Claim) -> TokenRun {
        let last = self.tokens.entry(claim.at.key.clone()).or_default();
        let count = claim.grants.get().min(MAX_GRANTS);
        let first = FencingToken::new(*last + 1).expect("nobody counts to 2^63");
        *last += u64::from(count);
        TokenRun::new(first, NonZeroU32::new(count).expect("a claim asks for a grant"))
            .expect("far from the end")
    }

    pub(crate) fn renew(&mut self, renewal: Renewal, now: Instant) -> Renewed {
        let any_phase = self.has(Bug::RenewalIgnoresItsPhase);
        let (idle, no_raise) = (self.has(Bug::RenewalDoesNothing), self.has(Bug::RaiseIsIgnored));
        let not_for_waiters = self.has(Bug::RaiseOfAWaiterIsIgnored);
        let lengthens = self.has(Bug::ShortenOnlyIsIgnored);
        let (short, hidden) = (
            self.has(Bug::RenewalTooShortIsKept),
            self.has(Bug::RenewalHidesItsRounding),
        );
        let row = self.rows.iter_mut().find(|row| row.claim.at == renewal.who);
        let Some(row) = row else {
            return self.renew_absent(renewal, now);
        };
        let right_phase = match renewal.only {
            Phase::Waiting => row.granted.is_none(),
            Phase::Granted => row.granted.is_some(),
            Phase::Either => true,
        };
        if !right_phase && !any_phase {
            return Renewed::Gone(Loss::Missing);
        }
        let asked = now + lease(renewal.lease);
        let ends = if lengthens {
            asked
        } else {
            renewal.end(row.from + row.lease, asked)
        };
        let (held_from, lease) = (now, ends - now);
        if !idle {
            (row.from, row.lease) = (held_from, if short { renewal.lease } else { lease });
        }
        let no_raise = no_raise || not_for_waiters && row.granted.is_none();
        if let (Some(raise), false) = (renewal.raise, no_raise) {
            row.granted = row.granted.and(Some(raise));
            let last = self.tokens.entry(renewal.who.key).or_default();
            *last = raise.last().get().max(*last);
        }
        let lease = if hidden { renewal.lease } else { lease };
        Renewed::Alive { held_from, lease }
    }

    fn renew_absent(&mut self, renewal: Renewal, now: Instant) -> Renewed {
        let why = self.ended.get(&renewal.who).map(|(why, _)| why.clone());
        let expired = why == Some(Loss::Expired);
        if self.has(Bug::RenewalRecreates) && !expired || self.has(Bug::RenewalRevivesExpired) && expired {
            self.ended.remove(&renewal.who);
            let claim = Arc::new(revived(&renewal));
            let granted = Some(self.draw(&claim));
            let (from, lease) = (now, renewal.lease);
            self.rows.push(Row {
                claim,
                from,
                lease,
                granted,
            });
            return Renewed::Alive {
                held_from: from,
                lease,
            };
        }
        Renewed::Gone(why.unwrap_or(Loss::Missing))
    }

    pub(crate) fn release(&mut self, departure: Departure, now: Instant) -> Released {
        let key = departure.who.key().clone();
        let goes = |row: &Row, bug| match &departure.who {
            Holder::Claim(named) => {
                row.claim.at == *named || bug && row.at(&named.key) && row.granted.is_some()
            }
            Holder::All(key) => row.at(key) && row.granted.is_some(),
            Holder::Foreign { .. } => false,
        };
        let careless = self.has(Bug::AnyoneReleases);
        let ghost = self.has(Bug::GhostOfAWithdrawnWaiter) && departure.cause == Cause::Withdrawn;
        let stays = |row: &Row| ghost && row.granted.is_none() && row.claim.fairness == Fairness::Fifo;
        let (gone, rest): (Vec<Row>, Vec<Row>) = std::mem::take(&mut self.rows)
            .into_iter()
            .partition(|row| goes(row, careless) && !stays(row));
        self.rows = rest;
        let why = match &departure.cause {
            Cause::Evicted { by } if !self.has(Bug::EvictionIsNotTold) => Loss::Evicted { by: by.clone() },
            _ => Loss::Missing,
        };
        let named = match &departure.who {
            Holder::Claim(named) => Some(named.clone()),
            _ => None,
        };
        for ended in gone.iter().map(|row| row.claim.at.clone()).chain(named) {
            if self.has(Bug::LateReleaseOverwritesTheCause) {
                self.ended.remove(&ended);
            }
            self.ended.entry(ended).or_insert((why.clone(), now));
        }
        if !departure.bar.is_zero() && !gone.is_empty() && !self.has(Bug::NoBarAfterEviction) {
            self.bars.insert(key.clone(), now + departure.bar);
        }
        if self.has(Bug::TokensRestartOnRelease) && !self.rows.iter().any(|row| row.at(&key)) {
            self.tokens.remove(&key);
        }
        let others = self.others(&departure);
        self.wake(&key);
        let heir = departure
            .heir
            .map(|heir| self.inherit(&heir.claim, heir.place_by, others, now));
        Released::Done {
            freed: gone.iter().map(|row| HolderId::Claim(row.claim.at.id)).collect(),
            others: Some(others),
            heir,
        }
    }

    /// How many wait for the departing claim's key in other clients.
    fn others(&self, departure: &Departure) -> u32 {
        let key = departure.who.key();
        let counts_own = self.has(Bug::CountsOwnWaiters);
        let foreign = |claim: &Claim| match &departure.who {
            Holder::Claim(named) => counts_own || claim.at.id.client() != named.id.client(),
            _ => true,
        };
        let queued = self
            .rows
            .iter()
            .filter(|row| row.at(key) && row.granted.is_none() && foreign(&row.claim));
        let queued: Vec<&ClaimRef> = queued.map(|row| &row.claim.at).collect();
        let watching = self
            .watchers
            .iter()
            .filter(|watcher| watcher.claim.at.key == *key);
        let only_watching = watching.filter(|w| foreign(&w.claim) && !queued.contains(&&w.claim.at));
        u32::try_from(queued.len() + only_watching.count()).unwrap_or(u32::MAX)
    }

    fn inherit(&mut self, heir: &Arc<Claim>, place_by: Instant, others: u32, now: Instant) -> Standing {
        let asks_soon = Standing::Waiting {
            ahead: None,
            poll_after: Duration::from_millis(1),
        };
        if self.has(Bug::HeirIsForgotten) {
            return asks_soon;
        }
        if others > 0 && heir.fairness == Fairness::Unfair && !self.has(Bug::HeirOvertakes) {
            let held = self.rows.iter().any(|row| row.claim.at == heir.at);
            if !held && !self.ended.contains_key(&heir.at) && now <= place_by {
                return asks_soon;
            }
        }
        if self.has(Bug::HeirOvertakes) && !self.ended.contains_key(&heir.at) {
            let mut waiting: Vec<Row> = self.rows.extract_if(.., |row| row.granted.is_none()).collect();
            let standing = self.acquire(heir, place_by, now);
            self.rows.append(&mut waiting);
            return standing.unwrap_or(asks_soon);
        }
        // An heir of another kind is told so when it asks for itself.
        self.acquire(heir, place_by, now).unwrap_or(asks_soon)
    }

    /// Wake-ups for that claim, until they are disarmed by their number.
    pub(crate) fn arm(&mut self, claim: Arc<Claim>) -> (u64, mpsc::Receiver<()>) {
        let (wake, heard) = mpsc::channel(1);
        self.watches += 1;
        let number = self.watches;
        self.watchers.push(Watcher { number, claim, wake });
        (number, heard)
    }

    pub(crate) fn disarm(&mut self, number: u64) {
        self.watchers.retain(|watcher| watcher.number != number);
    }

    fn wake(&self, key: &LockKey) {
        if !self.has(Bug::WakesNobody) {
            for watcher in self
                .watchers
                .iter()
                .filter(|watcher| watcher.claim.at.key == *key)
            {
                // A watcher that has not heard its last wake-up yet will hear it.
                let _ = watcher.wake.try_send(());
            }
        }
    }
}

fn lease(asked: Duration) -> Duration {
    asked.max(PROFILE.limits.min_lease)
}

fn permits(mode: Mode) -> u32 {
    match mode {
        Mode::Permits { take, .. } => take.get(),
        _ => 0,
    }
}

/// The claim that a renewal would bring back.
fn revived(renewal: &Renewal) -> Claim {
    Claim {
        at: renewal.who.clone(),
        owner: OwnerId(1),
        label: Arc::from("revived"),
        mode: Mode::Exclusive,
        fairness: Fairness::Unfair,
        lease: renewal.lease,
        grants: NonZeroU32::MIN,
    }
}
