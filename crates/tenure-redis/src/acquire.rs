//! Acquiring: places or polls a claim, in a call of its own or in a batch with others.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Claim, Effect, Fairness, Fault, Grant, Instant, RenewReply, RenewRequest,
    TokenRange,
};

use crate::backend::RedisStore;
use crate::claims::arguments::{write_client, write_placement};
use crate::claims::refusal::{NOT_A_LOCK, OTHER_FORMAT};
use crate::claims::reply::{kind, numbers, token_range};
use crate::claims::script::ScriptSet;
use crate::claims::table::{Lookup, Placement};
use crate::connection::batch::{BatchEntry, BatchReply};
use crate::connection::session::Session;
use crate::connection::wire::Wire;
use crate::error::{tokens_exhausted, unexpected_reply};
use crate::profile::{check_claim, grants, lease_ms};

impl RedisStore {
    pub(crate) async fn acquire_claim(
        &self,
        claim: &Arc<Claim>,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        let scripts = check_claim(claim, self.layout)?;
        let session = self.link.session().await?;
        if session.is_recovering(self.now()) {
            self.claims.not_sent(&claim.at);
            return Ok(AcquireReply::Recovering);
        }
        let wire = &session.wire;
        let placement = match self
            .claims
            .begin_placement(claim, self.now(), not_after, wire.number)
        {
            Lookup::Ended => return Ok(AcquireReply::Ended),
            Lookup::Granted(run) => return self.poll_granted(claim, run).await,
            Lookup::Ask(placement) => placement,
        };
        let reply = self.acquire_on(&session, scripts, &placement).await;
        placement.answered(reply.as_ref(), &wire.clock);
        if matches!(reply, Ok(AcquireReply::Granted(_))) {
            wire.acknowledged(&claim.at.key).await?;
        }
        reply
    }

    /// Places or polls a claim on this connection, with the scripts of its kind.
    pub(crate) async fn acquire_on(
        &self,
        session: &Session,
        scripts: &'static ScriptSet,
        placement: &Placement<'_>,
    ) -> Result<AcquireReply, BackendError> {
        // Fair claims are never batched: each is sent alone, so that they queue in the order of their calls.
        if scripts.batches
            && placement.claim.fairness == Fairness::Unfair
            && session.is_busy()
            && let Some(reply) = self.acquire_in_batch(session, placement).await?
        {
            return Ok(reply);
        }
        let first = self.acquire_alone(session, scripts, placement).await?;
        // The time limit was too strict, because it was computed from a lower bound of the server's clock. The reply
        // has raised that bound, and the server has placed nothing, so try again.
        if matches!(first, AcquireReply::TooLate) && self.now() < placement.not_after {
            return self.acquire_alone(session, scripts, placement).await;
        }
        Ok(first)
    }

    /// Polls a claim that this client knows as granted, with the tokens `run`: a renewal tells if it still holds.
    pub(crate) async fn poll_granted(
        &self,
        claim: &Claim,
        run: TokenRange,
    ) -> Result<AcquireReply, BackendError> {
        let renewal = [RenewRequest::of(claim)];
        let session = self.link.session().await?;
        // Boxed: this future is rarely needed, and larger than the rest of its caller.
        let mut renewed = Box::pin(self.renew_on(&session.wire, &self.look_up(&renewal))).await?;
        match renewed.pop() {
            Some(RenewReply::Alive { held_from, lease }) => {
                Ok(AcquireReply::Granted(Grant::new(Some(run), held_from, lease)))
            }
            Some(RenewReply::Gone(_)) => Ok(AcquireReply::Ended),
            Some(RenewReply::Unknown(error)) => Err(error),
            None => Err(unexpected_reply()),
        }
    }

    /// Places or polls an unfair claim in a batch. Returns `None` if the caller must send the claim alone, because the
    /// script did nothing for it.
    async fn acquire_in_batch(
        &self,
        session: &Session,
        placement: &Placement<'_>,
    ) -> Result<Option<AcquireReply>, BackendError> {
        let (claim, not_after) = (placement.claim, placement.not_after);
        let sent = self.now();
        let entry = BatchEntry::Acquire {
            claim: claim.clone(),
            not_after,
            client: placement.client.clone(),
        };
        Ok(match session.call_batched(entry).await? {
            BatchReply::NotDone => None,
            // If the claim's own limit has passed, a call of its own would be too late as well.
            BatchReply::TooLate => (not_after <= self.now()).then_some(AcquireReply::TooLate),
            BatchReply::Done(first) => {
                let run = token_range(first, grants(claim)).ok_or_else(unexpected_reply)?;
                Some(granted(claim, run, sent))
            }
            BatchReply::Busy(poll_after) => Some(AcquireReply::Waiting {
                ahead: None,
                // This client polls again within its own claim's lease, because a Java holder may shorten its lease.
                poll_after: Duration::from_millis(poll_after.min(lease_ms(claim.lease))),
            }),
        })
    }

    async fn acquire_alone(
        &self,
        session: &Session,
        scripts: &'static ScriptSet,
        placement: &Placement<'_>,
    ) -> Result<AcquireReply, BackendError> {
        let (claim, wire) = (placement.claim, &session.wire);
        let mut command = scripts.acquire.command(4, 8, 320 + claim.label.len());
        command.arg(self.format().key(claim.at.key.as_str()));
        command.arg(self.counter(&claim.at.key));
        write_client(&mut command, claim.at.id.client());
        write_placement(&mut command, placement, &wire.clock, self.format().is_string());
        let sent = self.now();
        let reply = session.call_limited(command).await?;
        let placed = numbers(&reply).and_then(|reply| self.placed(reply, claim, sent, wire));
        placed.ok_or_else(unexpected_reply)?
    }

    /// Decodes a script's reply for a claim, whose request was sent at `sent`: a code, two numbers that depend on it,
    /// and the server's time. `None` if it is malformed.
    pub(crate) fn placed(
        &self,
        [code, first, second, time]: [i64; 4],
        claim: &Claim,
        sent: Instant,
        wire: &Wire,
    ) -> Option<Result<AcquireReply, BackendError>> {
        wire.clock.learn(time.unsigned_abs(), self.now());
        Some(match code {
            0 => Ok(AcquireReply::Waiting {
                // The script sends -1 for an unfair claim, which has no place in a queue.
                ahead: u32::try_from(second).ok(),
                poll_after: Duration::from_millis(u64::try_from(first).ok()?),
            }),
            1 => {
                let run = token_range(u64::try_from(first).ok()?, u64::try_from(second).ok()?)?;
                Ok(granted(claim, run, sent))
            }
            2 => Ok(AcquireReply::Ended),
            3 => Ok(AcquireReply::TooLate),
            4 => Err(BackendError::mismatch(kind(first)?, claim.mode.kind())),
            5 => Err(tokens_exhausted(claim.fairness)),
            6 if self.format().is_string() => {
                Err(BackendError::new(Fault::UnknownKind, Effect::None, OTHER_FORMAT))
            }
            6 => Err(BackendError::new(Fault::Store, Effect::None, NOT_A_LOCK)),
            _ => return None,
        })
    }
}

/// The reply for a claim that was granted these tokens. Its lease counts from `sent`, when the request was sent.
fn granted(claim: &Claim, run: TokenRange, sent: Instant) -> AcquireReply {
    let lease = Duration::from_millis(lease_ms(claim.lease));
    AcquireReply::Granted(Grant::new(Some(run), sent, lease))
}
