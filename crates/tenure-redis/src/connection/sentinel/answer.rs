//! What one sentinel answers about the master, or why it does not answer.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError};
use tenure_backend::{BackendError, Effect, Fault};
use tenure_endpoint::Host;

use crate::connection::connect_error::{ConnectError, is_lasting, lasting};

/// Properties of a master or a sentinel, as a sentinel reports them.
type Fields = HashMap<String, String>;

/// One sentinel's answer.
pub(crate) struct Answer {
    pub(super) sentinel: Host,
    pub(crate) master: Host,
    /// The sentinel is promoting a replica. It does not name the replica as the master yet.
    pub(super) is_promoting: bool,
    /// The configuration epoch. It grows with each failover.
    pub(super) epoch: u64,
    /// The other sentinels of this master.
    pub(super) others: Vec<Host>,
    /// Number of replicas, including those that are down.
    pub(super) replicas: u64,
    /// Number of sentinels that must agree that the master is down.
    pub(crate) quorum: u64,
}

impl Answer {
    /// Asks a sentinel for the master, and for the other sentinels.
    pub(super) async fn ask(
        connection: &mut MultiplexedConnection,
        sentinel: &Host,
        master: &str,
    ) -> Result<Self, Failure> {
        let mut questions = redis::pipe();
        for question in ["GET-MASTER-ADDR-BY-NAME", "MASTER", "SENTINELS"] {
            questions.cmd("SENTINEL").arg(question).arg(master);
        }
        let (address, master, others): (Option<(String, u16)>, Fields, Vec<Fields>) =
            questions.query_async(connection).await?;
        let (name, port) = address.ok_or(Failure::UnknownMaster)?;
        let number = |name| master.get(name).and_then(|value| value.parse().ok());
        let host = |fields: &Fields| Some(Host::new(fields.get("ip")?, fields.get("port")?.parse().ok()?));
        let state = master.get("failover-state").map(String::as_str);
        Ok(Answer {
            sentinel: sentinel.clone(),
            master: Host::new(name, port),
            is_promoting: matches!(state, Some("send_slaveof_noone" | "wait_promotion")),
            epoch: number("config-epoch").unwrap_or(0),
            others: others.iter().filter_map(host).collect(),
            replicas: number("num-slaves").unwrap_or(0),
            quorum: number("quorum").unwrap_or(0),
        })
    }
}

/// Why a sentinel did not name the master.
#[derive(PartialEq, Eq)]
pub(crate) enum Failure {
    UnknownMaster,
    NotASentinel,
    /// The sentinel refused the user, the password or a command, or asks for a password.
    Login,
    /// A cause that lasts until an operator changes something, such as a refused certificate. The text says which.
    Lasting(String),
    /// Any other failure, such as a sentinel that cannot be reached. The text says why.
    Silent(String),
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Redis(error) => error.into(),
            ConnectError::Translated(error) => error.into(),
        }
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        let why = error.source().map_or_else(String::new, |why| format!(": {why}"));
        let words = format!("{error}{why}");
        match is_lasting(&error) {
            true => Failure::Lasting(words),
            false => Failure::Silent(words),
        }
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        let words = error.to_string();
        let is_login = error.kind() == ErrorKind::AuthenticationFailed
            || ["NOAUTH", "WRONGPASS", "NoPerm", "AUTH "]
                .iter()
                .any(|word| words.contains(word));
        if words.contains("unknown command") {
            Failure::NotASentinel
        } else if words.contains("No such master") {
            Failure::UnknownMaster
        } else if is_login {
            Failure::Login
        } else {
            Failure::Silent(words)
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::UnknownMaster => "a sentinel monitors no master of this name",
            Failure::NotASentinel => "a host is no sentinel",
            Failure::Login => "a sentinel refuses the login or a command",
            Failure::Lasting(why) | Failure::Silent(why) => why,
        })
    }
}

pub(super) fn silent() -> Failure {
    Failure::Silent("a sentinel did not answer".to_owned())
}

/// Error for sentinels of which none named the master. The error is permanent if all failed for one reason that only an
/// operator can remove: no such master, no sentinel at the address, or a refused login. It is [`lasting`] if all failures
/// are.
pub(super) fn no_master(master: &str, asked: &[Host], failures: &[Failure]) -> BackendError {
    let all = |kind: &Failure| failures.iter().all(|failure| failure == kind);
    let hosts = asked.iter().map(Host::to_string).collect::<Vec<_>>().join(", ");
    let (fault, message) = if all(&Failure::UnknownMaster) {
        let message = format!(
            "the sentinels {hosts} monitor no master `{master}`: write the name that `SENTINEL MASTERS` shows into the \
             URL's path"
        );
        (Fault::Invalid, message)
    } else if all(&Failure::NotASentinel) {
        let message = format!(
            "{hosts} is no sentinel: name the sentinels, which usually listen at port 26379, or write `redis://HOST` for \
             a single server"
        );
        (Fault::Invalid, message)
    } else if all(&Failure::Login) {
        let message = "the sentinels refuse the login or the command `SENTINEL`: name their user in `sentinel_user` and \
                       the file of their password in `sentinel_password_file`; the URL's user and password are those \
                       of the servers";
        (Fault::Denied, message.to_owned())
    } else {
        let message = format!("no sentinel names the master `{master}`: see whether they run at {hosts}");
        (Fault::Unavailable, message)
    };
    let why: Vec<_> = failures.iter().map(Failure::to_string).collect();
    let why = why.join("; ");
    if failures
        .iter()
        .all(|failure| matches!(failure, Failure::Lasting(_)))
    {
        return lasting(message, why);
    }
    BackendError::because(fault, Effect::None, message, why)
}
