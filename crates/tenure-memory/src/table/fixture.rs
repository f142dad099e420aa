//! The fixture of the table's tests: a table, and a time that only the test advances.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, Fairness, Grant, HolderId,
    Instant, LockKey, Loss, Mode, Phase, ReleaseReply, ReleaseRequest, ReleaseTarget, RenewReply,
    RenewRequest, Successor, WakeSignal,
};

use crate::operation::{Moment, Signals};
use crate::table::Table;

pub(super) const LEASE: Duration = Duration::from_secs(30);

pub(super) struct Fixture {
    pub(super) table: Table,
    pub(super) now: Instant,
    /// Number of claims made so far.
    claims: u64,
}

pub(super) struct Watch(WakeSignal);

pub(super) struct Released {
    pub(super) freed: Batch<HolderId>,
    pub(super) others: u32,
    pub(super) successor: Option<AcquireReply>,
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
    pub(super) fn woke(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.0.poll_notified(&mut cx).is_ready()
    }
}

impl Fixture {
    pub(super) fn new() -> Self {
        let now = Instant::from_nanos(1_000_000_000_000);
        Fixture {
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
            client_now: self.now,
        }
    }

    /// Runs `act`, then notifies the signals that `act` collected.
    pub(super) fn act<T>(&mut self, act: impl FnOnce(&mut Table, Moment, &mut Signals) -> T) -> T {
        let (at, mut signals) = (self.at(), Signals::new());
        let reply = act(&mut self.table, at, &mut signals);
        signals.iter().for_each(|signal| signal.notify());
        reply
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

    pub(super) fn mutex(&mut self, client: u8) -> Arc<Claim> {
        self.claim(client, "k", Mode::Exclusive, Fairness::Unfair)
    }

    pub(super) fn fair(&mut self, client: u8, mode: Mode) -> Arc<Claim> {
        self.claim(client, "k", mode, Fairness::Fifo)
    }

    pub(super) fn acquire(&mut self, claim: &Arc<Claim>) -> Result<AcquireReply, BackendError> {
        let not_after = self.now;
        let claim = Arc::clone(claim);
        self.act(|table, at, signals| table.acquire(claim, not_after, at, signals))
    }

    pub(super) fn try_grant(&mut self, claim: &Arc<Claim>) -> Option<Grant> {
        match self.acquire(claim).unwrap() {
            AcquireReply::Granted(grant) => Some(grant),
            _ => None,
        }
    }

    pub(super) fn grant(&mut self, claim: &Arc<Claim>) -> Grant {
        let reply = self.acquire(claim);
        match reply {
            Ok(AcquireReply::Granted(grant)) => grant,
            _ => panic!("{:?} is not granted, the reply is {reply:?}", claim.at),
        }
    }

    /// Polls a claim that must wait. Returns the number of claims ahead and `poll_after`.
    pub(super) fn wait(&mut self, claim: &Arc<Claim>) -> (Option<u32>, Duration) {
        match self.acquire(claim) {
            Ok(AcquireReply::Waiting { ahead, poll_after }) => (ahead, poll_after),
            reply => panic!("{:?} does not wait, the reply is {reply:?}", claim.at),
        }
    }

    pub(super) fn assert_ended(&mut self, claim: &Arc<Claim>) {
        let reply = self.acquire(claim);
        assert!(
            matches!(reply, Ok(AcquireReply::Ended)),
            "the reply to {:?} is {reply:?}",
            claim.at
        );
    }

    pub(super) fn renew(&mut self, claim: &Arc<Claim>, only: Phase) -> RenewReply {
        let request = RenewRequest {
            only,
            ..RenewRequest::of(claim)
        };
        self.act(|table, at, signals| table.renew(&request, at, signals))
    }

    /// The loss that a renewal of the claim reports; `None` if the claim is alive.
    pub(super) fn loss(&mut self, claim: &Arc<Claim>) -> Option<Loss> {
        match self.renew(claim, Phase::Either) {
            RenewReply::Gone(loss) => Some(loss),
            _ => None,
        }
    }

    pub(super) fn is_alive(&mut self, claim: &Arc<Claim>, only: Phase) -> bool {
        matches!(self.renew(claim, only), RenewReply::Alive { .. })
    }

    pub(super) fn send_release(&mut self, request: ReleaseRequest) -> Released {
        match self.act(|table, at, signals| table.release(request, at, signals)) {
            ReleaseReply::Done {
                freed,
                others,
                successor,
            } => Released {
                freed,
                others: others.expect("memory reports waiters"),
                successor,
            },
            ReleaseReply::Unknown(error) => panic!("{error}"),
        }
    }

    pub(super) fn release(&mut self, claim: &Arc<Claim>) -> Released {
        self.send_release(ReleaseRequest::of(claim, Cause::Unlocked))
    }

    pub(super) fn release_to(&mut self, claim: &Claim, successor: &Arc<Claim>) -> Released {
        self.release_to_by(claim, successor, self.now)
    }

    pub(super) fn release_to_by(
        &mut self,
        claim: &Claim,
        successor: &Arc<Claim>,
        not_after: Instant,
    ) -> Released {
        let successor = Successor {
            claim: Arc::clone(successor),
            not_after,
        };
        self.send_release(ReleaseRequest {
            successor: Some(successor),
            ..ReleaseRequest::of(claim, Cause::Unlocked)
        })
    }

    pub(super) fn evict(&mut self, target: ReleaseTarget, by: &str, cooldown: Duration) -> Released {
        let by = Some(by.into());
        let cause = Cause::Evicted { by };
        self.send_release(ReleaseRequest {
            target,
            cause,
            successor: None,
            cooldown,
        })
    }

    pub(super) fn watch(&mut self, claim: &Arc<Claim>) -> Watch {
        let signal = WakeSignal::default();
        let (claim, watched) = (Arc::clone(claim), signal.clone());
        self.act(|table, at, signals| table.watch(claim, watched, at, signals));
        Watch(signal)
    }

    pub(super) fn unwatch(&mut self, claim: &Arc<Claim>, watch: Watch) {
        let key = &claim.at.key;
        self.act(|table, at, signals| table.unwatch(key, &watch.0, at, signals));
    }
}
