//! The waiters of one store that have asked for wake-ups (subscribers), by key and claim.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;
use tenure_backend::{Claim, ClaimId, ClaimRef, Fairness, Instant, LockKey, WakeSignal, Wakes};

use super::mailbox::Mailbox;
use crate::claims::{NextPoll, View, next_poll};

/// All wake-up streams of this store that their waiters have not dropped.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    keys: HashMap<LockKey, KeySubscribers>,
}

#[derive(Debug, Default)]
struct KeySubscribers {
    /// The streams of each claim, nearly always one.
    by_claim: HashMap<ClaimId, SmallVec<[Subscriber; 1]>>,
    /// [`View::fingerprint`] of the key at its last check.
    fingerprint: u64,
}

#[derive(Debug)]
struct Subscriber {
    claim: Arc<Claim>,
    signal: WakeSignal,
    /// Time to check the key again even if nothing changes: a cooldown or a reservation ends then.
    check_at: Option<Instant>,
    /// True if the claim may have a row of phase `Watching` in the table, which must be renewed and later deleted.
    registered: bool,
}

impl Subscribers {
    /// Adds a waiter that wants wake-ups. Dropping the returned stream posts an unsubscribe request to the mailbox.
    pub(super) fn subscribe(&mut self, claim: Arc<Claim>, mailbox: Arc<Mailbox>) -> Wakes {
        let signal = WakeSignal::default();
        let subscriber = Subscriber {
            claim: claim.clone(),
            signal: signal.clone(),
            check_at: None,
            registered: claim.fairness == Fairness::Unfair,
        };
        let key = self.keys.entry(claim.at.key.clone()).or_default();
        key.by_claim.entry(claim.at.id).or_default().push(subscriber);
        let dropped = signal.clone();
        signal.wakes(move || mailbox.unsubscribe(claim.clone(), dropped.clone()))
    }

    /// Removes the subscriber with this signal. Returns whether the claim must now be unregistered: it was
    /// registered, and has no other subscriber.
    pub(super) fn unsubscribe(&mut self, claim: &Claim, signal: &WakeSignal) -> bool {
        let ClaimRef { key: name, id } = &claim.at;
        let Some(key) = self.keys.get_mut(name) else {
            return false;
        };
        let Some(subscribers) = key.by_claim.get_mut(id) else {
            return false;
        };
        let mut registered = false;
        subscribers.retain(|subscriber| {
            let dropped = subscriber.signal.is(signal);
            registered |= dropped && subscriber.registered;
            !dropped
        });
        if !subscribers.is_empty() {
            return false;
        }
        key.by_claim.remove(id);
        if key.by_claim.is_empty() {
            self.keys.remove(name);
        }
        registered
    }

    /// Records that the claim was granted or has ended, and so has no row of phase `Watching` any more.
    pub(super) fn clear_registration(&mut self, at: &ClaimRef) {
        let key = self.keys.get_mut(&at.key);
        let subscribers = key.and_then(|key| key.by_claim.get_mut(&at.id));
        subscribers
            .into_iter()
            .flatten()
            .for_each(|subscriber| subscriber.registered = false);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn contains(&self, key: &LockKey, id: ClaimId) -> bool {
        self.keys
            .get(key)
            .is_some_and(|key| key.by_claim.contains_key(&id))
    }

    pub(super) fn keys(&self) -> Vec<LockKey> {
        self.keys.keys().cloned().collect()
    }

    /// The unfair waiters whose registrations in the table must be renewed before they expire.
    pub(super) fn registered(&self) -> Vec<Arc<Claim>> {
        let registered = self.all().filter(|subscriber| subscriber.registered);
        registered.map(|subscriber| subscriber.claim.clone()).collect()
    }

    /// Keys to check at `now` even if nothing has changed: a cooldown or a reservation ends.
    pub(super) fn due(&self, now: Instant) -> Vec<LockKey> {
        let due = |subscriber: &Subscriber| subscriber.check_at.is_some_and(|check_at| check_at <= now);
        let keys = self
            .keys
            .iter()
            .filter(|(_, key)| key.by_claim.values().flatten().any(due));
        keys.map(|(key, _)| key.clone()).collect()
    }

    /// The next time at which a key is [`due`](Self::due) for a check.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.all().filter_map(|subscriber| subscriber.check_at).min()
    }

    /// Wakes the waiters of the view's key that should poll. Returns whether the key has changed since its last
    /// check.
    pub(super) fn wake(&mut self, view: &View) -> bool {
        let Some(key) = self.keys.get_mut(&view.key) else {
            return false;
        };
        for subscriber in key.by_claim.values_mut().flatten() {
            subscriber.check_at = None;
            match next_poll(view, &subscriber.claim) {
                NextPoll::Now => subscriber.signal.notify(),
                NextPoll::From(at) => subscriber.check_at = Some(at),
                NextPoll::OnChange => {}
            }
        }
        let before = std::mem::replace(&mut key.fingerprint, view.fingerprint());
        before != key.fingerprint
    }

    /// Wakes every waiter, because the rows of their keys cannot be read.
    pub(super) fn wake_all(&self) {
        self.all().for_each(|subscriber| subscriber.signal.notify());
    }

    fn all(&self) -> impl Iterator<Item = &Subscriber> {
        self.keys.values().flat_map(|key| key.by_claim.values()).flatten()
    }
}
