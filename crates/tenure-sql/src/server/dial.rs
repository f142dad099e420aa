//! Connecting: tries each place in turn until one accepts the login and writes.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_backend::{BackendError, Effect, Fault, ServerClock};
use tenure_endpoint::{Credentials, Host, addresses};
use tokio::time::timeout;

use super::config::{Config, Place};
use super::error::{Failure, invalid, not_connected};
use super::values::{Answer, Value};

/// A connection to one kind of database server. Its layouts add what they ask of it.
pub(crate) trait Session: Sized + Send + 'static {
    /// The settings of TLS, as the client crate wants to have them.
    type Tls: Send + Sync;

    /// Reads the certificates if TLS may be used. Fails if they are invalid.
    fn tls(config: &Config) -> Result<Self::Tls, BackendError>;

    /// Connects and logs in. Fails if the server accepts no writes.
    fn connect(
        config: &Config,
        tls: &Self::Tls,
        place: &Place,
    ) -> impl Future<Output = Result<Self, BackendError>> + Send;

    /// Returns whether the server or the network has closed the connection, as far as is known without a request.
    fn is_closed(&self) -> bool;

    /// A lower bound of the server's clock, from the replies on this connection.
    fn clock(&self) -> &ServerClock;

    /// Notes the server's time, which a reply has brought.
    fn learn(&self, time: i64);

    /// Runs a statement, as a transaction of its own.
    fn run(
        &mut self,
        sql: &str,
        params: &[Value<'_>],
    ) -> impl Future<Output = Result<Answer, Failure>> + Send;

    /// Runs statements without parameters.
    fn script(&mut self, script: &str) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Connects to one of the places that the settings name. `first` is the index of the one that answered last: it is tried
/// first.
pub(super) async fn dial<S: Session>(
    config: &Config,
    tls: &S::Tls,
    first: &AtomicUsize,
) -> Result<S, BackendError> {
    let places = &config.places;
    // A silent host must leave time for the others.
    let limit = config.connect_timeout / u32::try_from(places.len()).unwrap_or(u32::MAX).max(1);
    let last = first.load(Ordering::Relaxed);
    let mut failed: Option<BackendError> = None;
    for index in (last..places.len()).chain(0..last) {
        let place = &places[index];
        let opened = timeout(limit, S::connect(config, tls, place)).await;
        match opened.unwrap_or_else(|_| Err(not_connected(place, limit))) {
            Ok(session) => {
                first.store(index, Ordering::Relaxed);
                return Ok(session);
            }
            // A wrong password would be refused everywhere, and repeating it may lock the user out.
            Err(error) if error.fault() == Fault::Denied => return Err(error),
            // If one host may answer later, the failure is transient, whatever the others say.
            Err(error) if error.is_transient() => failed = Some(error),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Err(failed.unwrap_or_else(|| invalid("the URL names no host")))
}

/// Looks up the addresses of a host.
pub(crate) async fn look_up(host: &Host) -> Result<Vec<SocketAddr>, BackendError> {
    let found = addresses(host).await;
    found.map_err(|error| {
        let name = host.name();
        let message = format!("the host {name} is not known: correct the URL, or see the name server");
        BackendError::because(Fault::Store, Effect::None, message, error.to_string())
    })
}

/// The user to log in as: by default that of the operating system, as the databases' own clients do.
pub(crate) fn user(config: &Config, credentials: &Credentials) -> Result<String, BackendError> {
    let own_name = || {
        ["USER", "LOGNAME"]
            .iter()
            .find_map(|name| std::env::var(name).ok())
    };
    let user = credentials.user_name().map(str::to_owned).or_else(own_name);
    user.filter(|user| !user.is_empty()).ok_or_else(|| {
        let scheme = config.database.names().scheme;
        invalid(format!(
            "the URL names no user: write `{scheme}://USER:PASSWORD@HOST/DATABASE`"
        ))
    })
}
