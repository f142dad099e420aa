//! Placing and polling: the call, and what its answer says of a claim.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Claim, ClientId, Effect, Fairness, Fault, Grant, Instant, Kind, RenewReply,
    RenewRequest, TURN, TokenRange,
};

use crate::answer::{Placed, numbers, placed, run};
use crate::backend::RedisStore;
use crate::error::{nonsense, used_up};
use crate::known::{Asked, Keep};
use crate::names::{Owner, claims_of, doubts_of};
use crate::profile::{check_claim, grants, lease_ms};
use crate::refusal::NO_LOCK;
use crate::script::{ACQUIRE, Command};
use crate::together::{BUSY, TOO_LATE, Wish};
use crate::wire::Wire;

/// The counter of the tokens. It outlives every lock, and there is one for each database; on a cluster there would be one
/// for each hash slot, in that slot. Whoever moves from the one to the other loses nothing: a token is never below
/// the server's time.
pub(crate) const COUNTER: &str = "tenure_tokens";

impl RedisStore {
    pub(crate) async fn place(
        &self,
        claim: &Arc<Claim>,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        check_claim(claim)?;
        let wire = self.link.wire().await?;
        let asking = match self.known.ask(claim, self.now(), not_after, wire.number) {
            Asked::Ended => return Ok(AcquireReply::Ended),
            Asked::Granted(run) => return self.poll_granted(claim, run).await,
            Asked::Open(asking) => asking,
        };
        let answer = self.place_on(&wire, claim, not_after, asking.keep.as_ref()).await;
        asking.answered(answer.as_ref(), &wire.clock);
        answer
    }

    async fn place_on(
        &self,
        wire: &Wire,
        claim: &Arc<Claim>,
        not_after: Instant,
        keep: Option<&Keep>,
    ) -> Result<AcquireReply, BackendError> {
        // Fair ones are asked for in the order in which they came.
        if claim.fairness == Fairness::Unfair
            && wire.is_busy()
            && let Some(standing) = self.place_with_others(wire, claim, not_after, keep).await?
        {
            return Ok(standing);
        }
        let first = self.place_once(wire, claim, not_after, keep).await?;
        // The bound on the server's clock may have been too strict. By this answer it is better, and the server did nothing.
        if matches!(first, AcquireReply::TooLate) && self.now() < not_after {
            return self.place_once(wire, claim, not_after, keep).await;
        }
        Ok(first)
    }

    /// A claim that was granted, and not given back: it still holds, by the same tokens, or has ended.
    pub(crate) async fn poll_granted(
        &self,
        claim: &Claim,
        run: TokenRange,
    ) -> Result<AcquireReply, BackendError> {
        let renewal = RenewRequest::of(claim);
        // Boxed, since it is seldom needed, and larger than all else of its caller.
        match Box::pin(self.renew_together(&[&renewal])).await?.pop() {
            Some(RenewReply::Alive { held_from, lease }) => Ok(AcquireReply::Granted(Grant {
                tokens: Some(run),
                held_from,
                lease,
                evidence: None,
            })),
            Some(RenewReply::Gone(_)) => Ok(AcquireReply::Ended),
            Some(RenewReply::Unknown(error)) => Err(error),
            None => Err(nonsense()),
        }
    }

    /// Where an unfair claim stands, if nothing about it is unusual; otherwise nothing was done.
    async fn place_with_others(
        &self,
        wire: &Wire,
        claim: &Arc<Claim>,
        not_after: Instant,
        keep: Option<&Keep>,
    ) -> Result<Option<AcquireReply>, BackendError> {
        let asked = self.now();
        let wish = Wish::Place {
            claim: claim.clone(),
            not_after,
            keep: keep.cloned(),
        };
        let placed = match wire.ask_together(wish).await? {
            0 => return Ok(None),
            // Asked alone it would be later still.
            TOO_LATE if not_after <= self.now() => Placed::TooLate,
            TOO_LATE => return Ok(None),
            first @ 1.. => Placed::Granted(run(first.unsigned_abs(), grants(claim)).ok_or_else(nonsense)?),
            busy => Placed::Waits {
                ahead: None,
                // Java may shorten a lease: it is not believed for longer than one's own.
                poll_after: Duration::from_millis(busy.abs_diff(BUSY).min(lease_ms(claim.lease))),
            },
        };
        Ok(Some(standing(placed, claim, asked)))
    }

    async fn place_once(
        &self,
        wire: &Wire,
        claim: &Claim,
        not_after: Instant,
        keep: Option<&Keep>,
    ) -> Result<AcquireReply, BackendError> {
        let mut command = ACQUIRE.on(4, 8, 320 + claim.label.len());
        command.text(claim.at.key.as_str()).text(COUNTER);
        write_client(&mut command, claim.at.id.client());
        write_claim(&mut command, claim, wire.clock.at(not_after), keep);
        let asked = self.now();
        let answer = wire.call_in_turn(&command).await?;
        let [code, first, second, time] = numbers(&answer).ok_or_else(nonsense)?;
        wire.clock.learn(time.unsigned_abs(), self.now());
        match placed(code, first, second).ok_or_else(nonsense)? {
            Placed::IsReadWrite => Err(BackendError::mismatch(Kind::ReadWrite, Kind::Mutex)),
            Placed::UsedUp => Err(used_up(claim.fairness)),
            Placed::IsNoLock => Err(BackendError::new(Fault::Store, Effect::None, NO_LOCK)),
            placed => Ok(standing(placed, claim, asked)),
        }
    }
}

/// The keys of a claim's client.
pub(crate) fn write_client(command: &mut Command, client: ClientId) {
    command.bytes(&claims_of(client)).bytes(&doubts_of(client));
}

/// What the scripts want to know of a claim, until when on the server's clock it may be placed, and that its client
/// is to be kept, if this is to be said.
pub(crate) fn write_claim(command: &mut Command, claim: &Claim, not_after: u64, keep: Option<&Keep>) {
    command
        .bytes(Owner::of(claim.at.id).as_bytes())
        .number(lease_ms(claim.lease))
        .number(not_after)
        .number(grants(claim));
    match claim.fairness {
        Fairness::Fifo => _ = command.text(&claim.label).text("1"),
        Fairness::Unfair if keep.is_some() => _ = command.text("").text(""),
        Fairness::Unfair => {}
    }
    if let Some(Keep { long, label }) = keep {
        command.number(keep_ms(*long)).text(label);
    }
}

/// As the scripts take it.
pub(crate) fn keep_ms(long: Duration) -> u64 {
    u64::try_from(long.as_millis()).unwrap_or(u64::MAX)
}

/// What an answer means for a claim that was asked for at that moment.
pub(crate) fn standing(placed: Placed, claim: &Claim, asked: Instant) -> AcquireReply {
    match placed {
        Placed::Waits { ahead, poll_after } => AcquireReply::Waiting { ahead, poll_after },
        Placed::Granted(tokens) => AcquireReply::Granted(Grant {
            tokens: Some(tokens),
            held_from: asked,
            lease: Duration::from_millis(lease_ms(claim.lease)),
            evidence: None,
        }),
        Placed::Ended => AcquireReply::Ended,
        Placed::TooLate => AcquireReply::TooLate,
        // A successor is told when it asks for itself.
        Placed::IsReadWrite | Placed::UsedUp | Placed::IsNoLock => AcquireReply::Waiting {
            ahead: None,
            poll_after: TURN,
        },
    }
}
