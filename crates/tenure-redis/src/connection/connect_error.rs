//! Errors of attempts to connect. Their effect is `None`, because no call was sent.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use redis::{ErrorKind, RedisError};
use tenure_backend::{BackendError, Effect, Fault};
use tenure_endpoint::Host;

use crate::claims::refusal::{Refusal, WRONG_PASSWORD};
use crate::config::Config;
use crate::error::cause_of;

pub(crate) enum ConnectError {
    Redis(RedisError),
    Translated(BackendError),
}

impl From<RedisError> for ConnectError {
    fn from(error: RedisError) -> Self {
        ConnectError::Redis(error)
    }
}

impl From<BackendError> for ConnectError {
    fn from(error: BackendError) -> Self {
        ConnectError::Translated(error)
    }
}

impl ConnectError {
    /// Translates the error of an attempt to connect; `config` provides details for the message.
    pub(crate) fn translate(self, config: &Config) -> BackendError {
        let error = match self {
            ConnectError::Translated(error) => return error,
            ConnectError::Redis(error) => error,
        };
        if error.kind() == ErrorKind::AuthenticationFailed {
            return BackendError::new(Fault::Denied, Effect::None, WRONG_PASSWORD);
        }
        if error.kind() == ErrorKind::Parse && !ends_early(&error) {
            return not_redis(&error, config);
        }
        let Some(refusal) = Refusal::of(&error) else {
            return unreachable(&error, config);
        };
        let refused = handshake_error(refusal.during_handshake(), config);
        BackendError::because(
            refused.fault(),
            Effect::None,
            refused.to_string(),
            cause_of(&refused),
        )
    }
}

/// Returns whether the connection ended in the middle of a reply. What came until then is right.
fn ends_early(error: &RedisError) -> bool {
    error.to_string().contains("end of input")
}

/// Error for a server whose answer no Redis gives. Leaves the answer out: it may be long.
fn not_redis(error: &RedisError, config: &Config) -> BackendError {
    let address = config.address();
    let message = format!("what answers at {address} is not Redis: see whether the port is right");
    let why = error.to_string();
    let why = why.lines().next().unwrap_or_default();
    BackendError::because(Fault::Store, Effect::None, message, why.to_owned())
}

fn unreachable(error: &RedisError, config: &Config) -> BackendError {
    let address = config.address();
    // A server that expects TLS closes a plain-text connection, so the message suggests TLS.
    let speaks = match config.tls {
        None if error.is_connection_dropped() => ", and whether that port speaks TLS (`rediss://`)",
        _ => "",
    };
    unavailable_because(
        format!("Redis at {address} cannot be reached: see whether it runs there{speaks}"),
        error,
    )
}

/// Error for a refusal during login, or while the scripts were loaded.
fn handshake_error(refusal: Refusal<'_>, config: &Config) -> BackendError {
    let Refusal { code, details } = refusal;
    let (fault, message) = if code == "ERR" && details.contains("out of range") {
        let message = format!(
            "this Redis has no database {}: name another in the URL's path, of the 16 that are usual `/0` to `/15`, or set \
             `databases` in the server's configuration",
            config.database
        );
        (Fault::Invalid, message)
    } else if code == "ERR" && details.contains("unknown command") {
        let message = "this server does not know what locks need: a sentinel (write `redis+sentinel://HOST/MASTER`, \
                       or name the Redis server itself), or a Redis without scripts";
        (Fault::Unsupported, message.to_owned())
    } else {
        return refusal.error();
    };
    // Cuts off the command's arguments, which Redis repeats in its error for an unknown command.
    let why = details.split(", with args").next().unwrap_or(details);
    BackendError::because(fault, Effect::None, message, why.to_owned())
}

/// Error for an attempt that took too long.
pub(crate) fn timed_out(config: &Config) -> BackendError {
    let (address, limit) = (config.address(), config.connect_timeout);
    let speaks = match config.tls {
        Some(_) => ", and speaks TLS at that port",
        None => "",
    };
    unavailable(format!(
        "Redis at {address} did not accept the connection within {limit:?}: see whether it runs there{speaks}"
    ))
}

/// Error for a call that could not wait until the connection was opened again.
pub(crate) fn too_slow(config: &Config, limit: Duration) -> BackendError {
    let address = config.address();
    unavailable(format!(
        "Redis at {address} did not accept a new connection within {limit:?}: the client goes on trying"
    ))
}

/// Error for an attempt that took too long because a sentinel promotes a replica.
pub(crate) fn promoting(config: &Config) -> BackendError {
    let (address, limit) = (config.address(), config.connect_timeout);
    unavailable(format!(
        "a replica is being promoted to the master {address}, and that has taken longer than {limit:?}: try again"
    ))
}

/// Error if the server was reached, but the TLS handshake failed.
#[cfg(feature = "tls")]
pub(crate) fn no_tls(server: &Host, error: impl fmt::Display) -> BackendError {
    let message = format!(
        "Redis at {server} was reached, but no TLS can be spoken with it: see whether that port is its `tls-port`, which \
         authority signed its certificate (`ca`), and whether it asks for one of ours (`cert`, `key`)"
    );
    lasting(message, error)
}

/// Error for a TLS alert by which the server refuses the client's certificate, or demands one. `None` for any other error
/// of a read.
#[cfg(feature = "tls")]
pub(crate) fn certificate_refused(error: &io::Error) -> Option<BackendError> {
    use tokio_rustls::rustls::{AlertDescription as Alert, Error};

    let Some(Error::AlertReceived(alert)) = error.get_ref()?.downcast_ref() else {
        return None;
    };
    let message = match alert {
        Alert::CertificateRequired => {
            "Redis demands a certificate of its clients: write `rediss://HOST?cert=FILE&key=FILE` with the files (PEM) of one and \
             of its key"
        }
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied
        | Alert::DecryptError => {
            "Redis refuses this client's certificate, or that it has none: name one in the URL (`cert`, `key`) that is valid and \
             signed by an authority which the server trusts"
        }
        _ => return None,
    };
    Some(lasting(message.to_owned(), error))
}

/// Without TLS there are no alerts.
#[cfg(not(feature = "tls"))]
pub(crate) fn certificate_refused(_: &io::Error) -> Option<BackendError> {
    None
}

/// Error for a malformed reply to `TIME`.
pub(crate) fn no_time(server: &Host) -> BackendError {
    let message = format!(
        "Redis at {server} answers TIME with something that is no time: is a proxy between us and Redis that changes answers?"
    );
    BackendError::new(Fault::Store, Effect::None, message)
}

/// Error for a server that the sentinels named as the master, but that is a replica, or that they replaced during the
/// attempt.
pub(crate) fn not_yet_master(server: &Host) -> BackendError {
    unavailable(format!(
        "{server} is not the master now, though the sentinels named it: a failover may be under way, so try again"
    ))
}

/// Error if two connections to one address reached two servers, or `INFO` shows no `run_id` to compare: replicas of the
/// wrong server might acknowledge.
pub(crate) fn two_servers(server: &Host) -> BackendError {
    unavailable(format!(
        "two connections to {server} reached different servers, or INFO does not show a `run_id`, so no replica can be asked \
         to acknowledge a lock: name one server, or leave `replicas` out"
    ))
}

/// Error for callers that waited for an attempt to connect, whose task ended with its runtime.
pub(crate) fn abandoned() -> BackendError {
    unavailable("connecting to Redis was given up with the runtime that did it: try again")
}

/// Error for a host name that no name server knows.
pub(crate) fn unknown_host(server: &Host, error: &io::Error) -> BackendError {
    let message = format!("the host name of {server} is not known: see whether it is spelled right");
    lasting(message, error)
}

/// A cause that lasts until an operator changes something, if the first attempt to connect meets it. A client that
/// reconnects waits for it to pass: a name server may be away, or a certificate may be replaced.
#[derive(Debug)]
struct Lasting(String);

impl fmt::Display for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Lasting {}

/// Returns whether an error is permanent at the first attempt; see [`of_first_attempt`].
pub(crate) fn is_lasting(error: &BackendError) -> bool {
    error.source().is_some_and(|cause| cause.is::<Lasting>())
}

pub(crate) fn lasting(message: String, why: impl fmt::Display) -> BackendError {
    BackendError::because(
        Fault::Unavailable,
        Effect::None,
        message,
        Lasting(why.to_string()),
    )
}

/// Makes an error permanent whose cause is [`Lasting`]: for the first attempt to connect.
pub(crate) fn of_first_attempt(error: BackendError) -> BackendError {
    match error.source().and_then(|cause| cause.downcast_ref::<Lasting>()) {
        Some(Lasting(why)) => {
            BackendError::because(Fault::Store, error.effect(), error.to_string(), why.clone())
        }
        None => error,
    }
}

fn unavailable(message: impl Into<Box<str>>) -> BackendError {
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

fn unavailable_because(message: String, why: impl fmt::Display) -> BackendError {
    BackendError::because(Fault::Unavailable, Effect::None, message, why.to_string())
}

#[cfg(test)]
mod tests {
    use tenure_endpoint::is_unknown_host;

    use super::*;

    #[test]
    fn an_unknown_host_is_permanent_at_the_first_attempt_only() {
        let server = Host::new("cash.example", 6379);
        let text = "failed to lookup address information: Name or service not known";
        let error = io::Error::other(text);
        assert!(is_unknown_host(&error));
        assert!(!is_unknown_host(&io::Error::other(
            "Temporary failure in name resolution"
        )));
        let later = unknown_host(&server, &error);
        assert!(later.is_transient());
        let first = of_first_attempt(later);
        assert_eq!(first.fault(), Fault::Store);
        assert_eq!(first.source().expect("a cause").to_string(), text);
        let refused = unavailable_because("closed".to_owned(), "refused");
        assert!(of_first_attempt(refused).is_transient());
    }
}
