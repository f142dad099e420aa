//! The error types: one variant for each decision that a caller can make.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use tenure_backend::{
    BackendError, Effect, Fault, FencingToken, InvalidKey, Kind, LockKey, Loss, escape_control,
};

/// An error in acquiring, keeping or releasing a lock. A busy lock is an error only after a time limit.
///
/// `Display` says what failed, why, and what to do: also the causes that the store reported. So a log line that shows
/// the error needs nothing else, and [`source`](std::error::Error::source) returns `None`: a reporter that prints
/// every source repeats nothing. [`Backend`](Error::Backend), [`Unsupported`](Error::Unsupported) and
/// [`CloseTimeout`](Error::CloseTimeout) contain the [`BackendError`], whose causes a program can examine.
///
/// The text may name the key and the address of the store, but never the password. A web server therefore logs it, and
/// answers strangers with a text of its own.
///
/// # Examples
/// Each variant calls for a different decision:
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// # use std::time::Duration;
/// use tenure::Error;
///
/// let client = tenure::connect("memory:").await?;
/// let report = client.mutex("report");
/// let held = report.lock().await?;
/// match report.lock_within(Duration::from_millis(10)).await {
///     Ok(guard) => guard.unlock().await?,
///     Err(Error::Timeout) => println!("another writes the report: nothing to do"),
///     Err(error) if error.is_transient() => println!("try again later"),
///     Err(error) => return Err(error),
/// }
/// # held.unlock().await }
/// ```
/// A `main` that returns `Result<(), tenure::Error>` prints the error with `Debug`. For readable output, print
/// `Display`:
/// ```
/// use tenure::{BackendError, Effect, Error, Fault};
///
/// let away = BackendError::because(Fault::Unavailable, Effect::None, "the shelf is out of reach", "too high");
/// assert_eq!(Error::from(away).to_string(), "the shelf is out of reach: too high");
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lock was busy until the time limit. Nothing is left behind: try again, or give up. If the store did not
    /// answer, the error is [`Backend`](Error::Backend) instead.
    #[error("the lock was busy until the time limit")]
    Timeout,
    /// [`Client::close`](crate::Client::close) reached its limit: the client is closed, but not every release is
    /// confirmed. Log it, and end the program as if `close` had succeeded: the remaining locks become free when their
    /// leases end. Contains the error of the last try to release one of them; `None` if the store did not answer.
    #[error(
        "not every release was confirmed before the client was closed: what is left ends with its lease{}",
        LastTry(.0.as_ref())
    )]
    CloseTimeout(Option<BackendError>),
    /// The lock is no longer held: another client may hold it. Stop, and do not rely on what was done since the loss.
    #[error(transparent)]
    Lost(Box<Lost>),
    /// This owner holds the read lock and requested the write lock: it would wait for itself. Release the read lock
    /// first.
    #[error(
        "this owner holds the key for reading and would wait for itself to write: release the read lock first"
    )]
    WouldDeadlock,
    /// The key is in use as one kind of lock and was requested as another. Use another key, or wait until it is free.
    #[error("the key is {held} and was asked for as {asked}: use another key, or wait until it is free")]
    Mismatch {
        /// The kind of lock as which the key is in use.
        held: Kind,
        /// The kind of lock that was requested.
        asked: Kind,
    },
    /// The store does not support the request and did nothing. Use another lock or another store.
    #[error("{}", Causes(.0))]
    Unsupported(BackendError),
    /// The request is invalid, and the store did nothing. Correct the call.
    #[error("{0}")]
    Invalid(Cow<'static, str>),
    /// A limit of the store, of [`Settings`](crate::Settings) or of a watch is exceeded. The store did nothing.
    #[error("{0}")]
    Limit(Cow<'static, str>),
    /// The store failed. [`effect`](Error::effect) tells whether it may have carried out the call.
    #[error("{}", Causes(.0))]
    Backend(BackendError),
    /// The client was closed, its runtime has ended, or it has no runtime or thread. Create another client.
    #[error("{0}")]
    Closed(&'static str),
}

impl Error {
    /// Tells whether the store may have carried out the call that failed.
    pub fn effect(&self) -> Effect {
        match self {
            Error::Backend(error) => error.effect(),
            Error::Lost(_) => Effect::Unknown,
            _ => Effect::None,
        }
    }

    /// Returns true if the same call may succeed later, because the store did not answer.
    ///
    /// Returns false for [`Timeout`](Error::Timeout), because the store has answered that the lock is busy, and for
    /// [`Lost`](Error::Lost), because the work has begun and its outcome is unknown. Both may also pass by themselves: a
    /// program that retries matches them separately.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Backend(error) if error.is_transient())
    }
}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        Error::Lost(Box::new(lost))
    }
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Self {
        match error.fault() {
            Fault::Unsupported => Error::Unsupported(error),
            Fault::Mismatch { held, asked } => Error::Mismatch { held, asked },
            Fault::Limit => Error::Limit(error.to_string().into()),
            Fault::Invalid => Error::Invalid(error.to_string().into()),
            Fault::Closed => Error::Closed("the connection to the store was closed: make another client"),
            _ => Error::Backend(error),
        }
    }
}

/// The error for requests of a batch to which the store returned no reply: their outcome is unknown.
pub(crate) fn no_answer() -> BackendError {
    BackendError::new(
        Fault::Store,
        Effect::Unknown,
        "the store answered less than it was asked: this is a mistake of its backend",
    )
}

impl From<InvalidKey> for Error {
    fn from(error: InvalidKey) -> Self {
        Error::Invalid(error.to_string().into())
    }
}

/// The loss of a held lock.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// use std::{future::pending, time::Duration};
/// use tenure::LostCause;
///
/// let client = tenure::connect("memory:").await?;
/// let guard = client.mutex("report").fixed_lease(Duration::from_millis(50)).lock().await?;
/// let lost = guard.while_held(pending::<()>()).await.unwrap_err();
/// assert_eq!(lost.cause, LostCause::Expired);
/// assert_eq!((lost.key.as_str(), lost.token), ("report", guard.token()));
/// // Once lost, it stays lost: stop, and do not trust what was done since.
/// assert!(!guard.is_held());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lock on {key:?} was lost: {cause}")]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Lost {
    /// The reason for the loss.
    pub cause: LostCause,
    /// The key that was locked.
    pub key: LockKey,
    /// The token of the lost grant; `None` if the store has no tokens.
    pub token: Option<FencingToken>,
    /// The position of the lost lock among [`MultiGuard::members`](crate::MultiGuard::members); `None` for a lock that
    /// was acquired alone.
    pub member: Option<usize>,
}

impl Lost {
    pub(crate) fn new(cause: LostCause, key: LockKey, token: Option<FencingToken>) -> Self {
        Lost {
            cause,
            key,
            token,
            member: None,
        }
    }
}

/// Displays an error of a store and then each of its sources.
struct Causes<'a>(&'a BackendError);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)?;
        let mut source = std::error::Error::source(self.0);
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

/// Displays how the last try to release a lock has failed; nothing if the store did not answer.
struct LastTry<'a>(Option<&'a BackendError>);

impl fmt::Display for LastTry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(error) => write!(f, "; the last try to release it failed: {}", Causes(error)),
            None => Ok(()),
        }
    }
}

/// The reason why a lock was lost, as far as the client can determine it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// use tenure::{ReleaseTarget, LostCause};
///
/// let client = tenure::connect("memory:").await?;
/// let guard = client.mutex("report").lock().await?;
/// client.evict(ReleaseTarget::Claim(guard.claim().clone())).await?;
/// assert!(guard.verify().await.is_err(), "asked now; otherwise known within a third of the lease");
/// match guard.lost().await.cause {
///     LostCause::Evicted { by: Some(by) } => println!("{by} took it away: ask there before trying again"),
///     LostCause::Unreachable => println!("the store is out of reach: look at the network"),
///     cause => println!("lost ({}): {cause}", cause.as_str()),
/// }
/// # assert_eq!(guard.loss().expect("it is lost").cause.as_str(), "evicted"); Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostCause {
    /// The lease ended: it was a fixed lease, or the program was paused for too long to renew it.
    Expired,
    /// An operator or another program evicted the holder.
    Evicted {
        /// The label of the client that evicted the holder, if known.
        by: Option<Arc<str>>,
    },
    /// The session or connection to which the lock was bound ended.
    Session,
    /// The store does not have the claim any more, and the reason is unknown.
    Missing,
    /// The store could not be reached to renew the lease before the local deadline.
    Unreachable,
    /// The lock was held for its `max_hold`.
    MaxHold,
    /// The client was closed, or its runtime has ended.
    Closed,
}

impl LostCause {
    /// Returns one word for logs, metric labels and the command's events.
    pub fn as_str(&self) -> &'static str {
        match self {
            LostCause::Expired => "expired",
            LostCause::Evicted { .. } => "evicted",
            LostCause::Session => "session",
            LostCause::Missing => "missing",
            LostCause::Unreachable => "unreachable",
            LostCause::MaxHold => "max_hold",
            LostCause::Closed => "closed",
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for LostCause {
    /// Serializes the word that [`as_str`](LostCause::as_str) returns.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for LostCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LostCause::Expired => f.write_str("its lease ended"),
            LostCause::Evicted { by: Some(by) } => write!(f, "it was evicted by {}", escape_control(by)),
            LostCause::Evicted { by: None } => f.write_str("it was evicted"),
            LostCause::Session => f.write_str("the session that carried it ended"),
            LostCause::Missing => f.write_str("the store has no record of it"),
            LostCause::Unreachable => f.write_str("the store could not be reached to renew it"),
            LostCause::MaxHold => f.write_str("its longest hold time was reached"),
            LostCause::Closed => f.write_str("its client was closed, or the runtime it ran on has ended"),
        }
    }
}

impl From<Loss> for LostCause {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Expired => LostCause::Expired,
            Loss::Evicted { by } => LostCause::Evicted { by },
            Loss::Session => LostCause::Session,
            _ => LostCause::Missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_small_and_can_travel() {
        fn travels<T: Send + Sync + 'static>() {}
        travels::<Error>();
        assert!(size_of::<Error>() <= 32, "{}", size_of::<Error>());
    }

    #[test]
    fn an_error_of_the_store_displays_its_causes_once() {
        for fault in [
            Fault::Unavailable,
            Fault::Denied,
            Fault::Store,
            Fault::Unsupported,
        ] {
            let cause = BackendError::because(fault, Effect::None, "no route", "the cable is cut");
            let error = Error::from(BackendError::because(
                fault,
                Effect::None,
                "no answer within 3 s",
                cause,
            ));
            let line = "no answer within 3 s: no route: the cable is cut";
            assert_eq!(error.to_string(), line);
            assert!(std::error::Error::source(&error).is_none());
            assert_eq!(error.is_transient(), fault == Fault::Unavailable);
        }
    }

    #[test]
    fn a_close_timeout_displays_its_causes_once() {
        let reason = BackendError::because(
            Fault::Denied,
            Effect::None,
            "this user may not",
            "NOPERM no permissions",
        );
        let left =
            "not every release was confirmed before the client was closed: what is left ends with its lease";
        let why = "; the last try to release it failed: this user may not: NOPERM no permissions";
        for (error, line) in [
            (Error::CloseTimeout(None), left.to_owned()),
            (Error::CloseTimeout(Some(reason)), format!("{left}{why}")),
        ] {
            assert_eq!(error.to_string(), line);
            assert!(std::error::Error::source(&error).is_none());
        }
    }

    #[test]
    fn an_unsupported_call_says_what_the_store_lacks() {
        let error = Error::from(BackendError::unsupported("shelf has no fair locks"));
        assert_eq!(error.to_string(), "shelf has no fair locks");
    }
}
