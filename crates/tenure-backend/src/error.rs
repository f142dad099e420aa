//! Faults of a store, each with its effect: is it certain that the store did nothing?

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::Kind;

/// A fault of a store, or a refusal.
///
/// One pointer wide and cheap to clone. `Display` says what went wrong and what to do; the cause beneath it is
/// its `source` and is not repeated. It never holds a credential.
///
/// # Examples
/// ```
/// use std::error::Error;
/// use tenure_backend::{BackendError, Effect, Fault};
///
/// let cause = std::io::Error::other("connection reset");
/// let error = BackendError::because(Fault::Unavailable, Effect::Unknown, "the store hung up", cause);
/// assert_eq!(error.to_string(), "the store hung up");
/// assert_eq!(error.source().unwrap().to_string(), "connection reset");
/// assert!(error.is_transient());
/// ```
#[derive(Clone)]
pub struct BackendError(Arc<Inner>);

struct Inner {
    fault: Fault,
    effect: Effect,
    message: Box<str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What kind of fault it is: what the caller can do about it.
///
/// # Examples
/// ```
/// use tenure_backend::{BackendError, Effect, Fault};
///
/// fn advice(error: &BackendError) -> &'static str {
///     match error.fault() {
///         Fault::Unavailable => "ask again",
///         Fault::Mismatch { .. } => "use another key",
///         Fault::Unsupported | Fault::Limit => "ask for less, or of another store",
///         _ => "tell somebody",
///     }
/// }
/// let full = BackendError::new(Fault::Store, Effect::None, "the disk is full");
/// assert_eq!(advice(&full), "tell somebody");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The store did not answer, or not in time: weather. The same call may go through later.
    Unavailable,
    /// This store or layout cannot do what was asked, by its profile.
    Unsupported,
    /// The key is of another kind.
    Mismatch {
        /// What it is used as.
        held: Kind,
        /// What it was asked as.
        asked: Kind,
    },
    /// The key holds what this layout cannot read: another kind of lock, or another program's data.
    UnknownKind,
    /// What was asked is outside the store's limits.
    Limit,
    /// What was asked, or how the store is configured, makes no sense.
    Invalid,
    /// The store refused our credentials or our rights.
    Denied,
    /// The store answered, but is not in order, and waiting does not help: damaged, foreign, full, read-only.
    Store,
    /// This backend was closed.
    Closed,
}

/// Whether a call that failed may have changed the store.
///
/// # Examples
/// ```
/// use tenure_backend::{BackendError, Effect, Fault};
///
/// fn may_be_left_as_it_is(error: &BackendError) -> bool {
///     match error.effect() {
///         Effect::None => true,
///         // Poll the claim again, or release it: both are safe to repeat.
///         Effect::Unknown => false,
///     }
/// }
/// assert!(may_be_left_as_it_is(&BackendError::unsupported("this layout has no queue")));
/// let lost_reply = BackendError::new(Fault::Unavailable, Effect::Unknown, "no answer within 3 s");
/// assert!(!may_be_left_as_it_is(&lost_reply));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It is certain that the store did nothing.
    None,
    /// The store may have carried the call out.
    Unknown,
}

impl BackendError {
    /// A fault with that effect; the message says what went wrong and what to do about it.
    pub fn new(fault: Fault, effect: Effect, message: impl Into<Box<str>>) -> Self {
        BackendError(Arc::new(Inner {
            fault,
            effect,
            message: message.into(),
            source: None,
        }))
    }

    /// The same fault with what caused it. The message must not repeat it.
    pub fn because(
        fault: Fault,
        effect: Effect,
        message: impl Into<Box<str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        BackendError(Arc::new(Inner {
            fault,
            effect,
            message: message.into(),
            source: Some(source.into()),
        }))
    }

    /// The key is used as one kind and was asked for as another. The store did nothing.
    pub fn mismatch(held: Kind, asked: Kind) -> Self {
        let message = format!(
            "this key is {held} and was asked for as {asked}: use another key, or wait until it is free"
        );
        Self::new(Fault::Mismatch { held, asked }, Effect::None, message)
    }

    /// The store cannot do it, by its profile. The store did nothing.
    pub fn unsupported(message: impl Into<Box<str>>) -> Self {
        Self::new(Fault::Unsupported, Effect::None, message)
    }

    /// This backend was closed. The store did nothing.
    pub fn closed() -> Self {
        Self::new(
            Fault::Closed,
            Effect::None,
            "this connection to the store was closed",
        )
    }

    /// The backend panicked. The store may have carried the call out.
    pub fn panicked() -> Self {
        Self::new(
            Fault::Store,
            Effect::Unknown,
            "the backend panicked: this is a mistake in it, and its panic message says where",
        )
    }

    /// What kind of fault it is.
    pub fn fault(&self) -> Fault {
        self.0.fault
    }

    /// Whether the store may have carried the call out.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// Whether the same call may go through later.
    pub fn is_transient(&self) -> bool {
        self.0.fault == Fault::Unavailable
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendError")
            .field("fault", &self.0.fault)
            .field("effect", &self.0.effect)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for BackendError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
