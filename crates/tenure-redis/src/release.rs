//! Releasing: withdrawals, releases and evictions, with a successor or without. The requests of a batch run
//! concurrently.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tenure_backend::{
    AcquireReply, BackendError, Batch, Cause, Effect, HolderId, Kind, ReleaseReply, ReleaseRequest,
    ReleaseTarget, Successor,
};
use tokio::time::sleep;

use crate::acquire::acquire_reply;
use crate::backend::RedisStore;
use crate::claims::arguments::{COUNTER, write_claim, write_client};
use crate::claims::names::{Owner, channel, queue};
use crate::claims::reply::{decode, integer, list, numbers, text};
use crate::claims::script::{Command, RELEASE};
use crate::claims::table::{ClientRecord, EndState, Lookup};
use crate::connection::batch::{BatchEntry, BatchReply};
use crate::connection::session::Session;
use crate::connection::wire::Wire;
use crate::error::unexpected_reply;
use crate::profile::{LIMITS, check_release};

/// The longest cooldown, in milliseconds: a year, like the longest lease.
const MAX_COOLDOWN: u64 = 365 * 24 * 3600 * 1000;

impl RedisStore {
    pub(crate) async fn release_all(&self, batch: Batch<ReleaseRequest>) -> Batch<ReleaseReply> {
        if let Err(error) = LIMITS.check_batch(batch.len()) {
            return batch
                .iter()
                .map(|_| ReleaseReply::Unknown(error.clone()))
                .collect();
        }
        if let [request] = &batch[..] {
            return Batch::from_iter([self.release_one(request).await]);
        }
        Batch::from_vec(join_all(batch.iter().map(|request| self.release_one(request))).await)
    }

    async fn release_one(&self, request: &ReleaseRequest) -> ReleaseReply {
        self.try_release(request)
            .await
            .unwrap_or_else(ReleaseReply::Unknown)
    }

    /// Releases a holder in a batch. Returns `None` if nothing was done, and the caller is to send the request alone.
    /// Withdrawn claims are never batched: they rarely hold the key.
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
        let own = u64::from(self.subscriptions.is_subscribed(&target.key));
        let entry = BatchEntry::Release {
            claim: target.clone(),
            with_record: has_record,
        };
        let BatchReply::Done(one_more) = session.call_batched(entry).await? else {
            return Ok(None);
        };
        let receivers = one_more - 1;
        Ok(Some(ReleaseReply::Done {
            freed: Batch::from_iter([HolderId::Claim(target.id)]),
            others: u32::try_from(receivers.saturating_sub(own)).ok(),
            successor: None,
        }))
    }

    pub(crate) async fn try_release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, BackendError> {
        check_release(request)?;
        let session = self.link.session().await?;
        if matches!(&request.target, ReleaseTarget::Foreign { id, .. } if id.is_empty()) {
            // With an empty owner, the script would release all holders.
            return Ok(ReleaseReply::Done {
                freed: Batch::new(),
                others: None,
                successor: None,
            });
        }
        let released_id = match (&request.target, &request.cause) {
            (ReleaseTarget::Claim(target), Cause::Unlocked | Cause::Withdrawn) => Some(target.id),
            _ => None,
        };
        let end = released_id.map_or(EndState::MayBeInFlight, |id| {
            self.claims.begin_release(id, self.now())
        });
        let released = self.release_on(&session, request, end).await;
        match (released_id, &released) {
            (Some(id), Ok(_)) => self.claims.confirm_end(id, self.now()),
            (Some(id), Err(error)) if error.effect() == Effect::None => self.claims.cancel_release(id),
            _ => {}
        }
        released
    }

    async fn release_on(
        &self,
        session: &Session,
        request: &ReleaseRequest,
        end: EndState,
    ) -> Result<ReleaseReply, BackendError> {
        let wire = &session.wire;
        if end != EndState::MayBeInFlight
            && session.is_busy()
            && let Some(released) = self
                .release_in_batch(session, request, end == EndState::SettledWithRecord)
                .await?
        {
            return Ok(released);
        }
        let Some(successor) = &request.successor else {
            let released = self.release_alone(session, request, end, None).await?;
            if !request.cooldown.is_zero() {
                self.wake_head_after_cooldown(wire, request).await;
            }
            return Ok(released);
        };
        match self
            .claims
            .begin_placement(&successor.claim, self.now(), successor.not_after, wire.number)
        {
            Lookup::Ask(placement) => {
                let successor = Some((successor, placement.client.as_ref()));
                let released = self.release_alone(session, request, end, successor).await;
                placement.answered(successor_reply(&released), &wire.clock);
                released
            }
            Lookup::Ended => {
                let released = self.release_alone(session, request, end, None).await?;
                Ok(with_successor(released, AcquireReply::Ended))
            }
            // This release is repeated: the earlier one has granted the successor.
            Lookup::Granted(run) => {
                let released = self.release_alone(session, request, end, None).await?;
                let successor = self.poll_granted(&successor.claim, run).await?;
                Ok(with_successor(released, successor))
            }
        }
    }

    async fn release_alone(
        &self,
        session: &Session,
        request: &ReleaseRequest,
        end: EndState,
        successor: Option<(&Successor, Option<&ClientRecord>)>,
    ) -> Result<ReleaseReply, BackendError> {
        let (wire, target) = (&session.wire, &request.target);
        let command = self.encode(wire, request, end, successor);
        let sent = self.now();
        let reply = session.call_limited(&command).await?;
        if let Some([freed, others]) = list(&reply) {
            return Ok(ReleaseReply::Done {
                freed: freed_holders(freed).ok_or_else(unexpected_reply)?,
                others: integer(others).and_then(|others| u32::try_from(others).ok()),
                successor: None,
            });
        }
        if numbers(&reply) == Some([-1, 0]) {
            return Err(BackendError::mismatch(Kind::ReadWrite, Kind::Mutex));
        }
        let (freed, others, successor) = if let Some((successor, _)) = successor {
            let [freed, others, code, first, second, time] = numbers(&reply).ok_or_else(unexpected_reply)?;
            wire.clock.learn(time.unsigned_abs(), self.now());
            let placed = decode(code, first, second).ok_or_else(unexpected_reply)?;
            (freed, others, Some(acquire_reply(placed, &successor.claim, sent)))
        } else {
            let [freed, others] = numbers(&reply).ok_or_else(unexpected_reply)?;
            (freed, others, None)
        };
        Ok(ReleaseReply::Done {
            freed: target_id(target).filter(|_| freed == 1).into_iter().collect(),
            others: u32::try_from(others).ok(),
            successor,
        })
    }

    /// Wakes the first fair waiter once more after an eviction's cooldown. An older Java client that was woken during
    /// the cooldown found the key held, and may sleep for minutes or for ever.
    async fn wake_head_after_cooldown(&self, wire: &Wire, request: &ReleaseRequest) {
        let key = request.target.key();
        let woken = async {
            let mut head = redis::cmd("LINDEX");
            head.arg(queue(key)).arg(0);
            if text(&wire.query(&head).await?).is_none() {
                return Ok(());
            }
            sleep(request.cooldown + LIMITS.expiry_slack).await;
            let Some(head) = text(&wire.query(&head).await?).map(str::to_owned) else {
                return Ok(());
            };
            wire.publish(&format!("{}:{head}", channel(key))).await
        };
        let woken: Result<(), BackendError> = woken.await;
        if let Err(error) = woken {
            tracing::debug!(%key, %error, "the head of the queue is not woken after the cooldown: it polls by itself");
        }
    }

    fn encode(
        &self,
        wire: &Wire,
        request: &ReleaseRequest,
        end: EndState,
        successor: Option<(&Successor, Option<&ClientRecord>)>,
    ) -> Command {
        let ReleaseRequest {
            target,
            cause,
            cooldown,
            ..
        } = request;
        let key = target.key();
        let mut command = match successor {
            Some(_) => RELEASE.command(4, 13, 448),
            None => RELEASE.command(1, 5, 192),
        };
        command.text(key.as_str());
        if let Some((successor, _)) = successor {
            command.text(COUNTER);
            write_client(&mut command, successor.claim.at.id.client());
        }
        let client = match target {
            ReleaseTarget::Claim(claim) => {
                let owner = Owner::of(claim.id);
                command.bytes(owner.as_bytes());
                Some(owner)
            }
            ReleaseTarget::Foreign { id, .. } => {
                command.text(id);
                None
            }
            ReleaseTarget::All(_) => {
                command.text("");
                None
            }
        };
        match (cause, end) {
            (Cause::Evicted { by }, _) => command.text(&format!("V{}", by.as_deref().unwrap_or_default())),
            (_, EndState::Settled) => command.text(""),
            (_, EndState::SettledWithRecord) => command.text("N"),
            (_, EndState::MayBeInFlight) => command.text("E"),
        };
        let own = client.is_some() && self.subscriptions.is_subscribed(key);
        command
            .number(u64::from(own))
            .bytes(client.as_ref().map_or(&[][..], Owner::client));
        if successor.is_some() || !cooldown.is_zero() {
            command.number(
                u64::try_from(cooldown.as_millis())
                    .map_or(MAX_COOLDOWN, |cooldown| cooldown.min(MAX_COOLDOWN)),
            );
        }
        if let Some((successor, record)) = successor {
            write_claim(
                &mut command,
                &successor.claim,
                wire.clock.at(successor.not_after),
                record,
            );
        }
        command
    }
}

/// Returns the successor's reply, `Ended` if there is none, or the release's error.
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
        ReleaseReply::Done { freed, others, .. } => ReleaseReply::Done {
            freed,
            others,
            successor: Some(placed),
        },
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
        [owner, ours] => Some(holder_id(text(owner)?, integer(ours)? == 1)),
        _ => None,
    };
    list(freed)?.iter().map(holder).collect()
}

/// ID of a holder or waiter. Java's threads are written like our claims; `ours` tells that Redis has a record of the
/// claim or client.
pub(crate) fn holder_id(owner: &str, ours: bool) -> HolderId {
    match owner.parse() {
        Ok(claim) if ours => HolderId::Claim(claim),
        _ => HolderId::Foreign(Arc::from(owner)),
    }
}
