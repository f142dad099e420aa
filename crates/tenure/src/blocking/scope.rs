//! Adds the methods that run work under a lock, on the calling thread: one definition for all lock types.

/// Adds `with`, `try_with`, `with_or_else` and `try_with_or_else` to a lock type, whose methods `$wait` and (with a
/// time limit) `$within` acquire the lock.
macro_rules! scoped {
    ($lock:ident -> $guard:ident by $wait:ident, $within:ident) => {
        impl $lock {
            /// Waits for the lock and runs `work` under it, on this thread.
            ///
            /// `work` is not stopped when the lock is lost: between steps, call `check` on the guard. The output of `work` is
            /// returned even if the store does not confirm the release: the watchdog retries it. The method waits for the
            /// confirmation for up to [`unlock_limit`](crate::Settings::unlock_limit).
            ///
            /// # Errors
            #[doc = concat!("Those of `", stringify!($wait), "`.")]
            /// [`Error::Lost`](crate::Error::Lost) if the lock was lost before `work` finished: the output of `work` is dropped,
            /// and another holder may have worked at the same time.
            ///
            /// # Panics
            /// On a thread that drives async tasks.
            pub fn with<T>(&self, work: impl FnOnce(&$guard) -> T) -> Result<T, crate::Error> {
                let guard = self.$wait()?;
                let output = guard.while_held(work)?;
                crate::lock::scope::log_unconfirmed(guard.unlock());
                Ok(output)
            }

            /// Like [`with`](Self::with), for work that returns a `Result`.
            ///
            /// # Errors
            /// The error of `work`; those of [`with`](Self::with), converted to `E`.
            ///
            /// # Panics
            /// On a thread that drives async tasks.
            pub fn try_with<T, E: From<crate::Error>>(
                &self,
                work: impl FnOnce(&$guard) -> Result<T, E>,
            ) -> Result<T, E> {
                self.with(work)?
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
            /// # Errors
            /// Those of [`with`](Self::with), except [`Error::Timeout`](crate::Error::Timeout).
            ///
            /// # Panics
            /// On a thread that drives async tasks.
            pub fn with_or_else<T>(
                &self,
                limit: std::time::Duration,
                work: impl FnOnce(&$guard) -> T,
                fallback: impl FnOnce() -> T,
            ) -> Result<T, crate::Error> {
                let guard = match self.$within(limit) {
                    Ok(guard) => guard,
                    Err(crate::Error::Timeout) => return Ok(fallback()),
                    Err(error) => return Err(error),
                };
                let output = guard.while_held(work)?;
                crate::lock::scope::log_unconfirmed(guard.unlock());
                Ok(output)
            }

            /// Like [`with_or_else`](Self::with_or_else), for closures that return a `Result`.
            ///
            /// # Errors
            /// The error of the closure that ran; those of [`with_or_else`](Self::with_or_else), converted to `E`.
            ///
            /// # Panics
            /// On a thread that drives async tasks.
            pub fn try_with_or_else<T, E: From<crate::Error>>(
                &self,
                limit: std::time::Duration,
                work: impl FnOnce(&$guard) -> Result<T, E>,
                fallback: impl FnOnce() -> Result<T, E>,
            ) -> Result<T, E> {
                self.with_or_else(limit, work, fallback)?
            }
        }
    };
}
pub(super) use scoped;
