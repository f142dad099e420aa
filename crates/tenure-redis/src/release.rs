//! Departures: the call for one, and who was freed by it. Those of a batch travel side by side.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tenure_backend::{
    AcquireReply, BackendError, Batch, Cause, Effect, HolderId, Kind, ReleaseReply, ReleaseRequest,
    ReleaseTarget, Successor,
};
use tokio::time::sleep;

use crate::acquire::{COUNTER, standing, write_claim, write_client};
use crate::answer::{integer, list, numbers, placed, text};
use crate::backend::RedisStore;
use crate::error::nonsense;
use crate::known::{Asked, End, Keep};
use crate::names::{Owner, channel, queue};
use crate::profile::{LIMITS, check_departure};
use crate::script::{Command, RELEASE};
use crate::together::Wish;
use crate::wire::Wire;

/// The longest cooldown, in milliseconds: a year, as the longest lease.
const MAX_COOLDOWN: u64 = 365 * 24 * 3600 * 1000;

impl RedisStore {
    pub(crate) async fn depart_all(&self, batch: Batch<ReleaseRequest>) -> Batch<ReleaseReply> {
        if let Err(error) = LIMITS.check_batch(batch.len()) {
            return batch
                .iter()
                .map(|_| ReleaseReply::Unknown(error.clone()))
                .collect();
        }
        if let [departure] = &batch[..] {
            return Batch::from_iter([self.depart(departure).await]);
        }
        Batch::from_vec(join_all(batch.iter().map(|departure| self.depart(departure))).await)
    }

    async fn depart(&self, departure: &ReleaseRequest) -> ReleaseReply {
        self.try_depart(departure)
            .await
            .unwrap_or_else(ReleaseReply::Unknown)
    }

    /// A holder's plain end, if nobody queues; otherwise nothing was done. What is withdrawn holds nothing as a rule.
    async fn depart_with_others(
        &self,
        wire: &Wire,
        departure: &ReleaseRequest,
        noted: bool,
    ) -> Result<Option<ReleaseReply>, BackendError> {
        let ReleaseRequest {
            target: ReleaseTarget::Claim(who),
            cause: Cause::Unlocked,
            successor: None,
            cooldown: Duration::ZERO,
        } = departure
        else {
            return Ok(None);
        };
        let own = i64::from(self.ear.listens(&who.key));
        let heard = wire
            .ask_together(Wish::Depart {
                who: who.clone(),
                noted,
            })
            .await?
            - 1;
        Ok((heard >= 0).then(|| ReleaseReply::Done {
            freed: Batch::from_iter([HolderId::Claim(who.id)]),
            others: u32::try_from((heard - own).max(0)).ok(),
            successor: None,
        }))
    }

    async fn try_depart(&self, departure: &ReleaseRequest) -> Result<ReleaseReply, BackendError> {
        check_departure(departure)?;
        let wire = self.link.wire().await?;
        if matches!(&departure.target, ReleaseTarget::Foreign { id, .. } if id.is_empty()) {
            // To the script that would be all of them.
            return Ok(ReleaseReply::Done {
                freed: Batch::new(),
                others: None,
                successor: None,
            });
        }
        let leaves = match (&departure.target, &departure.cause) {
            (ReleaseTarget::Claim(who), Cause::Unlocked | Cause::Withdrawn) => Some(who.id),
            _ => None,
        };
        let end = leaves.map_or(End::Doubted, |id| self.known.end(id, self.now()));
        let released = self.depart_on(&wire, departure, end).await;
        match (leaves, &released) {
            (Some(id), Ok(_)) => self.known.has_ended(id, self.now()),
            (Some(id), Err(error)) if error.effect() == Effect::None => self.known.stays(id),
            _ => {}
        }
        released
    }

    async fn depart_on(
        &self,
        wire: &Wire,
        departure: &ReleaseRequest,
        end: End,
    ) -> Result<ReleaseReply, BackendError> {
        if end != End::Doubted
            && wire.is_busy()
            && let Some(released) = self
                .depart_with_others(wire, departure, end == End::Noted)
                .await?
        {
            return Ok(released);
        }
        let Some(successor) = &departure.successor else {
            let released = self.depart_alone(wire, departure, end, None).await?;
            if !departure.cooldown.is_zero() {
                self.call_after(wire, departure).await;
            }
            return Ok(released);
        };
        match self
            .known
            .ask(&successor.claim, self.now(), successor.not_after, wire.number)
        {
            Asked::Open(asking) => {
                let placing = Some((successor, asking.keep.as_ref()));
                let released = self.depart_alone(wire, departure, end, placing).await;
                asking.answered(successors(&released), &wire.clock);
                released
            }
            Asked::Ended => {
                let released = self.depart_alone(wire, departure, end, None).await?;
                Ok(with_successor(released, AcquireReply::Ended))
            }
            // It is a repetition.
            Asked::Granted(run) => {
                let released = self.depart_alone(wire, departure, end, None).await?;
                let successor = self.poll_granted(&successor.claim, run).await?;
                Ok(with_successor(released, successor))
            }
        }
    }

    async fn depart_alone(
        &self,
        wire: &Wire,
        departure: &ReleaseRequest,
        end: End,
        successor: Option<(&Successor, Option<&Keep>)>,
    ) -> Result<ReleaseReply, BackendError> {
        let who = &departure.target;
        let command = self.written(wire, departure, end, successor);
        let asked = self.now();
        let answer = wire.call_in_turn(&command).await?;
        if let Some([freed, others]) = list(&answer) {
            return Ok(ReleaseReply::Done {
                freed: freed_by_all(freed).ok_or_else(nonsense)?,
                others: integer(others).and_then(|others| u32::try_from(others).ok()),
                successor: None,
            });
        }
        if numbers(&answer) == Some([-1, 0]) {
            return Err(BackendError::mismatch(Kind::ReadWrite, Kind::Mutex));
        }
        let (freed, others, successor) = if let Some((successor, _)) = successor {
            let [freed, others, code, first, second, time] = numbers(&answer).ok_or_else(nonsense)?;
            wire.clock.learn(time.unsigned_abs(), self.now());
            let placed = placed(code, first, second).ok_or_else(nonsense)?;
            (freed, others, Some(standing(placed, &successor.claim, asked)))
        } else {
            let [freed, others] = numbers(&answer).ok_or_else(nonsense)?;
            (freed, others, None)
        };
        Ok(ReleaseReply::Done {
            freed: named(who).filter(|_| freed == 1).into_iter().collect(),
            others: u32::try_from(others).ok(),
            successor,
        })
    }

    /// Calls the head of the queue again when the cooldown is over. A fair waiter of an older Java that is called before finds
    /// the key held, and sleeps for as long as it gives another at the head, or without an end.
    async fn call_after(&self, wire: &Wire, departure: &ReleaseRequest) {
        let key = departure.target.key();
        let called = async {
            let mut head = redis::cmd("LINDEX");
            head.arg(queue(key)).arg(0);
            if text(&wire.ask(&head).await?).is_none() {
                return Ok(());
            }
            sleep(departure.cooldown + LIMITS.expiry_slack).await;
            let Some(head) = text(&wire.ask(&head).await?).map(str::to_owned) else {
                return Ok(());
            };
            let mut call = redis::cmd("PUBLISH");
            call.arg(format!("{}:{head}", channel(key))).arg(0);
            wire.ask(&call).await.map(drop)
        };
        let called: Result<(), BackendError> = called.await;
        if let Err(error) = called {
            tracing::debug!(%key, %error, "the next in the queue is not called again: it looks by itself");
        }
    }

    fn written(
        &self,
        wire: &Wire,
        departure: &ReleaseRequest,
        end: End,
        successor: Option<(&Successor, Option<&Keep>)>,
    ) -> Command {
        let ReleaseRequest {
            target: who,
            cause,
            cooldown,
            ..
        } = departure;
        let key = who.key();
        let mut command = match successor {
            Some(_) => RELEASE.on(4, 13, 448),
            None => RELEASE.on(1, 5, 192),
        };
        command.text(key.as_str());
        if let Some((successor, _)) = successor {
            command.text(COUNTER);
            write_client(&mut command, successor.claim.at.id.client());
        }
        let client = match who {
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
            (_, End::Plain) => command.text(""),
            (_, End::Noted) => command.text("N"),
            (_, End::Doubted) => command.text("E"),
        };
        let own = client.is_some() && self.ear.listens(key);
        command
            .number(u64::from(own))
            .bytes(client.as_ref().map_or(&[][..], Owner::client));
        if successor.is_some() || !cooldown.is_zero() {
            command.number(
                u64::try_from(cooldown.as_millis())
                    .map_or(MAX_COOLDOWN, |cooldown| cooldown.min(MAX_COOLDOWN)),
            );
        }
        if let Some((successor, keep)) = successor {
            write_claim(
                &mut command,
                &successor.claim,
                wire.clock.at(successor.not_after),
                keep,
            );
        }
        command
    }
}

/// What was answered of the successor.
fn successors(released: &Result<ReleaseReply, BackendError>) -> Result<&AcquireReply, &BackendError> {
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

/// Whoever was named.
fn named(who: &ReleaseTarget) -> Option<HolderId> {
    match who {
        ReleaseTarget::Claim(claim) => Some(HolderId::Claim(claim.id)),
        ReleaseTarget::Foreign { id, .. } => Some(HolderId::Foreign(id.clone())),
        ReleaseTarget::All(_) => None,
    }
}

/// Those whom the script names.
fn freed_by_all(freed: &Value) -> Option<Batch<HolderId>> {
    let holder = |freed| match list(freed)? {
        [owner, ours] => Some(name(text(owner)?, integer(ours)? == 1)),
        _ => None,
    };
    list(freed)?.iter().map(holder).collect()
}

/// The name of a holder. Java's are written as our claims are: what tells them apart is that our clients are known.
pub(crate) fn name(owner: &str, ours: bool) -> HolderId {
    match owner.parse() {
        Ok(claim) if ours => HolderId::Claim(claim),
        _ => HolderId::Foreign(Arc::from(owner)),
    }
}
