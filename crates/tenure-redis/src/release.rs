//! Departures: the call for one, and who was freed by it. Those of a batch travel side by side.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tenure_backend::{BackendError, Batch, Cause, Departure, Holder, HolderId, Kind, Released};

use crate::acquire::{COUNTER, standing, write_claim};
use crate::answer::{integer, list, placed, text};
use crate::backend::RedisStore;
use crate::error::nonsense;
use crate::names::Owner;
use crate::profile::{LIMITS, check_departure};
use crate::script::RELEASE;
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
        let wish = Wish::Depart {
            who: who.clone(),
            own: self.ear.listens(&who.key),
        };
        let (freed, others) = wire.ask_together(wish).await?;
        Ok((freed == 1).then(|| Released::Done {
            freed: Batch::from_iter([HolderId::Claim(who.id)]),
            others: u32::try_from(others).ok(),
            heir: None,
        }))
    }

    async fn try_depart(&self, departure: &Departure) -> Result<Released, BackendError> {
        check_departure(departure)?;
        let wire = self.link.wire().await?;
        if wire.is_busy()
            && let Some(released) = self.depart_with_others(&wire, departure).await?
        {
            return Ok(released);
        }
        let Departure {
            who,
            cause,
            heir,
            bar,
        } = departure;
        let key = who.key();
        let (arguments, bytes) = if heir.is_some() { (11, 320) } else { (5, 192) };
        let mut command = RELEASE.on(2, arguments, bytes);
        command.text(key.as_str()).text(COUNTER);
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
        match cause {
            Cause::Unlocked | Cause::Withdrawn => command.text("E"),
            Cause::Evicted { by } => command.text(&format!("V{}", by.as_deref().unwrap_or_default())),
        };
        let own = client.as_ref().is_some_and(|_| self.ear.listens(key));
        command
            .number(u64::try_from(bar.as_millis()).map_or(BAR, |bar| bar.min(BAR)))
            .number(u64::from(own))
            .bytes(client.as_ref().map_or(&[][..], Owner::client));
        if let Some(heir) = heir {
            write_claim(&mut command, &heir.claim, wire.clock.at(heir.place_by));
        }
        let asked = self.now();
        let answer = wire.call_in_turn(&command).await?;
        let parts = list(&answer).ok_or_else(nonsense)?;
        let [freed, others, rest @ ..] = parts else {
            return Err(nonsense());
        };
        if matches!(freed, Value::Int(-1)) {
            return Err(BackendError::mismatch(Kind::ReadWrite, Kind::Mutex));
        }
        let heir = match (heir, rest) {
            (Some(heir), [placing, time, ..]) => {
                wire.clock.learn(integer(time).ok_or_else(nonsense)?, self.now());
                let placed = list(placing).and_then(placed).ok_or_else(nonsense)?;
                Some(standing(placed, &heir.claim, asked))
            }
            (None, _) => None,
            _ => return Err(nonsense()),
        };
        Ok(Released::Done {
            freed: freed_by(who, freed).ok_or_else(nonsense)?,
            others: integer(others).and_then(|others| u32::try_from(others).ok()),
            heir,
        })
    }
}

/// Who was freed: whoever was named, if it was there, or else those whom the script names.
fn freed_by(who: &Holder, freed: &Value) -> Option<Batch<HolderId>> {
    let named = match who {
        Holder::Claim(claim) => HolderId::Claim(claim.id),
        Holder::Foreign { id, .. } => HolderId::Foreign(id.clone()),
        Holder::All(_) => return list(freed)?.iter().map(holder).collect(),
    };
    Some((integer(freed)? == 1).then_some(named).into_iter().collect())
}

fn holder(freed: &Value) -> Option<HolderId> {
    let [owner, ours] = list(freed)? else { return None };
    let owner = text(owner)?;
    Some(name(owner, integer(ours)? == 1))
}

/// The name of a holder. Java's are written as our claims are: what tells them apart is that ours have a record.
pub(crate) fn name(owner: &str, ours: bool) -> HolderId {
    match owner.parse() {
        Ok(claim) if ours => HolderId::Claim(claim),
        _ => HolderId::Foreign(Arc::from(owner)),
    }
}
