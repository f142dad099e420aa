//! Renewals: hundreds in one call of a script, each judged by itself; the calls of a large batch travel side by side.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use redis::Value;
use tenure_backend::{BackendError, Batch, Effect, Fault, Instant, Loss, Phase, RenewReply, RenewRequest};
use tokio::time::timeout;

use crate::acquire::COUNTER;
use crate::answer::{integer, list, text};
use crate::backend::RedisStore;
use crate::error::{nonsense, slow_renewal};
use crate::names::{Owner, claims_of};
use crate::profile::{LIMITS, lease_ms};
use crate::refusal::{Refusal, is_for_a_key};
use crate::script::RENEW;
use crate::wire::Wire;

/// How many claims one call renews: some 3 ms of the server's time, in which it serves nobody else.
const CHUNK: usize = 640;

/// What the script says of a claim that waits where it was to hold, or holds where it was to wait.
const ANOTHER_PHASE: u64 = 4;

/// The shortest limit of a call, however short the leases are.
const LEAST_LIMIT: Duration = Duration::from_millis(50);

impl RedisStore {
    pub(crate) async fn renew_all(&self, batch: Batch<RenewRequest>) -> Batch<RenewReply> {
        if let Err(error) = LIMITS.check_batch(batch.len()) {
            return batch.iter().map(|_| RenewReply::Unknown(error.clone())).collect();
        }
        // A call is for the claims of one client.
        let client = |renewal: &RenewRequest| renewal.claim.id.client();
        let mut chunks: Vec<&[RenewRequest]> = Vec::new();
        for alike in batch.chunk_by(|a, b| client(a) == client(b)) {
            chunks.extend(alike.chunks(CHUNK));
        }
        if let [only] = chunks[..] {
            return self.renew_chunk(only).await;
        }
        let answers = join_all(chunks.into_iter().map(|chunk| self.renew_chunk(chunk)));
        answers.await.into_iter().flatten().collect()
    }

    /// Within a sixth of the shortest lease, so that there is time for another try. A call that is given up is left on its
    /// way: it harms nothing if it arrives.
    async fn renew_chunk(&self, chunk: &[RenewRequest]) -> Batch<RenewReply> {
        let checked: Batch<Result<(), BackendError>> = chunk
            .iter()
            .map(|renewal| LIMITS.check_lease(renewal.lease))
            .collect();
        let asked_for: Vec<&RenewRequest> = chunk
            .iter()
            .zip(&checked)
            .filter_map(|(renewal, checked)| checked.is_ok().then_some(renewal))
            .collect();
        let shortest = asked_for.iter().map(|renewal| renewal.lease).min();
        let limit = (shortest.unwrap_or_default() / 6).max(LEAST_LIMIT);
        let answers = match self.link.wire().await {
            Ok(wire) => self.renew_each(&wire, &asked_for, limit).await,
            Err(error) => unknown(&asked_for, &error),
        };
        let mut answers = answers.into_iter();
        checked
            .into_iter()
            .map(|checked| match checked {
                Ok(()) => answers.next().unwrap_or_else(|| RenewReply::Unknown(nonsense())),
                Err(error) => RenewReply::Unknown(error),
            })
            .collect()
    }

    /// In one call, or in as many as it takes where a right to one of the keys is missing: the server refuses the whole
    /// then. The halves travel side by side, each with a limit of its own.
    async fn renew_each(
        &self,
        wire: &Wire,
        renewals: &[&RenewRequest],
        limit: Duration,
    ) -> Batch<RenewReply> {
        let answers = match timeout(limit, self.renew_on(wire, renewals)).await {
            Ok(answers) => answers,
            Err(_) => Err(slow_renewal(limit)),
        };
        match answers {
            Ok(answers) => answers,
            Err(error) if is_for_a_key(&error) && renewals.len() > 1 => {
                let (some, others) = renewals.split_at(renewals.len() / 2);
                let halves = join(
                    self.renew_each(wire, some, limit),
                    self.renew_each(wire, others, limit),
                );
                let (mut answers, others) = Box::pin(halves).await;
                answers.extend(others);
                answers
            }
            Err(error) => unknown(renewals, &error),
        }
    }

    /// In one call, for claims of one client.
    pub(crate) async fn renew_together(
        &self,
        renewals: &[&RenewRequest],
    ) -> Result<Batch<RenewReply>, BackendError> {
        self.renew_on(&*self.link.wire().await?, renewals).await
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
        let mut command = RENEW.on(2 + count, 1 + 6 * count, 192 * (1 + count));
        command.text(COUNTER).bytes(&claims_of(client));
        for renewal in renewals {
            command.text(renewal.claim.key.as_str());
        }
        command.text(&self.known.label(client));
        for renewal in renewals {
            let record = self.known.record(renewal.claim.id, renewal.raise);
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
        let answer = wire.call(&command).await?;
        let parts = list(&answer).ok_or_else(nonsense)?;
        if parts
            .iter()
            .filter_map(refusal)
            .any(|refusal| refusal.is_of_a_replica())
        {
            wire.give_up();
        }
        let [time, answers @ ..] = parts else {
            return Err(nonsense());
        };
        let (shown, now) = (integer(time).ok_or_else(nonsense)?, self.now());
        wire.clock.learn(shown, now);
        let judged = renewals.iter().zip(answers).map(|(renewal, answer)| {
            let id = renewal.claim.id;
            let renewed = judge(answer, held_from);
            match &renewed {
                RenewReply::Alive { lease, .. } => {
                    let until = held_from + *lease;
                    self.known.renewed(id, until, wire.clock.at(until), renewal.raise);
                }
                // It lives, but not as was asked.
                RenewReply::Gone(_) if integer(answer) == Some(ANOTHER_PHASE) => {}
                RenewReply::Gone(loss) => {
                    let expired = self.known.lost(id, now, shown);
                    if expired && *loss == Loss::Missing {
                        return RenewReply::Gone(Loss::Expired);
                    }
                }
                RenewReply::Unknown(_) => {}
            }
            renewed
        });
        Ok(judged.collect())
    }
}

fn unknown(renewals: &[&RenewRequest], error: &BackendError) -> Batch<RenewReply> {
    renewals
        .iter()
        .map(|_| RenewReply::Unknown(error.clone()))
        .collect()
}

/// Why the server refused what was asked of one claim, if it did.
fn refusal(answer: &Value) -> Option<Refusal<'_>> {
    text(answer)?.strip_prefix('R').map(Refusal::read)
}

/// What the script says of one claim.
fn judge(answer: &Value, held_from: Instant) -> RenewReply {
    if let Some(by) = text(answer).and_then(|text| text.strip_prefix('V')) {
        let by = Some(by).filter(|by| !by.is_empty()).map(Arc::from);
        return RenewReply::Gone(Loss::Evicted { by });
    }
    if let Some(refusal) = refusal(answer) {
        return RenewReply::Unknown(refusal.error());
    }
    if let Value::Int(alive @ ..0) = answer {
        let lease = Duration::from_millis(alive.abs_diff(-1));
        return RenewReply::Alive { held_from, lease };
    }
    match integer(answer) {
        Some(1 | ANOTHER_PHASE) => RenewReply::Gone(Loss::Missing),
        Some(2) => RenewReply::Gone(Loss::Expired),
        Some(3) => RenewReply::Unknown(BackendError::new(
            Fault::Limit,
            Effect::None,
            "tokens are raised to 2^53 at the most, beyond which Redis's scripts do not count exactly",
        )),
        _ => RenewReply::Unknown(nonsense()),
    }
}
