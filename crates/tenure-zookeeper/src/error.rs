//! What the errors of ZooKeeper and of the connection mean: fault, effect, and what to do.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use tenure_backend::{BackendError, Effect, Fault};
use tenure_endpoint::Host;

/// The number with which ZooKeeper answers a request that it does not carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub i32);

impl Code {
    /// Another operation of the same transaction failed.
    pub const NOT_REACHED: Code = Code(-2);
    /// The request is not valid, such as one with a path that ZooKeeper does not allow.
    pub const BAD_ARGUMENTS: Code = Code(-8);
    /// The node does not exist; for a create, its parent.
    pub const NO_NODE: Code = Code(-101);
    /// The client lacks the permission.
    pub const NO_AUTH: Code = Code(-102);
    /// The node has another version.
    pub const BAD_VERSION: Code = Code(-103);
    /// The parent is an ephemeral node, which cannot have children.
    pub const NO_CHILDREN_FOR_EPHEMERALS: Code = Code(-108);
    /// The node exists.
    pub const NODE_EXISTS: Code = Code(-110);
    /// The node has children.
    pub const NOT_EMPTY: Code = Code(-111);
    /// The session has ended.
    pub const SESSION_EXPIRED: Code = Code(-112);
    /// The access control list is not valid, such as one of the creator if the client has no user.
    pub const INVALID_ACL: Code = Code(-114);
    /// ZooKeeper refuses the credentials.
    pub const AUTH_FAILED: Code = Code(-115);
    /// The session has moved to another connection. The request had no effect.
    pub const SESSION_MOVED: Code = Code(-118);
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZooKeeper's error {}", self.0)
    }
}

impl std::error::Error for Code {}

/// The number with which ZooKeeper refused the request; `None` for errors that do not come from ZooKeeper.
pub fn code(error: &BackendError) -> Option<Code> {
    error.source()?.downcast_ref::<Code>().copied()
}

/// The result of a request, or `None` if its node does not exist.
pub(crate) fn found<T>(result: Result<T, BackendError>) -> Result<Option<T>, BackendError> {
    match result {
        Err(error) if code(&error) == Some(Code::NO_NODE) => Ok(None),
        result => result.map(Some),
    }
}

/// The cause of errors after the end of a session.
#[derive(Debug)]
struct SessionEnded;

impl fmt::Display for SessionEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another session is needed")
    }
}

impl std::error::Error for SessionEnded {}

/// Returns whether the error says that the session has ended: every further request of this client fails.
pub fn is_session_end(error: &BackendError) -> bool {
    let source = error.source();
    source.is_some_and(|source| source.is::<SessionEnded>()) || code(error) == Some(Code::SESSION_EXPIRED)
}

/// The error of a request that ZooKeeper answered with this code.
pub(crate) fn refused(code: Code) -> BackendError {
    let (fault, effect, message) = explain(code);
    BackendError::because(fault, effect, message, code)
}

fn explain(code: Code) -> (Fault, Effect, &'static str) {
    let (fault, message) = match code {
        Code::NO_NODE => (Fault::Store, "the node does not exist in ZooKeeper"),
        Code::NODE_EXISTS => (Fault::Store, "the node exists in ZooKeeper"),
        Code::BAD_VERSION => (Fault::Store, "the node was changed in ZooKeeper"),
        Code::NOT_EMPTY => (Fault::Store, "the node has children in ZooKeeper"),
        Code::NO_CHILDREN_FOR_EPHEMERALS => (
            Fault::Store,
            "the parent is an ephemeral node of ZooKeeper, which cannot have children: use another key",
        ),
        Code::NO_AUTH => (
            Fault::Denied,
            "ZooKeeper's user lacks a permission on the node: see its access control list (`getAcl`), and the user and \
             password of the URL",
        ),
        Code::AUTH_FAILED => (Fault::Denied, "ZooKeeper refuses the user or the password"),
        Code::INVALID_ACL => (
            Fault::Denied,
            "a node that only its creator may change needs a user: write `zookeeper://USER:PASSWORD@HOST`",
        ),
        Code::BAD_ARGUMENTS => (Fault::Invalid, "ZooKeeper does not allow the path or the request"),
        Code(-6) => (Fault::Unsupported, "this ZooKeeper is older than 3.5.3"),
        Code(-125) => (
            Fault::Limit,
            "the quota of the node's folder in ZooKeeper is used up",
        ),
        Code::SESSION_EXPIRED => (Fault::Unavailable, "the session in ZooKeeper has ended"),
        Code::SESSION_MOVED => (
            Fault::Unavailable,
            "the session has moved to another connection to ZooKeeper",
        ),
        Code(-119) => (
            Fault::Unavailable,
            "this server of ZooKeeper has lost the majority, and serves reads only",
        ),
        Code(-127) => (
            Fault::Unavailable,
            "ZooKeeper is overloaded: see how long its disk takes to sync",
        ),
        _ => {
            let message = "ZooKeeper could not carry out the request: see its log";
            return (Fault::Store, Effect::Unknown, message);
        }
    };
    (fault, Effect::None, message)
}

/// Error for a setting or an argument that is not valid. Nothing was sent.
pub(crate) fn invalid(message: impl fmt::Display) -> BackendError {
    BackendError::new(Fault::Invalid, Effect::None, message.to_string())
}

/// Error for a user whose name ZooKeeper would cut.
pub(crate) fn colon_in_user() -> BackendError {
    invalid(
        "the user's name contains a colon, at which ZooKeeper ends it (scheme `digest`): use another user",
    )
}

/// Error for a request that is longer than ZooKeeper reads.
pub(crate) fn too_large(limit: usize) -> BackendError {
    let message =
        format!("the request is larger than the {limit} bytes that ZooKeeper reads (`jute.maxbuffer`)");
    BackendError::new(Fault::Limit, Effect::None, message)
}

/// Error for requests after the end of the session.
pub(crate) fn session_ended(effect: Effect) -> BackendError {
    let message = "the session in ZooKeeper has ended";
    BackendError::because(Fault::Unavailable, effect, message, SessionEnded)
}

/// Error for a request whose connection broke before the reply.
pub(crate) fn broken(effect: Effect, cause: &str) -> BackendError {
    let message = "the connection to ZooKeeper broke before the reply";
    BackendError::because(Fault::Unavailable, effect, message, cause)
}

/// Error for a request that was not answered in time.
pub(crate) fn unanswered(limit: Duration, effect: Effect) -> BackendError {
    let message = format!("ZooKeeper did not answer within {limit:?}");
    BackendError::new(Fault::Unavailable, effect, message)
}

/// Error for a request that was not sent in time, because no server could be reached.
pub(crate) fn unsent(limit: Duration) -> BackendError {
    let message = format!(
        "no server of ZooKeeper could be reached within {limit:?}: see whether a majority of them runs"
    );
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// Error for a reply that is no message of ZooKeeper.
pub(crate) fn malformed(effect: Effect) -> BackendError {
    let message = "the reply is no message of ZooKeeper: see what listens at this address";
    BackendError::new(Fault::Store, effect, message)
}

/// Error for a host that closed the connection, or sent something else, in place of an answer to the connect.
pub(crate) fn not_greeted(host: &Host, is_secure: bool, cause: &dyn fmt::Display) -> BackendError {
    let speaks = if is_secure {
        ", and whether it asks for a certificate of ours (`cert`, `key`)"
    } else {
        ", and whether that port speaks TLS (`zookeepers://`)"
    };
    let message = format!(
        "ZooKeeper at {host} refuses the connection: see whether a majority of the servers runs{speaks}"
    );
    BackendError::because(Fault::Unavailable, Effect::None, message, cause.to_string())
}

/// Error for a server that did not answer while the client connected.
pub(crate) fn not_connected(host: &Host, limit: Duration) -> BackendError {
    let message = format!(
        "ZooKeeper at {host} did not answer within {limit:?}: see whether a majority of the servers runs"
    );
    BackendError::new(Fault::Unavailable, Effect::None, message)
}
