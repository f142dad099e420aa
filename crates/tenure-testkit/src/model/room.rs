//! One key in the model: who holds it, who queues for it, and whether a claim may be granted there.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Claim, ClaimId, ClientId, FencingToken, Instant, Kind, Mode, TokenRange};

/// For how long after somebody left a key may be kept for whoever the store has woken: a claim that nothing else
/// keeps out may be told to wait.
const SETTLE: Duration = Duration::from_millis(200);

/// When a call was made, and when its answer was there.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) before: Instant,
    pub(super) after: Instant,
}

/// When a lease ends: not before `earliest`, and no later than `latest`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) earliest: Instant,
    pub(super) latest: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Room {
    /// Holders and waiters in the order of their placing.
    pub(super) present: Vec<Present>,
    /// Until when nobody may be admitted.
    barred_until: Option<Instant>,
    /// Until when the key may be kept for whoever was woken.
    kept_until: Option<Instant>,
    /// The greatest token of the key so far.
    greatest: Option<FencingToken>,
    /// The greatest token when the key was last free: who holds together may share later ones.
    floor: Option<FencingToken>,
}

/// A claim that is in the store.
#[derive(Clone, Debug)]
pub(super) struct Present {
    pub(super) claim: Arc<Claim>,
    pub(super) ends: Ends,
    pub(super) phase: Phase,
    /// The run that a renewal has recorded as its own while it waited.
    pub(super) raised: Option<TokenRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Granted(Option<TokenRange>),
}

impl Present {
    pub(super) fn holds(&self) -> bool {
        self.phase != Phase::Waiting
    }
}

impl Room {
    pub(super) fn find(&mut self, id: ClaimId) -> Option<&mut Present> {
        self.present.iter_mut().find(|one| one.claim.at.id == id)
    }

    /// Records that a claim is in the store, now or still.
    pub(super) fn keep(&mut self, claim: &Arc<Claim>, ends: Ends, phase: Phase) {
        match self.find(claim.at.id) {
            Some(one) => (one.phase, one.ends) = (phase, ends),
            None => self.present.push(Present {
                claim: claim.clone(),
                ends,
                phase,
                raised: None,
            }),
        }
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = &Present> {
        self.present.iter().filter(|one| one.holds())
    }

    pub(super) fn queue(&self) -> impl Iterator<Item = &Present> {
        self.present.iter().filter(|one| !one.holds())
    }

    /// How many queue for other clients.
    pub(super) fn queue_elsewhere(&self, client: Option<ClientId>) -> usize {
        let elsewhere = |one: &&Present| Some(one.claim.at.id.client()) != client;
        self.queue().filter(elsewhere).count()
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        self.present.first().map(|one| one.claim.mode.kind())
    }

    /// Why a claim cannot be granted, be it in the queue or not; `None` if it may be.
    pub(super) fn keeps_out(&self, claim: &Claim, at: At) -> Option<String> {
        let before = self.queue().take_while(|one| one.claim.at != claim.at).count();
        let held: Vec<Mode> = self.holders().map(|one| one.claim.mode).collect();
        if before > 0 {
            return Some(format!("{before} in the queue are before it"));
        }
        if !claim.mode.admits(held.iter().copied()) {
            return Some(format!(
                "a claim of mode {} is not admitted beside {held:?}",
                claim.mode
            ));
        }
        let barred = self.barred_until.is_some_and(|until| at.after < until);
        barred.then(|| "the key is barred after an eviction".to_owned())
    }

    /// Whether a claim that nothing keeps out may wait all the same.
    pub(super) fn may_keep(&self, at: At) -> bool {
        self.kept_until.is_some_and(|until| at.before < until)
    }

    /// Somebody left just now.
    pub(super) fn was_left(&mut self, now: Instant) {
        self.kept_until = self.kept_until.max(Some(now + SETTLE));
    }

    /// Nobody may be admitted for so long from `at` on; the store may count from any moment within the call.
    pub(super) fn is_barred(&mut self, at: At, cooldown: Duration) {
        self.barred_until = self.barred_until.max(Some(at.before + cooldown));
        self.was_left(at.after + cooldown);
    }

    /// Until when a dead holder or predecessor can be in a claim's way at the most.
    pub(super) fn last_end(&self) -> Option<Instant> {
        self.present.iter().map(|one| one.ends.latest).max()
    }

    /// The token that a grant must exceed.
    pub(super) fn floor(&mut self) -> Option<FencingToken> {
        if self.holders().next().is_none() {
            self.floor = self.greatest;
        }
        self.floor
    }

    /// The greatest token of the key is at least that run's last one.
    pub(super) fn has_drawn(&mut self, run: TokenRange) {
        self.greatest = self.greatest.max(Some(run.last()));
    }

    pub(super) fn greatest(&self) -> Option<FencingToken> {
        self.greatest
    }
}
