//! Placing and polling: the call, and what its answer says of a claim.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{BackendError, Claim, Fairness, Grant, Instant, Kind, Standing};

use crate::answer::{Placed, integer, list, placed, run};
use crate::backend::RedisStore;
use crate::error::nonsense;
use crate::names::Owner;
use crate::profile::{LIMITS, check_claim, lease_ms};
use crate::script::{ACQUIRE, Command};
use crate::together::Wish;
use crate::wire::Wire;

/// The counter of the tokens. It outlives every lock, and there is one for each database; on a cluster there would be one
/// for each hash slot, in that slot. Whoever moves from the one to the other loses nothing: a token is never below
/// the server's time.
pub(crate) const COUNTER: &str = "tenure_tokens";

impl RedisStore {
    pub(crate) async fn place(
        &self,
        claim: &Arc<Claim>,
        place_by: Instant,
    ) -> Result<Standing, BackendError> {
        check_claim(claim)?;
        let wire = self.link.wire().await?;
        // Fair ones are asked for in the order in which they came.
        if claim.fairness == Fairness::Unfair
            && wire.is_busy()
            && let Some(standing) = self.place_with_others(&wire, claim, place_by).await?
        {
            return Ok(standing);
        }
        let first = self.place_once(&wire, claim, place_by).await?;
        // The bound on the server's clock may have been too strict. By this answer it is better, and the server did nothing.
        if matches!(first, Standing::TooLate) && self.now() < place_by {
            return self.place_once(&wire, claim, place_by).await;
        }
        Ok(first)
    }

    /// Where an unfair claim stands, if nothing about it is unusual; otherwise nothing was done.
    async fn place_with_others(
        &self,
        wire: &Wire,
        claim: &Arc<Claim>,
        place_by: Instant,
    ) -> Result<Option<Standing>, BackendError> {
        let asked = self.now();
        let wish = Wish::Place {
            claim: claim.clone(),
            place_by,
        };
        let placed = match wire.ask_together(wish).await? {
            // Asked alone it would be later still.
            (0, 1) if place_by <= self.now() => Placed::TooLate,
            (0, 1) => return Ok(None),
            (first, count @ 1..) => Placed::Granted(run(first, count).ok_or_else(nonsense)?),
            (poll_after @ 1.., 0) => Placed::Waits {
                ahead: None,
                poll_after: Duration::from_millis(poll_after),
            },
            _ => return Ok(None),
        };
        Ok(Some(standing(placed, claim, asked)))
    }

    async fn place_once(
        &self,
        wire: &Wire,
        claim: &Claim,
        place_by: Instant,
    ) -> Result<Standing, BackendError> {
        let mut command = ACQUIRE.on(2, 6, 192 + claim.label.len());
        command.text(claim.at.key.as_str()).text(COUNTER);
        write_claim(&mut command, claim, wire.clock.at(place_by));
        let asked = self.now();
        let answer = wire.call_in_turn(&command).await?;
        let parts = list(&answer).ok_or_else(nonsense)?;
        let time = parts.get(3).and_then(integer).ok_or_else(nonsense)?;
        wire.clock.learn(time, self.now());
        match placed(parts).ok_or_else(nonsense)? {
            Placed::IsReadWrite => Err(BackendError::mismatch(Kind::ReadWrite, Kind::Mutex)),
            placed => Ok(standing(placed, claim, asked)),
        }
    }
}

/// What the scripts want to know of a claim, and until when on the server's clock it may be placed.
pub(crate) fn write_claim(command: &mut Command, claim: &Claim, place_by: u64) {
    let fair = match claim.fairness {
        Fairness::Unfair => "",
        Fairness::Fifo => "1",
    };
    command
        .bytes(Owner::of(claim.at.id).as_bytes())
        .number(lease_ms(claim.lease))
        .number(place_by)
        .number(u64::from(LIMITS.grants(claim.grants).get()))
        .text(&claim.label)
        .text(fair);
}

/// How soon an heir asks for itself that was not placed.
const SOON: Duration = Duration::from_millis(10);

/// What an answer means for a claim that was asked for at that moment.
pub(crate) fn standing(placed: Placed, claim: &Claim, asked: Instant) -> Standing {
    match placed {
        Placed::Waits { ahead, poll_after } => Standing::Waiting { ahead, poll_after },
        Placed::Granted(tokens) => Standing::Granted(Grant {
            tokens: Some(tokens),
            held_from: asked,
            lease: Duration::from_millis(lease_ms(claim.lease)),
            evidence: None,
        }),
        Placed::Ended => Standing::Ended,
        Placed::TooLate => Standing::TooLate,
        // An heir is told of the other kind when it asks for itself.
        Placed::IsReadWrite => Standing::Waiting {
            ahead: None,
            poll_after: SOON,
        },
    }
}
