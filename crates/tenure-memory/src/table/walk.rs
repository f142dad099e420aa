//! Random walks over the state machine beside a model that is written the slow and obvious way: every answer
//! must be the model's. Wake-ups are not modelled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Claim, Fairness, HANDOVER_WINDOW, HolderId, Instant, MAX_NOT_AFTER, Mode, Phase, RenewReply,
};
use tenure_testkit::Dice;

use super::trial::{LEASE, Trial, key, permits};

const KEYS: [&str; 2] = ["a", "b"];

struct Model {
    /// Every claim that was made, in that order, but for those that ended so long ago that nobody asks any
    /// more.
    claims: Vec<Known>,
    bars: [Instant; 2],
    placed: u64,
    last_token: u64,
}

struct Known {
    claim: Arc<Claim>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    New,
    Waiting { placed: u64, ends: Instant },
    Holding { token: u64, ends: Instant },
    Ended { since: Instant },
}

#[derive(Debug, PartialEq)]
enum Answer {
    Granted,
    Waiting(Option<u32>),
    Ended,
    TooLate,
    Mismatch,
}

impl Model {
    fn expire(&mut self, now: Instant) {
        for known in &mut self.claims {
            match known.state {
                State::Waiting { ends, .. } | State::Holding { ends, .. } if ends <= now => {
                    known.state = State::Ended { since: now };
                }
                _ => {}
            }
        }
        self.claims.retain(|known| match known.state {
            State::Ended { since } => now - since <= MAX_NOT_AFTER,
            _ => true,
        });
    }

    fn on<'a>(&'a self, claim: &'a Claim) -> impl Iterator<Item = &'a Known> {
        self.claims
            .iter()
            .filter(|known| known.claim.at.key == claim.at.key)
    }

    fn holders(&self, claim: &Claim) -> Vec<Mode> {
        let holding = self
            .on(claim)
            .filter(|known| matches!(known.state, State::Holding { .. }));
        holding.map(|known| known.claim.mode).collect()
    }

    /// How many queue members were placed before `than`.
    fn queued(&self, claim: &Claim, than: u64) -> u32 {
        let before = |known: &&Known| matches!(known.state, State::Waiting { placed, .. } if placed < than);
        u32::try_from(self.on(claim).filter(before).count()).unwrap()
    }

    /// What an acquire must answer, whether it is late or not, and whether it is a successor's that yields.
    fn acquire(&mut self, at: usize, late: bool, yields: bool, now: Instant) -> Answer {
        let claim = Arc::clone(&self.claims[at].claim);
        let ends = now + LEASE;
        let placed = match self.claims[at].state {
            State::Ended { .. } => return Answer::Ended,
            State::Holding { token, .. } => {
                self.claims[at].state = State::Holding { token, ends };
                return Answer::Granted;
            }
            State::New if late => return Answer::TooLate,
            State::New => {
                let lives = |known: &&Known| !matches!(known.state, State::New | State::Ended { .. });
                let differs = |known: &Known| known.claim.mode.kind() != claim.mode.kind();
                if self.on(&claim).filter(lives).any(differs) {
                    return Answer::Mismatch;
                }
                self.placed += 1;
                self.placed
            }
            State::Waiting { placed, .. } => placed,
        };
        let before = self.queued(&claim, placed);
        let barred = now < self.bars[usize::from(claim.at.key.as_str() == "b")];
        if before == 0 && !barred && !yields && claim.mode.admits(self.holders(&claim)) {
            self.claims[at].state = State::Holding { token: 0, ends };
            return Answer::Granted;
        }
        if claim.fairness == Fairness::Unfair {
            return Answer::Waiting(None);
        }
        self.claims[at].state = State::Waiting { placed, ends };
        Answer::Waiting(Some(before))
    }

    /// Writes down the token of a grant: the same again, or a greater one than all before.
    fn check_token(&mut self, at: usize, standing: &AcquireReply) {
        let AcquireReply::Granted(grant) = standing else {
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

    fn lives(&self, at: usize, only: Phase) -> bool {
        match self.claims[at].state {
            State::Waiting { .. } => only != Phase::Granted,
            State::Holding { .. } => only != Phase::Waiting,
            State::New | State::Ended { .. } => false,
        }
    }

    fn end(&mut self, at: usize, since: Instant, cooldown: Duration) -> bool {
        let before = std::mem::replace(&mut self.claims[at].state, State::Ended { since });
        if matches!(before, State::Holding { .. }) && !cooldown.is_zero() {
            let barred = &mut self.bars[usize::from(self.claims[at].claim.at.key.as_str() == "b")];
            *barred = since + cooldown;
        }
        !matches!(before, State::New | State::Ended { .. })
    }
}

fn answer(standing: &Result<AcquireReply, tenure_backend::BackendError>) -> Answer {
    match standing {
        Ok(AcquireReply::Granted(_)) => Answer::Granted,
        Ok(AcquireReply::Waiting { ahead, .. }) => Answer::Waiting(*ahead),
        Ok(AcquireReply::Ended) => Answer::Ended,
        Ok(AcquireReply::TooLate) => Answer::TooLate,
        Ok(AcquireReply::Recovering) => panic!("memory does not recover"),
        Err(_) => Answer::Mismatch,
    }
}

struct Walk {
    trial: Trial,
    model: Model,
    dice: Dice,
}

impl Walk {
    fn pick(&mut self) -> usize {
        let recent = self.model.claims.len().min(12);
        let back = usize::try_from(self.dice.below(recent as u64)).unwrap();
        self.model.claims.len() - 1 - back
    }

    fn make(&mut self) {
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
        let claim = self.trial.claim(client, name, mode, fairness);
        let state = State::New;
        self.model.claims.push(Known { claim, state });
    }

    fn acquire(&mut self) {
        let (at, late) = (self.pick(), self.dice.chance(5));
        let claim = Arc::clone(&self.model.claims[at].claim);
        let not_after = self.trial.now - Duration::from_nanos(u64::from(late));
        let expected = self.model.acquire(at, late, false, self.trial.now);
        let asks = Arc::clone(&claim);
        let standing = self
            .trial
            .act(|table, at, signals| table.acquire(asks, not_after, at, signals));
        assert_eq!(answer(&standing), expected, "{claim:?}");
        standing
            .iter()
            .for_each(|standing| self.model.check_token(at, standing));
    }

    fn renew(&mut self) {
        let at = self.pick();
        let phases = [Phase::Waiting, Phase::Granted, Phase::Either];
        let only = phases[usize::try_from(self.dice.below(3)).unwrap()];
        let claim = Arc::clone(&self.model.claims[at].claim);
        let renewed = self.trial.renew(&claim, only);
        let alive = matches!(renewed, RenewReply::Alive { .. });
        assert_eq!(alive, self.model.lives(at, only), "{renewed:?} for {claim:?}");
        if let (true, State::Waiting { ends, .. } | State::Holding { ends, .. }) =
            (alive, &mut self.model.claims[at].state)
        {
            *ends = self.trial.now + LEASE;
        }
    }

    fn leave(&mut self) {
        let (at, now) = (self.pick(), self.trial.now);
        let claim = Arc::clone(&self.model.claims[at].claim);
        let freed = if self.dice.chance(30) {
            let cooldown = if self.dice.chance(50) {
                HANDOVER_WINDOW
            } else {
                Duration::ZERO
            };
            let expected = self.model.end(at, now, cooldown);
            let who = HolderId::Claim(claim.at.id).on(claim.at.key.clone());
            (self.trial.evict(who, "walk", cooldown).freed, expected)
        } else {
            (
                self.trial.release(&claim).freed,
                self.model.end(at, now, Duration::ZERO),
            )
        };
        assert_eq!(!freed.0.is_empty(), freed.1, "{claim:?}");
    }

    fn pass_on(&mut self) {
        let (from, to) = (self.pick(), self.pick());
        let (claim, successor) = (&self.model.claims[from].claim, &self.model.claims[to].claim);
        if from == to || claim.at.key != successor.at.key {
            return;
        }
        let (claim, successor) = (Arc::clone(claim), Arc::clone(successor));
        let outcome = self.trial.release_to(&claim, &successor);
        assert_eq!(
            !outcome.freed.is_empty(),
            self.model.end(from, self.trial.now, Duration::ZERO)
        );
        let elsewhere = |known: &&Known| {
            matches!(known.state, State::Waiting { .. }) && known.claim.at.id.client() != claim.at.id.client()
        };
        let others = u32::try_from(self.model.on(&claim).filter(elsewhere).count()).unwrap();
        assert_eq!(outcome.others, others);
        let standing = outcome.successor.expect("a successor was named");
        match self.model.acquire(to, false, others > 0, self.trial.now) {
            Answer::Mismatch => assert!(matches!(standing, AcquireReply::Waiting { .. })),
            expected => assert_eq!(answer(&Ok(standing.clone())), expected, "{successor:?}"),
        }
        self.model.check_token(to, &standing);
    }

    fn pass_time(&mut self) {
        let most = if self.dice.chance(10) {
            LEASE
        } else {
            Duration::from_millis(20)
        };
        let nanos = u64::try_from(most.as_nanos()).unwrap();
        self.trial.pass(Duration::from_nanos(self.dice.below(nanos)));
    }

    /// Holders and waiters are the model's, and the holders may hold together.
    fn compare(&self) {
        for name in KEYS {
            let key = key(name);
            let mut holders = Vec::new();
            let mut waiters = BTreeMap::new();
            for known in self.model.claims.iter().filter(|known| known.claim.at.key == key) {
                let id = HolderId::Claim(known.claim.at.id);
                match known.state {
                    State::Holding { .. } => holders.push(id),
                    State::Waiting { placed, .. } => _ = waiters.insert(placed, id),
                    State::New | State::Ended { .. } => {}
                }
            }
            let waiters: Vec<_> = waiters.into_values().collect();
            let Some(shown) = self.trial.table.show(&key, self.trial.now) else {
                let nobody = holders.is_empty() && waiters.is_empty();
                assert!(nobody, "{name}: {holders:?} {waiters:?}");
                continue;
            };
            let queue = shown.waiters.expect("memory shows its queue");
            let queue: Vec<_> = queue.into_iter().map(|waiter| waiter.id).collect();
            assert_eq!(queue, waiters);
            for (at, holder) in shown.holders.iter().enumerate() {
                assert!(holders.contains(&holder.id), "a ghost: {holder:?}");
                let besides = shown.holders.iter().enumerate().filter(|(other, _)| *other != at);
                let admitted = holder.mode.admits(besides.map(|(_, other)| other.mode));
                assert!(admitted, "{:?}", shown.holders);
            }
            assert_eq!(shown.holders.len(), holders.len());
        }
    }
}

#[test]
fn every_answer_is_the_models_whatever_happens_in_whatever_order() {
    for seed in 0..40 {
        let trial = Trial::new();
        let mut walk = Walk {
            model: Model {
                claims: Vec::new(),
                bars: [trial.now; 2],
                placed: 0,
                last_token: 0,
            },
            trial,
            dice: Dice::new(seed),
        };
        for _ in 0..2_000 {
            match walk.dice.below(100) {
                _ if walk.model.claims.is_empty() => walk.make(),
                0..15 => walk.make(),
                15..60 => walk.acquire(),
                60..70 => walk.renew(),
                70..80 => walk.leave(),
                80..85 => walk.pass_on(),
                _ => walk.pass_time(),
            }
            walk.model.expire(walk.trial.now);
            walk.compare();
        }
    }
}
