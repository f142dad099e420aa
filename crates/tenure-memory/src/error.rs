//! What memory alone refuses before it looks at any key. It has no faults of its own.

use tenure_backend::{BackendError, Departure, Effect, Fault, Renewal};

use crate::profile::LIMITS;
use crate::tokens::Tokens;

pub(crate) fn check_renewal(renewal: &Renewal) -> Result<(), BackendError> {
    if renewal
        .raise
        .is_some_and(|run| run.last() > Tokens::HIGHEST_RAISE)
    {
        let message = format!("tokens are raised to {} at the most", Tokens::HIGHEST_RAISE);
        return Err(BackendError::new(Fault::Limit, Effect::None, message));
    }
    LIMITS.check_lease(renewal.lease)
}

pub(crate) fn check_departure(departure: &Departure) -> Result<(), BackendError> {
    match departure.checked_heir()? {
        Some(heir) => heir.check(&LIMITS),
        None => Ok(()),
    }
}
