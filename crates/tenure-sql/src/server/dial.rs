//! Connecting: tries each place in turn until one accepts the login and writes.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_backend::{BackendError, ServerClock};
pub(crate) use tenure_endpoint::look_up;
use tenure_endpoint::{Credentials, Refused, first_to_serve};

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
    fn is_closed(&mut self) -> bool;

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
    let last = first.load(Ordering::Relaxed);
    let turns = (0..places.len()).map(|turn| (last + turn) % places.len());
    let open = async |index: usize| {
        let session = S::connect(config, tls, &places[index]).await?;
        first.store(index, Ordering::Relaxed);
        Ok(session)
    };
    let unanswered = |index: usize, limit| not_connected(&places[index], limit);
    let served = first_to_serve(turns, config.connect_timeout, open, unanswered).await;
    served.map_err(Refused::into_error)
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
