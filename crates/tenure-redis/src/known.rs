//! What a client knows of its own claims, so that the store need not be told: which of them it was granted, which have
//! ended, and which have a request that may still be on its way. What is written down in Redis is said above the scripts;
//! writing down what is held, for others to see, is in `note.rs`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{
    BackendError, Claim, ClaimId, ClientId, Effect, EndedClaims, Fairness, Grant, Instant, Standing, TokenRun,
};
use tokio::sync::Notify;

use crate::clock::ServerClock;

/// For how long a request that was delayed can still arrive, and a little.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(12);

/// For how much longer than a lease what is known of a client is kept in Redis, so that this is said seldom.
const SELDOM: Duration = Duration::from_secs(30);

/// With fewer claims nothing is ever cleared out.
const MIN_SWEEP: usize = 64;

/// What was granted so long ago was not written down in time, and is left.
const LEFT: Duration = Duration::from_secs(1);

/// The claims of this store's clients.
pub(crate) struct Known {
    state: Mutex<State>,
    /// Told when something was granted after a while in which nothing was.
    pub(crate) young: Notify,
}

struct State {
    claims: HashMap<ClaimId, One>,
    /// Once there are so many, those that are past are cleared out.
    sweep_at: usize,
    ended: EndedClaims,
    /// What is not written down yet, in the order in which it was granted.
    young: VecDeque<(Instant, ClaimId)>,
    kept: HashMap<ClientId, Kept>,
}

/// One claim that may be in the store.
struct One {
    claim: Arc<Claim>,
    /// How many placements are under way.
    under_way: u32,
    /// Whether one of them was given up without an answer: it may still arrive.
    in_doubt: bool,
    grant: Option<Held>,
    /// Until when it is remembered at least.
    until: Instant,
}

#[derive(Clone, Copy)]
struct Held {
    run: TokenRun,
    /// When its lease ends on the server's clock, in microseconds; not before.
    ends: u64,
    /// Whether it was written down.
    noted: bool,
}

/// What Redis keeps of a client.
struct Kept {
    label: Arc<str>,
    until: Instant,
}

/// What is known of a claim that is asked for.
pub(crate) enum Asked<'a> {
    /// It has ended.
    Ended,
    /// It was granted, and not given back.
    Granted(TokenRun),
    /// Nothing that answers it: the server is to be asked.
    Open(Asking<'a>),
}

/// A placement that is under way. Dropped without an answer, it is in doubt.
pub(crate) struct Asking<'a> {
    known: &'a Known,
    id: ClaimId,
    pub(crate) more: More,
    answered: bool,
}

/// What a placement says to the server beside the claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum More {
    Nothing,
    /// Write down at once what is granted: its label is not its client's.
    Note,
    /// Keep what is known of the client for so long.
    Keep(Duration),
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

/// A claim that is not written down yet.
pub(crate) struct Note {
    pub(crate) claim: Arc<Claim>,
    pub(crate) run: TokenRun,
}

impl Known {
    pub(crate) fn new() -> Self {
        Known {
            state: Mutex::new(State {
                claims: HashMap::new(),
                sweep_at: MIN_SWEEP,
                ended: EndedClaims::default(),
                young: VecDeque::new(),
                kept: HashMap::new(),
            }),
            young: Notify::new(),
        }
    }

    /// Before a claim is placed or polled.
    pub(crate) fn ask(&self, claim: &Arc<Claim>, now: Instant, place_by: Instant) -> Asked<'_> {
        let id = claim.at.id;
        let mut state = self.state.lock();
        if state.ended.contains(id) {
            return Asked::Ended;
        }
        let until = place_by.max(now) + REMEMBERED;
        state.sweep(now);
        let one = state.claims.entry(id).or_insert_with(|| One {
            claim: claim.clone(),
            under_way: 0,
            in_doubt: false,
            grant: None,
            until,
        });
        if let Some(held) = one.grant {
            return Asked::Granted(held.run);
        }
        one.under_way += 1;
        one.until = one.until.max(until);
        let more = state.more(claim, now);
        Asked::Open(Asking {
            known: self,
            id,
            more,
            answered: false,
        })
    }

    /// Before a claim is released: from now on it is not placed again. It is to be `forget`-ed when the store has answered.
    pub(crate) fn end(&self, id: ClaimId, now: Instant) -> End {
        let mut state = self.state.lock();
        let end = match state.claims.get(&id) {
            Some(one) if one.under_way > 0 || one.in_doubt => End::Doubted,
            Some(one) if one.grant.is_some_and(|held| held.noted) => End::Noted,
            Some(_) => End::Plain,
            None if state.ended.contains(id) => End::Plain,
            None => End::Doubted,
        };
        state.ended.insert(id, now);
        end
    }

    /// Once the store has confirmed that a claim is gone.
    pub(crate) fn forget(&self, id: ClaimId) {
        self.state.lock().claims.remove(&id);
    }

    /// The store says that a claim is gone. Whether it was granted, and its lease had ended by then on the server's clock.
    pub(crate) fn lost(&self, id: ClaimId, now: Instant, shown: u64) -> bool {
        let mut state = self.state.lock();
        let Some(held) = state.claims.get(&id).and_then(|one| one.grant) else {
            return false;
        };
        state.claims.remove(&id);
        state.ended.insert(id, now);
        held.ends <= shown
    }

    /// A claim's lease runs anew until then, on our clock and on the server's.
    pub(crate) fn renewed(&self, id: ClaimId, until: Instant, ends: u64, raised: Option<TokenRun>) {
        if let Some(one) = self.state.lock().claims.get_mut(&id) {
            one.until = until + REMEMBERED;
            if let Some(held) = &mut one.grant {
                held.ends = ends;
                held.run = raised.unwrap_or(held.run);
            }
        }
    }

    /// What was granted before that moment and is still held, and not written down: from now on it counts as if it were.
    /// And since when the next is held.
    pub(crate) fn notes(&self, before: Instant) -> (Vec<Note>, Option<Instant>) {
        let mut state = self.state.lock();
        let mut notes = Vec::new();
        while let Some(&(since, id)) = state.young.front() {
            if since > before {
                return (notes, Some(since));
            }
            state.young.pop_front();
            let State { claims, ended, .. } = &mut *state;
            let Some(One {
                claim,
                grant: Some(held),
                ..
            }) = claims.get_mut(&id)
            else {
                continue;
            };
            if !held.noted && !ended.contains(id) {
                held.noted = true;
                notes.push(Note {
                    claim: claim.clone(),
                    run: held.run,
                });
            }
        }
        (notes, None)
    }
}

impl State {
    /// What is to be said beside a claim that is placed. One says for all that their client is to be kept.
    fn more(&mut self, claim: &Claim, now: Instant) -> More {
        let client = claim.at.id.client();
        match self.kept.get(&client) {
            Some(kept) if now + claim.lease + REMEMBERED > kept.until => {}
            Some(kept) if kept.label == claim.label => return More::Nothing,
            Some(_) => return More::Note,
            None => {}
        }
        let long = claim.lease + REMEMBERED + SELDOM;
        let kept = Kept {
            label: claim.label.clone(),
            until: now + long,
        };
        self.kept.insert(client, kept);
        More::Keep(long)
    }

    fn sweep(&mut self, now: Instant) {
        if self.claims.len() >= self.sweep_at {
            self.claims.retain(|_, one| one.under_way > 0 || now < one.until);
            self.kept.retain(|_, kept| now < kept.until);
            self.sweep_at = MIN_SWEEP.max(self.claims.len() * 2);
        }
    }

    /// Writes down later what was granted.
    fn will_note(&mut self, id: ClaimId, now: Instant) -> bool {
        let first = self.young.is_empty();
        // Whoever writes it down may have ended with its runtime.
        while self.young.front().is_some_and(|(since, _)| now - *since > LEFT) {
            self.young.pop_front();
        }
        self.young.push_back((now, id));
        first
    }
}

impl Asking<'_> {
    /// What the store answered.
    pub(crate) fn answered(
        mut self,
        answer: Result<&Standing, &BackendError>,
        clock: &ServerClock,
        now: Instant,
    ) {
        match answer {
            Ok(Standing::Granted(grant)) => self.granted(grant, clock.at(grant.held_from + grant.lease), now),
            Ok(Standing::Waiting { .. }) => self.refused(true),
            Ok(_) => self.refused(false),
            Err(error) if error.effect() == Effect::None => {
                self.not_kept();
                self.refused(false);
            }
            // Nobody knows: see what happens to it when it is dropped.
            Err(_) => {}
        }
    }

    /// What it was to say beside itself was not heard: the next will say it.
    fn not_kept(&self) {
        if matches!(self.more, More::Keep(_)) {
            self.known.state.lock().kept.remove(&self.id.client());
        }
    }

    fn granted(&mut self, grant: &Grant, ends: u64, now: Instant) {
        self.answered = true;
        let mut state = self.known.state.lock();
        let state = &mut *state;
        let Some(one) = state.claims.get_mut(&self.id) else {
            return;
        };
        one.under_way -= 1;
        one.until = one.until.max(grant.held_from + grant.lease + REMEMBERED);
        one.grant = grant.tokens.map(|run| Held {
            run,
            ends,
            noted: self.more == More::Note,
        });
        if self.more != More::Note && state.will_note(self.id, now) {
            self.known.young.notify_one();
        }
    }

    /// It was not granted. Of one that waits and is fair something is in the store.
    fn refused(&mut self, waits: bool) {
        self.answered = true;
        let mut state = self.known.state.lock();
        let Some(one) = state.claims.get_mut(&self.id) else {
            return;
        };
        one.under_way -= 1;
        let stays = waits && one.claim.fairness == Fairness::Fifo;
        if !stays && one.under_way == 0 && !one.in_doubt {
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
            one.in_doubt = true;
        }
    }
}
