//! One key in the model: its holders, its queue, and whether a claim may be granted.

use std::sync::Arc;

use tenure_backend::{Claim, ClaimId, ClientId, FencingToken, Instant, Kind, Mode, TokenRange};

/// Time before a call was made, and time after its reply arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallTimes {
    pub(super) before: Instant,
    pub(super) after: Instant,
}

/// Period in which a lease or a cooldown ends: not before `earliest`, and no later than `latest`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpiryRange {
    pub(super) earliest: Instant,
    pub(super) latest: Instant,
}

#[derive(Debug, Default)]
pub(super) struct KeyState {
    /// Holders and waiters, in the order in which they were placed.
    pub(super) placed: Vec<PlacedClaim>,
    /// Period in which the cooldown ends. No claim may be granted before.
    cooldown_ends: Option<ExpiryRange>,
    /// Greatest token issued for the key so far.
    greatest: Option<FencingToken>,
    /// Greatest token when the key was last free or its writer downgraded. The tokens of a new grant must exceed this
    /// one, and not `greatest`, because claims that hold together may have equal tokens.
    floor: Option<FencingToken>,
}

/// Claim that waits or holds in the store.
#[derive(Clone, Debug)]
pub(super) struct PlacedClaim {
    pub(super) claim: Arc<Claim>,
    pub(super) ends: ExpiryRange,
    pub(super) phase: Phase,
    /// Tokens that a renewal with `raise` gave to the claim while it waited: its grant may have exactly these.
    pub(super) raised: Option<TokenRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Granted(Option<TokenRange>),
}

impl PlacedClaim {
    pub(super) fn holds(&self) -> bool {
        self.phase != Phase::Waiting
    }
}

impl KeyState {
    pub(super) fn find(&mut self, id: ClaimId) -> Option<&mut PlacedClaim> {
        self.placed.iter_mut().find(|one| one.claim.at.id == id)
    }

    /// Adds a claim, or updates the phase and expiry of a known one.
    pub(super) fn keep(&mut self, claim: &Arc<Claim>, ends: ExpiryRange, phase: Phase) {
        match self.find(claim.at.id) {
            Some(one) => (one.phase, one.ends) = (phase, ends),
            None => self.placed.push(PlacedClaim {
                claim: claim.clone(),
                ends,
                phase,
                raised: None,
            }),
        }
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = &PlacedClaim> {
        self.placed.iter().filter(|one| one.holds())
    }

    pub(super) fn queue(&self) -> impl Iterator<Item = &PlacedClaim> {
        self.placed.iter().filter(|one| !one.holds())
    }

    /// Number of waiters of clients other than `client`.
    pub(super) fn queue_elsewhere(&self, client: Option<ClientId>) -> usize {
        let elsewhere = |one: &&PlacedClaim| Some(one.claim.at.id.client()) != client;
        self.queue().filter(elsewhere).count()
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        self.placed.first().map(|one| one.claim.mode.kind())
    }

    /// Reason why the store must not grant the claim, or `None` if it may.
    pub(super) fn obstacle(&self, claim: &Claim, at: CallTimes) -> Option<String> {
        let before = self.queue().take_while(|one| one.claim.at != claim.at).count();
        let held: Vec<Mode> = self.holders().map(|one| one.claim.mode).collect();
        if before > 0 {
            return Some(format!("{before} waiters are ahead of it in the queue"));
        }
        if !claim.mode.admits(held.iter().copied()) {
            return Some(format!(
                "a claim of mode {} conflicts with the holders {held:?}",
                claim.mode
            ));
        }
        let cooling_down = self.cooldown_ends.is_some_and(|ends| at.after < ends.earliest);
        cooling_down.then(|| "the key is in the cooldown after an eviction".to_owned())
    }

    /// Returns whether the store may answer `Waiting` because a cooldown may last.
    pub(super) fn may_cool_down(&self, at: CallTimes) -> bool {
        self.cooldown_ends.is_some_and(|ends| at.before < ends.latest)
    }

    pub(super) fn start_cooldown(&mut self, ends: ExpiryRange) {
        let before = self.cooldown_ends.replace(ends);
        if let (Some(before), Some(ends)) = (before, &mut self.cooldown_ends) {
            ends.earliest = ends.earliest.max(before.earliest);
            ends.latest = ends.latest.max(before.latest);
        }
    }

    /// Time by which all leases on the key must have ended.
    pub(super) fn last_end(&self) -> Option<Instant> {
        self.placed.iter().map(|one| one.ends.latest).max()
    }

    /// Token that all tokens of a new grant must exceed.
    pub(super) fn floor(&mut self) -> Option<FencingToken> {
        if self.holders().next().is_none() {
            self.raise_floor();
        }
        self.floor
    }

    /// Records that no later grant may have one of the tokens issued so far.
    pub(super) fn raise_floor(&mut self) {
        self.floor = self.greatest;
    }

    pub(super) fn record_tokens(&mut self, run: TokenRange) {
        self.greatest = self.greatest.max(Some(run.last()));
    }

    pub(super) fn greatest(&self) -> Option<FencingToken> {
        self.greatest
    }
}
