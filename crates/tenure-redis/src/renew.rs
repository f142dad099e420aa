//! Renewals: hundreds in one call of a script, each judged by itself; the calls of a large batch travel side by side.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tenure_backend::{BackendError, Batch, Effect, Fault, Loss, Phase, Renewal, Renewed};
use tokio::time::timeout;

use crate::acquire::COUNTER;
use crate::answer::{integer, list, text};
use crate::backend::RedisStore;
use crate::error::{nonsense, refused_as, slow_renewal};
use crate::names::Owner;
use crate::profile::{LIMITS, lease_ms};
use crate::script::RENEW;

/// How many claims one call renews: some 3 ms of the server's time, in which it serves nobody else.
const CHUNK: usize = 640;

/// The shortest limit of a call, however short the leases are.
const LEAST_LIMIT: Duration = Duration::from_millis(50);

impl RedisStore {
    pub(crate) async fn renew_all(&self, batch: Batch<Renewal>) -> Batch<Renewed> {
        if let Err(error) = LIMITS.check_batch(batch.len()) {
            return batch.iter().map(|_| Renewed::Unknown(error.clone())).collect();
        }
        if batch.len() <= CHUNK {
            return self.renew_chunk(&batch).await;
        }
        let chunks = batch.chunks(CHUNK).map(|chunk| self.renew_chunk(chunk));
        join_all(chunks).await.into_iter().flatten().collect()
    }

    /// Within a sixth of the shortest lease, so that there is time for another try. A call that is given up is left on its
    /// way: it harms nothing if it arrives.
    async fn renew_chunk(&self, chunk: &[Renewal]) -> Batch<Renewed> {
        let checked: Batch<Result<(), BackendError>> = chunk
            .iter()
            .map(|renewal| LIMITS.check_lease(renewal.lease))
            .collect();
        let asked_for: Vec<&Renewal> = chunk
            .iter()
            .zip(&checked)
            .filter_map(|(renewal, checked)| checked.is_ok().then_some(renewal))
            .collect();
        let shortest = asked_for.iter().map(|renewal| renewal.lease).min();
        let limit = (shortest.unwrap_or_default() / 6).max(LEAST_LIMIT);
        let answers = match timeout(limit, self.renew_together(&asked_for)).await {
            Ok(answers) => answers,
            Err(_) => Err(slow_renewal(limit)),
        };
        let mut answers = match answers {
            Ok(answers) => answers,
            Err(error) => asked_for
                .iter()
                .map(|_| Renewed::Unknown(error.clone()))
                .collect(),
        }
        .into_iter();
        checked
            .into_iter()
            .map(|checked| match checked {
                Ok(()) => answers.next().unwrap_or_else(|| Renewed::Unknown(nonsense())),
                Err(error) => Renewed::Unknown(error),
            })
            .collect()
    }

    async fn renew_together(&self, renewals: &[&Renewal]) -> Result<Batch<Renewed>, BackendError> {
        if renewals.is_empty() {
            return Ok(Batch::new());
        }
        let wire = self.link.wire().await?;
        let count = renewals.len();
        let mut command = RENEW.on(1 + count, 5 * count, 128 * count);
        command.text(COUNTER);
        for renewal in renewals {
            command.text(renewal.who.key.as_str());
        }
        for renewal in renewals {
            command
                .bytes(Owner::of(renewal.who.id).as_bytes())
                .number(lease_ms(renewal.lease))
                .text(match renewal.only {
                    Phase::Waiting => "W",
                    Phase::Granted => "G",
                    Phase::Either => "E",
                });
            match renewal.raise {
                Some(run) => command.number(run.first().get()).number(run.count().get().into()),
                None => command.text("").text(""),
            };
        }
        let held_from = self.now();
        let answer = wire.call(&command).await?;
        let parts = list(&answer).ok_or_else(nonsense)?;
        let [time, answers @ ..] = parts else {
            return Err(nonsense());
        };
        wire.clock.learn(integer(time).ok_or_else(nonsense)?, self.now());
        let judged = renewals.iter().zip(answers).map(|(renewal, answer)| {
            let lease = Duration::from_millis(lease_ms(renewal.lease));
            judge(answer, Renewed::Alive { held_from, lease })
        });
        Ok(judged.collect())
    }
}

/// What the script says of one claim.
fn judge(answer: &Value, alive: Renewed) -> Renewed {
    if let Some(by) = text(answer).and_then(|text| text.strip_prefix('V')) {
        let by = Some(by).filter(|by| !by.is_empty()).map(Arc::from);
        return Renewed::Gone(Loss::Evicted { by });
    }
    if let Some(refusal) = text(answer).and_then(|text| text.strip_prefix('R')) {
        let (code, details) = refusal.split_once(' ').unwrap_or((refusal, ""));
        return Renewed::Unknown(refused_as(code, details));
    }
    match integer(answer) {
        Some(0) => alive,
        Some(1) => Renewed::Gone(Loss::Missing),
        Some(2) => Renewed::Gone(Loss::Expired),
        Some(3) => Renewed::Unknown(BackendError::new(
            Fault::Limit,
            Effect::None,
            "tokens are raised to 2^53 at the most, beyond which Redis's scripts do not count exactly",
        )),
        _ => Renewed::Unknown(nonsense()),
    }
}
