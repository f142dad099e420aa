//! What every store refuses before it looks at any key, in the same words, and how it keeps to its limits.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::{BackendError, Claim, Effect, Fault, Limits, Mode, ReleaseRequest, ReleaseTarget};

fn refused(fault: Fault, message: impl Into<Box<str>>) -> Result<(), BackendError> {
    Err(BackendError::new(fault, Effect::None, message))
}

impl Limits {
    /// The lease that is given to whoever asks for `asked`, which the limits allow.
    pub fn lease(&self, asked: Duration) -> Duration {
        asked.max(self.min_lease)
    }

    /// How many tokens are reserved for whoever asks for so many.
    pub fn grants(&self, asked: NonZeroU32) -> NonZeroU32 {
        asked.min(self.max_grants)
    }

    /// Refuses a lease that the store cannot give.
    ///
    /// # Errors
    /// [`Fault::Limit`] for a lease above the longest one.
    pub fn check_lease(&self, asked: Duration) -> Result<(), BackendError> {
        let most = self.max_lease;
        if asked <= most {
            return Ok(());
        }
        let (most, asked) = (most.as_secs(), asked.as_secs());
        let message =
            format!("a lease lasts {most} s at the most here, not {asked} s: ask for less, it is renewed");
        refused(Fault::Limit, message)
    }

    /// Refuses a batch that is too large.
    ///
    /// # Errors
    /// [`Fault::Limit`] for more elements than a renewal or release may have.
    pub fn check_batch(&self, len: usize) -> Result<(), BackendError> {
        let most = self.max_batch;
        if u32::try_from(len).is_ok_and(|len| len <= most.get()) {
            return Ok(());
        }
        let message = format!("a batch has {most} elements at the most, this one has {len}: split it");
        refused(Fault::Limit, message)
    }
}

impl Claim {
    /// Refuses what no key could ever grant on a store with these limits.
    ///
    /// # Errors
    /// [`Fault::Invalid`] for more permits than there are; as [`Limits::check_lease`].
    pub fn check(&self, limits: &Limits) -> Result<(), BackendError> {
        if let Mode::Permits { take, of } = self.mode
            && take > of
        {
            let message = format!("{take} of {of} permits can never be had: ask for {of} at the most");
            return refused(Fault::Invalid, message);
        }
        limits.check_lease(self.lease)
    }
}

impl ReleaseRequest {
    /// The claim that is to take over, if one is.
    ///
    /// # Errors
    /// [`Fault::Invalid`] unless it takes over from one claim on the same key.
    pub fn checked_successor(&self) -> Result<Option<&Claim>, BackendError> {
        let Some(successor) = &self.successor else {
            return Ok(None);
        };
        match &self.target {
            ReleaseTarget::Claim(claim) if claim.key == successor.claim.at.key => Ok(Some(&successor.claim)),
            _ => refused(
                Fault::Invalid,
                "a successor takes over from one claim on the same key",
            )
            .map(|()| None),
        }
    }
}
