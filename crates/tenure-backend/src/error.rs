//! Errors of a store. Each says whether the failed call may have changed the store.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::Kind;

/// An error of a store: a failure or a refusal.
///
/// One pointer wide and cheap to clone. `Display` says what went wrong and what to do about it. The underlying error is
/// its `source`, and the message does not repeat it. No part of it contains a credential.
///
/// # Examples
/// ```
/// use std::error::Error;
/// use tenure_backend::{BackendError, Effect, Fault};
///
/// let cause = std::io::Error::other("connection reset");
/// let error = BackendError::because(Fault::Unavailable, Effect::Unknown, "the store closed the connection", cause);
/// assert_eq!(error.to_string(), "the store closed the connection");
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

/// The kind of an error, which decides what the caller can do about it.
///
/// # Examples
/// ```
/// use tenure_backend::{BackendError, Effect, Fault};
///
/// fn advice(error: &BackendError) -> &'static str {
///     match error.fault() {
///         Fault::Unavailable => "retry",
///         Fault::Mismatch { .. } => "use another key",
///         Fault::Unsupported | Fault::Limit => "ask for less, or use another store",
///         _ => "alert an operator",
///     }
/// }
/// let full = BackendError::new(Fault::Store, Effect::None, "the disk is full");
/// assert_eq!(advice(&full), "alert an operator");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The store did not answer, or not in time. This is the only fault that counts as transient: the same call may
    /// succeed later.
    Unavailable,
    /// This store, or the layout in which it keeps its data, does not offer what the request asks for.
    Unsupported,
    /// The key is in use as another kind of lock.
    Mismatch {
        /// The kind that the key is used as at present.
        held: Kind,
        /// The kind that the request asked for.
        asked: Kind,
    },
    /// The store's data layout cannot read this key's data, which belongs to another kind of lock or another program.
    UnknownKind,
    /// The request exceeds a limit of the store, such as its longest lease.
    Limit,
    /// The request or the store's configuration is not valid.
    Invalid,
    /// The store rejected the credentials, or they lack a permission.
    Denied,
    /// The store answered but cannot work, and waiting does not help: it is damaged, full, read-only or not a store,
    /// or its backend has a bug.
    Store,
    /// This backend was closed, or its runtime has ended.
    Closed,
}

/// Whether a failed call may have changed the store.
///
/// # Examples
/// ```
/// use tenure_backend::{BackendError, Effect, Fault};
///
/// fn is_finished(error: &BackendError) -> bool {
///     match error.effect() {
///         Effect::None => true,
///         // Poll the claim again, or release it: both are safe to repeat (B7).
///         Effect::Unknown => false,
///     }
/// }
/// assert!(is_finished(&BackendError::unsupported("this layout has no queue")));
/// let lost_reply = BackendError::new(Fault::Unavailable, Effect::Unknown, "no reply within 3 s");
/// assert!(!is_finished(&lost_reply));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The store certainly did nothing.
    None,
    /// The store may have carried out the call.
    Unknown,
}

impl BackendError {
    /// Creates an error. The message says what went wrong and what to do about it.
    pub fn new(fault: Fault, effect: Effect, message: impl Into<Box<str>>) -> Self {
        BackendError(Arc::new(Inner {
            fault,
            effect,
            message: message.into(),
            source: None,
        }))
    }

    /// Creates an error with an underlying error as its source. The message must not repeat the source.
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

    /// Creates a refusal: the key is used as `held`, and the request asked for `asked`. The store did nothing.
    pub fn mismatch(held: Kind, asked: Kind) -> Self {
        let message = format!(
            "this key is {held} and was asked for as {asked}: use another key, or wait until it is free"
        );
        Self::new(Fault::Mismatch { held, asked }, Effect::None, message)
    }

    /// Creates the error of a request that the store's profile does not offer. The store did nothing.
    pub fn unsupported(message: impl Into<Box<str>>) -> Self {
        Self::new(Fault::Unsupported, Effect::None, message)
    }

    /// Creates the error of every call after `close`. The store did nothing.
    pub fn closed() -> Self {
        Self::new(
            Fault::Closed,
            Effect::None,
            "this connection to the store was closed",
        )
    }

    /// Creates the error of a call in which the backend panicked. The store may have carried it out.
    pub fn panicked() -> Self {
        Self::new(
            Fault::Store,
            Effect::Unknown,
            "the backend panicked: this is a mistake in it, and its panic message says where",
        )
    }

    /// The kind of the error.
    pub fn fault(&self) -> Fault {
        self.0.fault
    }

    /// Whether the store may have carried out the call.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// Whether the fault is transient, which is so only for [`Fault::Unavailable`].
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
