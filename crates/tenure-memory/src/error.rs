//! What memory refuses before it looks at any key, and in which words. It has no faults of its own.

use std::time::Duration;

use tenure_backend::{BackendError, Claim, Departure, Effect, Fault, Holder, Mode, Renewal};

use crate::profile::PROFILE;
use crate::tokens::Tokens;

fn refuse(fault: Fault, message: impl Into<Box<str>>) -> BackendError {
    BackendError::new(fault, Effect::None, message)
}

pub(crate) fn check_claim(claim: &Claim) -> Result<(), BackendError> {
    if let Mode::Permits { take, of } = claim.mode
        && take > of
    {
        let message = format!("{take} of {of} permits can never be had: ask for {of} at the most");
        return Err(refuse(Fault::Invalid, message));
    }
    check_lease(claim.lease)
}

pub(crate) fn check_renewal(renewal: &Renewal) -> Result<(), BackendError> {
    if renewal
        .raise
        .is_some_and(|run| run.last() > Tokens::HIGHEST_RAISE)
    {
        let message = format!("tokens are raised to {} at the most", Tokens::HIGHEST_RAISE);
        return Err(refuse(Fault::Limit, message));
    }
    check_lease(renewal.lease)
}

pub(crate) fn check_departure(departure: &Departure) -> Result<(), BackendError> {
    let Some(heir) = &departure.heir else {
        return Ok(());
    };
    match &departure.who {
        Holder::Claim(claim) if claim.key == heir.claim.at.key => check_claim(&heir.claim),
        _ => Err(refuse(
            Fault::Invalid,
            "an heir takes over from one claim on the same key",
        )),
    }
}

pub(crate) fn check_batch(len: usize) -> Result<(), BackendError> {
    let max = PROFILE.limits.max_batch;
    if u32::try_from(len).is_ok_and(|len| len <= max.get()) {
        return Ok(());
    }
    let message = format!("a batch has {max} elements at the most, this one has {len}: split it");
    Err(refuse(Fault::Limit, message))
}

fn check_lease(lease: Duration) -> Result<(), BackendError> {
    let max = PROFILE.limits.max_lease;
    if lease <= max {
        return Ok(());
    }
    let message = format!(
        "a lease lasts {} s at the most, not {} s: ask for less and renew it",
        max.as_secs(),
        lease.as_secs()
    );
    Err(refuse(Fault::Limit, message))
}
