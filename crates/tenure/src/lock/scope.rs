//! The methods that run work under a lock: one definition, so that every kind of lock has the same methods and docs.
//!
//! `with` and `try_with` are two methods because Rust cannot choose by the closure's output: a trait that is implemented
//! for every `T` cannot treat `Result<T, E>` differently.

use crate::error::Error;

/// Logs a release that was not confirmed. The work was done under the lock, so its output is returned nevertheless.
pub(crate) fn log_unconfirmed(released: Result<(), Error>) {
    if let Err(error) = released {
        tracing::warn!(error = %error, "work was done under a lock whose release is not confirmed");
    }
}

/// Adds `with`, `try_with`, `with_or_else` and `try_with_or_else` to a lock type, whose methods `$wait` and (with a
/// time limit) `$within` acquire the lock.
macro_rules! scoped {
    ($lock:ident -> $guard:ident by $wait:ident, $within:ident) => {
        impl $lock {
            #[doc = concat!("Waits as [`", stringify!($wait), "`](Self::", stringify!($wait), "), and runs `work` while \
                the lock is held.")]
            ///
            /// The output of `work` is returned even if the store does not confirm the release: the watchdog retries it. The
            /// method waits for the confirmation for up to [`unlock_limit`](crate::Settings::unlock_limit). In a web handler,
            /// run the method in a task of its own: a handler's future is dropped when its client disconnects, and `work` with
            /// it.
            ///
            #[doc = concat!("Write the closure as `async |guard| …`, in the call itself. In a variable, name the type: `async \
                |guard: &", stringify!($guard), "| …`. Otherwise the compiler says that `AsyncFnOnce` is not general enough.")]
            ///
            /// # Cancel safety
            /// Dropping the future drops `work` and releases the lock.
            ///
            /// # Errors
            #[doc = concat!("Those of [`", stringify!($wait), "`](Self::", stringify!($wait), ").")]
            /// [`Error::Lost`](crate::Error::Lost) if the lock was lost before `work` had finished: `work` is dropped, and
            /// its outcome is unknown.
            pub async fn with<T>(&self, work: impl AsyncFnOnce(&$guard) -> T) -> Result<T, crate::Error> {
                let guard = self.$wait().await?;
                let output = guard.while_held(work(&guard)).await?;
                crate::lock::scope::log_unconfirmed(guard.unlock().await);
                Ok(output)
            }

            /// Like [`with`](Self::with), for work that returns a `Result`.
            ///
            /// The lock is released also after an error.
            ///
            /// # Cancel safety
            /// Dropping the future drops `work` and releases the lock.
            ///
            /// # Errors
            /// The error of `work`; those of [`with`](Self::with), converted to its type.
            pub async fn try_with<T, E: From<crate::Error>>(
                &self,
                work: impl AsyncFnOnce(&$guard) -> Result<T, E>,
            ) -> Result<T, E> {
                self.with(work).await?
            }

            /// Runs `work` under the lock, or `fallback` if the lock is still busy after `limit`.
            ///
            /// A limit of zero does not wait for another holder. It waits for the answer of the store, as long as
            /// [`Mutex::try_lock`](crate::Mutex::try_lock) does. Any other limit also ends the wait for a store that does not
            /// answer.
            ///
            /// `fallback` runs only when the lock is busy: never after `work` has begun, and never because the store
            /// failed.
            ///
            /// # Cancel safety
            /// Dropping the future drops the closure that runs, and releases the lock.
            ///
            /// # Errors
            /// Those of [`with`](Self::with), except [`Error::Timeout`](crate::Error::Timeout).
            pub async fn with_or_else<T>(
                &self,
                limit: std::time::Duration,
                work: impl AsyncFnOnce(&$guard) -> T,
                fallback: impl AsyncFnOnce() -> T,
            ) -> Result<T, crate::Error> {
                let guard = match self.$within(limit).await {
                    Ok(guard) => guard,
                    Err(crate::Error::Timeout) => return Ok(fallback().await),
                    Err(error) => return Err(error),
                };
                let output = guard.while_held(work(&guard)).await?;
                crate::lock::scope::log_unconfirmed(guard.unlock().await);
                Ok(output)
            }

            /// Like [`with_or_else`](Self::with_or_else), for closures that return a `Result`.
            ///
            /// # Cancel safety
            /// Dropping the future drops the closure that runs, and releases the lock.
            ///
            /// # Errors
            /// The error of the closure that ran; those of [`with_or_else`](Self::with_or_else), converted to its type.
            pub async fn try_with_or_else<T, E: From<crate::Error>>(
                &self,
                limit: std::time::Duration,
                work: impl AsyncFnOnce(&$guard) -> Result<T, E>,
                fallback: impl AsyncFnOnce() -> Result<T, E>,
            ) -> Result<T, E> {
                self.with_or_else(limit, work, fallback).await?
            }
        }
    };
}
pub(crate) use scoped;
