//! A table with a clock that moves by hand, for the tests beside this file.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tenure_backend::{
    BackendError, Batch, Bell, Cause, Claim, ClaimId, ClaimRef, ClientId, Departure, Fairness, Grant, Heir,
    Holder, HolderId, Instant, LockKey, Loss, Mode, Phase, Released, Renewal, Renewed, Standing,
};

use crate::table::Table;
use crate::visit::{Bells, Moment};

pub(super) const LEASE: Duration = Duration::from_secs(30);

pub(super) struct Trial {
    pub(super) table: Table,
    pub(super) now: Instant,
    claims: u64,
}

pub(super) struct Watch(Bell);

pub(super) struct Outcome {
    pub(super) freed: Batch<HolderId>,
    pub(super) others: u32,
    pub(super) heir: Option<Standing>,
}

pub(super) fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

pub(super) fn permits(take: u32, of: u32) -> Mode {
    let (take, of) = (count(take), count(of));
    Mode::Permits { take, of }
}

pub(super) fn key(name: &str) -> LockKey {
    LockKey::new(name).unwrap()
}

impl Watch {
    /// Whether the bell was rung since the last time.
    pub(super) fn woke(&self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        self.0.poll_heard(&mut nobody).is_ready()
    }
}

impl Trial {
    pub(super) fn new() -> Self {
        let now = Instant::from_nanos(1_000_000_000_000);
        Trial {
            table: Table::new(now, Duration::ZERO),
            now,
            claims: 0,
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    pub(super) fn at(&self) -> Moment {
        Moment {
            now: self.now,
            asked: self.now,
        }
    }

    /// Does something to the table and rings the bells.
    pub(super) fn act<T>(&mut self, act: impl FnOnce(&mut Table, Moment, &mut Bells) -> T) -> T {
        let (at, mut bells) = (self.at(), Bells::new());
        let answer = act(&mut self.table, at, &mut bells);
        bells.iter().for_each(|bell| bell.ring());
        answer
    }

    pub(super) fn claim(&mut self, client: u8, name: &str, mode: Mode, fairness: Fairness) -> Arc<Claim> {
        self.claims += 1;
        let key = LockKey::new(name).unwrap();
        let id = ClaimId::new(ClientId::from_random([client; 16]), self.claims);
        Arc::new(Claim {
            mode,
            fairness,
            ..Claim::of(ClaimRef { key, id }, LEASE)
        })
    }

    /// An unfair exclusive claim on the key `k`.
    pub(super) fn mutex(&mut self, client: u8) -> Arc<Claim> {
        self.claim(client, "k", Mode::Exclusive, Fairness::Unfair)
    }

    /// A fair claim on the key `k`.
    pub(super) fn fair(&mut self, client: u8, mode: Mode) -> Arc<Claim> {
        self.claim(client, "k", mode, Fairness::Fifo)
    }

    pub(super) fn acquire(&mut self, claim: &Arc<Claim>) -> Result<Standing, BackendError> {
        let place_by = self.now;
        let claim = Arc::clone(claim);
        self.act(|table, at, bells| table.acquire(claim, place_by, at, bells))
    }

    pub(super) fn try_grant(&mut self, claim: &Arc<Claim>) -> Option<Grant> {
        match self.acquire(claim).unwrap() {
            Standing::Granted(grant) => Some(grant),
            _ => None,
        }
    }

    pub(super) fn grant(&mut self, claim: &Arc<Claim>) -> Grant {
        let standing = self.acquire(claim);
        match standing {
            Ok(Standing::Granted(grant)) => grant,
            _ => panic!("{:?} is not granted but {standing:?}", claim.at),
        }
    }

    /// How many are ahead, and when to poll again.
    pub(super) fn wait(&mut self, claim: &Arc<Claim>) -> (Option<u32>, Duration) {
        match self.acquire(claim) {
            Ok(Standing::Waiting { ahead, poll_after }) => (ahead, poll_after),
            standing => panic!("{:?} does not wait but is {standing:?}", claim.at),
        }
    }

    pub(super) fn assert_ended(&mut self, claim: &Arc<Claim>) {
        let standing = self.acquire(claim);
        assert!(
            matches!(standing, Ok(Standing::Ended)),
            "{:?} is {standing:?}",
            claim.at
        );
    }

    pub(super) fn renew(&mut self, claim: &Arc<Claim>, only: Phase) -> Renewed {
        let renewal = Renewal {
            only,
            ..Renewal::of(claim)
        };
        self.act(|table, at, bells| table.renew(&renewal, at, bells))
    }

    /// Why a claim is gone, as it is told when it asks for its lease.
    pub(super) fn loss(&mut self, claim: &Arc<Claim>) -> Option<Loss> {
        match self.renew(claim, Phase::Either) {
            Renewed::Gone(loss) => Some(loss),
            _ => None,
        }
    }

    pub(super) fn is_alive(&mut self, claim: &Arc<Claim>, only: Phase) -> bool {
        matches!(self.renew(claim, only), Renewed::Alive { .. })
    }

    pub(super) fn depart(&mut self, departure: Departure) -> Outcome {
        match self.act(|table, at, bells| table.release(departure, at, bells)) {
            Released::Done { freed, others, heir } => Outcome {
                freed,
                others: others.expect("memory can tell"),
                heir,
            },
            Released::Unknown(error) => panic!("{error}"),
        }
    }

    pub(super) fn release(&mut self, claim: &Arc<Claim>) -> Outcome {
        self.depart(Departure::of(claim, Cause::Unlocked))
    }

    pub(super) fn release_to(&mut self, claim: &Claim, heir: &Arc<Claim>) -> Outcome {
        self.release_to_by(claim, heir, self.now)
    }

    pub(super) fn release_to_by(&mut self, claim: &Claim, heir: &Arc<Claim>, place_by: Instant) -> Outcome {
        let heir = Heir {
            claim: Arc::clone(heir),
            place_by,
        };
        self.depart(Departure {
            heir: Some(heir),
            ..Departure::of(claim, Cause::Unlocked)
        })
    }

    pub(super) fn evict(&mut self, who: Holder, by: &str, bar: Duration) -> Outcome {
        let by = Some(by.into());
        let cause = Cause::Evicted { by };
        self.depart(Departure {
            who,
            cause,
            heir: None,
            bar,
        })
    }

    pub(super) fn watch(&mut self, claim: &Arc<Claim>) -> Watch {
        let bell = Bell::default();
        let (claim, theirs) = (Arc::clone(claim), bell.clone());
        self.act(|table, at, bells| table.watch(claim, theirs, at, bells));
        Watch(bell)
    }

    pub(super) fn unwatch(&mut self, claim: &Arc<Claim>, watch: Watch) {
        let key = &claim.at.key;
        self.act(|table, at, bells| table.unwatch(key, &watch.0, at, bells));
    }
}
