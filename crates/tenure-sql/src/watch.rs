//! The wake-ups of this handle: who is armed, and how an armed claim is woken.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;
use tenure_backend::{Claim, ClaimId, ClaimRef, Fairness, Instant, LockKey, WakeSignal, Wakes};

use crate::claims::{Look, View, look};
use crate::dialect::sqlite::mailbox::Mailbox;

/// Everybody in this handle who wants to be woken.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    keys: HashMap<LockKey, Key>,
}

#[derive(Debug, Default)]
struct Key {
    /// Nearly always one for each claim.
    armed: HashMap<ClaimId, SmallVec<[Armed; 1]>>,
    /// How the key stood at the last look.
    state: u64,
}

#[derive(Debug)]
struct Armed {
    claim: Arc<Claim>,
    signal: WakeSignal,
    /// When to look again although nothing changes: the end of a cooldown, or of somebody's turn.
    again: Option<Instant>,
    /// Whether the database has a registration of it that must be renewed and taken back.
    registered: bool,
}

impl Watchers {
    /// Arms wake-ups for the claim. The mailbox gets a message when they are dropped.
    pub(crate) fn arm(&mut self, claim: Arc<Claim>, mailbox: Arc<Mailbox>) -> Wakes {
        let signal = WakeSignal::default();
        let armed = Armed {
            claim: claim.clone(),
            signal: signal.clone(),
            again: None,
            registered: claim.fairness == Fairness::Unfair,
        };
        let key = self.keys.entry(claim.at.key.clone()).or_default();
        key.armed.entry(claim.at.id).or_default().push(armed);
        let theirs = signal.clone();
        signal.wakes(move || mailbox.disarm(claim.clone(), theirs.clone()))
    }

    /// Forgets the claim's wake-ups by that signal. Whether a registration is left behind.
    pub(crate) fn forget(&mut self, claim: &Claim, signal: &WakeSignal) -> bool {
        let ClaimRef { key: name, id } = &claim.at;
        let Some(key) = self.keys.get_mut(name) else {
            return false;
        };
        let Some(armed) = key.armed.get_mut(id) else {
            return false;
        };
        let mut registered = false;
        armed.retain(|armed| {
            let dropped = armed.signal.is(signal);
            registered |= dropped && armed.registered;
            !dropped
        });
        if !armed.is_empty() {
            return false;
        }
        key.armed.remove(id);
        if key.armed.is_empty() {
            self.keys.remove(name);
        }
        registered
    }

    /// The claim holds, queues or has ended: its row is no registration any more.
    pub(crate) fn settle(&mut self, at: &ClaimRef) {
        let key = self.keys.get_mut(&at.key);
        let armed = key.and_then(|key| key.armed.get_mut(&at.id));
        armed
            .into_iter()
            .flatten()
            .for_each(|armed| armed.registered = false);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn contains(&self, key: &LockKey, id: ClaimId) -> bool {
        self.keys.get(key).is_some_and(|key| key.armed.contains_key(&id))
    }

    pub(crate) fn keys(&self) -> Vec<LockKey> {
        self.keys.keys().cloned().collect()
    }

    /// The claims whose registrations are to be renewed.
    pub(crate) fn registered(&self) -> Vec<Arc<Claim>> {
        let registered = self.armed().filter(|armed| armed.registered);
        registered.map(|armed| armed.claim.clone()).collect()
    }

    /// The keys to look at again by then, although nothing changed.
    pub(crate) fn due(&self, now: Instant) -> Vec<LockKey> {
        let due = |armed: &Armed| armed.again.is_some_and(|again| again <= now);
        let keys = self
            .keys
            .iter()
            .filter(|(_, key)| key.armed.values().flatten().any(due));
        keys.map(|(key, _)| key.clone()).collect()
    }

    /// When the next key is [`due`](Self::due).
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.armed().filter_map(|armed| armed.again).min()
    }

    /// Wakes the claims on the view's key that should poll. Whether the key stands otherwise than at the last look.
    pub(crate) fn wake(&mut self, view: &View) -> bool {
        let Some(key) = self.keys.get_mut(&view.key) else {
            return false;
        };
        for armed in key.armed.values_mut().flatten() {
            armed.again = None;
            match look(view, &armed.claim) {
                Look::Poll => armed.signal.notify(),
                Look::From(at) => armed.again = Some(at),
                Look::Sleep => {}
            }
        }
        let before = std::mem::replace(&mut key.state, view.state());
        before != key.state
    }

    /// Wakes everybody: nobody knows what changed.
    pub(crate) fn wake_all(&self) {
        self.armed().for_each(|armed| armed.signal.notify());
    }

    fn armed(&self) -> impl Iterator<Item = &Armed> {
        self.keys.values().flat_map(|key| key.armed.values()).flatten()
    }
}
