//! Renewing: one script call renews hundreds of claims, and the failure of one does not affect the others. A batch
//! with several kinds of lock is split into calls that run concurrently.

use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use redis::Value;
use tenure_backend::{
    BackendError, Batch, Effect, Fault, Instant, Loss, Phase, RenewReply, RenewRequest, TokenRange,
};
use tokio::time::timeout;

use crate::backend::RedisStore;
use crate::claims::names::{COUNTER, client_key, uuid};
use crate::claims::refusal::{Refusal, lacks_key_permission};
use crate::claims::reply::{integer, list, text};
use crate::claims::script::{Command, ScriptSet};
use crate::claims::table::Renewable;
use crate::connection::connect_error;
use crate::connection::wire::Wire;
use crate::error::{refused, renewal_timed_out, unexpected_reply};
use crate::profile::{LIMITS, lease_ms};

/// The script's reply for a claim that waits although only a holder was to be renewed, or the other way round.
const WRONG_PHASE: u64 = 4;

/// Time limit of a renewal if a sixth of the lease is less than this.
const MIN_TIMEOUT: Duration = Duration::from_millis(50);

/// Longest time for which the replies to renewals wait until waiters are woken.
const WAKE_LIMIT: Duration = Duration::from_millis(500);

/// A renewal in a call to the server.
pub(crate) struct Renewal<'a> {
    /// Its place in the caller's batch.
    number: usize,
    request: &'a RenewRequest,
    /// The scripts of its claim's kind.
    scripts: &'static ScriptSet,
    /// The tokens and the label of the record that it writes, if any.
    record: Option<(TokenRange, Arc<str>)>,
}

impl Renewal<'_> {
    /// The tokens that the renewal raises the counter to, or those in the record that it writes.
    fn tokens(&self) -> Option<TokenRange> {
        let recorded = self.record.as_ref().map(|(run, _)| *run);
        self.request.raise.or(recorded)
    }

    fn label(&self) -> Option<&str> {
        self.record.as_ref().map(|(_, label)| &**label)
    }

    /// Whether the script takes the arguments of [`write_common`](Self::write_common) once for both claims.
    fn is_like(&self, other: &Renewal<'_>) -> bool {
        let (one, two) = (self.request, other.request);
        let count = |renewal: &Renewal<'_>| renewal.tokens().map(|run| run.count());
        one.lease == two.lease
            && one.only == two.only
            && (one.shorten_only, one.downgrade) == (two.shorten_only, two.downgrade)
            && one.raise.is_some() == two.raise.is_some()
            && count(self) == count(other)
            && self.label() == other.label()
    }

    /// Writes the arguments that the script takes once for `claims` consecutive claims that are renewed alike.
    fn write_common(&self, claims: usize, command: &mut Command) {
        let request = self.request;
        let flag = |is_set: bool| if is_set { "1" } else { "" };
        command
            .arg(claims)
            .arg(lease_ms(request.lease))
            .arg(match request.only {
                _ if request.downgrade => "D",
                Phase::Waiting => "W",
                Phase::Granted => "G",
                Phase::Either => "E",
            })
            .arg(flag(request.shorten_only))
            .arg(flag(request.raise.is_some()))
            .arg(self.tokens().map_or(0, |run| run.count().get()))
            .arg(flag(self.record.is_some()))
            .arg(self.label().unwrap_or_default());
    }

    /// Writes the arguments that the script takes for each claim.
    fn write(&self, command: &mut Command) {
        command.arg(self.request.claim.id.number());
        match self.tokens() {
            Some(run) => command.arg(run.first().get()),
            None => command.arg(""),
        };
    }
}

impl RedisStore {
    pub(crate) async fn renew_all(&self, batch: Batch<RenewRequest>) -> Batch<RenewReply> {
        let limit = time_limit(batch.iter());
        self.renew_within(batch, limit).await
    }

    /// Renews claims. All replies come together, so `limit` is the [`time_limit`] of all claims that the caller renews
    /// together, here or at other servers.
    pub(crate) async fn renew_within(
        &self,
        batch: Batch<RenewRequest>,
        limit: Duration,
    ) -> Batch<RenewReply> {
        if let Err(error) = LIMITS.check_batch(batch.len()) {
            return refused(batch.len(), &error, RenewReply::Unknown);
        }
        let mut replies = Vec::new();
        let mut valid = self.look_up(&batch);
        valid.retain(|renewal| match renewal.request.check(self.format().profile()) {
            Ok(()) => true,
            Err(error) => {
                replies.push((renewal.number, RenewReply::Unknown(error)));
                false
            }
        });
        // One call carries only claims of one client and of one kind of lock. Each kind has its own scripts, so this
        // sorts by kind.
        valid.sort_unstable_by_key(|renewal| (ptr::from_ref(renewal.scripts), renewal.number));
        let travel_together = |a: &Renewal<'_>, b: &Renewal<'_>| {
            a.request.claim.id.client() == b.request.claim.id.client() && ptr::eq(a.scripts, b.scripts)
        };
        let chunks = valid.chunk_by(travel_together);
        // Nearly always the batch is one call.
        if let Some(all) = chunks.clone().next().filter(|all| all.len() == batch.len()) {
            return self.renew_chunk(all, limit).await;
        }
        let renewed = join_all(chunks.map(|chunk| self.renew_chunk(chunk, limit))).await;
        let numbers = valid.iter().map(|renewal| renewal.number);
        replies.extend(numbers.zip(renewed.into_iter().flatten()));
        replies.sort_by_key(|(number, _)| *number);
        replies.into_iter().map(|(_, reply)| reply).collect()
    }

    /// Looks the claims of a batch up in the client's table: once for each, because most of their entries are no longer
    /// in the processor's caches.
    pub(crate) fn look_up<'a>(&self, batch: &'a [RenewRequest]) -> Vec<Renewal<'a>> {
        let renewal = |number, request, known: Option<Renewable>| Renewal {
            number,
            request,
            scripts: self
                .layout
                .scripts_or_mutex(known.as_ref().map(|known| known.kind)),
            record: known.and_then(|known| known.record),
        };
        self.claims.begin_renewals(batch, self.now(), renewal)
    }

    /// Renews one chunk. Gives the call up if there is no connection within `limit`, or if the server then sends nothing
    /// for as long, not even the reply to another call; a server that answers earlier calls is only slow, and another
    /// renewal would add to its load. Also gives up after twice that limit, a third of the lease, so that another attempt
    /// can come before the lease ends.
    ///
    /// A call that was given up may still reach the server. That does no harm: it renews only claims that are alive then.
    async fn renew_chunk(&self, chunk: &[Renewal<'_>], limit: Duration) -> Batch<RenewReply> {
        let session = timeout(limit, self.link.session()).await;
        match session.unwrap_or_else(|_| Err(connect_error::too_slow(&self.link.dialer.config, limit))) {
            Ok(session) => self.renew_each(&session.wire, chunk, limit).await,
            Err(error) => refused(chunk.len(), &error, RenewReply::Unknown),
        }
    }

    /// Renews in one call. If the server refuses the call because the user may not access one of its keys, splits it
    /// into halves, which run concurrently with the full time limit.
    async fn renew_each(&self, wire: &Wire, renewals: &[Renewal<'_>], limit: Duration) -> Batch<RenewReply> {
        let replies = tokio::select! {
            biased;
            replies = self.renew_on(wire, renewals) => replies,
            () = wire.traffic.silence(limit, 2 * limit) => Err(renewal_timed_out(limit)),
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
            Err(error) => refused(renewals.len(), &error, RenewReply::Unknown),
        }
    }

    /// Renews in one call. Returns a reply for each request.
    pub(crate) async fn renew_on(
        &self,
        wire: &Wire,
        renewals: &[Renewal<'_>],
    ) -> Result<Batch<RenewReply>, BackendError> {
        let Some(Renewal {
            request: first,
            scripts,
            ..
        }) = renewals.first()
        else {
            return Ok(Batch::new());
        };
        let count = renewals.len();
        let client = first.claim.id.client();
        let mut command = scripts.renew.command(2 + count, 10 + 2 * count, 48 * (4 + count));
        // If this name is empty, the script raises not one common token counter, but that of each lock.
        let per_lock = self.link.dialer.config.redisson_fencing;
        command
            .arg(if per_lock { "" } else { COUNTER })
            .arg(&client_key(client));
        for renewal in renewals {
            command.arg(self.format().key(renewal.request.claim.key.as_str()));
        }
        command
            .arg(&*self.claims.client_label(&first.claim))
            .arg(&uuid(client));
        for group in renewals.chunk_by(Renewal::is_like) {
            group[0].write_common(group.len(), &mut command);
            for renewal in group {
                renewal.write(&mut command);
            }
        }
        let held_from = self.now();
        let reply = wire.call(command).await?;
        let parts = list(&reply).ok_or_else(unexpected_reply)?;
        if parts
            .iter()
            .filter_map(refusal)
            .any(|refusal| refusal.is_from_replica())
        {
            wire.close();
        }
        let (time, codes) = match parts {
            // All claims have the same result.
            [time, code] => (time, vec![code; count]),
            [time, codes @ ..] if codes.len() == count => (time, codes.iter().collect()),
            _ => return Err(unexpected_reply()),
        };
        let (shown, now) = (integer(time).ok_or_else(unexpected_reply)?, self.now());
        wire.clock.learn(shown, now);
        let renewed = renewals.iter().zip(codes).map(|(renewal, code)| {
            let renewed = decode(code, held_from);
            match &renewed {
                // The claim is alive, so the table keeps it: it waits although only a holder was to be renewed, or the
                // other way round.
                RenewReply::Gone(_) if integer(code) == Some(WRONG_PHASE) => {}
                RenewReply::Gone(loss) => {
                    let expired = self.claims.mark_lost(renewal.request.claim.id, now, shown);
                    if expired && *loss == Loss::Missing {
                        return RenewReply::Gone(Loss::Expired);
                    }
                }
                RenewReply::Alive { .. } | RenewReply::Unknown(_) => {}
            }
            renewed
        });
        let mut renewed: Batch<RenewReply> = renewed.collect();
        // Nearly always, all leases end at the same time.
        let mut last = (Instant::ORIGIN, 0);
        let alive = renewals
            .iter()
            .zip(&renewed)
            .filter_map(|(renewal, reply)| match reply {
                RenewReply::Alive { held_from, lease } => {
                    let until = *held_from + *lease;
                    if last.0 != until {
                        last = (until, wire.clock.at(until));
                    }
                    Some((renewal.request, last.1))
                }
                _ => None,
            });
        let shortened = self.claims.mark_renewed(alive);
        if !shortened.is_empty() {
            let wake = |key| self.wake_waiters(wire, scripts.channel, key);
            // Waiters sleep until the end of the longer lease. A wake-up that is lost undoes no renewal.
            let _ = timeout(WAKE_LIMIT, join_all(shortened.into_iter().map(wake))).await;
        }
        let is_held = |(renewal, reply): (&Renewal<'_>, &RenewReply)| {
            renewal.request.only != Phase::Waiting && matches!(reply, RenewReply::Alive { .. })
        };
        if renewals.iter().zip(&renewed).any(is_held)
            && let Err(error) = wire.acknowledged(&first.claim.key).await
        {
            // Replicas did not confirm the renewed leases, so these do not count. The reply for a claim that is gone
            // stays.
            for reply in &mut renewed {
                if matches!(reply, RenewReply::Alive { .. }) {
                    *reply = RenewReply::Unknown(error.clone());
                }
            }
        }
        Ok(renewed)
    }
}

/// The silence of the server after which a renewal is given up: a sixth of the shortest lease, but at least
/// [`MIN_TIMEOUT`]. So there is time for another attempt.
pub(crate) fn time_limit<'a>(renewals: impl Iterator<Item = &'a RenewRequest>) -> Duration {
    let shortest = renewals.map(|renewal| renewal.lease).min();
    (shortest.unwrap_or_default() / 6).max(MIN_TIMEOUT)
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
        Some(5) => RenewReply::Unknown(BackendError::new(
            Fault::Invalid,
            Effect::None,
            "only a write lock can be downgraded, and this claim is no read-write lock's",
        )),
        _ => RenewReply::Unknown(unexpected_reply()),
    }
}
