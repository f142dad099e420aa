//! Attempts that one caller makes for all, such as to connect.

use std::future::Future;

use parking_lot::Mutex;
use tenure_backend::BackendError;

/// Attempts to open something that callers share, such as a connection. A mutex of the store lets one attempt run at a time.
///
/// The callers that wait for the mutex share a transient failure. If each of them made its own attempt at a host that does not answer, the
/// last one would wait for all of their time limits.
#[derive(Debug, Default)]
pub struct SharedAttempts(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    count: u64,
    last: Option<BackendError>,
}

/// A caller that is about to wait for the mutex.
#[derive(Debug)]
pub struct SharedAttempt<'a> {
    attempts: &'a SharedAttempts,
    failed_before: u64,
}

impl SharedAttempts {
    /// Begins to count failures. To be called before the caller waits for the mutex.
    pub fn begin(&self) -> SharedAttempt<'_> {
        SharedAttempt {
            attempts: self,
            failed_before: self.0.lock().count,
        }
    }
}

impl SharedAttempt<'_> {
    /// Makes the attempt. The caller holds the mutex.
    ///
    /// # Cancel safety
    /// Dropping the future counts as no failure: the next caller makes an attempt of its own.
    ///
    /// # Errors
    /// The transient error of an attempt that has failed since [`begin`](SharedAttempts::begin): this one is not made then.
    /// Otherwise its own error.
    pub async fn make<T>(
        &self,
        attempt: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        if let Some(failed) = self.shared_failure() {
            return Err(failed);
        }
        let made = attempt.await;
        if let Err(error) = &made
            && error.is_transient()
        {
            let mut failures = self.attempts.0.lock();
            failures.count += 1;
            failures.last = Some(error.clone());
        }
        made
    }

    fn shared_failure(&self) -> Option<BackendError> {
        let failures = self.attempts.0.lock();
        let has_failed = failures.count > self.failed_before;
        failures.last.clone().filter(|_| has_failed)
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tenure_backend::{Effect, Fault};

    use super::*;

    #[tokio::test]
    async fn callers_that_waited_share_a_failure() {
        let attempts = SharedAttempts::default();
        let [first, second] = [(); 2].map(|()| attempts.begin());
        let fails = |fault| ready(Err::<(), _>(BackendError::new(fault, Effect::None, "silent")));
        first.make(fails(Fault::Unavailable)).await.expect_err("it fails");
        let shared = second.make(ready(Ok(()))).await;
        assert_eq!(shared.expect_err("it is not made").to_string(), "silent");
        let later = attempts.begin();
        later.make(ready(Ok(()))).await.expect("it is made");
        // A permanent error comes soon, and may concern its caller alone.
        let [first, second] = [(); 2].map(|()| attempts.begin());
        first.make(fails(Fault::Invalid)).await.expect_err("it fails");
        second.make(ready(Ok(()))).await.expect("it is made");
    }
}
