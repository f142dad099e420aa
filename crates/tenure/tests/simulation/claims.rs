//! What the store did with each claim: in which of its memories it was asked for and granted, with which token, and when
//! it was taken away. Attempts and beliefs are the checker's.

use std::collections::BTreeMap;

use tenure_backend::{Claim, ClaimId, FencingToken, Grant, HANDOVER_WINDOW, Instant, LockKey};

/// One claim's life in the store.
#[derive(Clone, Debug)]
struct Life {
    /// When it was asked for first.
    since: Instant,
    granted: Option<Granted>,
    /// What it was granted with: by a store that lost its data once more, with other tokens.
    tokens: Vec<Option<FencingToken>>,
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    epoch: usize,
    /// When an operator took it away, or the store lost its data.
    taken: Option<Instant>,
}

#[derive(Debug, Default)]
pub(crate) struct Claims {
    lives: BTreeMap<ClaimId, Life>,
    /// Until when a key admits nobody after an eviction.
    bars: BTreeMap<LockKey, Instant>,
    /// When the key was granted last to anybody.
    served: BTreeMap<LockKey, Instant>,
}

impl Claims {
    pub(crate) fn asked(&mut self, id: ClaimId, since: Instant) {
        self.lives.entry(id).or_insert(Life {
            since,
            granted: None,
            tokens: Vec::new(),
        });
    }

    /// The store granted the claim, or said again that it has. True if it broke the cooldown that an eviction set.
    pub(crate) fn granted(&mut self, claim: &Claim, grant: &Grant, epoch: usize, now: Instant) -> bool {
        self.served.insert(claim.at.key.clone(), now);
        let Some(life) = self.lives.get_mut(&claim.at.id) else {
            return false;
        };
        // A store that lost its data may grant the same claim anew.
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

    /// Whether the claim was seen granted before.
    pub(crate) fn knows(&self, id: ClaimId) -> bool {
        self.lives.get(&id).is_some_and(|life| life.granted.is_some())
    }

    /// An operator took the claim away.
    pub(crate) fn evicted(&mut self, id: ClaimId, key: &LockKey, now: Instant) {
        let granted = self.lives.get_mut(&id).and_then(|life| life.granted.as_mut());
        // One that waited leaves no cooldown: it has given out no token.
        if let Some(granted) = granted {
            granted.taken.get_or_insert(now);
            self.bars.insert(key.clone(), now + HANDOVER_WINDOW);
        }
    }

    /// The store has lost its memory.
    pub(crate) fn forgotten(&mut self, now: Instant) {
        self.bars.clear();
        for granted in self.lives.values_mut().filter_map(|life| life.granted.as_mut()) {
            granted.taken.get_or_insert(now);
        }
    }

    /// Since when the store has kept nothing of the claim, though its grant may still be on the way.
    pub(crate) fn void_since(&self, id: ClaimId) -> Option<Instant> {
        self.lives.get(&id)?.granted?.taken
    }

    /// Whether a grant with that token is not the claim's first: it was passed on in memory.
    pub(crate) fn was_passed(&self, id: ClaimId, token: Option<FencingToken>) -> bool {
        let life = self.lives.get(&id);
        life.is_some_and(|life| life.granted.is_some() && !life.tokens.contains(&token))
    }

    /// Whether the claim was asked for before that moment.
    pub(crate) fn is_older(&self, id: ClaimId, moment: Option<Instant>) -> bool {
        let asked = self.lives.get(&id).map(|life| life.since);
        asked.zip(moment).is_some_and(|(asked, moment)| asked <= moment)
    }

    /// Whether anything was ever taken away from its holder.
    pub(crate) fn any_taken(&self) -> bool {
        let mut granted = self.lives.values().filter_map(|life| life.granted);
        granted.any(|granted| granted.taken.is_some())
    }

    pub(crate) fn last_served(&self, key: &LockKey) -> Option<Instant> {
        self.served.get(key).copied()
    }
}
