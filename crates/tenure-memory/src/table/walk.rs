//! Compares random operations on the table with a simple, slow model without wake-ups: both must give the same replies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Claim, Fairness, HANDOVER_WINDOW, HolderId, Instant, MAX_NOT_AFTER, Mode, Phase, RenewReply,
};
use tenure_testkit::Dice;

use super::fixture::{Fixture, LEASE, key, permits};

const KEYS: [&str; 2] = ["a", "b"];

struct Model {
    /// All claims in the order of their creation, except those that ended more than `MAX_NOT_AFTER` ago.
    claims: Vec<ModelClaim>,
    /// End of the latest cooldown of each key.
    cooldowns: [Instant; 2],
    placed: u64,
    last_token: u64,
}

struct ModelClaim {
    claim: Arc<Claim>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// The table does not have the claim. It was never sent; or it came too late or asked for another kind of lock
    /// than the key is used as; or it is unfair and was not granted.
    New,
    Waiting {
        placed: u64,
        ends: Instant,
    },
    Holding {
        token: u64,
        ends: Instant,
    },
    Ended {
        since: Instant,
    },
}

#[derive(Debug, PartialEq)]
enum ReplyKind {
    Granted,
    Waiting(Option<u32>),
    Ended,
    TooLate,
    Mismatch,
}

impl Model {
    fn expire(&mut self, now: Instant) {
        for one in &mut self.claims {
            match one.state {
                State::Waiting { ends, .. } | State::Holding { ends, .. } if ends <= now => {
                    one.state = State::Ended { since: now };
                }
                _ => {}
            }
        }
        self.claims.retain(|one| match one.state {
            State::Ended { since } => now - since <= MAX_NOT_AFTER,
            _ => true,
        });
    }

    fn on<'a>(&'a self, claim: &'a Claim) -> impl Iterator<Item = &'a ModelClaim> {
        self.claims.iter().filter(|one| one.claim.at.key == claim.at.key)
    }

    fn holders(&self, claim: &Claim) -> Vec<Mode> {
        let holding = self
            .on(claim)
            .filter(|one| matches!(one.state, State::Holding { .. }));
        holding.map(|one| one.claim.mode).collect()
    }

    /// Number of waiting claims of the same key as `claim` whose `placed` is below `than`.
    fn queued(&self, claim: &Claim, than: u64) -> u32 {
        let before = |one: &&ModelClaim| matches!(one.state, State::Waiting { placed, .. } if placed < than);
        u32::try_from(self.on(claim).filter(before).count()).unwrap()
    }

    /// The expected reply to an acquire. `late`: the request comes after its `not_after`. `yields`: the claim is a
    /// successor, and is not granted because claims of other clients wait.
    fn acquire(&mut self, at: usize, late: bool, yields: bool, now: Instant) -> ReplyKind {
        let claim = Arc::clone(&self.claims[at].claim);
        let ends = now + LEASE;
        let placed = match self.claims[at].state {
            State::Ended { .. } => return ReplyKind::Ended,
            State::Holding { token, .. } => {
                self.claims[at].state = State::Holding { token, ends };
                return ReplyKind::Granted;
            }
            State::New if late => return ReplyKind::TooLate,
            State::New => {
                let is_alive = |one: &&ModelClaim| !matches!(one.state, State::New | State::Ended { .. });
                let differs = |one: &ModelClaim| one.claim.mode.kind() != claim.mode.kind();
                if self.on(&claim).filter(is_alive).any(differs) {
                    return ReplyKind::Mismatch;
                }
                self.placed += 1;
                self.placed
            }
            State::Waiting { placed, .. } => placed,
        };
        let before = self.queued(&claim, placed);
        let paused = now < self.cooldowns[usize::from(claim.at.key.as_str() == "b")];
        if before == 0 && !paused && !yields && claim.mode.admits(self.holders(&claim)) {
            self.claims[at].state = State::Holding { token: 0, ends };
            return ReplyKind::Granted;
        }
        if claim.fairness == Fairness::Unfair {
            return ReplyKind::Waiting(None);
        }
        self.claims[at].state = State::Waiting { placed, ends };
        ReplyKind::Waiting(Some(before))
    }

    /// Checks the token of a grant: on a repeated `acquire` the same as before, otherwise greater than all before.
    fn check_token(&mut self, at: usize, reply: &AcquireReply) {
        let AcquireReply::Granted(grant) = reply else {
            return;
        };
        let first = grant.tokens.expect("memory has tokens").first().get();
        match &mut self.claims[at].state {
            State::Holding { token, .. } if *token == 0 => {
                assert!(first > self.last_token, "token {first} after {}", self.last_token);
                self.last_token = first;
                *token = first;
            }
            State::Holding { token, .. } => assert_eq!(*token, first),
            state => panic!("granted, but the model says {state:?}"),
        }
    }

    fn is_alive(&self, at: usize, only: Phase) -> bool {
        match self.claims[at].state {
            State::Waiting { .. } => only != Phase::Granted,
            State::Holding { .. } => only != Phase::Waiting,
            State::New | State::Ended { .. } => false,
        }
    }

    fn end(&mut self, at: usize, since: Instant, cooldown: Duration) -> bool {
        let before = std::mem::replace(&mut self.claims[at].state, State::Ended { since });
        if matches!(before, State::Holding { .. }) && !cooldown.is_zero() {
            let paused = &mut self.cooldowns[usize::from(self.claims[at].claim.at.key.as_str() == "b")];
            *paused = since + cooldown;
        }
        !matches!(before, State::New | State::Ended { .. })
    }
}

fn kind_of(reply: &Result<AcquireReply, tenure_backend::BackendError>) -> ReplyKind {
    match reply {
        Ok(AcquireReply::Granted(_)) => ReplyKind::Granted,
        Ok(AcquireReply::Waiting { ahead, .. }) => ReplyKind::Waiting(*ahead),
        Ok(AcquireReply::Ended) => ReplyKind::Ended,
        Ok(AcquireReply::TooLate) => ReplyKind::TooLate,
        Ok(AcquireReply::Recovering) => panic!("memory does not recover"),
        Err(_) => ReplyKind::Mismatch,
    }
}

struct Walk {
    fixture: Fixture,
    model: Model,
    dice: Dice,
}

impl Walk {
    /// Picks one of the 12 claims that were made last.
    fn pick(&mut self) -> usize {
        let recent = self.model.claims.len().min(12);
        let back = usize::try_from(self.dice.below(recent as u64)).unwrap();
        self.model.claims.len() - 1 - back
    }

    fn make_claim(&mut self) {
        let modes = match self.dice.below(20) {
            0..8 => [Mode::Exclusive, Mode::Exclusive],
            8..14 => [Mode::Read, Mode::Write],
            14..19 => [permits(1, 3), permits(2, 3)],
            _ => [permits(3, 3), permits(1, 2)],
        };
        let mode = modes[usize::try_from(self.dice.below(2)).unwrap()];
        let name = KEYS[usize::try_from(self.dice.below(2)).unwrap()];
        let fairness = if self.dice.chance(70) {
            Fairness::Fifo
        } else {
            Fairness::Unfair
        };
        let client = u8::try_from(self.dice.below(3)).unwrap();
        let claim = self.fixture.claim(client, name, mode, fairness);
        let state = State::New;
        self.model.claims.push(ModelClaim { claim, state });
    }

    fn acquire(&mut self) {
        let (at, late) = (self.pick(), self.dice.chance(5));
        let claim = Arc::clone(&self.model.claims[at].claim);
        let not_after = self.fixture.now - Duration::from_nanos(u64::from(late));
        let expected = self.model.acquire(at, late, false, self.fixture.now);
        let sent = Arc::clone(&claim);
        let reply = self
            .fixture
            .act(|table, at, signals| table.acquire(sent, not_after, at, signals));
        assert_eq!(kind_of(&reply), expected, "{claim:?}");
        reply.iter().for_each(|reply| self.model.check_token(at, reply));
    }

    fn renew(&mut self) {
        let at = self.pick();
        let phases = [Phase::Waiting, Phase::Granted, Phase::Either];
        let only = phases[usize::try_from(self.dice.below(3)).unwrap()];
        let claim = Arc::clone(&self.model.claims[at].claim);
        let reply = self.fixture.renew(&claim, only);
        let alive = matches!(reply, RenewReply::Alive { .. });
        assert_eq!(alive, self.model.is_alive(at, only), "{reply:?} for {claim:?}");
        if let (true, State::Waiting { ends, .. } | State::Holding { ends, .. }) =
            (alive, &mut self.model.claims[at].state)
        {
            *ends = self.fixture.now + LEASE;
        }
    }

    fn release(&mut self) {
        let (at, now) = (self.pick(), self.fixture.now);
        let claim = Arc::clone(&self.model.claims[at].claim);
        let freed = if self.dice.chance(30) {
            let cooldown = if self.dice.chance(50) {
                HANDOVER_WINDOW
            } else {
                Duration::ZERO
            };
            let expected = self.model.end(at, now, cooldown);
            let target = HolderId::Claim(claim.at.id).on(claim.at.key.clone());
            (self.fixture.evict(target, "walk", cooldown).freed, expected)
        } else {
            (
                self.fixture.release(&claim).freed,
                self.model.end(at, now, Duration::ZERO),
            )
        };
        assert_eq!(!freed.0.is_empty(), freed.1, "{claim:?}");
    }

    fn release_to_successor(&mut self) {
        let (from, to) = (self.pick(), self.pick());
        let (claim, successor) = (&self.model.claims[from].claim, &self.model.claims[to].claim);
        if from == to || claim.at.key != successor.at.key {
            return;
        }
        let (claim, successor) = (Arc::clone(claim), Arc::clone(successor));
        let released = self.fixture.release_to(&claim, &successor);
        assert_eq!(
            !released.freed.is_empty(),
            self.model.end(from, self.fixture.now, Duration::ZERO)
        );
        let is_other = |one: &&ModelClaim| {
            matches!(one.state, State::Waiting { .. }) && one.claim.at.id.client() != claim.at.id.client()
        };
        let others = u32::try_from(self.model.on(&claim).filter(is_other).count()).unwrap();
        assert_eq!(released.others, others);
        let reply = released.successor.expect("a successor was named");
        match self.model.acquire(to, false, others > 0, self.fixture.now) {
            ReplyKind::Mismatch => assert!(matches!(reply, AcquireReply::Waiting { .. })),
            expected => assert_eq!(kind_of(&Ok(reply.clone())), expected, "{successor:?}"),
        }
        self.model.check_token(to, &reply);
    }

    fn pass_time(&mut self) {
        let most = if self.dice.chance(10) {
            LEASE
        } else {
            Duration::from_millis(20)
        };
        let nanos = u64::try_from(most.as_nanos()).unwrap();
        self.fixture.pass(Duration::from_nanos(self.dice.below(nanos)));
    }

    /// Checks that table and model have the same holders and waiters, and that `Mode::admits` allows the holders.
    fn compare(&self) {
        for name in KEYS {
            let key = key(name);
            let mut holders = Vec::new();
            let mut waiters = BTreeMap::new();
            for one in self.model.claims.iter().filter(|one| one.claim.at.key == key) {
                let id = HolderId::Claim(one.claim.at.id);
                match one.state {
                    State::Holding { .. } => holders.push(id),
                    State::Waiting { placed, .. } => _ = waiters.insert(placed, id),
                    State::New | State::Ended { .. } => {}
                }
            }
            let waiters: Vec<_> = waiters.into_values().collect();
            let Some(status) = self.fixture.table.status(&key, self.fixture.now) else {
                let is_unused = holders.is_empty() && waiters.is_empty();
                assert!(is_unused, "{name}: {holders:?} {waiters:?}");
                continue;
            };
            let queue = status.waiters.expect("memory shows its queue");
            let queue: Vec<_> = queue.into_iter().map(|waiter| waiter.id).collect();
            assert_eq!(queue, waiters);
            for (at, holder) in status.holders.iter().enumerate() {
                assert!(holders.contains(&holder.id), "not in the model: {holder:?}");
                let besides = status
                    .holders
                    .iter()
                    .enumerate()
                    .filter(|(other, _)| *other != at);
                let admitted = holder.mode.admits(besides.map(|(_, other)| other.mode));
                assert!(admitted, "{:?}", status.holders);
            }
            assert_eq!(status.holders.len(), holders.len());
        }
    }
}

#[test]
fn random_operations_get_the_replies_of_the_model() {
    for seed in 0..40 {
        let fixture = Fixture::new();
        let mut walk = Walk {
            model: Model {
                claims: Vec::new(),
                cooldowns: [fixture.now; 2],
                placed: 0,
                last_token: 0,
            },
            fixture,
            dice: Dice::new(seed),
        };
        for _ in 0..2_000 {
            match walk.dice.below(100) {
                _ if walk.model.claims.is_empty() => walk.make_claim(),
                0..15 => walk.make_claim(),
                15..60 => walk.acquire(),
                60..70 => walk.renew(),
                70..80 => walk.release(),
                80..85 => walk.release_to_successor(),
                _ => walk.pass_time(),
            }
            walk.model.expire(walk.fixture.now);
            walk.compare();
        }
    }
}
