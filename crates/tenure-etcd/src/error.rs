//! What the errors of etcd and of the connection mean: fault, effect, whether to stay with the member, and what to do.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use tenure_backend::{BackendError, Effect, Fault};
use tenure_endpoint::Host;
use tonic::{Code, Status};

/// What the client does after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Asks the same member.
    Stay,
    /// Asks another member.
    Leave,
    /// Logs in again.
    LogIn,
}

/// Why a member did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: BackendError,
    pub(crate) next: Next,
}

impl Failure {
    /// Returns whether etcd knows no users, so that a login is neither possible nor needed.
    pub(crate) fn is_without_users(&self) -> bool {
        says(&self.error, "authentication is not enabled")
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Failure {
            error,
            next: Next::Stay,
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        // A status that comes from etcd has no source, one that reports a failure of the connection has.
        let Some(cause) = status.source().map(deepest) else {
            return failure(explain(status.code(), status.message()), status.message());
        };
        let effect = match cause.downcast_ref::<Words>() {
            Some(Words { was_sent: false, .. }) => Effect::None,
            _ => Effect::Unknown,
        };
        failure(elsewhere(effect, BROKEN), &cause.to_string())
    }
}

/// A failure with this meaning, and the words that it has in etcd or in the connection.
fn failure((fault, effect, next, message): Meaning, words: &str) -> Failure {
    let (text, was_sent) = (words.to_owned(), true);
    let error = BackendError::because(fault, effect, message, Words { text, was_sent });
    Failure { error, next }
}

/// The error of a watch that etcd has ended, by its reason.
pub(crate) fn of_watch(reason: &str) -> BackendError {
    let (fault, _, next, message) = explain(Code::Unknown, reason);
    failure((fault, Effect::None, next, message), reason).error
}

/// Why a request failed, in the words of etcd or of the connection.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) text: String,
    /// Whether the request was sent.
    pub(crate) was_sent: bool,
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Words {}

/// The cause of an error that has no further cause.
pub(crate) fn deepest<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> &'a (dyn std::error::Error + 'static) {
    error.source().map_or(error, deepest)
}

/// etcd's words for a database that has reached its quota.
const DATABASE_FULL: &str = "database space exceeded";

const BROKEN: &str = "etcd did not answer: the connection broke";

/// Returns whether a request failed because its lease does not exist. It then had no effect.
pub fn is_missing_lease(error: &BackendError) -> bool {
    says(error, "requested lease not found")
}

/// Returns whether etcd refused a request because its database has reached its quota.
pub(crate) fn is_database_full(error: &BackendError) -> bool {
    says(error, DATABASE_FULL)
}

/// Returns whether etcd has answered with these words.
fn says(error: &BackendError, known: &str) -> bool {
    let words = error.source().and_then(|source| source.downcast_ref::<Words>());
    words.is_some_and(|words| words.text.contains(known))
}

/// The meaning of an answer of etcd: fault, effect, what is next, and what to do.
type Meaning = (Fault, Effect, Next, &'static str);

/// The meaning of an answer of etcd. Its words decide first, because etcd gives several errors the same code.
fn explain(code: Code, words: &str) -> Meaning {
    let says = |known: &str| words.contains(known);
    match code {
        _ if says("no leader") => elsewhere(
            Effect::None,
            "this member of etcd has no leader: see whether a majority of the members runs and can reach each other",
        ),
        _ if says("not supported for learner") => elsewhere(
            Effect::None,
            "this member of etcd is a learner, which serves no locks: promote it, or leave it out of the URL",
        ),
        _ if says("server stopped") => elsewhere(Effect::Unknown, "this member of etcd is shutting down"),
        _ if says("request timed out") => elsewhere(
            Effect::Unknown,
            "etcd could not agree on the request in time: see whether a majority of the members runs, and how long their \
             disks take to sync",
        ),
        _ if says("leader changed") => {
            let message = "etcd elected another leader during the request";
            (Fault::Unavailable, Effect::Unknown, Next::Stay, message)
        }
        _ if says("too many requests") => refused(
            Fault::Unavailable,
            "etcd is overloaded: see how long its disk takes to sync",
        ),
        _ if says(DATABASE_FULL) => {
            let message = "etcd's database has reached its quota: compact and defragment it, then disarm the alarm \
                           (`etcdctl alarm disarm`)";
            // etcd may have carried out the request that reached the quota.
            (Fault::Store, Effect::Unknown, Next::Stay, message)
        }
        _ if says("request is too large") => refused(
            Fault::Limit,
            "the request is larger than etcd allows (`--max-request-bytes`)",
        ),
        _ if says("permission denied") => refused(
            Fault::Denied,
            "etcd's user lacks a permission: grant its role `readwrite` on the prefix of the locks",
        ),
        _ if says("invalid user ID or password") => refused(
            Fault::Denied,
            "etcd refuses the user or the password: correct them in the URL or its file",
        ),
        _ if says("user name is empty") => log_in("etcd asks for a user: write `etcd://USER:PASSWORD@HOST`"),
        _ if says("revision of auth store is old") => {
            log_in("etcd's users or roles have changed since this client's login")
        }
        // A watch is refused in words alone.
        _ if code == Code::Unauthenticated || says("invalid auth token") => {
            log_in("etcd does not know this client's login any more")
        }
        Code::Unimplemented => refused(
            Fault::Unsupported,
            "this is no etcd, or one that is older than 3.4",
        ),
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::PermissionDenied => refused(Fault::Store, "etcd refuses the request"),
        Code::DataLoss => refused(
            Fault::Store,
            "etcd says that its members' data differ: see its documentation on corruption",
        ),
        _ => elsewhere(Effect::Unknown, "etcd could not carry out the request"),
    }
}

fn refused(fault: Fault, message: &'static str) -> Meaning {
    (fault, Effect::None, Next::Stay, message)
}

fn log_in(message: &'static str) -> Meaning {
    (Fault::Denied, Effect::None, Next::LogIn, message)
}

fn elsewhere(effect: Effect, message: &'static str) -> Meaning {
    (Fault::Unavailable, effect, Next::Leave, message)
}

/// Error for a setting or an argument that is not valid. Nothing was sent.
pub(crate) fn invalid(message: impl fmt::Display) -> BackendError {
    BackendError::new(Fault::Invalid, Effect::None, message.to_string())
}

/// Error for an attempt to connect, during which the member refused or broke the first request.
pub(crate) fn not_greeted(host: &Host, is_secure: bool, failed: &BackendError) -> BackendError {
    let words = failed.source().map(ToString::to_string).unwrap_or_default();
    if failed.to_string() != BROKEN {
        return BackendError::because(failed.fault(), Effect::None, failed.to_string(), words);
    }
    let speaks = if is_secure {
        ""
    } else {
        ", and whether that port speaks TLS (`etcds://`)"
    };
    let message = format!("etcd at {host} cannot be reached: see whether it runs there{speaks}");
    BackendError::because(Fault::Unavailable, Effect::None, message, words)
}

/// Error for a member that did not answer while the client connected.
pub(crate) fn not_connected(host: &Host, limit: Duration) -> BackendError {
    let message = format!("etcd at {host} did not answer within {limit:?}: see whether it runs there");
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// Error for a request that was not answered in time.
pub(crate) fn unanswered(limit: Duration) -> BackendError {
    let message = format!("etcd did not answer within {limit:?}");
    BackendError::new(Fault::Unavailable, Effect::Unknown, message)
}

/// Error for a login token that no header can carry.
pub(crate) fn no_token() -> BackendError {
    let message =
        "etcd answers a login with a token that no request can carry: is a proxy between us and etcd?";
    BackendError::new(Fault::Store, Effect::None, message)
}

/// Error for a stream that has ended, and for a watch whose reader was too slow.
pub(crate) fn ended() -> BackendError {
    let message = "the stream from etcd has ended: open it again";
    BackendError::new(Fault::Unavailable, Effect::None, message)
}
