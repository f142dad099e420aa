//! History of each claim in the store: its first request, the tokens of its grants, and its eviction or loss.

use std::collections::BTreeMap;

use tenure_backend::{Claim, ClaimId, FencingToken, Grant, HANDOVER_WINDOW, Instant, LockKey};

#[derive(Clone, Debug)]
struct ClaimHistory {
    /// Time of the first request.
    since: Instant,
    granted: Option<Granted>,
    /// First token of each grant by the store. A store that lost its data may grant the claim again with another token.
    tokens: Vec<Option<FencingToken>>,
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    epoch: usize,
    /// Time at which the claim was evicted, or the store lost its data.
    taken: Option<Instant>,
}

#[derive(Debug, Default)]
pub(crate) struct Claims {
    lives: BTreeMap<ClaimId, ClaimHistory>,
    /// For each evicted key, the time before which the store must not grant it.
    bars: BTreeMap<LockKey, Instant>,
    /// Time of the latest grant of each key.
    served: BTreeMap<LockKey, Instant>,
}

impl Claims {
    pub(crate) fn asked(&mut self, id: ClaimId, since: Instant) {
        self.lives.entry(id).or_insert(ClaimHistory {
            since,
            granted: None,
            tokens: Vec::new(),
        });
    }

    /// Records a grant by the store. Returns true if the grant is new and came in the cooldown after an eviction.
    pub(crate) fn granted(&mut self, claim: &Claim, grant: &Grant, epoch: usize, now: Instant) -> bool {
        self.served.insert(claim.at.key.clone(), now);
        let Some(life) = self.lives.get_mut(&claim.at.id) else {
            return false;
        };
        // A second grant in the same epoch is a repeated reply. A store that lost its data (a new epoch) grants again.
        if life.granted.is_some_and(|granted| granted.epoch == epoch) {
            return false;
        }
        life.tokens.push(grant.tokens.map(|run| run.first()));
        let taken = None;
        life.granted = Some(Granted { epoch, taken });
        self.bars
            .get(&claim.at.key)
            .is_some_and(|cooldown| now < *cooldown)
    }

    /// Returns true if the store has granted the claim before.
    pub(crate) fn knows(&self, id: ClaimId) -> bool {
        self.lives.get(&id).is_some_and(|life| life.granted.is_some())
    }

    /// Records an eviction, and starts the cooldown of the key.
    pub(crate) fn evicted(&mut self, id: ClaimId, key: &LockKey, now: Instant) {
        let granted = self.lives.get_mut(&id).and_then(|life| life.granted.as_mut());
        // The eviction of a waiter starts no cooldown: only a holder could still hand its claim over locally.
        if let Some(granted) = granted {
            granted.taken.get_or_insert(now);
            self.bars.insert(key.clone(), now + HANDOVER_WINDOW);
        }
    }

    /// Records that the store lost its data.
    pub(crate) fn forgotten(&mut self, now: Instant) {
        self.bars.clear();
        for granted in self.lives.values_mut().filter_map(|life| life.granted.as_mut()) {
            granted.taken.get_or_insert(now);
        }
    }

    /// Time at which a granted claim was evicted or lost, even if the reply with the grant is still under way.
    pub(crate) fn void_since(&self, id: ClaimId) -> Option<Instant> {
        self.lives.get(&id)?.granted?.taken
    }

    /// Returns true if the token comes from a local hand-over of the claim: it is not the first token of a grant by the
    /// store.
    pub(crate) fn was_passed(&self, id: ClaimId, token: Option<FencingToken>) -> bool {
        let life = self.lives.get(&id);
        life.is_some_and(|life| life.granted.is_some() && !life.tokens.contains(&token))
    }

    /// Returns true if the claim was first requested at `moment` or before.
    pub(crate) fn is_older(&self, id: ClaimId, moment: Option<Instant>) -> bool {
        let asked = self.lives.get(&id).map(|life| life.since);
        asked.zip(moment).is_some_and(|(asked, moment)| asked <= moment)
    }

    /// Returns true if any granted claim was evicted or lost.
    pub(crate) fn any_taken(&self) -> bool {
        let mut granted = self.lives.values().filter_map(|life| life.granted);
        granted.any(|granted| granted.taken.is_some())
    }

    pub(crate) fn last_served(&self, key: &LockKey) -> Option<Instant> {
        self.served.get(key).copied()
    }
}
