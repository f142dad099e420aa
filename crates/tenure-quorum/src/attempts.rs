//! What this client remembers of its claims: whether it still wants them, and the tokens that it decided on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tenure_backend::{ClaimId, Instant, TokenRange};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// The number of entries at which the first sweep takes place.
const MIN_SWEEP: usize = 1_024;

/// Whether a claim is still wanted. Clones share the answer, so that a request to a slow member can read it when its
/// reply arrives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted(Arc<AtomicBool>);

impl Wanted {
    /// Declares the claim unwanted: every member that grants it from now on releases it again.
    pub(crate) fn give_up(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Returns whether the claim is still wanted.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.0.load(Ordering::SeqCst)
    }
}

/// What is remembered of one claim.
#[derive(Clone, Debug)]
pub(crate) enum Attempt {
    /// A majority granted the claim.
    Granted {
        /// The tokens that the majority agreed on; `None` if the members have no tokens.
        tokens: Option<TokenRange>,
        wanted: Wanted,
    },
    /// Only a minority granted the claim, and it was released there. It can never be granted again.
    Withdrawn,
}

/// The claims of this client that a member may know.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    table: Mutex<Table>,
    /// One lock for each claim with a call in progress.
    turns: Mutex<HashMap<ClaimId, Arc<AsyncMutex<()>>>>,
}

/// The right to decide about a claim. Calls for one claim take turns, so that a release comes after the acquire before it.
pub(crate) struct Turn<'a> {
    attempts: &'a Attempts,
    id: ClaimId,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut turns = self.attempts.turns.lock();
        // The table has the last reference if no other call waits.
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
    /// Each attempt, and the time at which its last lease ends unless it is renewed.
    entries: HashMap<ClaimId, (Attempt, Instant)>,
    /// The number of entries at which the next sweep takes place.
    sweep_at: usize,
}

impl Attempts {
    /// Waits for earlier calls for the claim.
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

    /// Remembers an attempt until `until`, or until it is removed.
    pub(crate) fn insert(&self, id: ClaimId, attempt: Attempt, now: Instant, until: Instant) {
        let mut table = self.table.lock();
        table.entries.insert(id, (attempt, until));
        if table.entries.len() >= table.sweep_at.max(MIN_SWEEP) {
            table.entries.retain(|_, (_, until)| now < *until);
            table.sweep_at = table.entries.len() * 2;
        }
    }

    /// Remembers a renewed claim for longer, and with the tokens to which the renewal raised it.
    pub(crate) fn renewed(&self, id: ClaimId, until: Instant, raised: Option<TokenRange>) {
        if let Some((attempt, end)) = self.table.lock().entries.get_mut(&id) {
            *end = until;
            if let Attempt::Granted { tokens, .. } = attempt {
                *tokens = raised.or(*tokens);
            }
        }
    }

    /// Forgets a claim that has ended. A member that grants it later releases it. Returns whether this client held it.
    pub(crate) fn remove(&self, id: ClaimId) -> bool {
        match self.table.lock().entries.remove(&id) {
            Some((Attempt::Granted { wanted, .. }, _)) => {
                wanted.give_up();
                true
            }
            Some((Attempt::Withdrawn, _)) | None => false,
        }
    }
}
