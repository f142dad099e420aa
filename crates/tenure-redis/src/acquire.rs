//! Acquiring: places or polls a claim, in a call of its own or in a batch with others.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Claim, Effect, Fairness, Fault, Grant, Instant, RenewReply, RenewRequest,
    TURN, TokenRange,
};

use crate::backend::RedisStore;
use crate::claims::arguments::{write_claim, write_client};
use crate::claims::refusal::{NOT_A_LOCK, OTHER_FORMAT};
use crate::claims::reply::{PlaceReply, decode, numbers, token_range};
use crate::claims::script::ScriptSet;
use crate::claims::table::{ClientRecord, Lookup};
use crate::connection::batch::{BatchEntry, BatchReply};
use crate::connection::session::Session;
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
        let reply = self
            .acquire_on(&session, scripts, claim, not_after, placement.client.as_ref())
            .await;
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
        scripts: &ScriptSet,
        claim: &Arc<Claim>,
        not_after: Instant,
        record: Option<&ClientRecord>,
    ) -> Result<AcquireReply, BackendError> {
        // Fair claims are never batched: each is sent alone, so that they queue in the order of their calls.
        if scripts.batches
            && claim.fairness == Fairness::Unfair
            && session.is_busy()
            && let Some(reply) = self.acquire_in_batch(session, claim, not_after, record).await?
        {
            return Ok(reply);
        }
        let first = self
            .acquire_alone(session, scripts, claim, not_after, record)
            .await?;
        // The time limit was too strict, because it was computed from a lower bound of the server's clock. The reply
        // has raised that bound, and the server has placed nothing, so try again.
        if matches!(first, AcquireReply::TooLate) && self.now() < not_after {
            return self
                .acquire_alone(session, scripts, claim, not_after, record)
                .await;
        }
        Ok(first)
    }

    /// Polls a claim that this client knows as granted, with the tokens `run`: a renewal tells if it still holds.
    pub(crate) async fn poll_granted(
        &self,
        claim: &Claim,
        run: TokenRange,
    ) -> Result<AcquireReply, BackendError> {
        let renewal = RenewRequest::of(claim);
        // Boxed: this future is rarely needed, and larger than the rest of its caller.
        match Box::pin(self.renew_in_one_call(claim.mode.kind(), &[&renewal]))
            .await?
            .pop()
        {
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
        claim: &Arc<Claim>,
        not_after: Instant,
        record: Option<&ClientRecord>,
    ) -> Result<Option<AcquireReply>, BackendError> {
        let sent = self.now();
        let entry = BatchEntry::Acquire {
            claim: claim.clone(),
            not_after,
            client: record.cloned(),
        };
        let reply = match session.call_batched(entry).await? {
            BatchReply::NotDone => return Ok(None),
            // The claim's own limit has passed: a call of its own would be too late as well.
            BatchReply::TooLate if not_after <= self.now() => PlaceReply::TooLate,
            BatchReply::TooLate => return Ok(None),
            BatchReply::Done(first) => {
                PlaceReply::Granted(token_range(first, grants(claim)).ok_or_else(unexpected_reply)?)
            }
            BatchReply::Busy(poll_after) => PlaceReply::Waiting {
                ahead: None,
                // The client polls again within the claim's own lease, because Java may shorten the holder's.
                poll_after: Duration::from_millis(poll_after.min(lease_ms(claim.lease))),
            },
        };
        Ok(Some(acquire_reply(reply, claim, sent)))
    }

    async fn acquire_alone(
        &self,
        session: &Session,
        scripts: &ScriptSet,
        claim: &Claim,
        not_after: Instant,
        record: Option<&ClientRecord>,
    ) -> Result<AcquireReply, BackendError> {
        let wire = &session.wire;
        let mut command = scripts.acquire.command(4, 8, 320 + claim.label.len());
        command
            .text(&self.format().key(claim.at.key.as_str()))
            .text(&self.counter(&claim.at.key));
        write_client(&mut command, claim.at.id.client());
        let labelled = self.format().is_string();
        write_claim(&mut command, claim, wire.clock.at(not_after), record, labelled);
        let sent = self.now();
        let reply = session.call_limited(&command).await?;
        let [code, first, second, time] = numbers(&reply).ok_or_else(unexpected_reply)?;
        wire.clock.learn(time.unsigned_abs(), self.now());
        match decode(code, first, second).ok_or_else(unexpected_reply)? {
            PlaceReply::OtherKind(held) => Err(BackendError::mismatch(held, claim.mode.kind())),
            PlaceReply::TokensExhausted => Err(tokens_exhausted(claim.fairness)),
            PlaceReply::NotALock if labelled => {
                Err(BackendError::new(Fault::UnknownKind, Effect::None, OTHER_FORMAT))
            }
            PlaceReply::NotALock => Err(BackendError::new(Fault::Store, Effect::None, NOT_A_LOCK)),
            reply => Ok(acquire_reply(reply, claim, sent)),
        }
    }
}

/// Translates a script's reply for a claim. A granted lease counts from `sent`, when the request was sent.
pub(crate) fn acquire_reply(reply: PlaceReply, claim: &Claim, sent: Instant) -> AcquireReply {
    match reply {
        PlaceReply::Waiting { ahead, poll_after } => AcquireReply::Waiting { ahead, poll_after },
        PlaceReply::Granted(tokens) => {
            let lease = Duration::from_millis(lease_ms(claim.lease));
            AcquireReply::Granted(Grant::new(Some(tokens), sent, lease))
        }
        PlaceReply::Ended => AcquireReply::Ended,
        PlaceReply::TooLate => AcquireReply::TooLate,
        // Only a release's successor gets these replies. It counts as waiting, and its next poll gets the error.
        PlaceReply::OtherKind(_) | PlaceReply::TokensExhausted | PlaceReply::NotALock => {
            AcquireReply::Waiting {
                ahead: None,
                poll_after: TURN,
            }
        }
    }
}
