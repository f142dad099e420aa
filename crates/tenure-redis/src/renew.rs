//! Renewing: hundreds of claims in one script call, each judged alone. The calls of a large batch run concurrently.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use redis::Value;
use tenure_backend::{BackendError, Batch, Effect, Fault, Instant, Loss, Phase, RenewReply, RenewRequest};
use tokio::time::timeout;

use crate::backend::RedisStore;
use crate::claims::arguments::COUNTER;
use crate::claims::names::{Owner, client_key};
use crate::claims::refusal::{Refusal, lacks_key_permission};
use crate::claims::reply::{integer, list, text};
use crate::claims::script::RENEW;
use crate::connection::wire::Wire;
use crate::error::{renewal_timed_out, unexpected_reply};
use crate::profile::{LIMITS, lease_ms};

/// The most claims in one call. The server runs it for about 3 ms, and serves no other client meanwhile.
const MAX_CHUNK: usize = 640;

/// The script's reply for a claim that waits although only a holder was to be renewed, or the other way round.
const WRONG_PHASE: u64 = 4;

/// Shortest time limit of a call, used if a sixth of the lease is less.
pub(crate) const MIN_TIMEOUT: Duration = Duration::from_millis(50);

impl RedisStore {
    pub(crate) async fn renew_all(&self, batch: Batch<RenewRequest>) -> Batch<RenewReply> {
        if let Err(error) = LIMITS.check_batch(batch.len()) {
            return batch.iter().map(|_| RenewReply::Unknown(error.clone())).collect();
        }
        // One call carries claims of one client only.
        let client = |renewal: &RenewRequest| renewal.claim.id.client();
        let mut chunks: Vec<&[RenewRequest]> = Vec::new();
        for same_client in batch.chunk_by(|a, b| client(a) == client(b)) {
            chunks.extend(same_client.chunks(MAX_CHUNK));
        }
        if let [only] = chunks[..] {
            return self.renew_chunk(only).await;
        }
        let replies = join_all(chunks.into_iter().map(|chunk| self.renew_chunk(chunk)));
        replies.await.into_iter().flatten().collect()
    }

    /// Renews one chunk within a sixth of its shortest lease, so that there is time for another attempt. A request
    /// that was given up may arrive later, which does no harm.
    async fn renew_chunk(&self, chunk: &[RenewRequest]) -> Batch<RenewReply> {
        let checked: Batch<Result<(), BackendError>> = chunk
            .iter()
            .map(|renewal| LIMITS.check_lease(renewal.lease))
            .collect();
        let valid: Vec<&RenewRequest> = chunk
            .iter()
            .zip(&checked)
            .filter_map(|(renewal, checked)| checked.is_ok().then_some(renewal))
            .collect();
        let shortest = valid.iter().map(|renewal| renewal.lease).min();
        let limit = (shortest.unwrap_or_default() / 6).max(MIN_TIMEOUT);
        let replies = match self.link.session().await {
            Ok(session) => self.renew_each(&session.wire, &valid, limit).await,
            Err(error) => all_unknown(&valid, &error),
        };
        let mut replies = replies.into_iter();
        checked
            .into_iter()
            .map(|checked| match checked {
                Ok(()) => replies
                    .next()
                    .unwrap_or_else(|| RenewReply::Unknown(unexpected_reply())),
                Err(error) => RenewReply::Unknown(error),
            })
            .collect()
    }

    /// Renews in one call. If the server refuses the call because the user may not access one of its keys, splits it
    /// into halves, which run concurrently with the full time limit.
    async fn renew_each(
        &self,
        wire: &Wire,
        renewals: &[&RenewRequest],
        limit: Duration,
    ) -> Batch<RenewReply> {
        let replies = match timeout(limit, self.renew_on(wire, renewals)).await {
            Ok(replies) => replies,
            Err(_) => Err(renewal_timed_out(limit)),
        };
        match replies {
            Ok(replies) => replies,
            Err(error) if lacks_key_permission(&error) && renewals.len() > 1 => {
                let (some, others) = renewals.split_at(renewals.len() / 2);
                let halves = join(
                    self.renew_each(wire, some, limit),
                    self.renew_each(wire, others, limit),
                );
                let (mut replies, others) = Box::pin(halves).await;
                replies.extend(others);
                replies
            }
            Err(error) => all_unknown(renewals, &error),
        }
    }

    pub(crate) async fn renew_in_one_call(
        &self,
        renewals: &[&RenewRequest],
    ) -> Result<Batch<RenewReply>, BackendError> {
        let session = self.link.session().await?;
        self.renew_on(&session.wire, renewals).await
    }

    async fn renew_on(
        &self,
        wire: &Wire,
        renewals: &[&RenewRequest],
    ) -> Result<Batch<RenewReply>, BackendError> {
        let Some(first) = renewals.first() else {
            return Ok(Batch::new());
        };
        let count = renewals.len();
        let client = first.claim.id.client();
        let mut command = RENEW.command(2 + count, 1 + 6 * count, 192 * (1 + count));
        command.text(COUNTER).bytes(&client_key(client));
        for renewal in renewals {
            command.text(renewal.claim.key.as_str());
        }
        command.text(&self.claims.client_label(&first.claim));
        for renewal in renewals {
            let record = self.claims.record_to_write(renewal.claim.id, renewal.raise);
            command
                .bytes(Owner::of(renewal.claim.id).as_bytes())
                .number(lease_ms(renewal.lease))
                .text(match renewal.only {
                    Phase::Waiting => "W",
                    Phase::Granted => "G",
                    Phase::Either => "E",
                })
                .text(if renewal.shorten_only { "1" } else { "" });
            match renewal.raise {
                Some(run) => command.number(run.last().get()),
                None => command.text(""),
            };
            command.text(record.as_deref().unwrap_or_default());
        }
        let held_from = self.now();
        let reply = wire.call(&command).await?;
        let parts = list(&reply).ok_or_else(unexpected_reply)?;
        if parts
            .iter()
            .filter_map(refusal)
            .any(|refusal| refusal.is_from_replica())
        {
            wire.close();
        }
        let [time, codes @ ..] = parts else {
            return Err(unexpected_reply());
        };
        let (shown, now) = (integer(time).ok_or_else(unexpected_reply)?, self.now());
        wire.clock.learn(shown, now);
        let renewed = renewals.iter().zip(codes).map(|(renewal, code)| {
            let id = renewal.claim.id;
            let renewed = decode(code, held_from);
            match &renewed {
                RenewReply::Alive { lease, .. } => {
                    let until = held_from + *lease;
                    self.claims
                        .mark_renewed(id, until, wire.clock.at(until), renewal.raise);
                }
                // The claim is alive: it waits although only a holder was to be renewed, or the other way round.
                RenewReply::Gone(_) if integer(code) == Some(WRONG_PHASE) => {}
                RenewReply::Gone(loss) => {
                    let expired = self.claims.mark_lost(id, now, shown);
                    if expired && *loss == Loss::Missing {
                        return RenewReply::Gone(Loss::Expired);
                    }
                }
                RenewReply::Unknown(_) => {}
            }
            renewed
        });
        Ok(renewed.collect())
    }
}

fn all_unknown(renewals: &[&RenewRequest], error: &BackendError) -> Batch<RenewReply> {
    renewals
        .iter()
        .map(|_| RenewReply::Unknown(error.clone()))
        .collect()
}

/// The server's error for one claim, if its renewal failed.
fn refusal(reply: &Value) -> Option<Refusal<'_>> {
    text(reply)?.strip_prefix('R').map(Refusal::parse)
}

/// Decodes the script's reply for one claim. A renewed lease counts from `held_from`.
fn decode(reply: &Value, held_from: Instant) -> RenewReply {
    if let Some(by) = text(reply).and_then(|text| text.strip_prefix('V')) {
        let by = Some(by).filter(|by| !by.is_empty()).map(Arc::from);
        return RenewReply::Gone(Loss::Evicted { by });
    }
    if let Some(refusal) = refusal(reply) {
        return RenewReply::Unknown(refusal.error());
    }
    if let Value::Int(alive @ ..0) = reply {
        let lease = Duration::from_millis(alive.abs_diff(-1));
        return RenewReply::Alive { held_from, lease };
    }
    match integer(reply) {
        Some(1 | WRONG_PHASE) => RenewReply::Gone(Loss::Missing),
        Some(2) => RenewReply::Gone(Loss::Expired),
        Some(3) => RenewReply::Unknown(BackendError::new(
            Fault::Limit,
            Effect::None,
            "tokens are raised to 2^53 at the most, beyond which Redis's scripts do not count exactly",
        )),
        _ => RenewReply::Unknown(unexpected_reply()),
    }
}
