//! The quorum's memory of this client's claims: the outcome of each, and the tokens on which the members agreed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{ClaimId, Instant, TokenRange};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::claim_state::ClaimState;

/// Number of remembered claims at which `insert` first removes those whose time has passed.
const MIN_SWEEP: usize = 1_024;

/// The remembered outcome of a claim.
#[derive(Clone, Debug)]
pub(crate) enum Attempt {
    /// A majority granted the claim.
    Granted {
        /// The tokens that the majority agreed on; `None` if the members have no tokens.
        tokens: Option<TokenRange>,
        state: ClaimState,
    },
    /// Members granted the claim or may have, but the quorum did not. It is released at those members, and the next
    /// `acquire` for it returns `Ended`.
    Withdrawn,
}

/// A claim that the client still wants, at the start of a request for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) state: ClaimState,
    /// The tokens of a claim that the quorum granted before; further polls keep them. `None` if it did not grant the
    /// claim before; `Some(None)` if the members have no tokens.
    pub(crate) known: Option<Option<TokenRange>>,
}

impl Pending {
    /// Returns whether the quorum granted the claim before.
    pub(crate) fn is_held(&self) -> bool {
        self.known.is_some()
    }
}

/// The remembered claims of this client.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    table: Mutex<Table>,
    /// One lock for each claim with an acquire or release in progress.
    turns: Mutex<HashMap<ClaimId, Arc<AsyncMutex<()>>>>,
}

/// Permission to acquire or release a claim. One call at a time has it, so a release never overtakes an acquire.
pub(crate) struct Turn<'a> {
    attempts: &'a Attempts,
    id: ClaimId,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut turns = self.attempts.turns.lock();
        // If no other call uses this claim's lock, only the map refers to it.
        if turns
            .get(&self.id)
            .is_some_and(|turn| Arc::strong_count(turn) == 1)
        {
            turns.remove(&self.id);
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    /// The outcome of each claim, and the time until which it is remembered: the end of the claim's lease.
    entries: HashMap<ClaimId, (Attempt, Instant)>,
    /// When `entries` has this number of entries, and at least `MIN_SWEEP`, `insert` removes those whose time has
    /// passed.
    sweep_at: usize,
}

impl Attempts {
    /// Waits until earlier acquires and releases of the claim have ended.
    pub(crate) async fn turn(&self, id: ClaimId) -> Turn<'_> {
        let turn = self.turns.lock().entry(id).or_default().clone();
        let guard = Some(turn.lock_owned().await);
        Turn {
            attempts: self,
            id,
            guard,
        }
    }

    pub(crate) fn get(&self, id: ClaimId) -> Option<Attempt> {
        self.table
            .lock()
            .entries
            .get(&id)
            .map(|(attempt, _)| attempt.clone())
    }

    /// Returns what is known of a claim that is requested now. `None` if the claim was withdrawn: it has ended, and
    /// this call forgets it.
    pub(crate) fn begin(&self, id: ClaimId) -> Option<Pending> {
        match self.get(id) {
            Some(Attempt::Withdrawn) => {
                self.table.lock().entries.remove(&id);
                None
            }
            Some(Attempt::Granted { tokens, state }) => Some(Pending {
                state,
                known: Some(tokens),
            }),
            None => Some(Pending::default()),
        }
    }

    /// Remembers a claim at least until `until`, unless it is removed before.
    pub(crate) fn insert(&self, id: ClaimId, attempt: Attempt, now: Instant, until: Instant) {
        let mut table = self.table.lock();
        table.entries.insert(id, (attempt, until));
        if table.entries.len() >= table.sweep_at.max(MIN_SWEEP) {
            table.entries.retain(|_, (_, until)| now < *until);
            table.sweep_at = table.entries.len() * 2;
        }
    }

    /// Keeps a renewed claim, if it is remembered, until the end of its new lease. `raised`, if given, replaces the
    /// tokens of a granted one.
    pub(crate) fn renewed(&self, id: ClaimId, until: Instant, raised: Option<TokenRange>) {
        if let Some((attempt, end)) = self.table.lock().entries.get_mut(&id) {
            *end = until;
            if let Attempt::Granted { tokens, .. } = attempt {
                *tokens = raised.or(*tokens);
            }
        }
    }

    /// Forgets a claim that has ended or is being released. If this client held it, declares it unwanted, and returns
    /// its state and what was left of its lease.
    pub(crate) fn remove(&self, id: ClaimId, now: Instant) -> Option<(ClaimState, Duration)> {
        match self.table.lock().entries.remove(&id)? {
            (Attempt::Granted { state, .. }, until) => {
                state.give_up();
                Some((state, until - now))
            }
            (Attempt::Withdrawn, _) => None,
        }
    }
}
