//! Departures: the call for one, and who was freed by it. Those of a batch travel side by side.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tenure_backend::{
    BackendError, Batch, Cause, Departure, Effect, Heir, Holder, HolderId, Kind, Released, Standing,
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

/// The longest bar, in milliseconds: a year, as the longest lease.
const BAR: u64 = 365 * 24 * 3600 * 1000;

impl RedisStore {
    pub(crate) async fn depart_all(&self, batch: Batch<Departure>) -> Batch<Released> {
        if let Err(error) = LIMITS.check_batch(batch.len()) {
            return batch.iter().map(|_| Released::Unknown(error.clone())).collect();
        }
        if let [departure] = &batch[..] {
            return Batch::from_iter([self.depart(departure).await]);
        }
        Batch::from_vec(join_all(batch.iter().map(|departure| self.depart(departure))).await)
    }

    async fn depart(&self, departure: &Departure) -> Released {
        self.try_depart(departure).await.unwrap_or_else(Released::Unknown)
    }

    /// A holder's plain end, if nobody queues; otherwise nothing was done. What is withdrawn holds nothing as a rule.
    async fn depart_with_others(
        &self,
        wire: &Wire,
        departure: &Departure,
        noted: bool,
    ) -> Result<Option<Released>, BackendError> {
        let Departure {
            who: Holder::Claim(who),
            cause: Cause::Unlocked,
            heir: None,
            bar: Duration::ZERO,
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
        Ok((heard >= 0).then(|| Released::Done {
            freed: Batch::from_iter([HolderId::Claim(who.id)]),
            others: u32::try_from((heard - own).max(0)).ok(),
            heir: None,
        }))
    }

    async fn try_depart(&self, departure: &Departure) -> Result<Released, BackendError> {
        check_departure(departure)?;
        let wire = self.link.wire().await?;
        if matches!(&departure.who, Holder::Foreign { id, .. } if id.is_empty()) {
            // To the script that would be all of them.
            return Ok(Released::Done {
                freed: Batch::new(),
                others: None,
                heir: None,
            });
        }
        let leaves = match (&departure.who, &departure.cause) {
            (Holder::Claim(who), Cause::Unlocked | Cause::Withdrawn) => Some(who.id),
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
        departure: &Departure,
        end: End,
    ) -> Result<Released, BackendError> {
        if end != End::Doubted
            && wire.is_busy()
            && let Some(released) = self
                .depart_with_others(wire, departure, end == End::Noted)
                .await?
        {
            return Ok(released);
        }
        let Some(heir) = &departure.heir else {
            let released = self.depart_alone(wire, departure, end, None).await?;
            if !departure.bar.is_zero() {
                self.call_after(wire, departure).await;
            }
            return Ok(released);
        };
        match self
            .known
            .ask(&heir.claim, self.now(), heir.place_by, wire.number)
        {
            Asked::Open(asking) => {
                let placing = Some((heir, asking.keep.as_ref()));
                let released = self.depart_alone(wire, departure, end, placing).await;
                asking.answered(heirs(&released), &wire.clock);
                released
            }
            Asked::Ended => {
                let released = self.depart_alone(wire, departure, end, None).await?;
                Ok(with_heir(released, Standing::Ended))
            }
            // It is a repetition.
            Asked::Granted(run) => {
                let released = self.depart_alone(wire, departure, end, None).await?;
                let heir = self.poll_granted(&heir.claim, run).await?;
                Ok(with_heir(released, heir))
            }
        }
    }

    async fn depart_alone(
        &self,
        wire: &Wire,
        departure: &Departure,
        end: End,
        heir: Option<(&Heir, Option<&Keep>)>,
    ) -> Result<Released, BackendError> {
        let who = &departure.who;
        let command = self.written(wire, departure, end, heir);
        let asked = self.now();
        let answer = wire.call_in_turn(&command).await?;
        if let Some([freed, others]) = list(&answer) {
            return Ok(Released::Done {
                freed: freed_by_all(freed).ok_or_else(nonsense)?,
                others: integer(others).and_then(|others| u32::try_from(others).ok()),
                heir: None,
            });
        }
        if numbers(&answer) == Some([-1, 0]) {
            return Err(BackendError::mismatch(Kind::ReadWrite, Kind::Mutex));
        }
        let (freed, others, heir) = if let Some((heir, _)) = heir {
            let [freed, others, code, first, second, time] = numbers(&answer).ok_or_else(nonsense)?;
            wire.clock.learn(time.unsigned_abs(), self.now());
            let placed = placed(code, first, second).ok_or_else(nonsense)?;
            (freed, others, Some(standing(placed, &heir.claim, asked)))
        } else {
            let [freed, others] = numbers(&answer).ok_or_else(nonsense)?;
            (freed, others, None)
        };
        Ok(Released::Done {
            freed: named(who).filter(|_| freed == 1).into_iter().collect(),
            others: u32::try_from(others).ok(),
            heir,
        })
    }

    /// Calls the head of the queue again when the bar is over. A fair waiter of an older Java that is called before finds
    /// the key held, and sleeps for as long as it gives another at the head, or without an end.
    async fn call_after(&self, wire: &Wire, departure: &Departure) {
        let key = departure.who.key();
        let called = async {
            let mut head = redis::cmd("LINDEX");
            head.arg(queue(key)).arg(0);
            if text(&wire.ask(&head).await?).is_none() {
                return Ok(());
            }
            sleep(departure.bar + LIMITS.late_by).await;
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
        departure: &Departure,
        end: End,
        heir: Option<(&Heir, Option<&Keep>)>,
    ) -> Command {
        let Departure { who, cause, bar, .. } = departure;
        let key = who.key();
        let mut command = match heir {
            Some(_) => RELEASE.on(4, 13, 448),
            None => RELEASE.on(1, 5, 192),
        };
        command.text(key.as_str());
        if let Some((heir, _)) = heir {
            command.text(COUNTER);
            write_client(&mut command, heir.claim.at.id.client());
        }
        let client = match who {
            Holder::Claim(claim) => {
                let owner = Owner::of(claim.id);
                command.bytes(owner.as_bytes());
                Some(owner)
            }
            Holder::Foreign { id, .. } => {
                command.text(id);
                None
            }
            Holder::All(_) => {
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
        if heir.is_some() || !bar.is_zero() {
            command.number(u64::try_from(bar.as_millis()).map_or(BAR, |bar| bar.min(BAR)));
        }
        if let Some((heir, keep)) = heir {
            write_claim(&mut command, &heir.claim, wire.clock.at(heir.place_by), keep);
        }
        command
    }
}

/// What was answered of the heir.
fn heirs(released: &Result<Released, BackendError>) -> Result<&Standing, &BackendError> {
    match released {
        Ok(Released::Done { heir: Some(heir), .. }) => Ok(heir),
        Ok(Released::Done { heir: None, .. }) => Ok(&Standing::Ended),
        Ok(Released::Unknown(error)) | Err(error) => Err(error),
    }
}

fn with_heir(released: Released, placed: Standing) -> Released {
    match released {
        Released::Done { freed, others, .. } => Released::Done {
            freed,
            others,
            heir: Some(placed),
        },
        unknown => unknown,
    }
}

/// Whoever was named.
fn named(who: &Holder) -> Option<HolderId> {
    match who {
        Holder::Claim(claim) => Some(HolderId::Claim(claim.id)),
        Holder::Foreign { id, .. } => Some(HolderId::Foreign(id.clone())),
        Holder::All(_) => None,
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
