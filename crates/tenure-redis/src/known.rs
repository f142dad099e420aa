//! What a client knows of its own claims, so that the store need not be told: which of them it was granted, which have
//! ended, and which have a request that may still be on its way. What is written down in Redis is said above the scripts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, BackendError, Claim, ClaimId, ClientId, Effect, Fairness, Grant, Instant, TokenRange,
    Tombstones,
};

use crate::answer::record_of;
use crate::clock::ServerClock;

/// For how long a request that was delayed can still arrive, and a little.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(12);

/// For how much longer than a lease what is known of a client is kept in Redis, so that this is said seldom.
const SELDOM: Duration = Duration::from_secs(30);

/// With fewer claims nothing is ever cleared out.
const MIN_SWEEP: usize = 64;

/// The claims of this store's clients.
#[derive(Default)]
pub(crate) struct Known {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    claims: HashMap<ClaimId, One>,
    /// Once there are so many, and no fewer than `MIN_SWEEP`, those that are past are cleared out.
    sweep_at: usize,
    ended: Tombstones,
    kept: HashMap<ClientId, Kept>,
}

/// One claim that may be in the store.
struct One {
    claim: Arc<Claim>,
    /// How many placements are under way.
    under_way: u32,
    /// Until when one of them that was given up without an answer may still arrive.
    in_doubt: Option<Instant>,
    grant: Option<Held>,
    /// It was told that it waits, and is fair: something is in the store.
    queues: bool,
    /// It is being released: it is not asked for any more.
    leaves: bool,
    /// Until when it is remembered at least.
    until: Instant,
}

#[derive(Clone, Copy)]
struct Held {
    run: TokenRange,
    /// When its lease ends on the server's clock, in microseconds; not before.
    ends: u64,
    /// Whether something may be written down of it.
    noted: bool,
}

/// What a server keeps of a client, reached by that connection.
struct Kept {
    /// Its claims' label; empty if they have several.
    label: Arc<str>,
    until: Instant,
    wire: u64,
}

/// That a client is to be kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Keep {
    pub(crate) long: Duration,
    pub(crate) label: Arc<str>,
}

/// What is known of a claim that is asked for.
pub(crate) enum Asked<'a> {
    /// It has ended.
    Ended,
    /// It was granted, and not given back.
    Granted(TokenRange),
    /// Nothing that answers it: the server is to be asked.
    Open(Asking<'a>),
}

/// A placement that is under way. Dropped without an answer, it is in doubt.
pub(crate) struct Asking<'a> {
    known: &'a Known,
    id: ClaimId,
    not_after: Instant,
    /// That its client is to be kept, if this placement is the one to say so.
    pub(crate) keep: Option<Keep>,
    answered: bool,
}

/// What a release says to the server of the claim's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// No request of it can be on its way.
    Plain,
    /// Nor here, and something was written down of it.
    Noted,
    /// One can be on its way, or nobody here knows.
    Doubted,
}

impl Known {
    /// Before a claim is placed or polled, on that connection.
    pub(crate) fn ask(&self, claim: &Arc<Claim>, now: Instant, not_after: Instant, wire: u64) -> Asked<'_> {
        let id = claim.at.id;
        let mut state = self.state.lock();
        if state.ended.contains(id) {
            return Asked::Ended;
        }
        let until = not_after.max(now) + REMEMBERED;
        state.sweep(now);
        let one = state.claims.entry(id).or_insert_with(|| One {
            claim: claim.clone(),
            under_way: 0,
            in_doubt: None,
            grant: None,
            queues: false,
            leaves: false,
            until,
        });
        if one.leaves {
            return Asked::Ended;
        }
        // What may have been placed again since has other tokens.
        if let (Some(held), false) = (one.grant, one.is_in_doubt(now)) {
            return Asked::Granted(held.run);
        }
        one.under_way += 1;
        one.until = one.until.max(until);
        Asked::Open(Asking {
            known: self,
            id,
            not_after,
            keep: state.keep(claim, now, wire),
            answered: false,
        })
    }

    /// Before a claim is released: from then on it is not placed again.
    pub(crate) fn end(&self, id: ClaimId, now: Instant) -> End {
        let mut state = self.state.lock();
        let Some(one) = state.claims.get_mut(&id) else {
            return if state.ended.contains(id) {
                End::Plain
            } else {
                End::Doubted
            };
        };
        one.leaves = true;
        if one.is_in_doubt(now) {
            End::Doubted
        } else if one.grant.is_some_and(|held| held.noted) {
            End::Noted
        } else {
            End::Plain
        }
    }

    /// The store has confirmed that a claim is gone.
    pub(crate) fn has_ended(&self, id: ClaimId, now: Instant) {
        let mut state = self.state.lock();
        state.claims.remove(&id);
        state.ended.insert(id, now);
    }

    /// The store has done nothing about its release.
    pub(crate) fn stays(&self, id: ClaimId) {
        if let Some(one) = self.state.lock().claims.get_mut(&id) {
            one.leaves = false;
        }
    }

    /// The store says that a claim is gone. Whether it was granted, and its lease had ended by then on the server's clock.
    pub(crate) fn lost(&self, id: ClaimId, now: Instant, shown: u64) -> bool {
        let mut state = self.state.lock();
        let Some(one) = state.claims.get_mut(&id) else {
            return false;
        };
        let Some(held) = one.grant.take() else {
            return false;
        };
        // Its release must still know of what may be on the way.
        if !one.is_in_doubt(now) {
            state.claims.remove(&id);
        }
        state.ended.insert(id, now);
        held.ends <= shown
    }

    /// The record that a renewal is to write of a claim: its tokens, or those to which they are `raised`, and its label.
    /// From now on it counts as written. `None` for a claim of which this store knows no grant, or that is being released.
    pub(crate) fn record(&self, id: ClaimId, raised: Option<TokenRange>) -> Option<String> {
        let mut state = self.state.lock();
        let one = state.claims.get_mut(&id).filter(|one| !one.leaves)?;
        let held = one.grant.as_mut()?;
        held.noted = true;
        Some(record_of(raised.unwrap_or(held.run), &one.claim.label))
    }

    /// A claim's lease runs anew until then, on our clock and on the server's.
    pub(crate) fn renewed(&self, id: ClaimId, until: Instant, ends: u64, raised: Option<TokenRange>) {
        if let Some(one) = self.state.lock().claims.get_mut(&id) {
            one.until = until + REMEMBERED;
            if let Some(held) = &mut one.grant {
                held.ends = ends;
                held.run = raised.unwrap_or(held.run);
            }
        }
    }

    /// What is said of a client's label.
    pub(crate) fn label(&self, client: ClientId) -> Arc<str> {
        let state = self.state.lock();
        state
            .kept
            .get(&client)
            .map_or_else(|| "".into(), |kept| kept.label.clone())
    }
}

impl One {
    /// Whether a placement of it can still arrive.
    fn is_in_doubt(&self, now: Instant) -> bool {
        self.under_way > 0 || self.in_doubt.is_some_and(|until| now < until)
    }
}

impl State {
    /// That a claim's client is to be kept. One placement says it for all.
    fn keep(&mut self, claim: &Claim, now: Instant, wire: u64) -> Option<Keep> {
        let until = now + claim.lease + REMEMBERED;
        let kept = self.kept.entry(claim.at.id.client()).or_insert_with(|| Kept {
            label: claim.label.clone(),
            until: now,
            wire,
        });
        if kept.label != claim.label && !kept.label.is_empty() {
            kept.label = "".into();
        } else if kept.wire == wire && until <= kept.until {
            return None;
        }
        let long = claim.lease + REMEMBERED + SELDOM;
        (kept.until, kept.wire) = (kept.until.max(now + long), wire);
        Some(Keep {
            long,
            label: kept.label.clone(),
        })
    }

    fn sweep(&mut self, now: Instant) {
        if self.claims.len() < self.sweep_at.max(MIN_SWEEP) {
            return;
        }
        let State {
            claims, ended, kept, ..
        } = self;
        claims.retain(|id, one| {
            let stays = one.under_way > 0 || now < one.until;
            if !stays && one.leaves {
                ended.insert(*id, now);
            }
            stays
        });
        kept.retain(|_, kept| now < kept.until);
        self.sweep_at = self.claims.len() * 2;
    }
}

impl Asking<'_> {
    /// What the store answered.
    pub(crate) fn answered(mut self, answer: Result<&AcquireReply, &BackendError>, clock: &ServerClock) {
        match answer {
            Ok(AcquireReply::Granted(grant)) => self.granted(grant, clock.at(grant.held_from + grant.lease)),
            Ok(AcquireReply::Waiting { .. }) => self.refused(Some(true)),
            Ok(_) => self.refused(Some(false)),
            // Whatever was in the store is there still.
            Err(error) if error.effect() == Effect::None => self.refused(None),
            // Nobody knows: see what happens to it when it is dropped.
            Err(_) => {}
        }
    }

    /// What it was to say beside itself was not heard: the next will say it.
    fn not_kept(&self) {
        if self.keep.is_some() {
            let mut state = self.known.state.lock();
            if let Some(kept) = state.kept.get_mut(&self.id.client()) {
                kept.until = Instant::ORIGIN;
            }
        }
    }

    fn granted(&mut self, grant: &Grant, ends: u64) {
        self.answered = true;
        let mut state = self.known.state.lock();
        let Some(one) = state.claims.get_mut(&self.id) else {
            return;
        };
        one.under_way -= 1;
        one.until = one.until.max(grant.held_from + grant.lease + REMEMBERED);
        // Of two requests at once the later draw counts.
        let before = one.grant.map(|held| held.run);
        one.grant = grant.tokens.map(|run| Held {
            run: before
                .filter(|before| before.first() > run.first())
                .unwrap_or(run),
            ends,
            noted: one.grant.is_some_and(|held| held.noted),
        });
    }

    /// It was not granted. Whether it waits, if that was said: of one that is fair something is in the store then.
    fn refused(&mut self, waits: Option<bool>) {
        self.answered = true;
        self.not_kept();
        let mut state = self.known.state.lock();
        let Some(one) = state.claims.get_mut(&self.id) else {
            return;
        };
        one.under_way -= 1;
        if let Some(waits) = waits {
            one.queues = waits && one.claim.fairness == Fairness::Fifo;
        }
        let stays = one.queues || waits.is_none() && one.grant.is_some();
        if !stays && one.under_way == 0 && one.in_doubt.is_none() && !one.leaves {
            state.claims.remove(&self.id);
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.not_kept();
        if let Some(one) = self.known.state.lock().claims.get_mut(&self.id) {
            one.under_way -= 1;
            one.in_doubt = one.in_doubt.max(Some(self.not_after + REMEMBERED));
        }
    }
}

#[cfg(test)]
mod tests;
