//! Checks that every store makes before it looks at a key, so that all stores refuse in the same words.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::{
    BackendError, Claim, Effect, Fault, Limits, Mode, Order, Phase, Profile, ReleaseRequest, ReleaseTarget,
    RenewRequest,
};

fn refused(fault: Fault, message: impl Into<Box<str>>) -> Result<(), BackendError> {
    Err(BackendError::new(fault, Effect::None, message))
}

impl Limits {
    /// The lease that the store gives for a valid request: `asked`, or `min_lease` if that is longer.
    pub fn lease(&self, asked: Duration) -> Duration {
        asked.max(self.min_lease)
    }

    /// Number of tokens that the store reserves: `asked`, or `max_grants` if that is smaller.
    pub fn grants(&self, asked: NonZeroU32) -> NonZeroU32 {
        asked.min(self.max_grants)
    }

    /// Checks that the store can give a lease this long.
    ///
    /// # Errors
    /// [`Fault::Limit`] if the lease is longer than `max_lease`: ask for a shorter lease, and renew it.
    pub fn check_lease(&self, asked: Duration) -> Result<(), BackendError> {
        let most = self.max_lease;
        if asked <= most {
            return Ok(());
        }
        let (most, asked) = (most.as_secs(), asked.as_secs());
        let message = format!(
            "a lease lasts at most {most} s here, not {asked} s: ask for a shorter one, it is renewed"
        );
        refused(Fault::Limit, message)
    }

    /// Checks the size of a batch.
    ///
    /// # Errors
    /// [`Fault::Limit`] if the batch has more than `max_batch` elements: split it.
    pub fn check_batch(&self, len: usize) -> Result<(), BackendError> {
        let most = self.max_batch;
        if u32::try_from(len).is_ok_and(|len| len <= most.get()) {
            return Ok(());
        }
        let message = format!("a batch has at most {most} elements, this one has {len}: split it");
        refused(Fault::Limit, message)
    }
}

impl Claim {
    /// Checks that a store with these limits could ever grant the claim.
    ///
    /// # Errors
    /// [`Fault::Invalid`] if the claim takes more permits than the semaphore has. [`Fault::Limit`] if the lease is
    /// longer than `max_lease`.
    pub fn check(&self, limits: &Limits) -> Result<(), BackendError> {
        if let Mode::Permits { take, of } = self.mode
            && take > of
        {
            let message = format!("{take} of {of} permits can never be granted: ask for at most {of}");
            return refused(Fault::Invalid, message);
        }
        limits.check_lease(self.lease)
    }
}

impl RenewRequest {
    /// Checks what a store with this profile can refuse before it looks at the claim.
    ///
    /// # Errors
    /// [`Fault::Limit`] if the lease is longer than `max_lease`; [`Fault::Unsupported`] if the request raises tokens that the
    /// store cannot raise. For a downgrade also [`Fault::Unsupported`] if the store has no read-write locks, and
    /// [`Fault::Invalid`] if the request may renew a waiter.
    pub fn check(&self, profile: &Profile) -> Result<(), BackendError> {
        profile.limits.check_lease(self.lease)?;
        if self.raise.is_some() && !profile.raises_tokens {
            let message = "this store cannot raise its tokens, so it cannot be a member of a quorum";
            return refused(Fault::Unsupported, message);
        }
        if self.downgrade && profile.read_write == Order::None {
            let message = "this store has no read-write locks, so it cannot downgrade one";
            return refused(Fault::Unsupported, message);
        }
        if self.downgrade && self.only != Phase::Granted {
            return refused(
                Fault::Invalid,
                "only a granted claim can be downgraded: ask for `Phase::Granted`",
            );
        }
        Ok(())
    }
}

impl ReleaseRequest {
    /// Returns the successor that a valid request names, if any.
    ///
    /// # Errors
    /// [`Fault::Invalid`] if the request names a successor but does not release one other claim on the successor's key.
    pub fn checked_successor(&self) -> Result<Option<&Claim>, BackendError> {
        let Some(successor) = &self.successor else {
            return Ok(None);
        };
        match &self.target {
            ReleaseTarget::Claim(claim)
                if claim.key == successor.claim.at.key && claim.id != successor.claim.at.id =>
            {
                Ok(Some(&successor.claim))
            }
            _ => refused(
                Fault::Invalid,
                "a successor needs a release of one other claim on the same key",
            )
            .map(|()| None),
        }
    }
}
