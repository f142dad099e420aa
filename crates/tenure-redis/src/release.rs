//! Releasing: withdrawals, releases and evictions, with a successor or without. The requests of a batch run
//! concurrently.

use std::future::Future;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tenure_backend::{
    AcquireReply, BackendError, Batch, Cause, Effect, Fault, HolderId, Kind, LockKey, ReleaseReply,
    ReleaseRequest, ReleaseTarget, TURN,
};
use tokio::time::sleep;

use crate::backend::RedisStore;
use crate::claims::arguments::{write_client, write_placement};
use crate::claims::names::{MUTEX_CHANNEL, Owner, queue, tagged};
use crate::claims::reply::{integer, kind, list, numbers, text};
use crate::claims::script::{Command, ScriptSet};
use crate::claims::table::{EndState, Lookup, Placement};
use crate::connection::batch::{BatchEntry, BatchReply};
use crate::connection::session::Session;
use crate::connection::wire::Wire;
use crate::error::{refused, unexpected_reply};
use crate::layout::{foreign_name, foreign_value};
use crate::profile::{LIMITS, check_claim};

/// The longest cooldown: a year, like the longest lease.
const MAX_COOLDOWN: Duration = Duration::from_secs(365 * 24 * 3600);

const HELD_BY_REDISSON: &str = "the key is held by another kind of client, whose waiters only a client of its own layout wakes: \
     evict it with `layout=redisson`";

/// The reply for a successor that the server refused: it is reported as waiting, and its next poll gets the error.
const POLLS: AcquireReply = AcquireReply::Waiting {
    ahead: None,
    poll_after: TURN,
};

impl RedisStore {
    pub(crate) async fn release_all(&self, batch: Batch<ReleaseRequest>) -> Batch<ReleaseReply> {
        release_each(&batch, |request| self.try_release(request)).await
    }

    /// Releases a holder in a batch. Returns `None` if nothing was done: the caller then sends the request alone. This
    /// is so for each withdrawal, because a withdrawn claim rarely holds the key, and a batch releases only holders.
    async fn release_in_batch(
        &self,
        session: &Session,
        request: &ReleaseRequest,
        has_record: bool,
    ) -> Result<Option<ReleaseReply>, BackendError> {
        let ReleaseRequest {
            target: ReleaseTarget::Claim(target),
            cause: Cause::Unlocked,
            successor: None,
            cooldown: Duration::ZERO,
        } = request
        else {
            return Ok(None);
        };
        let own = u64::from(self.subscriptions.is_subscribed(MUTEX_CHANNEL, &target.key));
        let entry = BatchEntry::Release {
            claim: target.clone(),
            with_record: has_record,
        };
        let BatchReply::Done(one_more) = session.call_batched(entry).await? else {
            return Ok(None);
        };
        let receivers = one_more - 1;
        let freed = Batch::from_iter([HolderId::Claim(target.id)]);
        let others = u32::try_from(receivers.saturating_sub(own)).ok();
        Ok(Some(done(freed, others, None)))
    }

    pub(crate) async fn try_release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, BackendError> {
        if let Some(successor) = request.checked_successor()? {
            check_claim(successor, self.layout)?;
        }
        let session = self.link.session().await?;
        if matches!(&request.target, ReleaseTarget::Foreign { id, .. } if id.is_empty()) {
            // With an empty owner, the script would release all holders.
            return Ok(done(Batch::new(), None, None));
        }
        if request.successor.is_some() && session.is_recovering(self.now()) {
            // Boxed: this future contains itself.
            return Box::pin(self.release_without_successor(request)).await;
        }
        let (released_id, (end, kind)) = match (&request.target, &request.cause) {
            (ReleaseTarget::Claim(target), Cause::Evicted { .. }) => {
                (None, (EndState::Unknown, self.claims.kind(target.id)))
            }
            (ReleaseTarget::Claim(target), _) => {
                (Some(target.id), self.claims.begin_release(target.id, self.now()))
            }
            _ => (None, (EndState::Unknown, None)),
        };
        let released = self.release_on(&session, request, end, kind).await;
        match (released_id, &released) {
            (Some(id), Ok(_)) => self.claims.confirm_end(id, self.now()),
            (Some(id), Err(error)) if error.effect() == Effect::None => self.claims.cancel_release(id),
            _ => {}
        }
        released
    }

    /// Releases, and does not place the successor, because the server may lack claims that are held.
    pub(crate) async fn release_without_successor(
        &self,
        request: &ReleaseRequest,
    ) -> Result<ReleaseReply, BackendError> {
        let alone = ReleaseRequest {
            successor: None,
            ..request.clone()
        };
        let released = self.try_release(&alone).await?;
        Ok(with_successor(released, AcquireReply::Recovering))
    }

    async fn release_on(
        &self,
        session: &Session,
        request: &ReleaseRequest,
        end: EndState,
        kind: Option<Kind>,
    ) -> Result<ReleaseReply, BackendError> {
        let wire = &session.wire;
        let scripts = self.layout.scripts_or_mutex(kind);
        if matches!(end, EndState::Settled | EndState::SettledWithRecord)
            && scripts.batches
            && session.is_busy()
            && let Some(released) = self
                .release_in_batch(session, request, end == EndState::SettledWithRecord)
                .await?
        {
            return Ok(released);
        }
        let Some(successor) = &request.successor else {
            let released = self.release_alone(session, scripts, request, end, None).await?;
            if !request.cooldown.is_zero()
                && let Err(error) = self.wake_after_cooldown(wire, request).await
            {
                let key = request.target.key();
                tracing::debug!(%key, %error, "the head of the queue is not woken after the cooldown: it polls by itself");
            }
            return Ok(released);
        };
        let scripts = self
            .layout
            .scripts_or_mutex(kind.or(Some(successor.claim.mode.kind())));
        let lookup =
            self.claims
                .begin_placement(&successor.claim, self.now(), successor.not_after, wire.number);
        let placement = match &lookup {
            Lookup::Ask(placement) => Some(placement),
            Lookup::Ended | Lookup::Granted(_) => None,
        };
        let released = self
            .release_alone(session, scripts, request, end, placement)
            .await;
        match lookup {
            Lookup::Ask(placement) => {
                placement.answered(successor_reply(&released), &wire.clock);
                // If too few replicas acknowledge the successor's grant, this returns an error, after which the client
                // repeats the release and asks again for the successor.
                if matches!(successor_reply(&released), Ok(AcquireReply::Granted(_))) {
                    wire.acknowledged(request.target.key()).await?;
                }
                released
            }
            Lookup::Ended => Ok(with_successor(released?, AcquireReply::Ended)),
            // This release is repeated: the earlier one has granted the successor.
            Lookup::Granted(run) => {
                let released = released?;
                let successor = self.poll_granted(&successor.claim, run).await?;
                Ok(with_successor(released, successor))
            }
        }
    }

    /// Releases in a call of its own, and places the successor, if there is one. If the call finds a key of a kind that
    /// `scripts` do not serve, a second call uses the scripts of that kind. A successor that the releasing scripts do
    /// not serve is placed in a further call.
    async fn release_alone(
        &self,
        session: &Session,
        scripts: &'static ScriptSet,
        request: &ReleaseRequest,
        end: EndState,
        successor: Option<&Placement<'_>>,
    ) -> Result<ReleaseReply, BackendError> {
        let kind = |successor: &Placement<'_>| successor.claim.mode.kind();
        let is_served = |successor: &&Placement<'_>| {
            let serve = self.layout.scripts(kind(successor));
            serve.is_some_and(|serve| ptr::eq(serve, scripts))
        };
        let mut together = successor.filter(is_served);
        let mut released = self.try_scripts(session, scripts, request, end, together).await?;
        if let Err(held) = released
            && let Some(others) = self.layout.scripts(held)
            && !ptr::eq(others, scripts)
        {
            together = None;
            released = Box::pin(self.try_scripts(session, others, request, end, None)).await?;
        }
        let released =
            released.map_err(|held| BackendError::mismatch(held, successor.map_or(Kind::Mutex, kind)))?;
        match successor {
            Some(successor) if together.is_none() => {
                Box::pin(self.place_after(session, released, successor)).await
            }
            _ => Ok(released),
        }
    }

    /// Places a successor in a call of its own, because the scripts that released the claim serve another kind.
    async fn place_after(
        &self,
        session: &Session,
        released: ReleaseReply,
        successor: &Placement<'_>,
    ) -> Result<ReleaseReply, BackendError> {
        let scripts = check_claim(successor.claim, self.layout)?;
        Ok(match self.acquire_on(session, scripts, successor).await {
            Ok(placed) => with_successor(released, placed),
            Err(error) if error.effect() == Effect::None => with_successor(released, POLLS),
            Err(error) => ReleaseReply::Unknown(error),
        })
    }

    /// Releases with the given scripts. The inner error is the key's kind, if the scripts do not serve it.
    async fn try_scripts(
        &self,
        session: &Session,
        scripts: &'static ScriptSet,
        request: &ReleaseRequest,
        end: EndState,
        successor: Option<&Placement<'_>>,
    ) -> Result<Result<ReleaseReply, Kind>, BackendError> {
        let wire = &session.wire;
        let command = self.encode(wire, scripts, request, end, successor);
        let sent = self.now();
        let reply = session.call_limited(command).await?;
        if let Some([freed, others]) = list(&reply) {
            let freed = freed_holders(freed).ok_or_else(unexpected_reply)?;
            let others = integer(others).and_then(|others| others.try_into().ok());
            let others = self.reported_others(others.unwrap_or_default());
            return Ok(Ok(done(freed, others, None)));
        }
        let (freed, others, successor) = match (successor, numbers(&reply)) {
            (_, Some([-2, 0])) => {
                return Err(BackendError::new(
                    Fault::UnknownKind,
                    Effect::None,
                    HELD_BY_REDISSON,
                ));
            }
            (_, Some([-1, held])) => return kind(held).map(Err).ok_or_else(unexpected_reply),
            (None, Some([freed, others])) => (freed, others, None),
            (None, None) | (Some(_), Some(_)) => return Err(unexpected_reply()),
            (Some(successor), None) => {
                let [freed, others, placed @ ..] = numbers::<6>(&reply).ok_or_else(unexpected_reply)?;
                let placed = self.placed(placed, successor.claim, sent, wire);
                let placed = placed.ok_or_else(unexpected_reply)?;
                (freed, others, Some(placed.unwrap_or(POLLS)))
            }
        };
        let freed = target_id(&request.target).filter(|_| freed == 1);
        let others = self.reported_others(others);
        Ok(Ok(done(freed.into_iter().collect(), others, successor)))
    }

    /// The number of other waiters, from the script's count. In the layouts `plain` and `spring` `None` instead of 0,
    /// because a waiter of another kind of client may only poll.
    fn reported_others(&self, others: i64) -> Option<u32> {
        let counts_all = self.format().profile().reports_waiters;
        u32::try_from(others)
            .ok()
            .filter(|others| *others > 0 || counts_all)
    }

    /// Wakes the first fair waiter once more after an eviction's cooldown; in the layouts `plain` and `spring` all
    /// waiters. A Java client that was woken during the cooldown found the key held, and may sleep for minutes or for
    /// ever.
    async fn wake_after_cooldown(&self, wire: &Wire, request: &ReleaseRequest) -> Result<(), BackendError> {
        let (key, pause) = (request.target.key(), request.cooldown + LIMITS.expiry_slack);
        if let Some(channels) = self.format().channels(key) {
            sleep(pause).await;
            return self.publish_release(wire, key, channels).await;
        }
        let mut head = redis::cmd("LINDEX");
        head.arg(queue(key)).arg(0);
        if text(&wire.query(&head).await?).is_none() {
            return Ok(());
        }
        sleep(pause).await;
        self.wake_head(wire, key).await
    }

    /// Wakes all waiters of a lock, so that they learn when its holder's lease ends now. `channel` begins the name of
    /// the unfair waiters' channel.
    pub(crate) async fn wake_waiters(
        &self,
        wire: &Wire,
        channel: &str,
        key: &LockKey,
    ) -> Result<(), BackendError> {
        if let Some(channels) = self.format().channels(key) {
            return self.publish_release(wire, key, channels).await;
        }
        wire.publish(&tagged(channel, key), "0").await?;
        self.wake_head(wire, key).await
    }

    /// Wakes the first fair waiter, if there is one.
    async fn wake_head(&self, wire: &Wire, key: &LockKey) -> Result<(), BackendError> {
        let mut head = redis::cmd("LINDEX");
        head.arg(queue(key)).arg(0);
        match text(&wire.query(&head).await?) {
            Some(head) => {
                let channel = tagged(MUTEX_CHANNEL, key);
                wire.publish(&format!("{channel}:{head}"), "0").await
            }
            None => Ok(()),
        }
    }

    async fn publish_release(
        &self,
        wire: &Wire,
        key: &LockKey,
        channels: Vec<String>,
    ) -> Result<(), BackendError> {
        for channel in channels {
            wire.publish(&channel, &self.format().key(key.as_str())).await?;
        }
        Ok(())
    }

    fn encode(
        &self,
        wire: &Wire,
        scripts: &'static ScriptSet,
        request: &ReleaseRequest,
        end: EndState,
        successor: Option<&Placement<'_>>,
    ) -> Command {
        let (target, cooldown) = (&request.target, request.cooldown);
        let key = target.key();
        let mut command = match successor {
            Some(_) => scripts.release.command(4, 13, 448),
            None => scripts.release.command(1, 5, 192),
        };
        command.arg(self.format().key(key.as_str()));
        if let Some(successor) = successor {
            command.arg(self.counter(key));
            write_client(&mut command, successor.claim.at.id.client());
        }
        let claim = match target {
            ReleaseTarget::Claim(claim) => Some(Owner::of(claim.id)),
            ReleaseTarget::Foreign { .. } | ReleaseTarget::All(_) => None,
        };
        match target {
            ReleaseTarget::Foreign { id, .. } => command.arg(foreign_value(id)),
            _ => command.arg(claim.as_ref().map_or(&[][..], Owner::as_bytes)),
        };
        match (&request.cause, end) {
            (Cause::Evicted { by }, _) => command.arg(format!("V{}", by.as_deref().unwrap_or_default())),
            (_, EndState::Settled) => command.arg(""),
            (_, EndState::SettledWithRecord) => command.arg("N"),
            (_, EndState::MayBeInFlight) => command.arg("E"),
            (_, EndState::Unknown) => command.arg("U"),
        };
        let own = claim.is_some() && self.subscriptions.is_subscribed(scripts.channel, key);
        command.arg(u64::from(own));
        match self.format().channels(key) {
            Some(channels) => command.arg(channels.join("\n")),
            None => command.arg(claim.as_ref().map_or(&[][..], Owner::client)),
        };
        if successor.is_some() || !cooldown.is_zero() {
            command.arg(cooldown.min(MAX_COOLDOWN).as_millis());
        }
        if let Some(successor) = successor {
            write_placement(&mut command, successor, &wire.clock, self.format().is_string());
        }
        command
    }
}

/// Releases the requests of a batch concurrently, each by a call of `release`.
pub(crate) async fn release_each<'a, F>(
    batch: &'a [ReleaseRequest],
    release: impl Fn(&'a ReleaseRequest) -> F,
) -> Batch<ReleaseReply>
where
    F: Future<Output = Result<ReleaseReply, BackendError>>,
{
    if let Err(error) = LIMITS.check_batch(batch.len()) {
        return refused(batch.len(), &error, ReleaseReply::Unknown);
    }
    if let [request] = batch {
        return Batch::from_iter([release(request).await.unwrap_or_else(ReleaseReply::Unknown)]);
    }
    let released = join_all(batch.iter().map(release)).await.into_iter();
    released
        .map(|reply| reply.unwrap_or_else(ReleaseReply::Unknown))
        .collect()
}

fn done(freed: Batch<HolderId>, others: Option<u32>, successor: Option<AcquireReply>) -> ReleaseReply {
    ReleaseReply::Done {
        freed,
        others,
        successor,
    }
}

/// Returns the reply for the successor (`Ended` if the release has none), or the release's error.
fn successor_reply(released: &Result<ReleaseReply, BackendError>) -> Result<&AcquireReply, &BackendError> {
    match released {
        Ok(ReleaseReply::Done {
            successor: Some(successor),
            ..
        }) => Ok(successor),
        Ok(ReleaseReply::Done { successor: None, .. }) => Ok(&AcquireReply::Ended),
        Ok(ReleaseReply::Unknown(error)) | Err(error) => Err(error),
    }
}

fn with_successor(released: ReleaseReply, placed: AcquireReply) -> ReleaseReply {
    match released {
        ReleaseReply::Done { freed, others, .. } => done(freed, others, Some(placed)),
        unknown => unknown,
    }
}

/// ID of the claim or holder that the request is to release; `None` for all holders.
fn target_id(target: &ReleaseTarget) -> Option<HolderId> {
    match target {
        ReleaseTarget::Claim(claim) => Some(HolderId::Claim(claim.id)),
        ReleaseTarget::Foreign { id, .. } => Some(HolderId::Foreign(id.clone())),
        ReleaseTarget::All(_) => None,
    }
}

/// Decodes the list of holders that the script has freed.
fn freed_holders(freed: &Value) -> Option<Batch<HolderId>> {
    let holder = |freed| match list(freed)? {
        [owner, ours] => Some(holder_id(&foreign_name(owner)?, integer(ours)? == 1)),
        _ => None,
    };
    list(freed)?.iter().map(holder).collect()
}

/// ID of a holder or waiter, from its name in Redis. Redisson's threads have names of the same form as our claims.
/// `ours` tells that it is our claim: Redis has a record of it or its client.
pub(crate) fn holder_id(owner: &str, ours: bool) -> HolderId {
    match owner.parse() {
        Ok(claim) if ours => HolderId::Claim(claim),
        _ => HolderId::Foreign(Arc::from(owner)),
    }
}
